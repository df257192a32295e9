"""Where a trainer gets its batches from."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelfield.data import Dataset
from labelfield.data.batch import Batch
from labelfield.linalg.rows import Projected, Rows

__all__ = ["DatasetSource", "ProjectedSource", "Source"]


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


class ProjectedSource:
    """Rows that were projected onto a basis once: their features are not touched again, whatever D."""

    def __init__(self, projected: Projected, dataset: Dataset) -> None:
        self.projected = projected
        self.labels = Dataset(dataset.X[:, :0], dataset.Y)

    @property
    def n_rows(self) -> int:
        return self.labels.n_rows

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Rows, Tensor]:
        chosen = torch.from_numpy(rows)
        X = Projected(*(part[chosen].to(device) for part in self.projected))
        return X, Batch.gather(self.labels, rows, device).Y
