"""Parts that the readers of all formats share: their options and results, growing arrays, and numbers in text."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import assemble
from labelfield.data.dataset import Dataset
from labelfield.errors import DataError
from labelfield.progress import Progress

INTEGER = re.compile(r"-?[0-9]{1,4000}")  # Python refuses to convert longer ones
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class ReadOptions(NamedTuple):
    """The options of `labelfield.read`, where they are explained."""

    one_based: bool | None
    one_based_labels: bool
    n_features: int
    n_labels: int
    classes: bool
    unlabelled: bool
    label_column: str | int | None
    narrow: bool
    progress: Progress


class FileContents(NamedTuple):
    """The contents of one file: a whole data set, or one of its splits.

    Not every file states its widths; without `is_stated` they are those of the largest indices that occur. svmlight
    does not say whether it counts from 0 or 1: `seems_one_based` if no feature 0 occurs, which the other split may
    refute. If the file `holds_names`, lists of names beside it are not used. If it `has_classes`, each row has one
    class, and there is a column for each class that occurs; the other split may have different ones. If every line is
    a row, `first_line` is the line of row 0.
    """

    dataset: Dataset
    is_stated: bool
    seems_one_based: bool = False
    holds_names: bool = False
    has_classes: bool = False
    first_line: int | None = None

    def from_zero(self) -> FileContents:
        """Return the same contents with every feature index reduced by 1."""
        X = self.dataset.X
        X = assemble(X.data, X.indices - np.int32(1), X.indptr, (X.shape[0], max(X.shape[1] - 1, 0)))
        return self._replace(dataset=self.dataset.with_parts(X=X), seems_one_based=False)

    def widen(self, n_features: int, n_labels: int) -> Dataset:
        """Return the data set with at least this many columns, unless the file states its widths."""
        X, Y = self.dataset.X, self.dataset.Y
        if self.is_stated or (X.shape[1] >= n_features and Y.shape[1] >= n_labels):
            return self.dataset
        X, Y = (
            assemble(part.data, part.indices, part.indptr, (part.shape[0], max(part.shape[1], width)))
            for part, width in ((X, n_features), (Y, n_labels))
        )
        return self.dataset.with_parts(X=X, Y=Y)


def no_data(found: str) -> DataError:
    """Return the error of a file without rows."""
    return DataError(found, "rows of data", "Check where the file came from.")


class Growing:
    """An array that grows at its end. A large one grows by moving pages, not bytes, which keeps peak memory low."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self.array: NDArray[Any] = np.empty(1 << 16, dtype)
        self.size = 0

    def extend(self, more: NDArray[Any]) -> None:
        end = self.size + more.size
        if end > self.array.size:
            self.array.resize(max(end, self.array.size * 5 // 4), refcheck=False)
        self.array[self.size : end] = more
        self.size = end

    def finish(self) -> NDArray[Any]:
        self.array.resize(self.size, refcheck=False)
        return self.array


def parse_number(text: str, dtype: type[np.floating[Any]] = np.float32) -> float | None:
    """Return a number rounded to a type, infinite if it is too large; None for any other text, also for nan and inf."""
    if not _NUMBER.fullmatch(text):
        return None
    with np.errstate(over="ignore"):
        return float(dtype(float(text)))


def is_not_finite(text: str) -> bool:
    """Return whether a text means nan or infinity."""
    return text.strip("+-").lower() in ("nan", "inf", "infinity")
