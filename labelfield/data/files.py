"""`read` and `write`: any data set, by its path."""

import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from os import PathLike
from pathlib import Path

from labelfield.atomic import replacing_file, replacing_folder
from labelfield.csr import as_features
from labelfield.csr import verify as verify_csr
from labelfield.data.arff import read_arff
from labelfield.data.classes import as_classes, listed_names, share_classes
from labelfield.data.csv_table import read_csv
from labelfield.data.dataset import Dataset, Names
from labelfield.data.npz import label_partner, read_npz, write_npz
from labelfield.data.reading import COMPRESSED_SUFFIXES, FileContents, Options, open_for_writing, stem
from labelfield.data.store import STORE_FILES, is_store, open_store, write_store
from labelfield.data.text import read_text, write_text
from labelfield.errors import DataError, locating
from labelfield.progress import Progress, ignore

_SVMLIGHT = (".svm", ".svmlight", ".libsvm")
_TEXT = (".txt", *_SVMLIGHT, ".dat", ".data")
_READERS = {".npz": read_npz, ".csv": read_csv, ".arff": read_arff}
_SPLITS = ("train", "test")
FORMATS = ("folder", "npz", *(f"{kind}{packed}" for kind in ("txt", "svm") for packed in ("", *COMPRESSED_SUFFIXES)))
# The files that `write` may leave in a folder, and may therefore replace.
OURS = {
    *STORE_FILES,
    *(f"{split}/{name}" for split in _SPLITS for name in STORE_FILES),
    *(f"{split}.{format}" for split in _SPLITS for format in FORMATS),
}
# Suffixes of formats that are not written: an error is better than a folder of that name.
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
    scratch: str | PathLike[str] | None = None,
    progress: Progress = ignore,
) -> Dataset:
    """Read a data set: XML-repository text, svmlight, CSV, Mulan ARFF, .npz, our folder, or a folder with two splits.

    Text may be compressed (gzip, bzip2, xz). `labels.txt` and `features.txt` beside the file name the columns.
    A folder with `train.*` and `test.*` gives the training rows, with the test rows as `.test`.
    `one_based` says that a text file numbers its features from 1, and `one_based_labels` that it numbers its labels
    from 1. By default features start at 0, but in headerless text at 1 unless a feature 0 occurs. A file that does not
    state its widths gets at least `n_features` and `n_labels` columns. With `narrow`, features beyond `n_features`,
    which a model does not know, are left out with a warning. `progress` is called with (bytes read, bytes in total).
    With a `scratch` folder, what is read from text, CSV or ARFF is kept in files there, which vanish with the data set,
    and not in memory.

    With `classes`, each row must have exactly one label, which in svmlight may be any word or number. There is a named
    column for each class that occurs, those of the training rows first. A CSV file is always read this way;
    `label_column` is the name of its label column or its number from 0. By default that is the column called label,
    class, target or y, or else the last one. With `unlabelled`, for rows to predict, a class may be missing, and a CSV
    file of `n_features` columns need not have a label column.
    """
    path = Path(path)
    if narrow and not n_features:
        raise ValueError("narrow=True needs n_features: features beyond it are left out")
    options = Options(
        one_based,
        one_based_labels,
        n_features,
        n_labels,
        classes,
        unlabelled,
        label_column,
        progress,
        None if scratch is None else Path(scratch),
    )
    if not path.exists():
        raise DataError("there is no such file or folder", path=path, fix="Check the path.")
    if not path.is_dir():
        return _read_files([path], options, narrow)
    if not is_store(path):
        return _read_files([_find_split(path, split) for split in _SPLITS], options, narrow)
    dataset = open_store(path)
    if not classes:
        return dataset
    return _with_classes([FileContents(split, True, path=path) for split in dataset.splits.values()], options)


