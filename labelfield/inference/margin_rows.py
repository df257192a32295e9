"""Training rows as the solvers of max-margin machines take them, and as a block of labels sees them.

A block of labels sees the rows on its features alone, and keeps an α for each row and label. Few rows are copied for
that (`COPIED_BYTES`). Many are read where they are, a window at a time, and their α is in a file: memory then does not
grow with the rows. Windows are put together from blocks of all parts of the data, in random order. Which way is taken
depends on the size of the rows alone, so that a folder that is memory-mapped and the same rows in memory train the same
machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts, gather_rows, row_of_entries, some_of, take_rows
from labelfield.mapped import advise, room_in_file, scratch_folder
from labelfield.models.linear.plan import COPIED_BYTES

# Prior standard deviation of the intercept around -1. Rare labels stay there, since a constant of 0.3 in rows of norm 1
# is dear to use; frequent labels move away, which they need.
INTERCEPT_DEVIATION = 0.3
# Bytes of the copy of the rows for a block of labels: of each entry, and of α and the sign of each row and label.
_PER_ENTRY, _PER_LABEL = 8, 5
# Entries and rows of a window, and blocks of neighbouring rows that a window consists of.
_WINDOW_ENTRIES, _WINDOW_ROWS, _WINDOW_BLOCKS = 1 << 22, 1 << 15, 32


class MarginRows:
    """Training rows and labels as the solvers take them, the folds whose rows are scored, as rising row numbers, and
    the prior standard deviation of intercepts."""

    def __init__(
        self,
        X: sparse.csr_array,
        Y: sparse.csr_array,
        folds: Sequence[NDArray[np.int64]] = (),
        deviation: float = INTERCEPT_DEVIATION,
    ) -> None:
        self.X, self.Y, self.folds, self.n_labels, self.deviation = X, Y, list(folds), Y.shape[1], deviation
        self.rows_of = sparse.csc_array(Y)
        self.arrays = X.indptr.astype(np.int64), X.indices.astype(np.int32, copy=False), X.data
        self.is_covered = sum(fold.size for fold in self.folds) == X.shape[0] > 0

    @cached_property
    def largest(self) -> float:
        """The largest squared norm of a row."""
        return _largest_square(self.X)

    def part(self, labels: NDArray[np.int64], taking_part: NDArray[np.integer]) -> tuple[MarginRows, NDArray[np.int64]]:
        """Return these labels with the rows that take part and those of folds alone, and which of them take part.

        All rows where one of these labels holds must take part.
        """
        kept = np.unique(np.concatenate([taking_part, *self.folds]))
        (row, place), shape = self.positives(labels), (kept.size, labels.size)
        Y = sparse.csr_array((np.ones(row.size, np.float32), (np.searchsorted(kept, row), place)), shape=shape)
        own = MarginRows(
            take_rows(self.X, kept), Y, [np.searchsorted(kept, fold) for fold in self.folds], self.deviation
        )
        own.largest = self.largest  # by which passes are counted
        own.is_covered = self.is_covered  # of all rows, not of those that take part here
        return own, np.searchsorted(kept, taking_part)

    def of_groups(self, groups: Sequence[NDArray[np.int64]]) -> MarginRows:
        """Return these rows with groups of labels in the place of labels: one holds where any of its labels does."""
        group_of = np.zeros(self.n_labels, np.int64)
        for place, labels in enumerate(groups):
            group_of[labels] = place
        held = np.unique(row_of_entries(self.Y) * len(groups) + group_of[self.Y.indices])
        counts = np.bincount(held // len(groups), minlength=self.X.shape[0])
        Y = from_counts(counts, (held % len(groups)).astype(np.int32), None, len(groups))
        found = MarginRows(self.X, Y, self.folds, self.deviation)
        found.largest = self.largest
        return found

    def others(self) -> sparse.csr_array:
        """Return the labels of the rows that are in no fold; rows of folds have none."""
        is_other = np.ones(self.X.shape[0], np.bool_)
        for fold in self.folds:
            is_other[fold] = False
        counts = np.diff(self.Y.indptr)
        return from_counts(counts * is_other, self.Y.indices[np.repeat(is_other, counts)], None, self.n_labels)

    def rows_with(self, label: int) -> NDArray[np.integer]:
        """Return the rows where a label holds, which rise."""
        first, last = self.rows_of.indptr[label : label + 2]
        return np.asarray(self.rows_of.indices[first:last])

    def positives(self, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row and place in the block of every positive of these labels."""
        rows = [self.rows_with(label) for label in labels.tolist()]
        sizes = [own.size for own in rows]
        return np.concatenate(rows).astype(np.int64), np.repeat(np.arange(labels.size), sizes)


