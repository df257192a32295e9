"""Where a trainer gets its batches from."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.data import Dataset
from labelfield.data.batch import Batch
from labelfield.linalg.rows import Projected, Rows, gather

__all__ = ["DatasetSource", "ResidentSource", "Sizes", "Source", "TensorSource"]

# A batch with more entries than the mean by so many standard deviations is not expected in a lifetime.
_DEVIATIONS = 6.0


class Source(Protocol):
    """Rows and labels of a training set, by row number."""

    @property
    def n_rows(self) -> int: ...

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, Tensor]:
        """X and Y (sparse CSR) of these rows."""
        ...


class DatasetSource:
    """Rows gathered from a data set, in memory or memory-mapped."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    @property
    def n_rows(self) -> int:
        return self.dataset.n_rows

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, Tensor]:
        batch = Batch.gather(self.dataset, rows, device)
        return batch.X, batch.Y


class _Resident:
    """A CSR array on a device, and how many entries its rows have, here."""

    def __init__(self, array: sparse.csr_array, device: torch.device) -> None:
        parts = (array.indptr.astype(np.int64), array.indices, array.data)
        self.pointers, self.indices, self.values = (torch.from_numpy(np.array(part)).to(device) for part in parts)
        self.width, self.counts = array.shape[1], np.diff(array.indptr)

    def rows(self, rows: Tensor, n_entries: int) -> Tensor:
        return gather(self.pointers, self.indices, self.values, rows, n_entries, self.width)

    def count(self, rows: NDArray[np.int64]) -> int:
        """How many entries these rows have."""
        return int(self.counts[rows].sum())

    def capacity(self, n_rows: int) -> int:
        """What almost no random batch of so many rows exceeds."""
        expected = n_rows * self.counts.mean() + _DEVIATIONS * self.counts.std() * n_rows**0.5
        return min(int(expected) + 1, int(self.counts.sum()))


class _ResidentTensor:
    """Dense rows on a device, as `_Resident`: they have no entries to count."""

    def __init__(self, X: Tensor) -> None:
        self.X = X

    def rows(self, rows: Tensor, _: int) -> Tensor:
        return self.X.index_select(0, rows)

    def count(self, _: NDArray[np.int64]) -> int:
        return 0

    def capacity(self, _: int) -> int:
        return 0


class ResidentSource:
    """All rows on a GPU: a batch is gathered there, and nothing is asked of the GPU on the way."""

    def __init__(self, dataset: Dataset, device: torch.device, X: Tensor | None = None) -> None:
        """With X, dense rows there that stand for those of the data set."""
        self.n_rows = dataset.n_rows
        self.X = _Resident(dataset.X, device) if X is None else _ResidentTensor(X)
        self.Y = _Resident(dataset.Y, device)

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, Tensor]:
        chosen = torch.from_numpy(rows).to(device)
        return self.gather(chosen, Sizes(self.X.count(rows), self.Y.count(rows)))

    def gather(self, rows: Tensor, sizes: Sizes) -> tuple[Rows, Tensor]:
        """These rows, with entries of value 0 up to these sizes."""
        return self.X.rows(rows, sizes.X), self.Y.rows(rows, sizes.Y)

    def fixed_sizes(self, n_rows: int) -> Sizes:
        """Sizes that fit almost any batch of so many rows."""
        return Sizes(self.X.capacity(n_rows), self.Y.capacity(n_rows))

    def fits(self, rows: NDArray[np.int64], sizes: Sizes) -> bool:
        return self.X.count(rows) <= sizes.X and self.Y.count(rows) <= sizes.Y


class Sizes(NamedTuple):
    """How many entries the features and the labels of a batch have."""

    X: int
    Y: int


class TensorSource:
    """Rows that are tensors here already: dense ones, or such as were projected onto a basis once."""

    def __init__(self, X: Tensor | Projected, dataset: Dataset) -> None:
        self.X = X
        self.labels = Dataset(dataset.X[:, :0], dataset.Y)

    @property
    def n_rows(self) -> int:
        return self.labels.n_rows

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, Tensor]:
        chosen = torch.from_numpy(rows)
        Y = Batch.gather(self.labels, rows, device).Y
        if isinstance(self.X, Projected):
            return Projected(*(part[chosen].to(device) for part in self.X)), Y
        return self.X[chosen].to(device), Y
