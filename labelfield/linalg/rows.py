"""Rows of features as models see them: dense, sparse CSR, or projected onto a basis once and for all."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from labelfield.linalg.autograd import apply

__all__ = [
    "Projected",
    "Rows",
    "dot",
    "entry_places",
    "entry_rows",
    "first_columns",
    "gather",
    "n_rows",
    "squared",
    "squared_norms",
    "take",
    "to_tensor",
    "transposed",
]

# torch says once in a process that its CSR tensors are beta. Let it say so here, to nobody.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1), check_invariants=False)


class Projected(NamedTuple):
    """Rows known only through their products with a basis (B, R) and their squared norms (B,)."""

    coordinates: Tensor
    norms: Tensor


Rows = Tensor | Projected


def n_rows(X: Rows) -> int:
    """How many rows there are."""
    return int(X.norms.shape[0] if isinstance(X, Projected) else X.shape[0])


def to_tensor(array: sparse.csr_array, device: torch.device | str | None = None) -> Tensor:
    """A CSR array in our form as a sparse CSR tensor."""
    parts: list[Any] = [array.indptr.astype(np.int32, copy=False), array.indices, array.data]
    # A slice of a mapped or shared array is read-only or not ours; tensors own their memory.
    parts = [torch.from_numpy(part if part.flags.owndata and part.flags.writeable else part.copy()) for part in parts]
    crow, col, values = (part.to(device) for part in parts)
    # The indices have been checked; torch would read them again, and synchronise a GPU to do so.
    return torch.sparse_csr_tensor(crow, col, values, size=tuple(array.shape), check_invariants=False)


def dot(X: Tensor, W: Tensor) -> Tensor:
    """X W (B, M) for dense or sparse X (B, D) and dense W (D, M); X is never densified."""
    if X.layout == torch.sparse_csr:
        return apply(_SparseTimesDense, X, W)
    return torch.as_tensor(X @ W)


def transposed(X: Tensor) -> Tensor:
    """Xᵀ (D, B) in the layout of X."""
    if X.layout != torch.sparse_csr:
        return X.T
    if X.device.type == "cpu":
        parts = [part.numpy() for part in (X.values(), X.col_indices(), X.crow_indices())]
        turned = sparse.csr_array((parts[0], parts[1], parts[2]), shape=tuple(X.shape)).tocsc()
        pointers, indices, values = (torch.from_numpy(part) for part in (turned.indptr, turned.indices, turned.data))
    else:
        columns, order = X.col_indices().sort(stable=True)
        indices, values = entry_rows(X.crow_indices(), columns.numel())[order].int(), X.values()[order]
        every = torch.arange(X.shape[1] + 1, dtype=columns.dtype, device=X.device)
        pointers = torch.searchsorted(columns, every, out_int32=True)
    return torch.sparse_csr_tensor(pointers, indices, values, size=(X.shape[1], X.shape[0]), check_invariants=False)


class _SparseTimesDense(torch.autograd.Function):
    """X W with the gradient Xᵀ G."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, W: Tensor) -> Tensor:
        ctx.X = X
        return _product(X, W)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, _product(transposed(ctx.X), gradients[0])


def _product(X: Tensor, W: Tensor) -> Tensor:
    """X W; on a CPU as weighted sums of rows of W, which is several times as fast as torch's sparse product."""
    if X.device.type != "cpu":
        return torch.as_tensor(X @ W)
    if X.values().numel() == 0:
        return W.new_zeros(X.shape[0], W.shape[1])
    return torch.embedding_bag(
        W.contiguous(),
        X.col_indices(),
        X.crow_indices(),
        mode=0,
        per_sample_weights=X.values(),
        include_last_offset=True,
    )[0]


def take(parameter: Tensor, chosen: Tensor) -> Tensor:
    """Some rows of a parameter, none of them twice. Its gradient is sparse: only these rows of it exist."""
    return apply(_Take, parameter, chosen)


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, chosen: Tensor) -> Tensor:
        ctx.save_for_backward(chosen)
        ctx.size = parameter.shape
        return parameter.index_select(0, chosen)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (chosen,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(chosen.unsqueeze(0), gradients[0], ctx.size, check_invariants=False), None


def squared(X: Tensor) -> Tensor:
    """The squares of the entries of dense or sparse rows."""
    if X.layout != torch.sparse_csr:
        return X.square()
    return torch.sparse_csr_tensor(
        X.crow_indices(), X.col_indices(), X.values().square(), size=X.shape, check_invariants=False
    )


def squared_norms(X: Rows, squared_weights: Tensor | None) -> Tensor:
    """Σ_d w_d² x_d² (B,), or (P, B) for weights (P, D) of each process."""
    if isinstance(X, Projected):
        if squared_weights is not None:
            raise ValueError("projected rows have lost their features: they take no weights per feature")
        return X.norms
    if X.layout == torch.sparse_csr:
        squares = squared(X)
        if squared_weights is None:
            squared_weights = torch.ones(X.shape[1], dtype=X.dtype, device=X.device)
        if squared_weights.dim() == 2:
            return dot(squares, squared_weights.T.contiguous()).T
        return dot(squares, squared_weights.unsqueeze(1)).squeeze(1)
    squares = X.square()
    return squares.sum(1) if squared_weights is None else squared_weights @ squares.T


def entry_rows(pointers: Tensor, n_entries: int | None = None) -> Tensor:
    """The row of each entry of a CSR tensor with these row pointers; with `n_entries` nothing is asked of a GPU."""
    counts = pointers.diff().long()
    return torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=n_entries)


def first_columns(Y: Tensor) -> Tensor:
    """The column of the first entry of each row (B,) of a CSR tensor, of which each row has one: the class of a row.
    What may follow in the last row fills up a batch of fixed size."""
    return Y.col_indices()[Y.crow_indices()[:-1].long()].long()


def gather(pointers: Tensor, indices: Tensor, values: Tensor, rows: Tensor, n_entries: int, width: int) -> Tensor:
    """Rows of a CSR array (…, width) as a CSR tensor with n_entries entries: those that are too many are 0 and in the
    last row. All shapes are known beforehand, so that a GPU need not be asked."""
    first = pointers[rows]
    counts = pointers[rows + 1] - first
    ends = counts.cumsum(0)
    entry = torch.arange(n_entries, device=rows.device)
    row = torch.searchsorted(ends, entry, right=True).clamp_max_(len(rows) - 1)
    is_real = entry < ends[-1]
    source = torch.where(is_real, first[row] + entry - (ends - counts)[row], 0)
    crow = torch.cat([ends.new_zeros(1), ends[:-1], ends.new_full((1,), n_entries)]).int()
    column = torch.where(is_real, indices[source], 0)
    size = (len(rows), width)
    return torch.sparse_csr_tensor(crow, column, values[source] * is_real, size=size, check_invariants=False)


def entry_places(rows: Tensor, n_rows: int) -> tuple[Tensor, int]:
    """Which entry of its row each entry is, for sorted row numbers; and how many the longest row has."""
    counts = torch.bincount(rows, minlength=n_rows)
    places = torch.arange(rows.numel(), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    return places, int(counts.max()) if counts.numel() else 0
