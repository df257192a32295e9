"""What is done to rows before a model sees them. It belongs to the model: it is saved with it, and applied anew."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import assemble

__all__ = ["VIEWS", "RowTransform", "choose_transform"]

VIEWS = ("unit", "sqrt", "log", "tfidf", "none")
_UNEVEN = 5.0
# Entries that are transformed at once: what a copy of the rows costs beside itself.
_BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class RowTransform:
    """Views of a row, side by side.

    Each value v is taken as it is ("unit"), as sign(v) √|v| ("sqrt"), as sign(v) log(1 + |v|) ("log"), or as that times
    log((1 + N) / (1 + n)) + 1 for a feature that n of N training rows have ("tfidf"); then each row at norm 1. Names
    joined by + give several views, each with columns of its own, together at norm 1. "none" leaves rows as they are.
    """

    name: str
    idf: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "+".join(view.strip() for view in self.name.split("+")))
        views = self.views
        if not set(views) <= set(VIEWS) or len(set(views)) < len(views) or ("none" in views and len(views) > 1):
            raise ValueError(f"row_transform={self.name!r}; expected one of {', '.join(VIEWS)}, or some joined by +")
        if ("tfidf" in views) != (self.idf is not None):
            raise ValueError("row_transform='tfidf' needs the frequencies of features, and no other does")

    @classmethod
    def fit(cls, name: str, X: sparse.csr_array) -> RowTransform:
        """The transform of this name, with what it has to know of the training rows."""
        if "tfidf" not in [view.strip() for view in name.split("+")]:
            return cls(name)
        counts = np.bincount(X.indices, minlength=X.shape[1])
        return cls(name, (np.log((1 + X.shape[0]) / (1 + counts)) + 1).astype(np.float32))

    @property
    def views(self) -> list[str]:
        return self.name.split("+")

    def __call__(self, X: sparse.csr_array) -> sparse.csr_array:
        """Rows as a model sees them (N, views · D)."""
        if self.name == "none":
            return X
        parts = [self._view(X, view) for view in self.views]
        if len(parts) == 1:
            return parts[0]
        joined = sparse.hstack(parts, format="csr")
        return assemble(joined.data, joined.indices.astype(np.int32, copy=False), joined.indptr, joined.shape)

    def _view(self, X: sparse.csr_array, view: str) -> sparse.csr_array:
        """X with the values of one view, each row at its share of norm 1; some rows at a time."""
        values = np.empty(X.nnz, np.float32)
        cuts = np.unique(np.searchsorted(X.indptr, np.arange(0, X.nnz, _BLOCK_ENTRIES)))
        for first, last in pairwise([*cuts.tolist(), X.shape[0]]):
            part = slice(int(X.indptr[first]), int(X.indptr[last]))
            block = self._values(X.data[part], X.indices[part], view)
            values[part] = _at_norm(block, np.diff(X.indptr[first : last + 1]), len(self.views) ** -0.5)
        # A value far below the largest of its row may round to 0; that is what it is then.
        result = assemble(values, X.indices, X.indptr, X.shape)
        if not values.all():
            result = sparse.csr_array(result, copy=True)
            result.eliminate_zeros()
            result = assemble(result.data, result.indices, result.indptr, X.shape)
        return result

    def _values(self, values: NDArray[np.float32], indices: NDArray[np.int32], view: str) -> NDArray[np.float32]:
        size = np.abs(values)
        if view == "unit":
            return np.asarray(values)
        if view == "sqrt":
            return np.asarray(np.sign(values) * np.sqrt(size))
        result = np.sign(values) * np.log1p(size)
        return np.asarray(result if self.idf is None or view == "log" else result * self.idf[indices])

    def fold(self, by_column: NDArray[np.float32]) -> NDArray[np.float32]:
        """Something about the columns a model sees, summed over the views of each feature."""
        return np.asarray(by_column.reshape(len(self.views), -1).sum(0))


def _at_norm(values: NDArray[np.float32], counts: NDArray[np.integer], norm: float) -> NDArray[np.float64]:
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
