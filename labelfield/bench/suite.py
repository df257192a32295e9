"""Suites: which methods are run on which data sets, with which budgets and seeds; recipes have the same form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labelfield.bench.environments import PEERS
from labelfield.bench.yaml_file import YamlFile
from labelfield.errors import LabelfieldError

__all__ = ["SUITES", "Cell", "Row", "Suite", "find_suite", "parse_suite", "published", "read_suite", "suite_names"]

SUITES = Path(__file__).parent / "suites"
METHODS = ("mlgpf", "one_vs_each", "robustmax", "softmax", "svdkl", "topics")
# Those whose epochs can be scored while they train.
_BY_EPOCH = ("mlgpf", "one_vs_each", "robustmax", "softmax")
FULL = "full"
_SUITE_KEYS = {"title", "datasets", "defaults", "rows", "budgets", "seeds", "scores", "reference", "notes", "by_epoch"}
_ROW_KEYS = {"method", "peer", "options", "options_of", "plain", "datasets", "paper", "seeds", "worse"}
_DEFAULT_KEYS = {"method", "options", "options_of"}
_SHOWN = ("P@1", "P@3", "P@5")


@dataclass(frozen=True)
class Row:
    """A method with its options, or a peer; the published scores of each data set; why ours are worse, if they are.

    `options_of` are those that differ by data set.
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


@dataclass(frozen=True)
class Cell:
    """One thing to measure."""

    suite: str
    dataset: str
    row: str
    budget: str
    seed: int
    method: str | None
    peer: str | None
    options: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What its records are found by."""
        return self.dataset, self.row, self.budget, self.seed


@dataclass(frozen=True)
class Suite:
    """Data set × row × budget × seed; `by_epoch` with P@1 of the test rows after each epoch too, as figures show it."""

    name: str
    title: str
    rows: tuple[Row, ...]
    budgets: dict[str, dict[str, Any]]
    scores: tuple[str, ...]
    reference: str | None = None
    notes: str = ""
    by_epoch: bool = False

    @property
    def datasets(self) -> tuple[str, ...]:
        """All data sets that some row is run on, in their order."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.datasets))

    def cells(self) -> Iterator[Cell]:
        """All cells, data set by data set, so that what is compared runs close together. A peer has no budgets."""
        for dataset in self.datasets:
            for row in self.rows:
                if dataset not in row.datasets:
                    continue
                budgets = {FULL: {}} if row.peer else self.budgets
                for budget, limits in budgets.items():
                    for seed in range(row.seeds):
                        options = {**row.options, **row.options_of.get(dataset, {}), **limits}
                        yield Cell(self.name, dataset, row.name, budget, seed, row.method, row.peer, options)


def suite_names() -> list[str]:
    """What suites come with the package."""
    return sorted(path.stem for path in SUITES.glob("*.yaml"))


