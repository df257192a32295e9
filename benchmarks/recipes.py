"""Recipes: one file per published table or figure, with the published numbers and how ours are made.

There are three kinds. `runs`: rows in the form of a suite or, with `runs_of`, other scores of another recipe's runs.
`study`: numbers that one of our studies has recorded. `figure`: a picture that one of our functions draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.paths import RECIPES, RECORDS, records_folder
from benchmarks.suites.suite import Row, Suite, parse_suite, published, worse
from benchmarks.yaml_file import YamlFile, find_file

__all__ = ["LeftOut", "Recipe", "StudyRow", "left_out", "read_recipe", "recipe_names"]

Kind = Literal["runs", "study", "figure"]
_LEFT_OUT = "left-out"
_COMMON = {"title", "where", "notes", "scores", "rows", "lower_is_better"}
_OWN = {"where", "lower_is_better"}
_STUDY_ROW_KEYS = {"at", "paper", "worse", "study"}
_RUNS_OF_ROW_KEYS = {"paper", "worse"}
_FIGURE_KEYS = {"title", "where", "notes", "figure", "options", "runs_of"}


@dataclass(frozen=True)
class StudyRow:
    """Numbers of a record: the study, and by score the path to the number in its results."""

    name: str
    study: str
    at: dict[str, tuple[str | int, ...]]
    paper: dict[str, float]
    worse: str | None = None


@dataclass(frozen=True)
class Recipe:
    """A published table or figure. Only the parts of its kind are filled; `suite` are its runs, or those it draws."""

    path: Path
    kind: Kind
    title: str
    where: str
    scores: tuple[str, ...] = ()
    lower_is_better: tuple[str, ...] = ()
    notes: str = ""
    suite: Suite | None = None
    study_rows: tuple[StudyRow, ...] = ()
    figure: str = ""
    options: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.stem

    @property
    def studies(self) -> tuple[str, ...]:
        """The studies whose records hold its numbers."""
        return tuple(dict.fromkeys(row.study for row in self.study_rows))

    @property
    def records(self) -> Path:
        """The default folder of its records; those of studies are always the repository's."""
        if self.kind == "study":
            return RECORDS
        return records_folder(self.suite.path if self.kind == "runs" and self.suite else self.path)


@dataclass(frozen=True)
class LeftOut:
    """A published table or figure that has no recipe, and why."""

    where: str
    why: str


def recipe_names() -> list[str]:
    """Return the names of the repository's recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml") if path.stem != _LEFT_OUT)


def left_out() -> tuple[LeftOut, ...]:
    """Return which tables and figures of the papers have no recipe."""
    file = YamlFile.read(RECIPES / f"{_LEFT_OUT}.yaml")
    file.check_keys((), file.content, {"title", _LEFT_OUT})
    found = file.content.get(_LEFT_OUT)
    if not isinstance(found, list):
        raise file.error((_LEFT_OUT,), f"{found!r}", "a list")
    entries = []
    for number, entry in enumerate(found):
        file.check_keys((_LEFT_OUT, number), entry, {"where", "why"})
        where, why = (file.text((_LEFT_OUT, number, key), entry.get(key)) for key in ("where", "why"))
        entries.append(LeftOut(where, why))
    return tuple(entries)


def read_recipe(name: str | Path) -> Recipe:
    """Read one of the repository's recipes by its name, or any by its path; every mistake is reported with its line."""
    return _read(find_file(name, RECIPES, "recipe", "recipe list"), ())


def _read(path: Path, via: tuple[Path, ...]) -> Recipe:
    """Read a recipe that `via` refer to, each the next; it must not be one of these."""
    file = YamlFile.read(path)
    if "title" not in file.content:
        raise file.error((), "no title", "a line `title: …`")
    via = (*via, path.resolve())
    if "figure" in file.content:
        return _figure(file, via)
    if "study" in file.content:
        return _study(file)
    if "runs_of" in file.content:
        return _other_scores(file, via)
    suite = parse_suite(replace(file, content={key: value for key, value in file.content.items() if key not in _OWN}))
    return _recipe(file, "runs", scores=suite.scores, suite=suite)