def _read_files(files: list[Path], options: Options, narrow: bool) -> Dataset:
    """Read one file or two splits, which share widths and names."""
    features, labels = (_names_beside(files[0], what) for what in ("feature", "label"))
    parts = [_read_file(file, options)._replace(path=file) for file in files]
    # svmlight starts at 1 by definition, but many files start at 0: it is 1 unless a feature 0 occurs in any split.
    if all(part.seems_one_based for part in parts):
        parts = [part.from_zero() for part in parts]
    if narrow:
        parts = [_narrowed(part, options.n_features) for part in parts]
    # A file that does not state its widths is as wide as the list of names, or as the wider of two splits.
    n_features = max(options.n_features, len(features or ()), *(part.dataset.n_features for part in parts))
    n_labels = max(options.n_labels, len(labels or ()), *(part.dataset.n_labels for part in parts))
    has_classes = options.classes or any(part.has_classes for part in parts)
    parts = [part.widen(n_features, 0 if has_classes else n_labels) for part in parts]
    parts = [_with_names(part, features, labels, int(options.one_based_labels)) for part in parts]
    if has_classes:
        return _with_classes(parts, options)
    train, *test = (part.dataset for part in parts)
    return train.with_parts(test=test[0]) if test else train


def _read_file(path: Path, options: Options) -> FileContents:
    if path.is_dir():
        return FileContents(open_store(path), True, holds_names=True)
    with locating(path):
        return _READERS.get(_kind(path), read_text)(path, options)


def _narrowed(part: FileContents, n_features: int) -> FileContents:
    """Drop features from `n_features` on, with a warning, unless the file states its widths."""
    X = part.dataset.X
    if part.is_stated or X.shape[1] <= n_features:
        return part
    kept = as_features(X[:, :n_features])
    if n_lost := int(X.nnz - kept.nnz):
        warnings.warn(f"{part.path}: left out {n_lost:,} values of features that training did not have", stacklevel=2)
    return part.with_parts(X=kept)


def _with_classes(parts: list[FileContents], options: Options) -> Dataset:
    """Join one or two splits with one class per row."""
    splits = []
    for part in parts:
        # Only text numbers labels from 1, and only under a header, where every line is a row, are all labels numbers.
        first_label = 0 if part.first_line is None else int(options.one_based_labels)
        with locating(part.path):
            splits.append(as_classes(part.dataset, part.first_line, first_label, unlabelled=options.unlabelled))
    return splits[0] if len(splits) == 1 else share_classes(*splits)


def _with_names(part: FileContents, features: Names | None, labels: Names | None, first_label: int) -> FileContents:
    """Add the names found beside the file, unless the file has names or is of a kind that holds them."""
    own, own_features = part.dataset.label_names, part.dataset.feature_names
    if part.holds_names:
        return part
    if part.has_classes and labels is not None and own is not None:
        with locating(part.path):
            own = listed_names(own, labels, first_label)
    labels, features = labels if own is None else own, features if own_features is None else own_features
    return part.with_parts(label_names=labels, feature_names=features)


def _kind(path: Path) -> str:
    """Return the suffix that tells the format, without that of the compression."""
    suffixes = path.suffixes
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1].lower() if suffixes else ""


def _names_beside(path: Path, what: str) -> Names | None:
    """Read `STEM.labels.txt`, which is for this file alone, or `labels.txt`, which is for all files in its folder."""
    if path.is_dir():
        return None
    for name in (f"{stem(path)}.{what}s.txt", f"{what}s.txt"):
        candidate = path.with_name(name)
        if candidate.is_file() and candidate != path:
            return Names.in_file(candidate)
    return None


def _find_split(folder: Path, split: str) -> Path:
    found = sorted(_split_candidates(folder, split))
    if len(found) == 1:
        return found[0]
    expected = f"one {split}.* that labelfield reads ({split}.txt, .txt.gz, .svm, .csv, .arff, .npz, or a folder)"
    if found:
        what = f"{' and '.join(p.name for p in found)} both look like the {split} split"
        raise DataError(what, expected, "Keep one of them.", path=folder)
    contents = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    fix = "Name a file of the folder, or its two splits train.* and test.*."
    raise DataError(f"a folder without {split} rows ({contents})", expected, fix, path=folder)


