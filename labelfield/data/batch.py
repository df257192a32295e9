"""The immutable batch that every model consumes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.data.dataset import Dataset, row_numbers
from labelfield.linalg.rows import to_tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """B rows of a data set: `X` (B x D) and `Y` (B x K) as sparse CSR tensors, and their row numbers.

    Column and row-pointer tensors are int32, which every sparse product accepts and which halves the memory traffic.
    """

    X: Tensor
    Y: Tensor
    rows: Tensor

    @classmethod
    def gather(cls, dataset: Dataset, rows: ArrayLike | slice, device: torch.device | str | None = None) -> Batch:
        """Gather rows in any order, repeats allowed; no other rows of a mapped file are read."""
        chosen = row_numbers(rows, dataset.n_rows)
        X, Y = (to_tensor(gather_rows(part, chosen), device) for part in (dataset.X, dataset.Y))
        return cls(X, Y, torch.from_numpy(chosen).to(device))

    def to(self, device: torch.device | str) -> Batch:
        """Return the same batch on another device."""
        return Batch(self.X.to(device), self.Y.to(device), self.rows.to(device))

    def __len__(self) -> int:
        return int(self.X.shape[0])
