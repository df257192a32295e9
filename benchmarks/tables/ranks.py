"""Mean ranks of methods over data sets, as Markdown: a peer counts with its better result on two kinds of rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.stats import rankdata

from benchmarks.record import Key, Record
from benchmarks.suites.suite import FULL, SHOWN, Suite
from benchmarks.tables.text import markdown_table, triple

__all__ = ["ranks"]

_OUR_ROWS = ", our rows"


def ranks(suite: Suite, latest: Mapping[Key, Record]) -> str:
    """Write a table of data sets and methods, and each method's mean rank on the sets where all were measured.

    The rank of a method on a set is the mean of its ranks by the scores of the suite; equal scores share a rank.
    """
    methods = [row.name for row in suite.rows if not row.name.endswith(_OUR_ROWS)]
    rows, places = [], []
    for dataset in suite.datasets:
        found = [_better(latest, dataset, name) for name in methods]
        if any(found):
            rows.append([dataset, *(triple(scores, "P") if scores else "–" for scores in found)])
        if all(found):
            values = np.array([[scores[name] for name in SHOWN] for scores in found])
            places.append(rankdata(-values.round(6), axis=0).mean(1))
    if places:
        mean = np.mean(places, axis=0)
        rows.append([f"mean rank on {len(places)} sets", *(f"{value:.1f}" for value in mean)])
    return markdown_table(["P@1 / 3 / 5", *methods], rows) if rows else ""


def _better(latest: Mapping[Key, Record], dataset: str, method: str) -> dict[str, float]:
    """Return the scores of a method, on rows as given or on ours; nothing where it was not measured."""
    records = [latest.get((dataset, name, FULL, 0), {}) for name in (method, f"{method}{_OUR_ROWS}")]
    found: list[dict[str, float]] = [record["scores"] for record in records if "scores" in record]
    return max(found, key=lambda scores: sum(scores[name] for name in SHOWN), default={})
