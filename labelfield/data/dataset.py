"""The data set: sparse rows, their labels, and what the columns are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from labelfield.csr import MAX_COLUMNS, as_features, as_positives, assemble, gather_rows
from labelfield.data.names import Names
from labelfield.errors import DataError

__all__ = ["Dataset", "Part", "one_label_per_row", "row_numbers"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """N rows of D features (`X`, CSR float32) and K labels (`Y`, CSR whose stored entries are the positives).

    Whatever array or sparse matrix is given is brought to that form: sorted indices, no duplicates, no stored zeros.
    A data set with two splits is its training rows, with the test rows as `test`.
    """

    X: sparse.csr_array
    Y: sparse.csr_array
    label_names: Names | None = None
    feature_names: Names | None = None
    test: Dataset | None = None

    def __post_init__(self) -> None:
        if self.test is not None:
            object.__setattr__(self, "test", self._matching(self.test))
        object.__setattr__(self, "X", as_features(self.X))
        object.__setattr__(self, "Y", as_positives(self.Y))
        object.__setattr__(self, "label_names", _as_names(self.label_names))
        object.__setattr__(self, "feature_names", _as_names(self.feature_names))
        if self.X.shape[0] != self.Y.shape[0]:
            raise DataError(
                f"X has {self.X.shape[0]} rows and Y has {self.Y.shape[0]}",
                expected="one row of labels for each row of features",
                fix="Pass the matrices of the same rows.",
            )
        if max(self.n_features, self.n_labels) > MAX_COLUMNS:
            raise DataError(
                f"{self.n_features} features and {self.n_labels} labels",
                expected=f"at most {MAX_COLUMNS}",
                fix="Use fewer.",
            )
        if self.label_names is not None:
            self.label_names.require(self.n_labels, "label")
        if self.feature_names is not None:
            self.feature_names.require(self.n_features, "feature")

    def _matching(self, test: Dataset) -> Dataset:
        """The test rows, which have the columns of the training rows and their names."""
        labels, features = _as_names(self.label_names), _as_names(self.feature_names)
        for what, ours, theirs in (("label", labels, test.label_names), ("feature", features, test.feature_names)):
            if theirs is not None and theirs != ours:
                raise DataError(
                    f"the {what} names of the two splits differ",
                    expected="the same columns in both",
                    fix="Write both splits with the same columns.",
                )
        widths = [(int(part.X.shape[1]), int(part.Y.shape[1])) for part in (self, test)]
        if widths[0] != widths[1]:
            raise DataError(
                "the training rows have {} features and {} labels, the test rows {} and {}".format(
                    *widths[0], *widths[1]
                ),
                expected="the same in both splits",
                fix="Write both splits with the same header.",
            )
        return replace(test, label_names=labels, feature_names=features)

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    def __len__(self) -> int:
        return self.n_rows

    @property
    def train(self) -> Dataset:
        """The training rows alone."""
        return self if self.test is None else replace(self, test=None)

    @property
    def splits(self) -> Mapping[str, Dataset]:
        """The splits by name: `train` and `test`, or `all` for a data set without splits."""
        return {"all": self} if self.test is None else {"train": self.train, "test": self.test}

    def take(self, rows: ArrayLike | slice) -> Dataset:
        """The data set of these rows (indices, a mask or a slice), in this order."""
        chosen = row_numbers(rows, self.n_rows)
        return replace(self, X=gather_rows(self.X, chosen), Y=gather_rows(self.Y, chosen), test=None)

    def split(self, test: float = 0.2, seed: int = 0) -> Dataset:
        """Cut at random: `round(test * N)` rows become the test split; both keep the original order of rows."""
        if self.test is not None:
            raise DataError("the data set has two splits already", fix="Split its train or its test rows.")
        n_test = round(test * self.n_rows) if 0 < test < 1 else 0
        if not 0 < n_test < self.n_rows:
            raise DataError(
                f"a test share of {test} of {self.n_rows} rows",
                expected="a share between 0 and 1 that leaves rows on both sides",
                fix="Choose another share.",
            )
        is_test = np.zeros(self.n_rows, np.bool_)
        is_test[np.random.default_rng(seed).choice(self.n_rows, n_test, replace=False)] = True
        return replace(self.take(~is_test), test=self.take(is_test))

    def __repr__(self) -> str:
        test = "" if self.test is None else f", test={self.test.n_rows} rows"
        return f"Dataset({self.n_rows} rows, {self.n_features} features, {self.n_labels} labels{test})"


def _as_names(names: Iterable[str] | Names | None) -> Names | None:
    if isinstance(names, str):
        raise DataError(f"the names are the string {names!r}", expected="a list of strings", fix="Pass a list.")
    return names if names is None or isinstance(names, Names) else Names(names)


class Part(NamedTuple):
    """What one file holds: the whole data set, or one of its splits.

    Not every file states its widths; then they are only what happened to occur. And svmlight does not say where it
    starts to number: `seems_one_based` if no feature 0 occurs, which the other split may yet refute. A file that
    `holds_names` takes none from the lists beside it. One that `has_classes` has one a row, and a column for each that
    occurs, which may be others in the other split. Where every line is a row, `first_line` is that of row 0.
    """

    dataset: Dataset
    is_stated: bool
    seems_one_based: bool = False
    holds_names: bool = False
    has_classes: bool = False
    first_line: int | None = None

    def from_zero(self) -> Part:
        """The same with each feature index one less."""
        X = self.dataset.X
        X = assemble(X.data, X.indices - np.int32(1), X.indptr, (X.shape[0], max(X.shape[1] - 1, 0)))
        return self._replace(dataset=replace(self.dataset, X=X), seems_one_based=False)

    def narrow(self, n_features: int) -> tuple[Part, int]:
        """Without features from this one on, unless the file states its widths; and how many values they had."""
        X = self.dataset.X
        if self.is_stated or X.shape[1] <= n_features:
            return self, 0
        kept = X[:, :n_features]
        return self._replace(dataset=replace(self.dataset, X=kept)), int(X.nnz - kept.nnz)

    def widen(self, n_features: int, n_labels: int) -> Dataset:
        """With at least so many columns, unless the file states how many there are."""
        X, Y = self.dataset.X, self.dataset.Y
        if self.is_stated or (X.shape[1] >= n_features and Y.shape[1] >= n_labels):
            return self.dataset
        X, Y = (
            assemble(part.data, part.indices, part.indptr, (part.shape[0], max(part.shape[1], width)))
            for part, width in ((X, n_features), (Y, n_labels))
        )
        return replace(self.dataset, X=X, Y=Y)


def row_numbers(rows: ArrayLike | slice, n_rows: int) -> NDArray[np.int64]:
    """Indices, a mask or a slice as row numbers from 0 to n_rows - 1."""
    if isinstance(rows, slice):
        return np.arange(n_rows)[rows].copy()  # torch takes no negative strides
    chosen = np.asarray(rows)
    if chosen.size == 0:
        return np.empty(0, np.int64)
    if chosen.dtype == np.bool_ and chosen.shape == (n_rows,):
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise IndexError(f"rows must be a list of row numbers, a mask of {n_rows} or a slice")
    if chosen.min() < -n_rows or chosen.max() >= n_rows:
        raise IndexError(f"row {chosen.max()} of {n_rows}" if chosen.max() >= n_rows else f"row {chosen.min()}")
    chosen = chosen.astype(np.int64)
    return np.where(chosen < 0, chosen + n_rows, chosen)


def one_label_per_row(y: NDArray[np.integer], n_labels: int) -> sparse.csr_array:
    """Class numbers as a CSR array with one positive a row."""
    return sparse.csr_array(
        (np.ones(y.size, np.float32), y.astype(np.int32), np.arange(y.size + 1)), shape=(y.size, n_labels)
    )
