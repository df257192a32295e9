"""`read` and `write`: any data set, by its path."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from labelfield.atomic import replacing_file, replacing_folder
from labelfield.csr import verify as verify_csr
from labelfield.data.arff import read_arff
from labelfield.data.classes import as_classes, listed_names, share_classes
from labelfield.data.csv_table import read_csv
from labelfield.data.dataset import Dataset, Part
from labelfield.data.names import Names
from labelfield.data.npz import label_partner, read_npz, write_npz
from labelfield.data.store import STORE_FILES, is_store, open_store, read_through, write_store
from labelfield.data.streams import COMPRESSED_SUFFIXES, open_for_writing, stem
from labelfield.data.text import read_text, write_text
from labelfield.errors import DataError
from labelfield.progress import Progress, ignore

__all__ = ["FORMATS", "format_of", "read", "verify", "write"]

_TEXT = (".txt", ".svm", ".svmlight", ".libsvm", ".dat", ".data")
_SVMLIGHT = (".svm", ".svmlight", ".libsvm")
FORMATS = ("folder", "npz", *(f"{kind}{packed}" for kind in ("txt", "svm") for packed in ("", *COMPRESSED_SUFFIXES)))
# What a folder that `write` made may hold, and so what it may replace.
_SPLITS = ("train", "test")
OURS = {
    *STORE_FILES,
    *(f"{split}/{name}" for split in _SPLITS for name in STORE_FILES),
    *(f"{split}.{format}" for split in _SPLITS for format in FORMATS),
}
# Names that promise a format we do not write: better an error than a folder of that name.
_FOREIGN = (".arff", ".xml", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".npy", ".h5", ".zip", ".tar", ".pkl")


def read(
    path: str | PathLike[str],
    *,
    one_based: bool | None = None,
    one_based_labels: bool = False,
    n_features: int = 0,
    n_labels: int = 0,
    classes: bool = False,
    unlabelled: bool = False,
    label_column: str | int | None = None,
    narrow: bool = False,
    progress: Progress = ignore,
) -> Dataset:
    """Read a data set: XML-repository text, svmlight, CSV, Mulan ARFF, .npz, our folder, or a folder with two splits.

    Text may be compressed (gzip, bzip2, xz). `labels.txt` and `features.txt` beside the file name the columns.
    A folder with `train.*` and `test.*` gives the training rows, with the test rows as `.test`.
    `one_based` tells that a text file numbers its features from 1, `one_based_labels` the same of its labels. Left
    out, features start at 0, but in headerless text at 1 unless a feature 0 occurs. A file that does not state its
    widths has at least `n_features` and `n_labels` columns; with `narrow` no feature beyond, since a model knows no
    others: they are left out with a warning. `progress` is called with (bytes read, bytes in all).

    With `classes` each row must have exactly one label, which in svmlight may be any word or number; there is a column
    for each class that occurs, named, those of the training rows first. A CSV file is always read so; `label_column`
    is the name of its label column or its number from 0, if that is not called label, class, target or y and not the
    last one. With `unlabelled`, for rows to predict, a class may be missing, and a CSV file of `n_features` columns
    need not have a label column.
    """
    path = Path(path)
    if narrow and not n_features:
        raise ValueError("narrow=True without n_features, beyond which features are left out")
    least = (n_features, n_labels)
    options = _Options(one_based, one_based_labels, least, classes, unlabelled, label_column, narrow, progress)
    if not path.exists():
        raise DataError("there is no such file or folder", path=path, fix="Check the path.")
    if not path.is_dir():
        return _read_files({"all": path}, options)
    if not is_store(path):
        return _read_files(_find_splits(path), options)
    dataset = open_store(path)
    if not classes:
        return dataset
    return _with_classes([(split, path, None) for split in dataset.splits.values()], options)


class _Options(NamedTuple):
    one_based: bool | None
    one_based_labels: bool
    least: tuple[int, int]
    classes: bool
    unlabelled: bool
    label_column: str | int | None
    narrow: bool
    progress: Progress


def _narrowed(part: Part, path: Path, n_features: int) -> Part:
    part, n_values = part.narrow(n_features)
    if n_values:
        warnings.warn(f"{path}: {n_values:,} values of features that training had not are left out", stacklevel=2)
    return part


def _read_files(files: dict[str, Path], options: _Options) -> Dataset:
    """Read one file or the two splits, which share widths and names."""
    path = next(iter(files.values()))
    names = [_names_beside(path, what) for what in ("feature", "label")]
    parts = [_read_part(file, options) for file in files.values()]
    # svmlight starts at 1 by its definition, and at 0 in many files: at 1 unless a feature 0 occurs in any split.
    if all(part.seems_one_based for part in parts):
        parts = [part.from_zero() for part in parts]
    if options.narrow:
        parts = [_narrowed(part, file, options.least[0]) for part, file in zip(parts, files.values(), strict=True)]
    # A file that does not state its widths is as wide as the list of names, or as the wider of two splits.
    lengths = [0 if found is None else len(found) for found in names]
    n_features = max(options.least[0], lengths[0], *(part.dataset.n_features for part in parts))
    n_labels = max(options.least[1], lengths[1], *(part.dataset.n_labels for part in parts))
    has_classes = options.classes or any(part.has_classes for part in parts)
    named = [
        _with_names(part, part.widen(n_features, 0 if has_classes else n_labels), file, options, *names)
        for part, file in zip(parts, files.values(), strict=True)
    ]
    if has_classes:
        found = zip(named, files.values(), (part.first_line for part in parts), strict=True)
        return _with_classes(list(found), options)
    if len(named) == 1:
        return named[0]
    train, test = named
    return Dataset(train.X, train.Y, train.label_names, train.feature_names, test)


def _with_classes(found: list[tuple[Dataset, Path, int | None]], options: _Options) -> Dataset:
    """One or two splits, each with its file and the line of its first row, that have one class a row."""
    splits = [
        as_classes(
            dataset,
            path=path,
            first_line=first_line,
            # Text alone numbers labels from 1, and under a header alone its labels are nothing but numbers.
            first_label=0 if first_line is None else int(options.one_based_labels),
            unlabelled=options.unlabelled,
        )
        for dataset, path, first_line in found
    ]
    return splits[0] if len(splits) == 1 else share_classes(*splits)


def _read_part(path: Path, options: _Options) -> Part:
    if path.is_dir():
        return Part(open_store(path), True, holds_names=True)
    kind = _kind(path)
    if kind == ".npz":
        return read_npz(path, classes=options.classes, unlabelled=options.unlabelled)
    if kind == ".csv":
        return read_csv(
            path,
            label_column=options.label_column,
            unlabelled=options.unlabelled,
            n_features=options.least[0],
            progress=options.progress,
        )
    if kind == ".arff":
        return Part(read_arff(path, progress=options.progress), True, holds_names=True)
    return read_text(
        path,
        one_based=options.one_based,
        one_based_labels=options.one_based_labels,
        classes=options.classes,
        unlabelled=options.unlabelled,
        progress=options.progress,
    )


def _with_names(
    part: Part, dataset: Dataset, path: Path, options: _Options, features: Names | None, labels: Names | None
) -> Dataset:
    """The names found beside the file, where the file itself has none and is not of a kind that holds its names."""
    if part.holds_names:
        return dataset
    if part.has_classes and labels is not None and dataset.label_names is not None:
        labels = listed_names(dataset.label_names, labels, int(options.one_based_labels), path)
        dataset = replace(dataset, label_names=labels)
    labels = labels if dataset.label_names is None else dataset.label_names
    features = features if dataset.feature_names is None else dataset.feature_names
    return Dataset(dataset.X, dataset.Y, labels, features)


def _kind(path: Path) -> str:
    """The suffix that tells the format, without that of the compression."""
    suffixes = path.suffixes
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1].lower() if suffixes else ""


def _names_beside(path: Path, what: str) -> Names | None:
    """`STEM.labels.txt`, of this file alone, or `labels.txt`, of all files in its folder."""
    if path.is_dir():
        return None
    for name in (f"{stem(path)}.{what}s.txt", f"{what}s.txt"):
        candidate = path.with_name(name)
        if candidate.is_file() and candidate != path:
            return Names.in_file(candidate)
    return None


def _find_splits(folder: Path) -> dict[str, Path]:
    return {split: _find_split(folder, split) for split in ("train", "test")}


def _find_split(folder: Path, split: str) -> Path:
    found = sorted(_split_candidates(folder, split))
    if len(found) == 1:
        return found[0]
    contents = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    raise DataError(
        f"{' and '.join(p.name for p in found)} both look like the {split} split"
        if found
        else f"a folder without {split} rows ({contents})",
        path=folder,
        expected=f"one {split}.* that labelfield reads ({split}.txt, .txt.gz, .svm, .csv, .arff, .npz, or a folder)",
        fix="Keep one of them." if found else "Name a file of the folder, or its two splits train.* and test.*.",
    )


def _split_candidates(folder: Path, split: str) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name == split and is_store(entry):
                yield entry
        elif _kind(entry) in (*_TEXT, ".csv", ".arff", ".npz") and re.search(rf"(\A|[-_.]){split}\Z", stem(entry)):
            # Of a pair of SciPy matrices only X is named; its Y is found from it.
            is_label_half = re.search(r"(?<![A-Za-z0-9])Y(?![A-Za-z0-9])", entry.name) is not None
            if not (entry.suffix == ".npz" and is_label_half and _has_feature_half(entry)):
                yield entry


def _has_feature_half(path: Path) -> bool:
    return any(label_partner(other) == path for other in path.parent.glob("*.npz") if other != path)


def verify(dataset: Dataset, path: str | PathLike[str] | None = None) -> None:
    """Read all of a data set that was opened memory-mapped and raise a DataError if anything in it is amiss.

    Opening checks sizes alone, and a batch checks what it gathers; this checks the rest, once.
    """
    try:
        for split in dataset.splits.values():
            with read_through(split):
                verify_csr(split.X)
                verify_csr(split.Y)
            for names in (split.label_names, split.feature_names):
                if names is not None:
                    names[:0]
    except DataError as error:
        raise error.at(path) from None


def format_of(path: Path) -> str:
    """The format a name asks for: by its suffix, or our folder."""
    kind, suffix = _kind(path), path.suffix
    packed = suffix if suffix in COMPRESSED_SUFFIXES else ""
    if kind == ".npz" and not packed:
        return "npz"
    if kind in _TEXT:
        return ("svm" if kind in _SVMLIGHT else "txt") + packed
    if kind in _FOREIGN or packed:
        raise ValueError(
            f"{path.name}: labelfield does not write {kind or 'such'} files; it writes {', '.join(FORMATS)}"
        )
    return "folder"


def write(
    dataset: Dataset, path: str | PathLike[str], *, format: str | None = None, progress: Progress = ignore
) -> None:
    """Write a data set so that `read` gives it back exactly; an older one of that name is replaced.

    The suffix tells the format (`.txt`, `.svm`, each also `.gz`, `.bz2`, `.xz`; `.npz`); without one it is our folder.
    `format` says it instead of the suffix. Two splits go into a folder, as `train.*` and `test.*`, with `labels.txt`
    and `features.txt` for both; the names of one text file go to `STEM.labels.txt` and `STEM.features.txt` beside it.
    Either everything is written or nothing is.
    """
    path = Path(path)
    chosen = format or format_of(path)
    if chosen not in FORMATS:
        raise ValueError(f"format {chosen!r}; expected one of {', '.join(FORMATS)}")
    if re.search(r"(\A|\.)(labels|features)\.txt\Z", path.name):
        raise ValueError(f"{path.name}: such a name is kept for lists of names; choose another")
    if chosen == "folder":
        with replacing_folder(path, OURS) as folder:
            write_store(dataset, folder)
        return
    if dataset.test is None:
        _write_file(dataset, path, chosen, progress)
        return
    if format is None:
        raise ValueError(f"{path.name}: two splits do not fit into one file; name a folder and pass format={chosen!r}")
    with replacing_folder(path, OURS) as folder:
        for name, split in dataset.splits.items():
            _write_file(split, folder / f"{name}.{chosen}", chosen, progress, names_for_all=True)


def _write_file(dataset: Dataset, path: Path, chosen: str, progress: Progress, *, names_for_all: bool = False) -> None:
    """Write one file and the names beside it: of this file alone, or of all files in its folder."""
    if chosen == "npz":
        with replacing_file(path) as new, open(new, "wb") as file:
            write_npz(file, dataset)
        return
    with ExitStack() as stack:
        for what, names, size in (
            ("label", dataset.label_names, dataset.n_labels),
            ("feature", dataset.feature_names, dataset.n_features),
        ):
            own = path.with_name(f"{what}s.txt" if names_for_all else f"{stem(path)}.{what}s.txt")
            present = _names_beside(path, what)
            if names is not None and present != names:
                stack.enter_context(replacing_file(own)).write_bytes(names.to_bytes())
            elif names is None and present is not None and len(present) != size:
                raise DataError(
                    f"{what}s.txt beside {path.name} has {len(present)} names, the data set {size} unnamed {what}s",
                    path=path.parent,
                    expected="a folder of its own",
                    fix="Write it elsewhere.",
                )
        new = stack.enter_context(replacing_file(path))
        with open_for_writing(new, f"x.{chosen}") as file:
            write_text(file, dataset.X, dataset.Y, svmlight=chosen.startswith("svm"), progress=progress)
