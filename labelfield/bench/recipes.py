"""Recipes: a file for each published table or figure, with the published numbers and how ours come about.

There are three kinds. Rows that are run, in the form of a suite; or, with `runs_of`, other scores of the runs of
another recipe. A `study`: numbers that a benchmark of the repository has recorded. A `figure`, drawn by one of its
functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from labelfield.bench.places import checkout
from labelfield.bench.suite import Row, Suite, parse_suite, published
from labelfield.bench.yaml_file import YamlFile
from labelfield.errors import LabelfieldError

__all__ = ["LEFT_OUT", "LeftOut", "Recipe", "StudyRow", "find_recipe", "left_out", "read_recipe", "recipe_names"]

Kind = Literal["runs", "study", "figure"]
LEFT_OUT = "left-out"
_COMMON = {"title", "where", "notes", "scores", "rows", "lower_is_better"}
_OWN = {"where", "lower_is_better"}
_STUDY_ROW_KEYS = {"at", "paper", "worse", "study"}
_RUNS_OF_ROW_KEYS = {"paper", "worse"}
_FIGURE_KEYS = {"title", "where", "notes", "figure", "options", "runs_of"}


@dataclass(frozen=True)
class StudyRow:
    """Numbers of a record: of which benchmark, and by score the path to them in its results."""

    name: str
    study: str
    at: dict[str, tuple[str | int, ...]]
    paper: dict[str, float]
    worse: str | None = None


@dataclass(frozen=True)
class Recipe:
    """A published table or figure. Only what belongs to its kind is filled."""

    name: str
    path: Path
    kind: Kind
    title: str
    where: str
    scores: tuple[str, ...] = ()
    lower_is_better: tuple[str, ...] = ()
    notes: str = ""
    suite: Suite | None = None
    study_rows: tuple[StudyRow, ...] = ()
    figure: str | None = None
    options: dict[str, Any] | None = None
    runs_of: str | None = None

    @property
    def studies(self) -> tuple[str, ...]:
        """The benchmarks whose records its numbers are in."""
        return tuple(dict.fromkeys(row.study for row in self.study_rows))


@dataclass(frozen=True)
class LeftOut:
    """A published table or figure that has no recipe, and why."""

    where: str
    why: str


def _folder() -> Path:
    root = checkout()
    if root is None:
        raise LabelfieldError("recipes lie in the repository; give the path of a .yaml file")
    return root / "recipes"


def recipe_names() -> list[str]:
    """All recipes of the repository."""
    return sorted(path.stem for path in _folder().glob("*.yaml") if path.stem != LEFT_OUT)


def find_recipe(name: str) -> Path:
    """The file of a recipe: one of the repository's by name, or any by its path."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path
    if name not in recipe_names():
        raise LabelfieldError(
            f"no recipe {name!r}; `labelfield recipe list` shows them, or give the path of a .yaml file"
        )
    return _folder() / f"{name}.yaml"


def left_out() -> tuple[LeftOut, ...]:
    """What of the papers has no recipe."""
    file = YamlFile.read(_folder() / f"{LEFT_OUT}.yaml")
    file.check_keys((), file.content, {"title", LEFT_OUT})
    found = file.content.get(LEFT_OUT)
    if not isinstance(found, list):
        raise file.error((LEFT_OUT,), f"{found!r}", "a list")
    for number, entry in enumerate(found):
        file.check_keys((LEFT_OUT, number), entry, {"where", "why"})
    return tuple(LeftOut(entry["where"], entry["why"]) for entry in found)


def read_recipe(path: Path) -> Recipe:
    """A recipe from its file; whatever is wrong with it is told with its line."""
    file = YamlFile.read(path)
    if "title" not in file.content:
        raise file.error((), "no title", "a line `title: …`")
    if "figure" in file.content:
        return _figure(file)
    if "study" in file.content:
        return _study(file)
    if "runs_of" in file.content:
        return _other_scores(file)
    suite = parse_suite(replace(file, content={key: value for key, value in file.content.items() if key not in _OWN}))
    return _recipe(file, "runs", scores=suite.scores, suite=suite)


