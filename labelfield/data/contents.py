"""How a file is to be read, and what a reader returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelfield.csr import as_features, assemble
from labelfield.data.dataset import Dataset
from labelfield.errors import DataError
from labelfield.progress import Progress, ignore

__all__ = ["FileContents", "ReadOptions", "no_data"]


@dataclass(frozen=True)
class ReadOptions:
    """The options of `labelfield.read`, where they are explained."""

    one_based: bool | None = None
    one_based_labels: bool = False
    n_features: int = 0
    n_labels: int = 0
    classes: bool = False
    unlabelled: bool = False
    label_column: str | int | None = None
    narrow: bool = False
    progress: Progress = ignore


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

    def narrow(self, n_features: int) -> tuple[FileContents, int]:
        """Drop features from `n_features` on, unless the file states its widths; also return their number of values."""
        X = self.dataset.X
        if self.is_stated or X.shape[1] <= n_features:
            return self, 0
        kept = as_features(X[:, :n_features])
        return self._replace(dataset=self.dataset.with_parts(X=kept)), int(X.nnz - kept.nnz)

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


def no_data(path: Path, found: str) -> DataError:
    """Return the error of a file without rows."""
    return DataError(found, path=path, expected="rows of data", fix="Check where the file came from.")
