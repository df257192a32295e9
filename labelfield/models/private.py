"""A private linear process for each label: f_k = Σ_p φ_kp h_p + b_k + w_kᵀ x with w_k ~ N(0, τ² I).

The shared processes see a row through M inducing inputs; the private one sees its very words. Its weights exist only
for features that occur with the label in training, so that D × K never materialises: all others are 0, as the prior's
mean is. They are a point estimate with τ given, or a mean-field Gaussian whose τ is learned with the bound. (Of a point
estimate the density has no maximum in τ: it grows without end as τ and the weights shrink together.)
"""

from __future__ import annotations

from itertools import pairwise
from math import log
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from labelfield.csr import gather_rows
from labelfield.linalg.rows import dot, entry_rows, transposed

__all__ = ["PRIVATE", "Pattern", "PrivateProcess", "occurring_features"]

PRIVATE = ("off", "point", "mean_field")
# Weights are laid out densely for some labels at a time, in about so many numbers: what a core's cache holds, or what
# keeps a GPU busy. (EUR-Lex on 2 cores: a product with 64 labels at a time runs twice as fast as with 1,700.)
_SCRATCH = {"cpu": 5 << 16, "cuda": 1 << 26}
_BLOCK_ENTRIES = 1 << 24
# Mean-field weights start this sure.
_SPREAD = 0.1


class Pattern(NamedTuple):
    """The features that occur with each label: pointers (K + 1,), features sorted within a label, in how many rows."""

    pointers: NDArray[np.int64]
    features: NDArray[np.int32]
    counts: NDArray[np.int32]

    def only_in(self, part: Pattern, n_features: int) -> NDArray[np.bool_]:
        """Which of these occur nowhere but in the rows that `part` was made from."""
        keys, theirs = (
            np.repeat(np.arange(p.pointers.size - 1), np.diff(p.pointers)) * n_features + p.features
            for p in (self, part)
        )
        where = np.minimum(np.searchsorted(keys, theirs), max(keys.size - 1, 0))
        is_here = keys[where] == theirs if keys.size else np.zeros(theirs.size, np.bool_)
        result = np.zeros(keys.size, np.bool_)
        result[where[is_here]] = self.counts[where[is_here]] == part.counts[is_here]
        return result


def occurring_features(X: sparse.csr_array, Y: sparse.csr_array, most: int) -> Pattern:
    """The pattern of these rows. A label has at most `most` features; of more, the most frequent with it stay."""
    rows_of = sparse.csr_array(Y.T.tocsr())
    presence = sparse.csr_array((np.ones(X.nnz, np.float32), X.indices, X.indptr), shape=X.shape)
    # Labels whose rows together have so many entries that their product fits in memory.
    work = np.cumsum(np.diff(X.indptr)[rows_of.indices], dtype=np.int64)
    ends = np.searchsorted(work, np.arange(_BLOCK_ENTRIES, int(work[-1]) if work.size else 0, _BLOCK_ENTRIES))
    cuts = np.unique([0, *np.searchsorted(rows_of.indptr, ends), rows_of.shape[0]])
    sizes, features, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for first, last in pairwise(cuts):
        together = sparse.csr_array(gather_rows(rows_of, np.arange(first, last)) @ presence)
        together.sort_indices()
        row = np.repeat(np.arange(last - first), np.diff(together.indptr))
        order = np.lexsort((together.indices, -together.data, row))
        place = np.arange(order.size) - together.indptr[row[order]]
        kept = np.sort(order[place < most])
        sizes.append(np.bincount(row[kept], minlength=last - first))
        features.append(together.indices[kept].astype(np.int32))
        counts.append(together.data[kept].astype(np.int32))
    pointers = np.zeros(rows_of.shape[0] + 1, np.int64)
    np.cumsum(np.concatenate(sizes), out=pointers[1:])
    return Pattern(pointers, np.concatenate(features), np.concatenate(counts))


class _Layout(NamedTuple):
    """Where the weights of some labels lie when they are laid out as (D, labels)."""

    columns: slice  # of the result
    weights: Tensor | slice  # which of the weights
    cells: Tensor  # where in the flat (D, labels) scratch


