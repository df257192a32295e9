"""One class a row: what classes are called, which column each has, and that no row has two."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts, verify
from labelfield.data.dataset import Dataset
from labelfield.data.names import Names
from labelfield.errors import DataError

__all__ = [
    "ClassNumbers",
    "align_classes",
    "as_classes",
    "class_columns",
    "class_name",
    "class_values",
    "listed_names",
    "share_classes",
]

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?[0-9]{1,4000}")  # Python refuses to convert longer ones
_EXACT = 2**53
_FIRST_TOKEN = re.compile(rb"^[ \t\r\v\f]*([^ \t\r\v\f\n]+)", re.MULTILINE)


def class_name(text: str) -> str:
    """What a class is called. Programs write one and the same number as 1, +1 and 1.0: all are the class 1."""
    if not _NUMBER.fullmatch(text):
        return text
    value = float(text)
    return str(int(value)) if abs(value) < _EXACT and value.is_integer() else text


def class_columns(found: Sequence[str], which: NDArray[Any]) -> tuple[Names, NDArray[np.int32]]:
    """The names of the classes `found`, integers in their order and else by text, and the column of each entry.

    `which` numbers the class of each entry as it stands in `found`; two texts may be one class.
    """
    names = [class_name(text) for text in found]
    are_integers = all(_INTEGER.fullmatch(name) for name in names)
    ordered = sorted(set(names), key=int) if are_integers else sorted(set(names))
    column = {name: i for i, name in enumerate(ordered)}
    return Names(ordered), np.array([column[name] for name in names], np.int32)[which]


def class_values(names: Sequence[str]) -> NDArray[Any]:
    """Classes as Python has them: integers if all of them are, else text."""
    are_integers = all(_INTEGER.fullmatch(name) and abs(int(name)) < _EXACT for name in names)
    return np.array([int(name) for name in names], np.int64) if are_integers else np.array(list(names))


def listed_names(names: Names, listed: Names, first: int, path: Path) -> Names:
    """What a list beside the file calls classes that are numbers, from `first` on; words are names already."""
    if not all(_INTEGER.fullmatch(name) for name in names):
        return names
    for name in names:
        if not first <= int(name) < first + len(listed):
            raise DataError(
                f"the class {name} has no name in the list beside the file",
                path=path,
                expected=f"a class from {first} to {first + len(listed) - 1}",
                fix="Correct the list, or remove it to go without names.",
            )
    return Names(listed[int(name) - first] for name in names)


class ClassNumbers:
    """Classes of a text file, numbered as they are met, so that its rows read like any with numbers for labels."""

    def __init__(self, path: Path, *, unlabelled: bool = False) -> None:
        self.path, self.unlabelled = path, unlabelled
        self.numbers: dict[bytes, bytes] = {}
        self.found: list[str] = []

    def recode(self, block: bytes, first_line: int) -> bytes:
        """A block of whole lines with the number of its class for the first word of each."""

        def number(match: re.Match[bytes]) -> bytes:
            token = match[1]
            known = self.numbers.get(token)
            if known is not None:
                return known
            if b":" in token and self.unlabelled:
                return b" " + token
            text = _text(token)
            if b":" in token or b"," in token or text is None:
                line = first_line + block.count(b"\n", 0, match.start())  # counted for an error alone
                if text is None:
                    raise DataError("the class is not UTF-8 text", path=self.path, line=line, fix="Save it as UTF-8.")
                n_labels = 0 if b":" in token else token.count(b",") + 1
                raise _not_one_class(n_labels, path=self.path, line=line)
            self.numbers[token] = b"%d" % len(self.found)
            self.found.append(text)
            return self.numbers[token]

        return _FIRST_TOKEN.sub(number, block)


def _text(token: bytes) -> str | None:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


def _not_one_class(n_labels: int, *, path: Path | None, line: int | None, row: int | None = None) -> DataError:
    found = {0: "no label", 2: "two labels"}.get(n_labels, f"{n_labels} labels")
    return DataError(
        found if row is None else f"row {row}, counted from 0, has {found}",
        path=path,
        line=line,
        expected="one class a row",
        fix="Use --method mlgpf for several labels a row." if n_labels else "Give each row its class, or remove it.",
    )


def as_classes(
    dataset: Dataset,
    *,
    path: Path | None = None,
    first_line: int | None = None,
    first_label: int = 0,
    unlabelled: bool = False,
) -> Dataset:
    """The same rows with a column and a name for each class that occurs; a DataError unless each row has one.

    A class without a name is called by its number, from `first_label` on. Rows are lines from `first_line` on, where
    that is known. With `unlabelled` a row may have no class.
    """
    Y, names = dataset.Y, dataset.label_names
    try:
        verify(Y)  # of a mapped file nothing has been looked at yet
    except DataError as error:
        raise error.at(path) from None
    counts = np.diff(Y.indptr).astype(np.int64)
    wrong = np.flatnonzero(counts > 1 if unlabelled else counts != 1)
    if wrong.size:
        row = int(wrong[0])
        raise _not_one_class(
            int(counts[row]),
            path=path,
            line=None if first_line is None else first_line + row,
            row=row if first_line is None else None,
        )
    found = np.unique(Y.indices)
    kept = [str(i + first_label) if names is None else names[i] for i in found.tolist()]
    if len(set(kept)) < len(kept):
        twice = next(name for i, name in enumerate(kept) if name in kept[:i])
        raise DataError(f"two classes are called {twice!r}", path=path, expected="different names", fix="Rename one.")
    columns = np.searchsorted(found, Y.indices).astype(np.int32)
    return replace(dataset, Y=from_counts(counts, columns, None, len(kept)), label_names=Names(kept), test=None)


def align_classes(dataset: Dataset, names: Iterable[str]) -> Dataset:
    """The same rows with the columns of `names`, such as those of a trained model, and its other classes after them.

    Labels without names are called by their numbers.
    """
    own = [str(i) for i in range(dataset.n_labels)] if dataset.label_names is None else list(dataset.label_names)
    ordered = list(dict.fromkeys([*names, *own]))
    column = {name: i for i, name in enumerate(ordered)}
    place = np.array([column[name] for name in own], np.int32)
    Y = dataset.Y
    return replace(
        dataset,
        Y=sparse.csr_array((Y.data, place[Y.indices], Y.indptr), shape=(dataset.n_rows, len(ordered))),
        label_names=Names(ordered),
        test=None if dataset.test is None else align_classes(dataset.test, ordered),
    )


def share_classes(train: Dataset, test: Dataset) -> Dataset:
    """Both splits with the columns of the training rows, and after these the classes that only the test rows have."""
    test = align_classes(test, train.label_names or ())
    return replace(align_classes(train, test.label_names or ()), test=test)