def _split_candidates(folder: Path, split: str) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name == split and is_store(entry):
                yield entry
        elif _kind(entry) in (*_TEXT, *_READERS) and re.search(rf"(\A|[-_.]){split}\Z", stem(entry)):
            # In a pair of SciPy matrices, Y is found from X.
            others = entry.parent.glob("*.npz") if entry.suffix == ".npz" else ()
            if not any(label_partner(other) == entry for other in others):
                yield entry


def verify(dataset: Dataset, path: str | PathLike[str] | None = None) -> None:
    """Read all of a data set that was opened memory-mapped and raise a DataError if it is damaged.

    Opening checks only sizes, and a batch checks only its own rows; this checks everything, once.
    """
    for split in dataset.splits.values():
        with locating(path):
            verify_csr(split.X)
            verify_csr(split.Y)
            for names in (split.label_names, split.feature_names):
                if names is not None:
                    names[:0]


def format_of(path: Path) -> str:
    """Return the format that a name asks for: by its suffix, or our folder."""
    kind, suffix = _kind(path), path.suffix
    packed = suffix if suffix in COMPRESSED_SUFFIXES else ""
    if kind == ".npz" and not packed:
        return "npz"
    if kind in _TEXT:
        return ("svm" if kind in _SVMLIGHT else "txt") + packed
    if kind in _FOREIGN or packed:
        formats = ", ".join(FORMATS)
        raise ValueError(f"{path.name}: labelfield does not write {kind or 'such'} files; it writes {formats}")
    return "folder"


def write(
    dataset: Dataset, path: str | PathLike[str], *, format: str | None = None, progress: Progress = ignore
) -> None:
    """Write a data set so that `read` gives it back exactly; an earlier one at that path is replaced.

    The suffix tells the format (`.txt`, `.svm`, each also with `.gz`, `.bz2`, `.xz`; `.npz`); without one it is our
    folder. `format` overrides the suffix. Two splits are written into a folder, as `train.*` and `test.*`, with
    `labels.txt` and `features.txt` for both; the names of a single text file are written beside it, to
    `STEM.labels.txt` and `STEM.features.txt`. Either everything is written or nothing.
    """
    path = Path(path)
    chosen = format or format_of(path)
    if chosen not in FORMATS:
        raise ValueError(f"format {chosen!r}; expected one of {', '.join(FORMATS)}")
    if re.search(r"(\A|\.)(labels|features)\.txt\Z", path.name):
        raise ValueError(f"{path.name}: this name is reserved for lists of names; choose another")
    if chosen == "folder":
        with replacing_folder(path, OURS) as folder:
            write_store(dataset, folder)
        return
    if dataset.test is None:
        _write_file(dataset, path, chosen, progress)
        return
    if format is None:
        raise ValueError(f"{path.name}: one file cannot hold two splits; name a folder and pass format={chosen!r}")
    with replacing_folder(path, OURS) as folder:
        for name, split in dataset.splits.items():
            _write_file(split, folder / f"{name}.{chosen}", chosen, progress, names_for_all=True)


def _write_file(dataset: Dataset, path: Path, chosen: str, progress: Progress, *, names_for_all: bool = False) -> None:
    """Write one file, with its names beside it: for this file alone, or for all files in its folder."""
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
                found = f"{what}s.txt beside {path.name} has {len(present)} names, the data set {size} unnamed {what}s"
                raise DataError(found, "a folder of its own", "Write it elsewhere.", path=path.parent)
        new = stack.enter_context(replacing_file(path))
        with open_for_writing(new, f"x.{chosen}") as file:
            write_text(file, dataset, svmlight=chosen.startswith("svm"), progress=progress)