def _largest_square(X: sparse.csr_array) -> float:
    """Return the largest squared norm of a row."""
    largest, step = 0.0, _rows_at_once(X)
    for first in range(0, X.shape[0], step):
        rows = some_of(X, first, min(first + step, X.shape[0]))
        largest = max(largest, float(rows.multiply(rows).sum(1).max()))
        _forget_pages(X, first, min(first + step, X.shape[0]))
    return largest


def _rows_at_once(X: sparse.csr_array, n_parts: int = 1) -> int:
    """Return how many rows a window has, or one of its parts."""
    by_entries = _WINDOW_ENTRIES * X.shape[0] // max(X.indices.size, 1)
    return int(max(1, min(_WINDOW_ROWS, by_entries) // n_parts))


def _forget_pages(array: sparse.csr_array, first: int, last: int) -> None:
    """Give back the memory of rows of a mapped array."""
    for part in (array.data, array.indices):
        advise(part, "MADV_DONTNEED", int(array.indptr[first]), int(array.indptr[last]))


class Part(NamedTuple):
    """Rows on the features of a block, a constant first, as the solver takes them: CSR, squared norms, the signs and
    the α (rows, labels) of labels, and which of these rows to go over, in which order."""

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float32]
    squares: NDArray[np.float32]
    signs: NDArray[np.int8]
    alpha: NDArray[np.float32]
    order: NDArray[np.int64]

    @property
    def csr(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        return self.starts, self.columns, self.values


class BlockRows:
    """The rows of a block of labels, on the features of rows where one of them holds, and their α."""

    def __init__(self, rows: MarginRows, labels: NDArray[np.int64]) -> None:
        self.rows, self.labels, self.n_rows = rows, labels, rows.X.shape[0]
        self.places = np.full(rows.X.shape[1], -1, np.int32)
        self.alpha: NDArray[np.float32] = np.zeros((0, labels.size), np.float32)
        self._whole: Part | None = None
        n_bytes = _PER_ENTRY * rows.X.indices.size + _PER_LABEL * self.n_rows * labels.size
        n_features = self._take_whole() if n_bytes <= COPIED_BYTES else self._number_in_windows()
        used = np.flatnonzero(self.places >= 0)
        self.features = np.empty(n_features - 1, np.int32)
        self.features[self.places[used] - 1] = used

    def _take_whole(self) -> int:
        from labelfield.compiled.descent import number_features, restrict

        positive, place = self.rows.positives(self.labels)
        n_features = number_features(*self.rows.arrays[:2], positive, self.places, 1)
        every = np.arange(self.n_rows)
        starts, columns, values, squares = restrict(*self.rows.arrays, every, self.places, self.rows.deviation)
        signs = np.full((self.n_rows, self.labels.size), -1, np.int8)
        signs[positive, place] = 1
        self.alpha = np.zeros(signs.shape, np.float32)
        self._whole = Part(starts, columns, values, squares, signs, self.alpha, every)
        return int(n_features)

    def _number_in_windows(self) -> int:
        from labelfield.compiled.descent import number_features

        self._place_of = np.full(self.rows.n_labels, -1)
        self._place_of[self.labels] = np.arange(self.labels.size)
        n_features = 1
        for window in self._windows():
            rows = window[np.unique(self._positives(window)[0])]
            n_features = number_features(*self.rows.arrays[:2], rows, self.places, n_features)
        self.alpha = self._no_alpha()
        return int(n_features)

    def _no_alpha(self) -> NDArray[np.float32]:
        shape = self.n_rows, self.labels.size
        return room_in_file(self.n_rows * self.labels.size, np.float32, scratch_folder()).reshape(shape)

    def fork(self) -> BlockRows:
        """Return the same rows with an α of their own, which starts from this one."""
        other = copy(self)
        if self._whole is not None:
            other.alpha = self.alpha.copy()
        else:
            other.alpha = self._no_alpha()
            for window in self._windows():
                other.alpha[window] = self.alpha[window]
        return other

    def sums(self) -> tuple[float, float]:
        """Return the sum of the α of all positives, and that of α² over all rows and labels."""
        if self._whole is not None:
            parts = iter([(self.alpha, self.alpha[self._whole.signs > 0])])
        else:
            parts = ((self.alpha[rows], self.alpha[rows][self._positives(rows)]) for rows in self._windows())
        gain, loss = 0.0, 0.0
        for alpha, of_positives in parts:
            gain, loss = gain + float(of_positives.sum(dtype=np.float64)), loss + float(np.vdot(alpha, alpha))
        return gain, loss

    def support(self) -> NDArray[np.bool_]:
        """Return which rows have an α that is not 0, for some label."""
        if self._whole is not None:
            return np.asarray(self.alpha.any(1))
        found = np.zeros(self.n_rows, np.bool_)
        for rows in self._windows():
            found[rows] = self.alpha[rows].any(1)
        return found

    def each(self, chosen: NDArray[np.bool_], rng: np.random.Generator | None = None) -> Iterator[Part]:
        """Yield the chosen rows, in a random order where there is an `rng`, else as they rise.

        What is done to the α of a part is kept when the next one is asked for.
        """
        from labelfield.compiled.descent import restrict

        if self._whole is not None:
            rows = np.flatnonzero(chosen)
            yield self._whole._replace(alpha=self.alpha, order=rows if rng is None else rng.permutation(rows))
            return
        for window in self._windows(rng):
            rows = window[chosen[window]]
            starts, columns, values, squares = restrict(*self.rows.arrays, rows, self.places, self.rows.deviation)
            signs = np.full((rows.size, self.labels.size), -1, np.int8)
            signs[self._positives(rows)] = 1
            alpha = self.alpha[rows]
            order = np.arange(rows.size) if rng is None else rng.permutation(rows.size)
            yield Part(starts, columns, values, squares, signs, alpha, order)
            self.alpha[rows] = alpha

    def _positives(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return place among these rows and place in the block of every positive of the block."""
        Y = gather_rows(self.rows.Y, rows)
        place = self._place_of[Y.indices]
        return row_of_entries(Y)[place >= 0], place[place >= 0]

    def _windows(self, rng: np.random.Generator | None = None) -> Iterator[NDArray[np.int64]]:
        """Yield all rows, a window at a time; their pages are given back when the next one is asked for."""
        X, size = self.rows.X, _rows_at_once(self.rows.X, _WINDOW_BLOCKS)
        starts = np.arange(0, self.n_rows, size)
        order = starts if rng is None else rng.permutation(starts)
        for at in range(0, order.size, _WINDOW_BLOCKS):
            blocks = [
                (first, min(first + size, self.n_rows)) for first in np.sort(order[at : at + _WINDOW_BLOCKS]).tolist()
            ]
            yield np.concatenate([np.arange(*block) for block in blocks])
            for first, last in blocks:
                _forget_pages(X, first, last)
                advise(self.alpha, "MADV_DONTNEED", first * self.labels.size, last * self.labels.size)
