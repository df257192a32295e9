"""Rows of features as models see them: dense, sparse CSR, or projected onto a basis in advance."""

import warnings
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from labelfield.linalg.autograd import apply
from labelfield.linalg.products import product

# torch warns once per process that its CSR tensors are in beta. Trigger that warning here, silenced.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1), check_invariants=False)


class Projected(NamedTuple):
    """Rows known only through their products with a basis (B, R) and their squared norms (B,)."""

    coordinates: Tensor
    norms: Tensor


Rows = Tensor | Projected


def n_rows(X: Rows) -> int:
    """Return the number of rows."""
    return int(X.norms.shape[0] if isinstance(X, Projected) else X.shape[0])


def device_of(module: nn.Module) -> torch.device:
    """Return where the arrays of a module are: all on one device."""
    return next(chain(module.parameters(), module.buffers())).device


def to_tensor(array: sparse.csr_array, device: torch.device | str | None = None) -> Tensor:
    """Return a CSR array in our form as a sparse CSR tensor."""
    parts: list[Any] = [array.indptr.astype(np.int32, copy=False), array.indices, array.data]
    # A slice of a mapped or shared array is read-only or owned by something else; a tensor owns its memory.
    parts = [torch.from_numpy(part if part.flags.owndata and part.flags.writeable else part.copy()) for part in parts]
    crow, col, values = (part.to(device) for part in parts)
    # The indices have been checked already; torch would read them again, and synchronise a GPU to do so.
    return torch.sparse_csr_tensor(crow, col, values, size=tuple(array.shape), check_invariants=False)


def dot(X: Tensor, W: Tensor) -> Tensor:
    """Return X W (B, M) for dense or sparse X (B, D) and dense W (D, M); X is never made dense."""
    if X.layout == torch.sparse_csr:
        return apply(_SparseTimesDense, X, W)
    return product(X, W)


def transposed(X: Tensor) -> Tensor:
    """Return Xᵀ (D, B) in the layout of X."""
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
    """X W, with the gradient Xᵀ G."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, W: Tensor) -> Tensor:
        ctx.X = X
        return _product(X, W)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, _product(transposed(ctx.X), gradients[0])


def _product(X: Tensor, W: Tensor) -> Tensor:
    """Return X W. On a CPU it is a weighted sum of rows of W, several times as fast as torch's sparse product."""
    if X.device.type != "cpu":
        return torch.as_tensor(X @ W)
    if X.values().numel() == 0:
        return W.new_zeros(X.shape[0], W.shape[1])
    W, columns, pointers = W.contiguous(), X.col_indices(), X.crow_indices()
    return torch.embedding_bag(W, columns, pointers, mode=0, per_sample_weights=X.values(), include_last_offset=True)[0]


def some_rows(X: Rows, first: int, last: int) -> Rows:
    """Return neighbouring rows."""
    if isinstance(X, Projected):
        return Projected(*(part[first:last] for part in X))
    if X.layout != torch.sparse_csr:
        return X[first:last]
    pointers = X.crow_indices()[first : last + 1]
    own = slice(int(pointers[0]), int(pointers[-1]))
    parts = pointers - own.start, X.col_indices()[own], X.values()[own]
    return torch.sparse_csr_tensor(*parts, size=(last - first, X.shape[1]), check_invariants=False)


def take(parameter: Tensor, chosen: Tensor) -> Tensor:
    """Return some rows of a parameter, each at most once. The gradient is sparse: it has these rows alone."""
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
    """Return the squares of the entries of dense or sparse rows."""
    if X.layout != torch.sparse_csr:
        return X.square()
    parts = X.crow_indices(), X.col_indices(), X.values().square()
    return torch.sparse_csr_tensor(*parts, size=X.shape, check_invariants=False)


def squared_norms(X: Rows, squared_weights: Tensor | None) -> Tensor:
    """Return Σ_d w_d² x_d² (B,), or (P, B) for weights (P, D) per process."""
    if isinstance(X, Projected):
        if squared_weights is not None:
            raise ValueError("projected rows no longer have features, so they take no weights per feature")
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
    """Return the row of each entry of a CSR tensor with these pointers. With `n_entries` nothing is read from a GPU."""
    counts = pointers.diff().long()
    return torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=n_entries)


def first_columns(Y: Tensor) -> Tensor:
    """Return the column of the first entry of each row (B,) of a CSR tensor: the class, where each row has one. Further
    entries in the last row only fill a batch of fixed size."""
    return Y.col_indices()[Y.crow_indices()[:-1].long()].long()


def gather(pointers: Tensor, indices: Tensor, values: Tensor, rows: Tensor, n_entries: int, width: int) -> Tensor:
    """Return some rows of a CSR array (…, width) as a CSR tensor with exactly n_entries entries. Entries beyond those
    of the rows are 0 and belong to the last row. All shapes are known in advance, so nothing is read from a GPU."""
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
    """Return the position of each entry within its row, for sorted row numbers, and the length of the longest row."""
    counts = torch.bincount(rows, minlength=n_rows)
    places = torch.arange(rows.numel(), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    return places, int(counts.max()) if counts.numel() else 0
