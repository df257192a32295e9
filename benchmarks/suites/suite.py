"""Suites: which methods are run on which data sets, with which budgets and seeds; recipes have the same form."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.paths import SUITES
from benchmarks.peers.environments import PEERS
from benchmarks.yaml_file import YamlFile, find_file
from labelfield.methods import METHODS
from labelfield.presets import PRESETS

__all__ = [
    "FULL",
    "SHOWN",
    "Cell",
    "Row",
    "Suite",
    "check_options",
    "parse_suite",
    "published",
    "read_suite",
    "suite_names",
    "worse",
]

# Methods whose epochs can be scored during training.
_BY_EPOCH = ("mlgpf", "one_vs_each", "robustmax", "softmax")
FULL = "full"
_SUITE_KEYS = {"title", "datasets", "defaults", "rows", "budgets", "seeds", "scores", "reference", "notes", "by_epoch"}
_ROW_KEYS = {
    *("method", "preset", "peer", "options", "options_of", "plain", "datasets", "paper", "seeds", "worse", "rank_by"),
}
_DEFAULT_KEYS = {"method", "options", "options_of"}
# The scores of a suite that does not say which.
SHOWN = ("P@1", "P@3", "P@5")
_SCORES = (
    *(f"{name}@{k}" for name in ("P", "nDCG", "R", "PSP", "PSnDCG", "ECE") for k in (1, 3, 5)),
    *(
        "microF1",
        "macroF1",
        "AUC_micro",
        "AUC_label",
        "AUC_row",
        "error rate %",
        "accuracy",
        "nlpd",
        "bound",
        "elbo",
        "epochs",
    ),
    *("train_seconds", "predict_seconds", "epoch_seconds", "seconds", "cpu_seconds", "peak_mb", "model_mb"),
)
# Options that a run sets itself, and what to use instead.
_OF_THE_RUN = {"device": "--device when it is run", "random_state": "`seeds: n`, which are random starts 0 to n - 1"}


@dataclass(frozen=True)
class Row:
    """A method with its options, or a peer; published scores by data set; and why ours are worse, if they are.

    `options_of` are options for single data sets; `rank_by` is how lists are ranked.
    """

    name: str
    method: str | None
    peer: str | None
    options: dict[str, Any]
    datasets: tuple[str, ...]
    seeds: int
    paper: dict[str, dict[str, float]] = field(default_factory=dict)
    worse: str | None = None
    options_of: dict[str, dict[str, Any]] = field(default_factory=dict)
    rank_by: str = "probability"


@dataclass(frozen=True)
class Cell:
    """A single measurement: one row on one data set with one budget and one seed."""

    dataset: str
    row: str
    budget: str
    seed: int
    method: str | None
    peer: str | None
    options: dict[str, Any]
    rank_by: str = "probability"

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The key that its records are found by."""
        return self.dataset, self.row, self.budget, self.seed


@dataclass(frozen=True)
class Suite:
    """Data sets × rows × budgets × seeds. With `by_epoch`, P@1 of the test rows is recorded after each epoch too."""

    path: Path
    title: str
    rows: tuple[Row, ...]
    budgets: dict[str, dict[str, Any]]
    scores: tuple[str, ...]
    reference: str | None = None
    notes: str = ""
    by_epoch: bool = False

    @property
    def name(self) -> str:
        """The name of its file, and of its records."""
        return self.path.stem

    @property
    def datasets(self) -> tuple[str, ...]:
        """All data sets that some row is run on, in their order."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.datasets))

    def cells(self) -> Iterator[Cell]:
        """Yield all cells by data set, so that what is compared runs close together. A peer has no budgets."""
        for dataset in self.datasets:
            for row in self.rows:
                if dataset not in row.datasets:
                    continue
                budgets = {FULL: {}} if row.peer else self.budgets
                for budget, limits in budgets.items():
                    for seed in range(row.seeds):
                        options = {**row.options, **row.options_of.get(dataset, {}), **limits}
                        yield Cell(dataset, row.name, budget, seed, row.method, row.peer, options, row.rank_by)


def suite_names() -> list[str]:
    """Return the names of the repository's suites."""
    return sorted(path.stem for path in SUITES.glob("*.yaml"))


def read_suite(name: str | Path) -> Suite:
    """Read one of the repository's suites by its name, or any by its path; every mistake is reported with its line."""
    return parse_suite(YamlFile.read(find_file(name, SUITES, "suite or study", "bench list")))


