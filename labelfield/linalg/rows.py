"""Rows of features as models see them: dense, sparse CSR, or projected onto a basis once and for all."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from scipy import sparse
from torch import Tensor

__all__ = ["Projected", "Rows", "dot", "entry_places", "entry_rows", "n_rows", "squared_norms", "transposed"]


class Projected(NamedTuple):
    """Rows known only through their products with a basis (B, R) and their squared norms (B,)."""

    coordinates: Tensor
    norms: Tensor


Rows = Tensor | Projected


def n_rows(X: Rows) -> int:
    """How many rows there are."""
    return int(X.norms.shape[0] if isinstance(X, Projected) else X.shape[0])


def dot(X: Tensor, W: Tensor) -> Tensor:
    """X W (B, M) for dense or sparse X (B, D) and dense W (D, M); X is never densified."""
    if X.layout == torch.sparse_csr:
        apply: Any = _SparseTimesDense.apply  # torch's is untyped
        result: Tensor = apply(X, W)
        return result
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
        indices, values = entry_rows(X.crow_indices())[order].int(), X.values()[order]
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


def squared_norms(X: Rows, squared_weights: Tensor | None) -> Tensor:
    """Σ_d w_d² x_d² (B,)."""
    if isinstance(X, Projected):
        if squared_weights is not None:
            raise ValueError("projected rows have lost their features: they take no weights per feature")
        return X.norms
    if X.layout == torch.sparse_csr:
        squares = torch.sparse_csr_tensor(
            X.crow_indices(), X.col_indices(), X.values().square(), size=X.shape, check_invariants=False
        )
        weights = torch.ones(X.shape[1], 1, dtype=X.dtype, device=X.device)
        if squared_weights is not None:
            weights = squared_weights.unsqueeze(1)
        return dot(squares, weights).squeeze(1)
    squares = X.square()
    return squares.sum(1) if squared_weights is None else squares @ squared_weights


def entry_rows(pointers: Tensor) -> Tensor:
    """The row of each entry of a CSR tensor with these row pointers."""
    counts = pointers.diff().long()
    return torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)


def entry_places(rows: Tensor, n_rows: int) -> tuple[Tensor, int]:
    """Which entry of its row each entry is, for sorted row numbers; and how many the longest row has."""
    counts = torch.bincount(rows, minlength=n_rows)
    places = torch.arange(rows.numel(), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    return places, int(counts.max()) if counts.numel() else 0
