"""The immutable batch that every model consumes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.data.dataset import Dataset, row_numbers

__all__ = ["Batch", "to_tensor"]

# torch says once in a process that its CSR tensors are beta. Let it say so here, to nobody.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1), check_invariants=False)


@dataclass(frozen=True, eq=False)
class Batch:
    """B rows of a data set: `X` (B x D) and `Y` (B x K) as sparse CSR tensors, and their row numbers.

    The column and row-pointer tensors are int32, which every sparse product takes and which halves the traffic.
    """

    X: Tensor
    Y: Tensor
    rows: Tensor

    @classmethod
    def gather(cls, dataset: Dataset, rows: ArrayLike | slice, device: torch.device | str | None = None) -> Batch:
        """Any rows in any order (repeats allowed) by one vectorised gather; of a mapped file only these are read."""
        chosen = row_numbers(rows, dataset.n_rows)
        return cls(
            to_tensor(gather_rows(dataset.X, chosen), device),
            to_tensor(gather_rows(dataset.Y, chosen), device),
            torch.from_numpy(chosen).to(device),
        )

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return Batch(self.X.to(device), self.Y.to(device), self.rows.to(device))

    def __len__(self) -> int:
        return int(self.X.shape[0])


def to_tensor(array: sparse.csr_array, device: torch.device | str | None) -> Tensor:
    """A CSR array in our form as a sparse CSR tensor."""
    parts: list[Any] = [array.indptr.astype(np.int32, copy=False), array.indices, array.data]
    # A slice of a mapped or shared array is read-only or not ours; tensors own their memory.
    parts = [torch.from_numpy(part if part.flags.owndata and part.flags.writeable else part.copy()) for part in parts]
    crow, col, values = (part.to(device) for part in parts)
    # gather_rows has checked the indices; torch would read them again, and synchronise a GPU to do so.
    return torch.sparse_csr_tensor(crow, col, values, size=tuple(array.shape), check_invariants=False)
