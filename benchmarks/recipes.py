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
from labelfield.bench.suite import Row, Suite, parse_suite, published, worse
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
    entries = []
    for number, entry in enumerate(found):
        file.check_keys((LEFT_OUT, number), entry, {"where", "why"})
        where, why = (file.text((LEFT_OUT, number, key), entry.get(key)) for key in ("where", "why"))
        entries.append(LeftOut(where, why))
    return tuple(entries)


def read_recipe(path: Path) -> Recipe:
    """A recipe from its file; whatever is wrong with it is told with its line."""
    return _read(path, ())


def _read(path: Path, via: tuple[Path, ...]) -> Recipe:
    """A recipe; `via` are those that it was asked for by, of which it may be none."""
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
    return Recipe(file.path.stem, file.path, kind, title, where, scores, lower, notes, **parts)


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


def _runs_of(file: YamlFile, via: tuple[Path, ...]) -> tuple[str, Suite]:
    """The recipe whose runs are meant, beside the file or in the repository: its name, and its rows."""
    name, where = file.text(("runs_of",), file.content["runs_of"], "the name of a recipe"), ("runs_of",)
    root = checkout()
    folders = [*([] if root is None else [root / "recipes"]), file.path.parent]
    known = {path.stem: path for folder in folders for path in folder.glob("*.yaml")}
    if name not in known:
        raise file.error(where, f"{name!r}", "the name of a recipe beside this one or of `labelfield recipe list`")
    if known[name].resolve() in via:
        raise file.error(where, f"{name!r}, which leads back here", "another recipe")
    suite = _read(known[name], via).suite
    if suite is None:
        raise file.error(where, f"{name!r}", "a recipe whose rows are run")
    return name, suite


def _figure(file: YamlFile, via: tuple[Path, ...]) -> Recipe:
    file.check_keys((), file.content, _FIGURE_KEYS)
    figure = file.text(("figure",), file.content["figure"])
    options = file.mapping(("options",), file.content.get("options", {}))
    runs_of = _runs_of(file, via)[0] if "runs_of" in file.content else None
    return _recipe(file, "figure", figure=figure, options=options, runs_of=runs_of)


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
            raise file.error((*where, "at"), f"{at!r}", "for each score a list of keys of the record")
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
    """The rows and runs of another recipe with scores and published numbers of this one's own."""
    file.check_keys((), file.content, _COMMON | {"runs_of"})
    name, whole = _runs_of(file, via)
    scores, own = _scores(file), _rows(file, _RUNS_OF_ROW_KEYS)
    known = {row.name: row for row in whole.rows}
    rows: list[Row] = []
    for row, content in own.items():
        where = ("rows", row)
        if row not in known:
            raise file.error(where, "an unknown row", f"one of those of {name}: {', '.join(known)}")
        paper = published(file, (*where, "paper"), content.get("paper", {}), known[row].datasets)
        rows.append(replace(known[row], paper=paper, worse=worse(file, where, content)))
    title = file.text(("title",), file.content["title"])
    suite = replace(whole, title=title, rows=tuple(rows), scores=scores)
    return _recipe(file, "runs", scores=scores, suite=suite, runs_of=name)
