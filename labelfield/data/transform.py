"""What is done to rows before a model sees them. It belongs to the model: it is saved with it, and applied anew."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_features, assemble
from labelfield.data.images import deskew

__all__ = ["VIEWS", "RowTransform", "choose_class_transform", "choose_transform"]

VIEWS = ("unit", "sqrt", "log", "tfidf", "scaled", "range", "deskew", "none")
_ALONE = ("scaled", "range", "deskew", "none")
_WEIGHTED = ("tfidf", "scaled", "range", "deskew")
_UNEVEN = 5.0
# Deviations from 0 beyond which a mean is subtracted.
_FAR = 3.0
_FEW_FEATURES = 1000
# Of fewer features that end at the same value it may be chance.
_LEAST_PIXELS = 50
# Entries that are transformed at once: what a copy of the rows costs beside itself.
_BLOCK_ENTRIES = 1 << 22
# A standard deviation below this share of the mean is what rounding makes of a feature that is the same in all rows.
_CONSTANT = 1e-9


@dataclass(frozen=True, eq=False)
class RowTransform:
    """Views of a row, side by side.

    Each value v is taken as it is ("unit"), as sign(v) √|v| ("sqrt"), as sign(v) log(1 + |v|) ("log"), or as that times
    log((1 + N) / (1 + n)) + 1 for a feature that n of N training rows have ("tfidf"); then each row at norm 1. Names
    joined by + give several views, each with columns of its own, together at norm 1.

    Four stand alone and leave norms as they are. "scaled" divides each value by the standard deviation of its feature
    over the training rows (by 1 where that is 0). From features whose mean is more than three deviations away from 0,
    nine tenths of whose values cannot be 0, the mean is subtracted first: distances of such numbers would drown in
    rounding. Distances are the same as after centring all, and zeros of other features stay zeros. "range" divides all
    values by the largest size of any in the training rows, as images want it. "deskew" does so too, takes rows as
    square images, moves each to the middle and sets it upright (`labelfield.data.images`). "none" leaves rows as they
    are.

    `weights` is what multiplies each feature: of "tfidf" the second factor, of "scaled", "range" and "deskew" one
    over the divisor. `shifts` is what "scaled" subtracts before.
    """

    name: str
    weights: NDArray[np.float32] | None = None
    shifts: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "+".join(_split(self.name)))
        views = self.views
        is_known = set(views) <= set(VIEWS) and len(set(views)) == len(views)
        if not is_known or (len(views) > 1 and set(views) & set(_ALONE)):
            raise ValueError(
                f"row_transform={self.name!r}; expected one of {', '.join(VIEWS)}, "
                "or some of the first four joined by +"
            )
        if bool(set(views) & set(_WEIGHTED)) != (self.weights is not None):
            raise ValueError(f"row_transform={', '.join(_WEIGHTED)} need a weight for each feature, and no other does")
        if (self.name == "scaled") != (self.shifts is not None):
            raise ValueError("row_transform='scaled' needs a shift for each feature, and no other does")
        if self.name == "deskew" and self.weights is not None and isqrt(self.weights.size) ** 2 != self.weights.size:
            raise ValueError(f"row_transform='deskew' takes square images; {self.weights.size} features are no square")

    @classmethod
    def fit(cls, name: str, X: sparse.csr_array) -> RowTransform:
        """The transform of this name, with what it has to know of the training rows."""
        views = _split(name)
        if "tfidf" in views:
            counts = np.bincount(X.indices, minlength=X.shape[1])
            return cls(name, (np.log((1 + X.shape[0]) / (1 + counts)) + 1).astype(np.float32))
        if "scaled" in views:
            return cls(name, *_scales(X))
        if "deskew" in views or "range" in views:
            largest = float(np.abs(X.data).max(initial=0))
            return cls(name, np.full(X.shape[1], 1 / largest if largest > 0 else 1, np.float32))
        return cls(name)

    @property
    def views(self) -> list[str]:
        return self.name.split("+")

    @property
    def has_unit_norm(self) -> bool:
        """Whether rows that are not empty come out at norm 1."""
        return self.name not in _ALONE

    def __call__(self, X: sparse.csr_array) -> sparse.csr_array:
        """Rows as a model sees them (N, views · D)."""
        if self.name == "none":
            return X
        if self.name == "deskew" and self.weights is not None:
            return _upright(X, self.weights)
        if self.shifts is not None and self.shifts.any():
            X = _shifted(X, self.shifts)
        parts = [self._view(X, view) for view in self.views]
        if len(parts) == 1:
            return parts[0]
        joined = sparse.hstack(parts, format="csr")
        return assemble(joined.data, joined.indices.astype(np.int32, copy=False), joined.indptr, joined.shape)

    def _view(self, X: sparse.csr_array, view: str) -> sparse.csr_array:
        """X with the values of one view, each row at its share of norm 1 unless norms stay; some rows at a time."""
        values = np.empty(X.nnz, np.float32)
        cuts = np.unique(np.searchsorted(X.indptr, np.arange(0, X.nnz, _BLOCK_ENTRIES)))
        for first, last in pairwise([*cuts.tolist(), X.shape[0]]):
            part = slice(int(X.indptr[first]), int(X.indptr[last]))
            block = self._values(X.data[part], X.indices[part], view)
            if self.has_unit_norm:
                block = _at_norm(block, np.diff(X.indptr[first : last + 1]), len(self.views) ** -0.5)
            values[part] = block
        # A value far below the largest of its row may round to 0; that is what it is then.
        result = assemble(values, X.indices, X.indptr, X.shape)
        if not values.all():
            result = sparse.csr_array(result, copy=True)
            result.eliminate_zeros()
            result = assemble(result.data, result.indices, result.indptr, X.shape)
        return result

    def _values(self, values: NDArray[np.float32], indices: NDArray[np.int32], view: str) -> NDArray[np.floating]:
        size = np.abs(values)
        if view == "unit":
            return np.asarray(values)
        if view in ("scaled", "range") and self.weights is not None:
            return np.asarray(values * self.weights[indices])
        if view == "sqrt":
            return np.asarray(np.sign(values) * np.sqrt(size))
        result = np.sign(values) * np.log1p(size)
        return np.asarray(result if self.weights is None or view == "log" else result * self.weights[indices])

    def fold(self, by_column: NDArray[np.float32]) -> NDArray[np.float32]:
        """Something about the columns a model sees, summed over the views of each feature."""
        return np.asarray(by_column.reshape(len(self.views), -1).sum(0))


def _split(name: str) -> list[str]:
    return [view.strip() for view in name.split("+")]


def _shifted(X: sparse.csr_array, shifts: NDArray[np.float32]) -> sparse.csr_array:
    """X with these numbers subtracted from its columns; those of other columns do not change."""
    columns = np.flatnonzero(shifts)
    counts = np.full(X.shape[0], columns.size, np.int64)
    indices = np.tile(columns.astype(np.int32), X.shape[0])
    below = assemble(np.tile(shifts[columns], X.shape[0]), indices, np.r_[0, np.cumsum(counts)], X.shape)
    return as_features(sparse.csr_array(X - below))


def _scales(X: sparse.csr_array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """One over the standard deviation of each feature over all rows, 1 for a feature that is the same in all; and its
    mean where that is far from 0, else 0."""
    n, d = X.shape
    counts = np.bincount(X.indices, minlength=d)
    mean, square = np.zeros(d), np.zeros(d)
    parts = [slice(start, start + _BLOCK_ENTRIES) for start in range(0, X.nnz, _BLOCK_ENTRIES)]
    for part in parts:
        mean += np.bincount(X.indices[part], X.data[part], d) / n
    for part in parts:
        square += np.bincount(X.indices[part], np.square(X.data[part] - mean[X.indices[part]]), d)
    deviation = np.sqrt((square + (n - counts) * mean**2) / max(n, 1))
    varies = deviation > np.maximum(_CONSTANT * np.abs(mean), np.finfo(np.float32).tiny)
    deviation = np.where(varies, deviation, 1)
    return np.asarray(1 / deviation, np.float32), np.asarray(
        np.where(np.abs(mean) > _FAR * deviation, mean, 0), np.float32
    )


def _upright(X: sparse.csr_array, weights: NDArray[np.float32]) -> sparse.csr_array:
    """Rows that are square images, set upright, some at a time: what is dense stays small."""
    n, d = X.shape
    side, step = isqrt(d), max(1, _BLOCK_ENTRIES // max(d, 1))
    parts = []
    for start in range(0, n, step):
        images = deskew((X[start : start + step].toarray() * weights).reshape(-1, side, side))
        parts.append(sparse.csr_array(images.reshape(-1, d)))
    return as_features(sparse.vstack(parts, format="csr")) if parts else X


def _at_norm(values: NDArray[np.floating], counts: NDArray[np.integer], norm: float) -> NDArray[np.float64]:
    """Values of rows with so many entries each, scaled so that each row has this norm."""
    filled = counts[counts > 0]
    starts = np.cumsum(filled) - filled
    norms = np.sqrt(np.add.reduceat(np.square(values, dtype=np.float64), starts)) if starts.size else np.ones(0)
    return np.asarray(values * np.repeat(norm / norms, filled))


def choose_transform(X: sparse.csr_array) -> str:
    """A rule on training rows alone: "sqrt" where few large values rule a row, else "unit".

    They do where the largest absolute value of a row is more than 5 times the mean one (median over rows): raw counts
    and tf-idf let single words drown all others (EUR-Lex: 12; RCV1, scaled by its makers: 3; binary rows: 1).
    """
    counts = np.diff(X.indptr)
    filled = counts > 0
    if not filled.any():
        return "unit"
    size, starts = np.abs(X.data), X.indptr[:-1][filled]
    mean = np.add.reduceat(size, starts) / counts[filled]
    return "sqrt" if float(np.median(np.maximum.reduceat(size, starts) / mean)) > _UNEVEN else "unit"


def choose_class_transform(X: sparse.csr_array) -> str:
    """A rule on training rows alone, for models of one class a row.

    Measurements, of which there are fewer than a thousand, have scales of their own and are "scaled", unless most of
    them end at the same largest value, as the pixels of images do: these have one scale. Such rows, and words, are
    treated as `choose_transform` says.
    """
    if X.shape[1] >= _FEW_FEATURES:
        return choose_transform(X)
    largest = np.zeros(X.shape[1], np.float32)
    np.maximum.at(largest, X.indices, np.abs(X.data))
    used = largest[largest > 0]
    has_one_scale = used.size >= _LEAST_PIXELS and np.mean(used == used.max()) > 0.5
    return choose_transform(X) if has_one_scale else "scaled"