def _recipe(file: YamlFile, kind: Kind, *, scores: tuple[str, ...] = (), **parts: Any) -> Recipe:
    content = file.content
    expected = f"a list of some of {', '.join(scores)}"
    lower = file.words(("lower_is_better",), content.get("lower_is_better", []), expected)
    if not set(lower) <= set(scores):
        raise file.error(("lower_is_better",), f"{[*lower]!r}", expected)
    title, where, notes = (file.text((key,), content.get(key, "")) for key in ("title", "where", "notes"))
    return Recipe(file.path, kind, title, where, scores, lower, notes, **parts)


def _scores(file: YamlFile) -> tuple[str, ...]:
    expected = "a list of scores such as [P@1, P@3]"
    found = file.words(("scores",), file.content.get("scores"), expected)
    if not found:
        raise file.error(("scores",), "none", expected)
    return found


def _rows(file: YamlFile, allowed: set[str]) -> dict[str, dict[str, Any]]:
    rows = file.content.get("rows")
    if not isinstance(rows, dict) or not rows:
        raise file.error(("rows",), f"{rows!r}", "a mapping of names to rows")
    for name, row in rows.items():
        file.check_keys(("rows", name), row, allowed)
    return {str(name): row for name, row in rows.items()}


def _runs_of(file: YamlFile, via: tuple[Path, ...]) -> Suite:
    """Return the runs of the recipe that a file names, which lies beside it or in the repository."""
    name, where = file.text(("runs_of",), file.content["runs_of"], "the name of a recipe"), ("runs_of",)
    known = {path.stem: path for folder in (RECIPES, file.path.parent) for path in folder.glob("*.yaml")}
    if name not in known:
        raise file.error(where, f"{name!r}", "the name of a recipe in this folder or in recipes/")
    if known[name].resolve() in via:
        raise file.error(where, f"{name!r}, which refers back to this file", "another recipe")
    found = _read(known[name], via)
    if found.kind != "runs" or found.suite is None:
        raise file.error(where, f"{name!r}", "a recipe whose rows are run")
    return found.suite


def _figure(file: YamlFile, via: tuple[Path, ...]) -> Recipe:
    file.check_keys((), file.content, _FIGURE_KEYS)
    figure = file.text(("figure",), file.content["figure"])
    options = file.mapping(("options",), file.content.get("options", {}))
    suite = _runs_of(file, via) if "runs_of" in file.content else None
    return _recipe(file, "figure", figure=figure, options=options, suite=suite)


def _study(file: YamlFile) -> Recipe:
    file.check_keys((), file.content, _COMMON | {"study"})
    study = file.text(("study",), file.content["study"])
    scores = _scores(file)
    rows = []
    for name, row in _rows(file, _STUDY_ROW_KEYS).items():
        where = ("rows", name)
        for key in ("at", "paper"):
            file.check_keys((*where, key), row.get(key, {}), scores)
        at = row.get("at")
        if not at or not all(_is_path(path) for path in at.values()):
            raise file.error((*where, "at"), f"{at!r}", "a list of keys of the record for each score")
        paths = {score: tuple(path) for score, path in at.items()}
        paper = {
            score: float(file.number((*where, "paper", score), value)) for score, value in row.get("paper", {}).items()
        }
        own = file.text((*where, "study"), row.get("study", study))
        rows.append(StudyRow(name, own, paths, paper, worse(file, where, row)))
    return _recipe(file, "study", scores=scores, study_rows=tuple(rows))


def _is_path(found: Any) -> bool:
    return isinstance(found, list) and bool(found) and all(isinstance(key, str | int) for key in found)


def _other_scores(file: YamlFile, via: tuple[Path, ...]) -> Recipe:
    """Read other scores, with their published numbers, of the rows and runs of another recipe."""
    file.check_keys((), file.content, _COMMON | {"runs_of"})
    whole = _runs_of(file, via)
    scores, own = _scores(file), _rows(file, _RUNS_OF_ROW_KEYS)
    known = {row.name: row for row in whole.rows}
    rows: list[Row] = []
    for row, content in own.items():
        where = ("rows", row)
        if row not in known:
            raise file.error(where, "unknown row", f"one of those of {whole.name}: {', '.join(known)}")
        paper = published(file, (*where, "paper"), content.get("paper", {}), known[row].datasets)
        rows.append(replace(known[row], paper=paper, worse=worse(file, where, content)))
    title = file.text(("title",), file.content["title"])
    suite = replace(whole, title=title, rows=tuple(rows), scores=scores)
    return _recipe(file, "runs", scores=scores, suite=suite)
