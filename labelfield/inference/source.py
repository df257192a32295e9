"""Sources of batches: rows in memory, on disk, or on a GPU."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.data import Dataset
from labelfield.data.batch import Batch
from labelfield.data.mask import Mask
from labelfield.inference.windows import Windows
from labelfield.linalg.partial import PartialLabels
from labelfield.linalg.rows import Projected, Rows, gather, to_tensor

# No batch in a lifetime is expected to exceed the mean number of entries by more than this many standard deviations.
_DEVIATIONS = 6.0


class Source(Protocol):
    """Rows and labels of a training set, by row number."""

    n_rows: int

    def order(self, rng: np.random.Generator) -> NDArray[Any]:
        """Return all rows in a random order in which they can be read well: that of an epoch."""

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, Any]:
        """Return X and Y of these rows: sparse CSR, or PartialLabels where some labels are missing."""


class DatasetSource:
    """Rows gathered from a data set, in memory or memory-mapped."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset, self.n_rows = dataset, dataset.n_rows
        self.windows = Windows(dataset)

    def order(self, rng: np.random.Generator) -> NDArray[Any]:
        return self.windows.order(rng)

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, Tensor]:
        self.windows.read_ahead(rows)
        batch = Batch.gather(self.dataset, rows, device)
        return batch.X, batch.Y


class Sizes(NamedTuple):
    """The numbers of entries of the features and the labels of a batch."""

    X: int
    Y: int


class _Resident:
    """A CSR array on a device; the numbers of entries per row stay on the CPU."""

    def __init__(self, array: sparse.csr_array, device: torch.device) -> None:
        parts = (array.indptr.astype(np.int64), array.indices, array.data)
        self.pointers, self.indices, self.values = (torch.from_numpy(np.array(part)).to(device) for part in parts)
        self.width, self.counts = array.shape[1], np.diff(array.indptr)

    def rows(self, rows: Tensor, n_entries: int) -> Tensor:
        return gather(self.pointers, self.indices, self.values, rows, n_entries, self.width)

    def count(self, rows: NDArray[np.int64]) -> int:
        """Return the number of entries of these rows."""
        return int(self.counts[rows].sum())

    def capacity(self, n_rows: int) -> int:
        """Return a number of entries that almost no random batch of n_rows exceeds."""
        expected = n_rows * self.counts.mean() + _DEVIATIONS * self.counts.std() * n_rows**0.5
        # No more than the cells of a full matrix, which dense rows would exceed.
        return int(min(int(expected) + 1, self.counts.sum(), n_rows * self.width))


class ResidentSource:
    """All rows on a GPU, where batches are gathered without waiting for it."""

    def __init__(self, dataset: Dataset, device: torch.device, X: Tensor | Projected | None = None) -> None:
        """Take X, dense or projected rows on the device, in place of the rows of the data set if it is given."""
        self.n_rows, self.X = dataset.n_rows, _Resident(dataset.X, device) if X is None else X
        self.Y = _Resident(dataset.Y, device)

    def order(self, rng: np.random.Generator) -> NDArray[Any]:
        return rng.permutation(self.n_rows)

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, Tensor]:
        return self.gather(torch.from_numpy(rows).to(device), self._sizes(lambda part: part.count(rows)))

    def gather(self, rows: Tensor, sizes: Sizes) -> tuple[Rows, Tensor]:
        """Return these rows, padded with entries of value 0 up to these sizes."""
        return self._features(rows, sizes.X), self.Y.rows(rows, sizes.Y)

    def _features(self, rows: Tensor, n_entries: int) -> Rows:
        if isinstance(self.X, Projected):
            return Projected(*(part.index_select(0, rows) for part in self.X))
        return self.X.index_select(0, rows) if isinstance(self.X, Tensor) else self.X.rows(rows, n_entries)

    def fixed_sizes(self, n_rows: int) -> Sizes:
        """Return sizes that fit almost any batch of n_rows."""
        return self._sizes(lambda part: part.capacity(n_rows))

    def fits(self, rows: NDArray[np.int64], sizes: Sizes) -> bool:
        return all(own <= most for own, most in zip(self._sizes(lambda part: part.count(rows)), sizes, strict=True))

    def _sizes(self, size_of: Callable[[_Resident], int]) -> Sizes:
        """Return the sizes of both parts; dense and projected rows have no entries to count."""
        return Sizes(size_of(self.X) if isinstance(self.X, _Resident) else 0, size_of(self.Y))


class TensorSource:
    """Rows that are tensors in memory: dense ones, or rows that were projected onto a basis once."""

    def __init__(self, X: Tensor | Projected, dataset: Dataset) -> None:
        self.X, self.n_rows = X, dataset.n_rows
        self.labels = Dataset(dataset.X[:, :0], dataset.Y)

    def order(self, rng: np.random.Generator) -> NDArray[Any]:
        return rng.permutation(self.n_rows)

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, Tensor]:
        chosen = torch.from_numpy(rows)
        Y = Batch.gather(self.labels, rows, device).Y
        if isinstance(self.X, Projected):
            return Projected(*(part[chosen].to(device) for part in self.X)), Y
        return self.X[chosen].to(device), Y


class MaskedSource:
    """Rows of another source, with the observed entries of their labels."""

    def __init__(self, source: Source, mask: Mask) -> None:
        self.source, self.mask, self.n_rows = source, mask, source.n_rows

    def order(self, rng: np.random.Generator) -> NDArray[Any]:
        return self.source.order(rng)

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, PartialLabels]:
        X, Y = self.source.batch(rows, device)
        places = to_tensor(gather_rows(self.mask.places, rows), device)
        return X, PartialLabels(Y, places, self.mask.is_missing)
