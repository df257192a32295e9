"""Labels in cells of similar ones, so that the best labels of a row are found without looking at every label.

A row visits the cells that look most promising to it. All labels there are scored as in a search of all labels, so that
their probabilities are the same; a bound for each other cell often proves that nothing was overlooked. How many cells
a row visits is decided by an audit, on rows for which all labels were ranked as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.models.linear.scores import Weights

# Cells are about this many times the root of the number of labels: a row visits few, and each is small.
_CELLS_PER_ROOT = 4.0
# Labels per cell from which centres are learned, rounds, and entries of distances that exist at once.
_PER_CENTRE, _N_ROUNDS, _ENTRIES = 24, 5, 1 << 24
# If a row has to visit a larger share of the cells, a search of all labels is as fast.
_MOST_VISITED = 0.25

# Numbers per label that stand for its sparse weights when labels are put into cells.
_SKETCH = 64

Vectors = Callable[[NDArray[np.int64]], NDArray[np.float32]]


@dataclass(frozen=True)
class Audit:
    """How many cells a row visits, and what that was found to give: the share of the best `k` labels that are found, on
    average over `n_rows` rows, which is at least `target` with this confidence."""

    n_visits: int
    k: int
    recall: float
    target: float
    confidence: float
    n_rows: int

    def __post_init__(self) -> None:
        counts = self.n_visits, self.k, self.n_rows
        shares = self.recall, self.target, self.confidence
        if not all(type(count) is int and count >= 1 for count in counts):
            raise ValueError("the audit of cells has counts that are not whole numbers from 1")
        if not all(type(share) in (int, float) and 0 <= share <= 1 for share in shares):
            raise ValueError("the audit of cells has shares that are not between 0 and 1")


@dataclass(frozen=True, eq=False)
class Cells:
    """The cell of each label (K,), and the audit of searches in them."""

    of_label: NDArray[np.int32]
    n_cells: int
    audit: Audit

    @property
    def pays(self) -> bool:
        """Whether rows visit few enough cells for a search in them to be faster than one of all labels."""
        return self.audit.n_visits <= _MOST_VISITED * self.n_cells

    def layout(self) -> Layout:
        """Return the labels in the order of their cells."""
        return Layout.of(self.of_label, self.n_cells)

    def describe(self) -> dict[str, Any]:
        """Return all but the cells of labels, as JSON can hold it."""
        return {"n_cells": self.n_cells, "audit": asdict(self.audit)}

    @classmethod
    def restore(cls, described: Any, of_label: NDArray[Any], n_labels: int) -> Cells:
        """Make cells of what a folder from anyone says; raise a ValueError where it does not fit.

        Nothing in it can make a search return a wrong probability, or a certificate that does not hold: bounds are
        computed from the model. Bad cells are slow, and miss labels.
        """
        n_cells, audit = described["n_cells"], Audit(**described["audit"])
        if type(n_cells) is not int or not 1 <= n_cells <= n_labels or audit.n_visits > n_cells:
            raise ValueError(f"{n_cells!r} cells for {n_labels} labels, of which {audit.n_visits} are visited")
        if of_label.shape != (n_labels,) or of_label.dtype != np.int32:
            raise ValueError(f"cells of labels of shape {of_label.shape}")
        if not 0 <= int(of_label.min()) <= int(of_label.max()) < n_cells:
            raise ValueError("labels lie in cells that do not exist")
        return cls(of_label, n_cells, audit)


class Layout(NamedTuple):
    """The labels in the order of their cells (K,), where each cell begins (C + 1,), and the cell of each place."""

    order: NDArray[np.int32]
    starts: NDArray[np.int64]
    cell_of_place: NDArray[np.int32]

    @classmethod
    def of(cls, of_label: NDArray[np.int32], n_cells: int) -> Layout:
        """Lay out labels by the cell of each."""
        order = np.argsort(of_label, kind="stable").astype(np.int32)
        sizes = np.bincount(of_label, minlength=n_cells)
        return cls(order, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), of_label[order])

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return len(self.starts) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of labels in each cell."""
        return np.diff(self.starts)


def default_cells(n_labels: int) -> int:
    """Return into how many cells this many labels are put."""
    return max(1, min(n_labels, ceil(_CELLS_PER_ROOT * sqrt(n_labels))))


def similar(vectors: Vectors, n_labels: int, n_cells: int, seed: int) -> NDArray[np.int32]:
    """Return the cell of each label (K,), by k-means: `vectors(labels)` has a row for each of some labels.

    Centres are learned from some of the labels; a few of the cells may end up empty.
    """
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(n_labels, min(n_labels, _PER_CENTRE * n_cells), replace=False))
    points = vectors(chosen)
    centres = points[np.sort(rng.choice(len(points), n_cells, replace=False))].copy()
    for _ in range(_N_ROUNDS):
        nearest = _nearest(points, centres)
        counts = np.bincount(nearest, minlength=n_cells)
        order = np.argsort(nearest, kind="stable")
        there = np.flatnonzero(counts)
        sums = np.add.reduceat(points[order], (np.cumsum(counts) - counts)[there], axis=0, dtype=np.float64)
        centres[there] = sums / counts[there, None]
        empty = np.flatnonzero(counts == 0)
        centres[empty] = points[rng.choice(len(points), empty.size)]
    step = max(1, _ENTRIES // n_cells)
    parts = [
        _nearest(vectors(np.arange(first, min(first + step, n_labels))), centres) for first in range(0, n_labels, step)
    ]
    return np.concatenate(parts)


def _nearest(points: NDArray[np.float32], centres: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the nearest centre of each point: it maximises x·c - ‖c‖² / 2."""
    half, found = 0.5 * np.square(centres).sum(1), np.empty(len(points), np.int32)
    step = max(1, _ENTRIES // len(centres))
    for first in range(0, len(points), step):
        some = slice(first, first + step)
        found[some] = (points[some] @ centres.T - half).argmax(1)
    return found


def by_cell(ufunc: np.ufunc, values: NDArray[Any], layout: Layout) -> NDArray[np.float32]:
    """Return the maximum or another reduction of values of labels (K,) over each cell; -inf for an empty one."""
    found = np.full(layout.n_cells, -np.inf, np.float32)
    there = np.flatnonzero(layout.sizes)
    found[there] = ufunc.reduceat(values[layout.order], layout.starts[there])
    return found


def sketch(weights: Weights, rows: sparse.csr_array) -> Vectors:
    """Return a random projection of sparse weights, in which distances say how much wᵀx differs in such rows."""
    # Features are scaled by their root mean square in the rows.
    squares = np.bincount(rows.indices, np.square(rows.data, dtype=np.float64), rows.shape[1]) / max(rows.shape[0], 1)
    signs = np.random.default_rng(0).standard_normal((rows.shape[1], _SKETCH), np.float32)
    signs *= np.sqrt(squares / _SKETCH).astype(np.float32)[:, None]

    def of(labels: NDArray[np.int64]) -> NDArray[np.float32]:
        sizes = weights.pointers[labels + 1] - weights.pointers[labels]
        pointers = np.concatenate([[0], np.cumsum(sizes)])
        chosen = np.arange(pointers[-1]) + np.repeat(weights.pointers[labels] - pointers[:-1], sizes)
        parts = weights.weights[chosen], weights.features[chosen], pointers
        return np.asarray(sparse.csr_array(parts, shape=(len(labels), rows.shape[1])) @ signs)

    return of