def parse_suite(file: YamlFile) -> Suite:
    """Make a suite of the content of a file."""
    content = file.content
    file.check_keys((), content, _SUITE_KEYS)
    for key in ("title", "rows"):
        if key not in content:
            raise file.error((), f"no {key}", f"a line `{key}: …`")
    defaults = _defaults(file, content.get("defaults", {}))
    datasets = file.words(("datasets",), content.get("datasets", []))
    seeds = file.count(("seeds",), content.get("seeds", 1))
    budgets = file.mapping(("budgets",), content.get("budgets", {FULL: {}}))
    scores = file.words(("scores",), content.get("scores", list(SHOWN)))
    for key, found in (("rows", content["rows"]), ("budgets", budgets), ("scores", scores)):
        if not found:
            raise file.error((key,), f"{found!r}", f"some {key}")
    for score in scores:
        if score not in _SCORES:
            raise file.error(("scores",), f"{score!r}", _nearest(score, _SCORES))
    for name, limits in budgets.items():
        _options(file, ("budgets", name), limits)
    rows = tuple(
        _row(file, name, {} if row is None else row, defaults, datasets, seeds)
        for name, row in file.mapping(("rows",), content["rows"], "a mapping of names to rows").items()
    )
    run_on = {dataset for row in rows for dataset in row.datasets}
    _check_datasets(file, ("defaults", "options_of"), defaults["options_of"], run_on)
    names = [row.name for row in rows]
    if "reference" in content and content["reference"] not in names:
        raise file.error(("reference",), f"{content['reference']!r}", f"a row: {', '.join(names)}")
    by_epoch = file.truth(("by_epoch",), content.get("by_epoch", False))
    for row in rows if by_epoch else ():
        if row.method is not None and (row.method not in _BY_EPOCH or "ensemble" in row.options):
            expected = f"{_one_of(_BY_EPOCH)}, without an ensemble"
            raise file.error(("rows", row.name), f"{row.method!r} with by_epoch", expected)
    return Suite(
        file.path,
        file.text(("title",), content["title"]),
        rows,
        {str(name): limits for name, limits in budgets.items()},
        scores,
        content.get("reference"),
        file.text(("notes",), content.get("notes", "")).strip(),
        by_epoch,
    )


def check_options(suite: Suite) -> None:
    """Check, before anything is run, that the methods of a suite have its options; a mistake is reported with its line.

    Reading a suite does not check this: it would import the estimators, which takes seconds, to print a list of suites.
    """
    methods = {row.name: row.method for row in suite.rows if row.method is not None}
    if not methods:
        return
    file = YamlFile.read(suite.path)
    budgets = [(("budgets", name), options) for name, options in file.content.get("budgets", {}).items()]
    shared = [*_option_places(("defaults",), file.content.get("defaults", {})), *budgets]
    _check_names(file, shared, tuple(dict.fromkeys(methods.values())))
    for name, content in file.content["rows"].items():
        if str(name) in methods:
            _check_names(file, _option_places(("rows", name), content or {}), (methods[str(name)],))
    for row in suite.rows:
        # Any option that is still unknown comes from what rows share.
        merged = (row.options, *row.options_of.values(), *suite.budgets.values())
        for option in (option for options in merged for option in options):
            if row.method is not None and option not in _parameters(row.method):
                found = f"{row.method} has no option {option}, which is set for all rows"
                raise file.error(("rows", row.name), found, "it only in rows that have it, or `plain: true` here")


