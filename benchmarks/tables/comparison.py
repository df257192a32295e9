"""Published numbers beside ours, from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from benchmarks.recipes import Recipe, StudyRow
from benchmarks.record import Key, Record, Records
from benchmarks.suites.suite import FULL, Row
from benchmarks.tables.text import digits, value_shown
from labelfield.errors import DataError

__all__ = ["Line", "Ours", "behind", "compare", "difference", "is_shared", "is_worse", "long_table", "table"]

# Scores that are better the lower they are; all others are better the higher they are.
_LOWER = ("error rate %", "nlpd", "ECE@", "peak_mb")
_SECONDS = "seconds"
_NOTHING = "–"


@dataclass(frozen=True)
class Ours:
    """A measured score: the mean over random starts and, if there are several, their standard deviation."""

    mean: float
    sd: float | None = None


@dataclass(frozen=True)
class Line:
    """One row of a table on one data set (studies name none): the published and the measured scores."""

    row: str
    dataset: str | None
    paper: dict[str, float]
    ours: dict[str, Ours]
    worse: str | None
    records: tuple[Record, ...]
    starts: int = 1

    @property
    def called(self) -> str:
        """The name of its row; if some random starts were not measured, with how many were."""
        is_whole = not self.records or len(self.records) >= self.starts
        return self.row if is_whole else f"{self.row} ({len(self.records)} of {self.starts} starts)"


def compare(recipe: Recipe, records: Records) -> list[Line]:
    """Return a line for every row on every data set, measured or not. A figure has none."""
    if recipe.kind == "study":
        return [_study_line(row, records) for row in recipe.study_rows]
    if recipe.kind == "figure" or recipe.suite is None:
        return []
    cells = records.latest(recipe.suite)
    budgets = tuple(recipe.suite.budgets)
    return [
        _run_line(row, dataset, budget, len(budgets) > 1, recipe.scores, cells)
        for dataset in recipe.suite.datasets
        for row in recipe.suite.rows
        if dataset in row.datasets
        for budget in ((FULL,) if row.peer else budgets)
    ]


def _run_line(
    row: Row, dataset: str, budget: str, is_named: bool, scores: Sequence[str], cells: dict[Key, Record]
) -> Line:
    found = (cells.get((dataset, row.name, budget, seed)) for seed in range(row.seeds))
    records = tuple(record for record in found if record is not None and "skipped" not in record)
    ours = {}
    for score in scores:
        values = [value for record in records if (value := _score(record, score)) is not None]
        if values:
            ours[score] = Ours(fmean(values), stdev(values) if len(values) > 1 else None)
    name = f"{row.name}, {budget}" if is_named and not row.peer else row.name
    return Line(name, dataset, row.paper.get(dataset, {}), ours, row.worse, records, row.seeds)


def _score(record: Record, score: str) -> float | None:
    value = record.get("scores", {}).get(score, record.get(score))
    return float(value) if isinstance(value, int | float) else None


def _study_line(row: StudyRow, records: Records) -> Line:
    record = records.studies.get(row.study)
    if record is None:
        return Line(row.name, None, row.paper, {}, row.worse, ())
    ours = {score: Ours(_at(record["results"], path, row)) for score, path in row.at.items()}
    return Line(row.name, None, row.paper, ours, row.worse, (record,))


def _at(results: Any, path: tuple[str | int, ...], row: StudyRow) -> float:
    found = results
    for key in path:
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            there = ", ".join(map(str, found)) if isinstance(found, dict) else repr(found)
            raise DataError(
                f"row {row.name!r}: no {key!r} in the record {row.study}", expected=f"one of {there}"
            ) from None
    return float(found)


def is_shared(recipe: Recipe, lines: Sequence[Line]) -> bool:
    """Return whether a recipe compares times, and some were measured with other runs on the same machine."""
    runs = [record for line in lines for record in line.records if "threads" in record]
    is_timed = any(_SECONDS in score for score in recipe.scores)
    return is_timed and any(record["threads"] < record["machine"]["cores"] for record in runs)


def is_worse(score: str, paper: float, ours: float, lower_is_better: Sequence[str] = ()) -> bool:
    """Return whether ours is worse than the published number by more than rounding."""
    lower = score in lower_is_better or score.startswith(_LOWER) or _SECONDS in score
    lag = ours - paper if lower else paper - ours
    return lag > 0.5 * 10.0 ** -digits(score)


def behind(recipe: Recipe, lines: Sequence[Line]) -> list[Line]:
    """Return the lines where ours is worse than what was published, in some score."""
    return [
        line
        for line in lines
        if any(
            score in line.ours and is_worse(score, paper, line.ours[score].mean, recipe.lower_is_better)
            for score, paper in line.paper.items()
            if score in recipe.scores
        )
    ]


def difference(score: str, paper: float, ours: float) -> str:
    """Show ours minus the published number or, for seconds, how many times faster or slower ours is."""
    if _SECONDS in score:
        times = paper / ours
        return f"{times:,.0f}× faster" if times >= 1 else f"{1 / times:.1f}× slower"
    return f"{ours - paper:+.{digits(score)}f}"


def table(recipe: Recipe, lines: Sequence[Line], *, bold: str = "") -> tuple[list[str], list[list[str]]]:
    """Return header and rows: published, measured, and the difference (in `bold` where ours is worse)."""
    scores = " / ".join(recipe.scores)
    has_data = any(line.dataset for line in lines)
    has_paper = any(line.paper for line in lines)
    header = ["row", *(["data"] if has_data else [])]
    header += [f"paper: {scores}", "ours", "difference"] if has_paper else [f"ours: {scores}"]
    rows = []
    for line in lines:
        ours = " / ".join(_ours_shown(score, line.ours.get(score)) for score in recipe.scores)
        row = [line.called, *([line.dataset or ""] if has_data else [])]
        if has_paper:
            row += [_paper_shown(recipe, line), ours, _differences(recipe, line, bold)]
        else:
            row.append(ours)
        rows.append(row)
    return header, rows


def long_table(recipe: Recipe, lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """Return the same table with a row for each score, for narrow places; names are shown once."""
    rows = []
    for line in lines:
        for number, score in enumerate(recipe.scores):
            alone = replace(recipe, scores=(score,))
            names = [line.called, line.dataset or ""] if number == 0 else ["", ""]
            ours = _ours_shown(score, line.ours.get(score))
            rows.append([*names, score, _paper_shown(alone, line), ours, _differences(alone, line, "")])
    header = ["row", "data", "score", "paper", "ours", "difference"]
    kept = [number for number in range(len(header)) if any(row[number] not in ("", _NOTHING) for row in rows)]
    return [header[number] for number in kept], [[row[number] for number in kept] for row in rows]


def _ours_shown(score: str, ours: Ours | None) -> str:
    if ours is None:
        return _NOTHING
    shown = value_shown(score, ours.mean)
    return shown if ours.sd is None else f"{shown} ± {value_shown(score, ours.sd)}"


def _paper_shown(recipe: Recipe, line: Line) -> str:
    if not line.paper:
        return ""
    return " / ".join(
        value_shown(score, line.paper[score]) if score in line.paper else _NOTHING for score in recipe.scores
    )


def _differences(recipe: Recipe, line: Line, bold: str) -> str:
    if not line.paper or not line.ours:
        return ""
    parts = []
    for score in recipe.scores:
        if score not in line.paper or score not in line.ours:
            parts.append(_NOTHING)
            continue
        paper, ours = line.paper[score], line.ours[score].mean
        mark = bold if is_worse(score, paper, ours, recipe.lower_is_better) else ""
        parts.append(f"{mark}{difference(score, paper, ours)}{mark}")
    return " / ".join(parts)
