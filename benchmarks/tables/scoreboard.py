"""The scoreboard: all rows of a suite on each data set, scores beside times and memory, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import mean, stdev

from benchmarks.record import Key, Record
from benchmarks.suites.suite import FULL, SHOWN, Row, Suite
from benchmarks.tables.text import markdown_table, triple, value_shown

__all__ = ["scoreboard"]

_SCORES = ("P@1 / 3 / 5", "PSP@1 / 3 / 5", "ECE@1 / 5")


def scoreboard(suite: Suite, latest: Mapping[Key, Record], every: Sequence[Record] = ()) -> str:
    """Write a table for each data set, with the scores of the suite or, if it names none, the usual ones.

    Times are ratios to the suite's reference row on the same data set, or left out: seconds on one machine mean little
    on another. A row that was measured on another machine than the reference, or on other cores of it, has no ratios.
    Of `every` record, the reference that was measured closest in time to a row counts for it, since the same machine is
    faster on one day than on another. A row with several seeds shows means, and the standard deviation of its first
    score.
    """
    parts = []
    for dataset in suite.datasets:
        rows, skipped = [], []
        reference = _runs(suite, suite.reference, dataset, latest) if suite.reference else []
        earlier = [one for one in every if (one.get("dataset"), one.get("row")) == (dataset, suite.reference)]
        reference += [one for one in earlier if "skipped" not in one and one not in reference] if reference else []
        for row in suite.rows:
            if dataset not in row.datasets:
                continue
            for budget in [FULL] if row.peer else suite.budgets:
                found = _runs(suite, row.name, dataset, latest, budget)
                name = row.name if budget == FULL else f"{row.name}, {budget}"
                if found:
                    rows.append([name, *_scores(suite, found), *_costs(found, reference)])
                skipped += _reasons(row, name, dataset, budget, latest)
        if rows:
            times = [f"{what} ÷ {suite.reference}" for what in ("train", "predict")] if reference else []
            header = [dataset, *(_SCORES if suite.scores == SHOWN else suite.scores), *times, "peak memory"]
            parts.append(markdown_table(header, rows))
        parts += [f"{reason}\n" for reason in skipped]
    return "\n".join(parts)


def _runs(
    suite: Suite, row: str | None, dataset: str, latest: Mapping[Key, Record], budget: str = FULL
) -> list[Record]:
    """Return what was measured of a row, one record per seed."""
    seeds = next((one.seeds for one in suite.rows if one.name == row), 0)
    found = (latest.get((dataset, row, budget, seed)) for seed in range(seeds))
    return [record for record in found if record is not None and "skipped" not in record]


def _reasons(row: Row, name: str, dataset: str, budget: str, latest: Mapping[Key, Record]) -> list[str]:
    """Say why a row, or some of its starts, were not measured: each reason once."""
    found = (latest.get((dataset, row.name, budget, seed), {}) for seed in range(row.seeds))
    why = Counter(record["skipped"] for record in found if "skipped" in record)
    of_several = {reason: f" in {n} of {row.seeds} starts" if row.seeds > 1 else "" for reason, n in why.items()}
    return [f"{name} was skipped{starts}: {reason}" for reason, starts in of_several.items()]


def _scores(suite: Suite, runs: list[Record]) -> list[str]:
    """Show means over all starts, or nothing where some start lacks the score."""
    measured = [{**run, **run["scores"]} for run in runs]
    values = {score: [one[score] for one in measured if score in one] for score in (*suite.scores, *runs[0]["scores"])}
    scores = {score: mean(found) for score, found in values.items() if len(found) == len(runs)}
    first, is_usual = suite.scores[0], suite.scores == SHOWN
    if is_usual:
        shown = [triple(scores, "P"), triple(scores, "PSP"), triple(scores, "ECE", (1, 5))]
    else:
        shown = [value_shown(score, scores[score]) if score in scores else "" for score in suite.scores]
    if len(runs) > 1 and first in scores:
        deviation = stdev(values[first])
        shown[0] += f" (± {f'{deviation:.1f}' if is_usual else value_shown(first, deviation)} in {len(runs)} starts)"
    return shown


def _costs(runs: list[Record], reference: list[Record]) -> list[str]:
    times = [_ratio(runs, reference, what) for what in ("train_seconds", "predict_seconds")] if reference else []
    memory = f"{mean(run['peak_mb'] for run in runs):.0f} MB"
    return [*times, memory]


def _ratio(runs: list[Record], reference: list[Record], what: str) -> str:
    beside = [min(reference, key=lambda one: _apart(one, run)) for run in runs]
    if len({_where(run) for run in (*runs, *beside)}) > 1:
        return ""
    ratio = mean(run[what] for run in runs) / mean(run[what] for run in beside)
    return f"{ratio:.2g}×" if ratio < 10 else f"{ratio:.0f}×"


def _apart(one: Record, other: Record) -> float:
    """Return the seconds between two records; 0 where one does not tell."""
    whens = [datetime.fromisoformat(run["when"]) for run in (one, other) if "when" in run]
    return abs((whens[0] - whens[1]).total_seconds()) if len(whens) == 2 else 0.0


def _where(run: Record) -> str:
    """Identify machine and cores: only times that agree in both are compared."""
    return repr((sorted(run.get("machine", {}).items()), run.get("threads")))