def _option_places(where: tuple[Any, ...], content: dict[str, Any]) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the options that a row or `defaults` sets, each with its place."""
    of_each = content.get("options_of", {}).items()
    return [
        ((*where, "options"), content.get("options", {})),
        *(((*where, "options_of", dataset), options) for dataset, options in of_each),
    ]


def _check_names(
    file: YamlFile, places: Iterable[tuple[tuple[Any, ...], dict[str, Any]]], methods: tuple[str, ...]
) -> None:
    known = {name for method in methods for name in _parameters(method)}
    for where, options in places:
        for name in options:
            if name not in known:
                raise file.error((*where, name), f"not an option of {' or '.join(methods)}", _nearest(name, known))


@cache
def _parameters(method: str) -> frozenset[str]:
    """Return the options of a method that a row can choose."""
    from labelfield.estimators.methods import method_parameters

    return frozenset(method_parameters(method)) - {*_OF_THE_RUN}


def _defaults(file: YamlFile, content: Any) -> dict[str, Any]:
    """Read what rows share. It is checked here, once: rows that are all peers would never look at it."""
    where = ("defaults",)
    file.check_keys(where, content, _DEFAULT_KEYS)
    method = content.get("method")
    if "method" in content and method not in tuple(METHODS):
        raise file.error((*where, "method"), f"{method!r}", _one_of(METHODS))
    options = _options(file, (*where, "options"), content.get("options", {}))
    options_of = _options_of(file, (*where, "options_of"), content.get("options_of", {}))
    return {"method": method, "options": options, "options_of": options_of}


def _row(
    file: YamlFile, name: Any, content: Any, defaults: dict[str, Any], datasets: tuple[str, ...], seeds: int
) -> Row:
    where = ("rows", name)
    file.check_keys(where, content, _ROW_KEYS)
    peer = content.get("peer")
    if "peer" in content and "method" in content:
        raise file.error(where, "a method and a peer", "only one of the two")
    if "peer" in content and peer not in tuple(PEERS):
        raise file.error((*where, "peer"), f"{peer!r}", _one_of(PEERS))
    preset = content.get("preset")
    if "preset" in content and (preset not in tuple(PRESETS) or peer or "method" in content):
        raise file.error((*where, "preset"), f"{preset!r}", f"{_one_of(PRESETS)}, without a method or a peer")
    method = None if peer else content.get("method", PRESETS[preset].method if preset else defaults["method"])
    if peer is None and method not in tuple(METHODS):
        raise file.error((*where, "method"), f"{method!r}", _one_of(METHODS))
    expected = "true for a row without the options of `defaults`, or false"
    is_plain = file.truth((*where, "plain"), content.get("plain", peer is not None or preset is not None), expected)
    own = file.words((*where, "datasets"), content.get("datasets", list(datasets)))
    if not own:
        raise file.error(where, "no data sets", "`datasets: […]` here or for all rows")
    options = _options(file, (*where, "options"), content.get("options", {}))
    options_of = _options_of(file, (*where, "options_of"), content.get("options_of", {}))
    _check_datasets(file, (*where, "options_of"), options_of, own)
    if preset:
        options = {**PRESETS[preset].options, **options}
    rank_by = content.get("rank_by", "probability")
    if rank_by not in ("probability", "utility"):
        raise file.error((*where, "rank_by"), f"{rank_by!r}", "probability or utility")
    if not is_plain:
        # What a row sets for all data sets overrides what `defaults` set for one.
        shared = {dataset: {**of_one, **options} for dataset, of_one in defaults["options_of"].items()}
        options = {**defaults["options"], **options}
        options_of = {
            dataset: {**shared.get(dataset, {}), **options_of.get(dataset, {})} for dataset in {**shared, **options_of}
        }
    return Row(
        str(name),
        method,
        peer,
        options,
        own,
        file.count((*where, "seeds"), content.get("seeds", seeds)),
        published(file, (*where, "paper"), content.get("paper", {}), own),
        worse(file, where, content),
        options_of,
        rank_by,
    )


def worse(file: YamlFile, where: tuple[Any, ...], row: dict[str, Any]) -> str | None:
    """Return why the scores of a row are worse than the published ones, if the row gives a reason."""
    return file.text((*where, "worse"), row["worse"], "a sentence") if "worse" in row else None


def published(file: YamlFile, where: tuple[Any, ...], paper: Any, datasets: tuple[str, ...]) -> dict[str, Any]:
    """Return published scores by data set; if there is only one data set, the file need not name it."""
    paper = file.mapping(where, paper)
    is_by_dataset = all(isinstance(scores, dict) for scores in paper.values())
    if not is_by_dataset:
        if len(datasets) != 1:
            raise file.error(where, "scores without a data set", f"one of {', '.join(datasets)} first")
        paper = {datasets[0]: paper}
    _check_datasets(file, where, paper, datasets)
    for dataset, scores in paper.items():
        for score, value in scores.items():
            place = (*where, dataset, score) if is_by_dataset else (*where, score)
            file.number(place, value)
            file.text(place, score, "the name of a score")
    return {dataset: dict(scores) for dataset, scores in paper.items()}


def _check_datasets(file: YamlFile, where: tuple[Any, ...], found: Iterable[Any], run_on: Collection[str]) -> None:
    for dataset in found:
        if dataset not in run_on:
            raise file.error((*where, dataset), "no row is run on this data set", _one_of(sorted(run_on)))


def _options(file: YamlFile, where: tuple[Any, ...], found: Any) -> dict[str, Any]:
    """Check options. They are recorded, so JSON must be able to hold them; YAML also has dates and .nan."""
    options = file.mapping(where, found)
    for name, value in options.items():
        file.text((*where, name), name, "the name of an option")
        if name in _OF_THE_RUN:
            raise file.error((*where, name), "each run sets this option itself", _OF_THE_RUN[name])
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise file.error((*where, name), f"{value!r}", "a number, a word, true, false, null or a list") from None
    return options


def _options_of(file: YamlFile, where: tuple[Any, ...], found: Any) -> dict[str, dict[str, Any]]:
    """Check the options of single data sets."""
    return {
        dataset: _options(file, (*where, dataset), options) for dataset, options in file.mapping(where, found).items()
    }


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return which names may have been meant, or all of them."""
    names = sorted(known)
    return _one_of(difflib.get_close_matches(name, names) or names)


def _one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names)}"
