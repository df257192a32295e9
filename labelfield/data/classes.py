"""Data with one class per row: the names of classes, their columns, and the check that no row has two."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_positives, from_counts, verify
from labelfield.data.dataset import Dataset, Names
from labelfield.data.reading import parse_number
from labelfield.errors import DataError, locating

_EXACT = 2**53
INTEGER = re.compile(r"-?[0-9]{1,4000}")  # Python refuses to convert longer ones
_FIRST_TOKEN = re.compile(rb"^[ \t\r\v\f]*([^ \t\r\v\f\n]+)", re.MULTILINE)
FIX_CLASS = "Give each row its class, or remove the row."


def class_name(text: str) -> str:
    """Return the name of a class. Programs write the same number as 1, +1 or 1.0: all are the class 1."""
    value = parse_number(text, np.float64)
    return str(int(value)) if value is not None and abs(value) < _EXACT and value.is_integer() else text


def class_columns(found: Sequence[str], which: NDArray[Any]) -> tuple[Names, NDArray[np.int32]]:
    """Return the names of the classes `found`, sorted as integers if all are, else as text, and each entry's column.

    `which` numbers the class of each entry by its place in `found`; two texts may be the same class.
    """
    names = [class_name(text) for text in found]
    are_integers = all(INTEGER.fullmatch(name) for name in names)
    ordered = sorted(set(names), key=int) if are_integers else sorted(set(names))
    column = {name: i for i, name in enumerate(ordered)}
    return Names(ordered), np.array([column[name] for name in names], np.int32)[which]


def class_values(names: Sequence[str]) -> NDArray[Any]:
    """Return the classes as integers if all of them are, else as text."""
    are_integers = all(INTEGER.fullmatch(name) and abs(int(name)) < _EXACT for name in names)
    return np.array([int(name) for name in names], np.int64) if are_integers else np.array(list(names))


def listed_names(names: Names, listed: Names, first: int) -> Names:
    """Look up classes that are numbers, from `first` on, in the list beside the file; words are names already."""
    if not all(INTEGER.fullmatch(name) for name in names):
        return names
    for name in names:
        if not first <= int(name) < first + len(listed):
            found = f"the class {name} has no name in the list beside the file"
            expected = f"a class from {first} to {first + len(listed) - 1}"
            raise DataError(found, expected, "Correct the list, or remove it to use no names.")
    return Names(listed[int(name) - first] for name in names)


def number_classes(blocks: Iterable[bytes], found: list[str], *, unlabelled: bool) -> Iterator[bytes]:
    """Replace the first word of each line, which is its class, by the place of the class in `found`.

    New classes are added to `found` as they are met. The lines can then be read like rows of label numbers.
    """
    numbers: dict[bytes, bytes] = {}
    line = 1

    def number(match: re.Match[bytes]) -> bytes:
        token = match[1]
        if token not in numbers:
            if b":" in token and unlabelled:
                return b" " + token
            with locating(None, line + match.string.count(b"\n", 0, match.start())):
                try:
                    text = token.decode()
                except UnicodeDecodeError:
                    raise DataError("the class is not UTF-8 text", fix="Save it as UTF-8.") from None
                if b":" in token or b"," in token:
                    raise _not_one_class(0 if b":" in token else token.count(b",") + 1)
            found.append(text)
            numbers[token] = b"%d" % len(numbers)
        return numbers[token]

    for block in blocks:
        yield _FIRST_TOKEN.sub(number, block)
        line += block.count(b"\n")


def _not_one_class(n_labels: int, row: int | None = None, line: int | None = None) -> DataError:
    found = {0: "no label", 2: "two labels"}.get(n_labels, f"{n_labels} labels")
    found = found if row is None else f"row {row} (counted from 0) has {found}"
    fix = "Use --method mlgpf for several labels per row." if n_labels else FIX_CLASS
    return DataError(found, "one class per row", fix, line=line)


def as_classes(dataset: Dataset, first_line: int | None, first_label: int, *, unlabelled: bool) -> Dataset:
    """Return the same rows with a named column for each class that occurs; raise a DataError unless each row has one.

    A class without a name is called by its number, from `first_label` on. `first_line` is the line of the first row, if
    known. With `unlabelled`, a row may have no class.
    """
    Y, names = dataset.Y, dataset.label_names
    verify(Y)  # that of a memory-mapped file has not been read yet
    counts = np.diff(Y.indptr).astype(np.int64)
    wrong = np.flatnonzero(counts > 1 if unlabelled else counts != 1)
    if wrong.size:
        row = int(wrong[0])
        place = {"row": row} if first_line is None else {"line": first_line + row}
        raise _not_one_class(int(counts[row]), **place)
    found = np.unique(Y.indices)
    kept = [str(i + first_label) if names is None else names[i] for i in found.tolist()]
    if len(set(kept)) < len(kept):
        twice = next(name for i, name in enumerate(kept) if name in kept[:i])
        raise DataError(f"two classes are called {twice!r}", "different names", "Rename one.")
    columns = np.searchsorted(found, Y.indices).astype(np.int32)
    return dataset.with_parts(Y=from_counts(counts, columns, None, len(kept)), label_names=Names(kept), test=None)


def align_classes(dataset: Dataset, names: Iterable[str]) -> Dataset:
    """Return the same rows with the label columns `names`, such as those of a model, followed by the other labels.

    Labels without names are called by their numbers.
    """
    own = [str(i) for i in range(dataset.n_labels)] if dataset.label_names is None else list(dataset.label_names)
    ordered = list(dict.fromkeys([*names, *own]))
    column = {name: i for i, name in enumerate(ordered)}
    place = np.array([column[name] for name in own], np.int32)
    Y = dataset.Y
    moved = as_positives(sparse.csr_array((Y.data, place[Y.indices], Y.indptr), shape=(dataset.n_rows, len(ordered))))
    test = None if dataset.test is None else align_classes(dataset.test, ordered)
    return dataset.with_parts(Y=moved, label_names=Names(ordered), test=test)


def share_classes(train: Dataset, test: Dataset) -> Dataset:
    """Join two splits: columns for the classes of the training rows, then for those that only the test rows have."""
    test = align_classes(test, train.label_names or ())
    return align_classes(train, test.label_names or ()).with_parts(test=test)