def find_suite(name: str) -> Path:
    """The file of a suite: one of the package's by name, or any by its path."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path
    if name not in suite_names():
        raise LabelfieldError(
            f"no suite {name!r}; there are {', '.join(suite_names())}, or give the path of a .yaml file"
        )
    return SUITES / f"{name}.yaml"


def read_suite(path: Path) -> Suite:
    """A suite from its file; whatever is wrong with it is told with its line."""
    return parse_suite(YamlFile.read(path))


def parse_suite(file: YamlFile) -> Suite:
    """A suite from what a file holds."""
    content = file.content
    file.check_keys((), content, _SUITE_KEYS)
    for key in ("title", "rows"):
        if key not in content:
            raise file.error((), f"no {key}", f"a line `{key}: …`")
    defaults = content.get("defaults", {})
    file.check_keys(("defaults",), defaults, _DEFAULT_KEYS)
    datasets = _names(file, ("datasets",), content.get("datasets", []))
    seeds = _count(file, ("seeds",), content.get("seeds", 1))
    budgets = content.get("budgets", {FULL: {}})
    if not isinstance(content["rows"], dict) or not content["rows"]:
        raise file.error(("rows",), f"{content['rows']!r}", "a mapping of names to rows")
    for name, limits in _mapping(file, ("budgets",), budgets).items():
        _options(file, ("budgets", name), limits)
    rows = tuple(_row(file, name, row or {}, defaults, datasets, seeds) for name, row in content["rows"].items())
    run_on = {dataset for row in rows for dataset in row.datasets}
    for dataset in defaults.get("options_of", {}):
        if dataset not in run_on:
            where = ("defaults", "options_of", dataset)
            raise file.error(where, "a data set that no row is run on", f"one of {', '.join(sorted(run_on))}")
    reference = content.get("reference")
    if reference is not None and reference not in content["rows"]:
        raise file.error(("reference",), f"{reference!r}", f"a row: {', '.join(map(str, content['rows']))}")
    by_epoch = content.get("by_epoch", False)
    if not isinstance(by_epoch, bool):
        raise file.error(("by_epoch",), f"{by_epoch!r}", "true or false")
    for row in rows if by_epoch else ():
        if row.method is not None and (row.method not in _BY_EPOCH or "ensemble" in row.options):
            expected = f"{_one_of(_BY_EPOCH)}, without an ensemble"
            raise file.error(("rows", row.name), f"{row.method!r} with by_epoch", expected)
    return Suite(
        file.path.stem,
        str(content["title"]),
        rows,
        {str(name): limits for name, limits in budgets.items()},
        _names(file, ("scores",), content.get("scores", list(_SHOWN))),
        reference,
        str(content.get("notes", "")).strip(),
        by_epoch,
    )


def _row(
    file: YamlFile, name: Any, content: Any, defaults: dict[str, Any], datasets: tuple[str, ...], seeds: int
) -> Row:
    where = ("rows", name)
    file.check_keys(where, content, _ROW_KEYS)
    peer = content.get("peer")
    method = None if peer else content.get("method", defaults.get("method"))
    if peer is not None and peer not in PEERS:
        raise file.error((*where, "peer"), f"{peer!r}", f"one of {', '.join(PEERS)}")
    if peer is None and method not in METHODS:
        raise file.error((*where, "method") if "method" in content else where, f"method {method!r}", _one_of(METHODS))
    is_plain = content.get("plain", peer is not None)
    if not isinstance(is_plain, bool):
        raise file.error(
            (*where, "plain"), f"{is_plain!r}", "true for a row without the options of `defaults`, or false"
        )
    options = dict(_options(file, (*where, "options"), content.get("options", {})))
    if not is_plain:
        options = {**_options(file, ("defaults", "options"), defaults.get("options", {})), **options}
    worse = content.get("worse")
    if not isinstance(worse, str | None):
        raise file.error((*where, "worse"), f"{worse!r}", "a sentence")
    own = _names(file, (*where, "datasets"), content["datasets"]) if "datasets" in content else datasets
    if not own:
        raise file.error(where, "no data sets", "`datasets: […]` here or for all rows")
    return Row(
        str(name),
        method,
        peer,
        options,
        own,
        _count(file, (*where, "seeds"), content.get("seeds", seeds)),
        published(file, (*where, "paper"), content.get("paper", {}), own),
        worse,
        {} if is_plain and "options_of" not in content else _by_dataset(file, name, content, defaults, is_plain),
    )


def _by_dataset(
    file: YamlFile, name: Any, content: dict[str, Any], defaults: dict[str, Any], is_plain: bool
) -> dict[str, dict[str, Any]]:
    """Options that differ by data set: what a row says of all data sets goes before what `defaults` say of one."""
    found: dict[str, dict[str, Any]] = {}
    if not is_plain:
        for dataset, options in _mapping(file, ("defaults", "options_of"), defaults.get("options_of", {})).items():
            of_all = _options(file, ("defaults", "options_of", dataset), options)
            found[dataset] = {**of_all, **content.get("options", {})}
    where = ("rows", name, "options_of")
    for dataset, options in _mapping(file, where, content.get("options_of", {})).items():
        found[dataset] = {**found.get(dataset, {}), **_options(file, (*where, dataset), options)}
    return found


def published(file: YamlFile, where: tuple[Any, ...], paper: Any, datasets: tuple[str, ...]) -> dict[str, Any]:
    """Published scores by data set; where there is only one, it need not be named."""
    paper = _mapping(file, where, paper)
    if paper and not all(isinstance(scores, dict) for scores in paper.values()):
        if len(datasets) != 1:
            raise file.error(where, "scores without a data set", f"one of {', '.join(datasets)} first")
        paper = {datasets[0]: paper}
    for dataset, scores in paper.items():
        if dataset not in datasets:
            raise file.error((*where, dataset), "a data set that the row is not run on", _one_of(datasets))
        for score, value in scores.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise file.error((*where, dataset, score), f"{value!r}", "a number")
    return {dataset: dict(scores) for dataset, scores in paper.items()}


def _mapping(file: YamlFile, where: tuple[Any, ...], found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise file.error(where, f"{found!r}", "a mapping such as {name: value}")
    return found


def _options(file: YamlFile, where: tuple[Any, ...], found: Any) -> dict[str, Any]:
    """Options are recorded, so that they must be what JSON can hold; YAML also has dates and .nan."""
    options = _mapping(file, where, found)
    for name, value in options.items():
        try:
            json.dumps({name: value}, allow_nan=False)
        except (TypeError, ValueError):
            raise file.error((*where, name), f"{value!r}", "a number, a word, true, false, null or a list") from None
    return options


def _names(file: YamlFile, where: tuple[Any, ...], found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise file.error(where, f"{found!r}", "a list of words")
    return tuple(found)


def _count(file: YamlFile, where: tuple[Any, ...], found: Any) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise file.error(where, f"{found!r}", "a whole number from 1 on")
    return found


def _one_of(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(names)}"