def _recipe(file: YamlFile, kind: Kind, *, scores: tuple[str, ...] = (), **parts: Any) -> Recipe:
    content = file.content
    lower = content.get("lower_is_better", [])
    if not isinstance(lower, list) or not set(lower) <= set(scores):
        raise file.error(("lower_is_better",), f"{lower!r}", f"a list of some of {', '.join(scores)}")
    title, where, notes = (str(content.get(key, "")) for key in ("title", "where", "notes"))
    return Recipe(file.path.stem, file.path, kind, title, where, scores, tuple(lower), notes, **parts)


def _scores(file: YamlFile) -> tuple[str, ...]:
    found = file.content.get("scores")
    if not isinstance(found, list) or not found or not all(isinstance(score, str) for score in found):
        raise file.error(("scores",), f"{found!r}", "a list of scores such as [P@1, P@3]")
    return tuple(found)


def _rows(file: YamlFile, allowed: set[str]) -> dict[str, dict[str, Any]]:
    rows = file.content.get("rows")
    if not isinstance(rows, dict) or not rows:
        raise file.error(("rows",), f"{rows!r}", "a mapping of names to rows")
    for name, row in rows.items():
        file.check_keys(("rows", name), row, allowed)
    return {str(name): row for name, row in rows.items()}


def _figure(file: YamlFile) -> Recipe:
    file.check_keys((), file.content, _FIGURE_KEYS)
    options = file.content.get("options", {})
    if not isinstance(options, dict):
        raise file.error(("options",), f"{options!r}", "a mapping")
    return _recipe(
        file, "figure", figure=str(file.content["figure"]), options=options, runs_of=file.content.get("runs_of")
    )


def _study(file: YamlFile) -> Recipe:
    file.check_keys((), file.content, _COMMON | {"study"})
    scores = _scores(file)
    rows = []
    for name, row in _rows(file, _STUDY_ROW_KEYS).items():
        where = ("rows", name)
        for key in ("at", "paper"):
            file.check_keys((*where, key), row.get(key, {}), scores)
        at = row.get("at")
        if not at or not all(isinstance(path, list) and path for path in at.values()):
            raise file.error((*where, "at"), f"{at!r}", "for each score a list of keys of the record")
        paths = {score: tuple(path) for score, path in at.items()}
        paper = {score: float(value) for score, value in row.get("paper", {}).items()}
        rows.append(StudyRow(name, str(row.get("study", file.content["study"])), paths, paper, row.get("worse")))
    return _recipe(file, "study", scores=scores, study_rows=tuple(rows))


def _other_scores(file: YamlFile) -> Recipe:
    """The rows and runs of another recipe with scores and published numbers of this one's own."""
    file.check_keys((), file.content, _COMMON | {"runs_of"})
    name = str(file.content["runs_of"])
    path = file.path.with_name(f"{name}.yaml")
    whole = read_recipe(path if path.is_file() else find_recipe(name)).suite
    if whole is None:
        raise file.error(("runs_of",), f"{name!r}", "a recipe whose rows are run")
    scores, own = _scores(file), _rows(file, _RUNS_OF_ROW_KEYS)
    known = {row.name: row for row in whole.rows}
    rows: list[Row] = []
    for row, content in own.items():
        if row not in known:
            raise file.error(("rows", row), "an unknown row", f"one of those of {name}: {', '.join(known)}")
        paper = published(file, ("rows", row, "paper"), content.get("paper", {}), known[row].datasets)
        rows.append(replace(known[row], paper=paper, worse=content.get("worse")))
    suite = replace(whole, title=str(file.content["title"]), rows=tuple(rows), scores=scores)
    return _recipe(file, "runs", scores=scores, suite=suite, runs_of=name)
