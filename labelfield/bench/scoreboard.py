"""The scoreboard: all rows of a suite on each data set, scores beside times and memory, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from labelfield.bench.records import Record
from labelfield.bench.suite import FULL, Row, Suite
from labelfield.tables import markdown_table

__all__ = ["scoreboard", "triple"]

_SCORES = ("P@1 / 3 / 5", "PSP@1 / 3 / 5", "ECE@1 / 5")


def triple(scores: Mapping[str, Any], name: str, ks: Sequence[int] = (1, 3, 5), digits: int = 1) -> str:
    """A score at each k, or nothing where it was not measured."""
    if f"{name}@{ks[0]}" not in scores:
        return ""
    return " / ".join(f"{scores[f'{name}@{k}']:.{digits}f}" for k in ks)


def scoreboard(suite: Suite, latest: Mapping[tuple[Any, ...], Record]) -> str:
    """A table for each data set; times are ratios to the suite's reference row on the same data set, or not shown:
    seconds of one machine mean little on another.

    A row with several seeds shows means, and the standard deviation of P@1. One that was measured on another machine
    than the reference, or on other cores of it, has no ratios.
    """
    parts = []
    for dataset in suite.datasets:
        rows, skipped = [], []
        reference = _runs(suite, suite.reference, dataset, latest) if suite.reference else []
        for row in suite.rows:
            if dataset not in row.datasets:
                continue
            for budget in [FULL] if row.peer else suite.budgets:
                found = _runs(suite, row.name, dataset, latest, budget)
                name = row.name if budget == FULL else f"{row.name}, {budget}"
                if found:
                    rows.append(_line(name, found, reference))
                skipped += _reasons(row, name, dataset, budget, latest)
        if rows:
            times = [f"{what} ÷ {suite.reference}" for what in ("train", "predict")] if reference else []
            header = [dataset, *_SCORES, *times, "peak memory"]
            parts.append(markdown_table(header, rows))
        parts += [f"{reason}\n" for reason in skipped]
    return "\n".join(parts)


def _runs(
    suite: Suite, row: str | None, dataset: str, latest: Mapping[tuple[Any, ...], Record], budget: str = FULL
) -> list[Record]:
    """What was measured of a row, one record a seed."""
    seeds = next((one.seeds for one in suite.rows if one.name == row), 0)
    found = (latest.get((dataset, row, budget, seed)) for seed in range(seeds))
    return [record for record in found if record is not None and "skipped" not in record]


def _reasons(row: Row, name: str, dataset: str, budget: str, latest: Mapping[tuple[Any, ...], Record]) -> list[str]:
    """Why a row, or some of its starts, were not measured: each reason once."""
    found = (latest.get((dataset, row.name, budget, seed), {}) for seed in range(row.seeds))
    why = Counter(record["skipped"] for record in found if "skipped" in record)
    of_several = {reason: f" in {n} of {row.seeds} starts" if row.seeds > 1 else "" for reason, n in why.items()}
    return [f"{name} was skipped{starts}: {reason}" for reason, starts in of_several.items()]


def _line(name: str, runs: list[Record], reference: list[Record]) -> list[str]:
    in_all = [score for score in runs[0]["scores"] if all(score in run["scores"] for run in runs)]
    scores = {score: mean(run["scores"][score] for run in runs) for score in in_all}
    precision = triple(scores, "P")
    if len(runs) > 1:
        precision += f" (± {stdev(run['scores']['P@1'] for run in runs):.1f} in {len(runs)} starts)"
    times = [_ratio(runs, reference, what) for what in ("train_seconds", "predict_seconds")] if reference else []
    memory = f"{mean(run['peak_mb'] for run in runs):.0f} MB"
    return [name, precision, triple(scores, "PSP"), triple(scores, "ECE", (1, 5)), *times, memory]


def _ratio(runs: list[Record], reference: list[Record], what: str) -> str:
    if len({_where(run) for run in (*runs, *reference)}) > 1:
        return ""
    ratio = mean(run[what] for run in runs) / mean(run[what] for run in reference)
    return f"{ratio:.2g}×" if ratio < 10 else f"{ratio:.0f}×"


def _where(run: Record) -> str:
    """Times are compared only between what ran on the same machine, on as many cores of it."""
    return repr((sorted(run.get("machine", {}).items()), run.get("threads")))