class PrivateProcess(nn.Module):
    """Weights of K labels on the features (pointers, features) they occur with."""

    def __init__(self, n_labels: int, n_features: int, n_weights: int, kind: str, scale: float) -> None:
        super().__init__()
        self.n_features, self.kind, self.scale = n_features, kind, scale
        self.register_buffer("pointers", torch.zeros(n_labels + 1, dtype=torch.int64))
        self.register_buffer("features", torch.zeros(n_weights, dtype=torch.int32))
        self.register_buffer("waiting", torch.zeros(n_weights, dtype=torch.bool))
        self.weights = nn.Parameter(torch.zeros(n_weights))
        if kind == "mean_field":
            self.log_var = nn.Parameter(torch.full((n_weights,), 2 * log(_SPREAD)))
            self.log_scale = nn.Parameter(torch.full((), log(scale)))
        self._all: list[_Layout] | None = None

    def fill(self, pattern: Pattern, waiting: NDArray[np.bool_] | None = None) -> None:
        """Say which weights there are, and which of them wait.

        A weight that occurs in held-out rows alone would learn from all other rows that its label does not hold, and
        the held-out rows would say that the model is worse than it is. Such weights stay 0 until these rows join.
        """
        self.get_buffer("pointers").copy_(torch.from_numpy(pattern.pointers))
        self.get_buffer("features").copy_(torch.from_numpy(pattern.features))
        if waiting is not None:
            self.get_buffer("waiting").copy_(torch.from_numpy(waiting))
        self._all = None

    def release(self) -> None:
        """Let all weights learn."""
        self.get_buffer("waiting").zero_()

    def utilities(self, X: Tensor, labels: Tensor | slice | None = None) -> tuple[Tensor, Tensor | None]:
        """Mean, and variance if there is one, of w_kᵀ x (B, labels) for these labels, or all."""
        layouts = self._layouts(labels)
        apply: Any = _PrivateProduct.apply  # torch's is untyped
        waiting = self.get_buffer("waiting")
        mean: Tensor = apply(self.weights, X, layouts, self.n_features, waiting)
        if self.kind != "mean_field":
            return mean, None
        squares = torch.sparse_csr_tensor(
            X.crow_indices(), X.col_indices(), X.values().square(), size=X.shape, check_invariants=False
        )
        return mean, apply(self.log_var.exp(), squares, layouts, self.n_features, waiting)

    def kl(self) -> Tensor:
        """KL(q(w) ‖ p(w)) in float64; of a point estimate -log p(w), up to a constant."""
        squares = self.weights.square()
        if self.kind != "mean_field":
            return 0.5 * squares.sum(dtype=torch.float64) / self.scale**2
        ratio = (squares + self.log_var.exp()) * (-2 * self.log_scale).exp()
        return 0.5 * (ratio - 1 - self.log_var + 2 * self.log_scale).sum(dtype=torch.float64)

    def _layouts(self, labels: Tensor | slice | None) -> list[_Layout]:
        if labels is None or (isinstance(labels, slice) and labels == slice(0, len(self.get_buffer("pointers")) - 1)):
            if self._all is None or self._all_device() != self.weights.device:
                self._all = self._lay_out(None)
            return self._all
        return self._lay_out(labels)

    def _all_device(self) -> torch.device | None:
        return self._all[0].cells.device if self._all else None

    def _lay_out(self, labels: Tensor | slice | None) -> list[_Layout]:
        pointers, features = self.get_buffer("pointers"), self.get_buffer("features")
        n_labels = len(pointers) - 1
        if labels is None:
            labels = slice(0, n_labels)
        width = max(16, _SCRATCH[pointers.device.type] // max(self.n_features, 1) // 16 * 16)  # whole vector registers
        n_chosen = labels.stop - labels.start if isinstance(labels, slice) else labels.numel()
        layouts = []
        for start in range(0, n_chosen, width):
            stop = min(start + width, n_chosen)
            if isinstance(labels, slice):
                first, last = labels.start + start, labels.start + stop
                chosen: Tensor | slice = slice(int(pointers[first]), int(pointers[last]))
                column = entry_rows(pointers[first : last + 1])
                feature = features[chosen]
            else:
                some = labels[start:stop]
                counts = pointers[some + 1] - pointers[some]
                column = torch.repeat_interleave(torch.arange(stop - start, device=some.device), counts)
                ends = counts.cumsum(0)
                chosen = torch.arange(column.numel(), device=some.device) + (pointers[some] - ends + counts)[column]
                feature = features[chosen]
            layouts.append(_Layout(slice(start, stop), chosen, feature.long() * (stop - start) + column))
        return layouts


class _PrivateProduct(torch.autograd.Function):
    """X W for the weights of some labels, laid out densely for a few labels at a time."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, X: Tensor, layouts: list[_Layout], n_features: int, waiting: Tensor
    ) -> Tensor:
        ctx.X, ctx.layouts, ctx.waiting = X, layouts, waiting
        n_labels = layouts[-1].columns.stop if layouts else 0
        result = weights.new_empty(X.shape[0], n_labels)
        for columns, chosen, cells in layouts:
            scratch = weights.new_zeros(n_features * (columns.stop - columns.start))
            scratch.scatter_(0, cells, weights[chosen])  # twice as fast as an assignment
            result[:, columns] = dot(X, scratch.view(n_features, -1))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        found = gradients[0].new_zeros(ctx.waiting.numel())
        turned = transposed(ctx.X)
        for columns, chosen, cells in ctx.layouts:
            found[chosen] = dot(turned, gradients[0][:, columns].contiguous()).flatten().index_select(0, cells)
        return found.masked_fill_(ctx.waiting, 0), None, None, None, None
