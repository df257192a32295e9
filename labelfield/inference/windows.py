"""The order in which an epoch reads rows that may be on disk: at random where it is cheap, in blocks where it is not.

A disk reads a megabyte about as fast as a page, so a random order of rows costs a hundred times the time. Large data
are therefore read in blocks of neighbouring rows. Blocks come in random order, and so many of them form a window that
its rows, in random order, mix all parts of the data. The system reads the next window while this one is used, and
forgets the last one: memory holds about three windows, whatever the size of the data.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.data import Dataset
from labelfield.mapped import advise, map_of

# Entries of X in a block, half a megabyte of values, and in a window, 64 megabytes: data of no more are one window.
BLOCK, WINDOW = 1 << 17, 1 << 24


class Windows:
    """The blocks and windows of a data set. They depend on its size alone, not on where it is: a folder that is
    memory-mapped and the same rows in memory train the same model."""

    def __init__(self, dataset: Dataset, block: int = BLOCK, window: int = WINDOW) -> None:
        self.arrays, self.n_rows = (dataset.X, dataset.Y), dataset.n_rows
        n_entries = int(dataset.X.indices.size)
        self.is_one = n_entries <= window
        self.rows_per_block = max(1, block * self.n_rows // max(n_entries, 1))
        self.blocks_per_window = max(1, window // block)
        self.blocks = np.arange(-(-self.n_rows // self.rows_per_block))  # in the order of this epoch
        self.place = self.blocks  # of each block in that order
        self.is_mapped = map_of(dataset.X.indices) is not None
        self.current = -1

    def order(self, rng: np.random.Generator) -> NDArray[Any]:
        """Return all rows in random order, window by window."""
        if self.is_one:
            return rng.permutation(self.n_rows)
        for array in self.arrays:
            _advise_rows(array, 0, self.n_rows, "MADV_DONTNEED")  # what the last epoch has left in memory
        self.blocks, self.current = rng.permutation(self.blocks.size), -1
        self.place = np.argsort(self.blocks)
        small = np.int32 if self.n_rows < 2**31 else np.int64
        order, end = np.empty(self.n_rows, small), 0
        for number in range(self._n_windows()):
            rows = np.concatenate([np.arange(*self._rows_of(block)) for block in self._blocks_of(number)])
            order[end : end + rows.size] = rng.permutation(rows)
            end += rows.size
        return order

    def _n_windows(self) -> int:
        return -(-self.blocks.size // self.blocks_per_window)

    def _blocks_of(self, window: int) -> NDArray[np.int64]:
        return self.blocks[window * self.blocks_per_window : (window + 1) * self.blocks_per_window]

    def _rows_of(self, block: int) -> tuple[int, int]:
        first = int(block) * self.rows_per_block
        return first, min(first + self.rows_per_block, self.n_rows)

    def read_ahead(self, rows: NDArray[np.int64]) -> None:
        """Let the system read what follows the window of these rows, and forget what came before it."""
        if self.is_one or not self.is_mapped or not rows.size:
            return
        window = int(self.place[rows[-1] // self.rows_per_block]) // self.blocks_per_window
        if window == self.current:
            return
        for old in range(max(0, window - 2), window - 1):  # a batch may reach back into the one before
            self._advise(old, "MADV_DONTNEED")
        for new in range(window, min(window + 2, self._n_windows())):
            self._advise(new, "MADV_WILLNEED")
        self.current = window

    def _advise(self, window: int, advice: str) -> None:
        for block in self._blocks_of(window):
            first, last = self._rows_of(block)
            for array in self.arrays:
                _advise_rows(array, first, last, advice)


def _advise_rows(array: sparse.csr_array, first: int, last: int, advice: str) -> None:
    entries = int(array.indptr[first]), int(array.indptr[last])
    for part in (array.data, array.indices):
        advise(part, advice, *entries)
