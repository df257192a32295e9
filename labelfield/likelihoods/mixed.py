"""The Bernoulli likelihood of mixed processes, f = Φ h + b: value and gradient in one pass over the labels.

The moments of f, (B, K) arrays, are formed for some labels at a time, which stay in the cache while they are turned
into derivatives and these into gradients by h, Φ and b:

    mean = h Φᵀ + b,  var = s (Φ²)ᵀ      ∂h = G Φ,  ∂s = H Φ²,  ∂Φ = Gᵀ h + 2 Φ ∘ Hᵀ s,  ∂b = Gᵀ 1

where G and H are the derivatives by mean and var.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labelfield.likelihoods.chunks import CHUNK
from labelfield.likelihoods.softplus import softplus_in_place, softplus_moments
from labelfield.linalg.autograd import apply
from labelfield.linalg.partial import Hidden
from labelfield.linalg.products import product
from labelfield.linalg.rows import entry_rows

# Rows times labels from which products in bfloat16 save more than the conversions cost.
_WORTH_ROUNDING = 1 << 16


class Truth(NamedTuple):
    """The labels that hold: the row, the column and the weight of each entry; beyond 1, the weight of its softplus."""

    row: Tensor
    column: Tensor
    weight: Tensor
    more: Tensor | None

    @staticmethod
    def of(Y: Tensor, column: Tensor, positive_weight: Tensor | None) -> "Truth":
        """Take labels Y (CSR) with entries in these columns. Entries that are 0 are not labels."""
        row, weight = entry_rows(Y.crow_indices(), column.numel()), Y.values()
        if positive_weight is None:
            return Truth(row, column, weight, None)
        # log σ(f) = f - softplus(f), and the sum over all labels already has the softplus once.
        heavier = weight * positive_weight[Y.col_indices().long()]
        return Truth(row, column, heavier, heavier - weight)


def mixed_log_prob(
    mean: Tensor,
    var: Tensor,
    Phi: Tensor,
    b: Tensor,
    own_mean: Tensor | None,
    own_var: Tensor | None,
    truth: Truth,
    column_weight: Tensor | None,
    n_points: int,
    hidden: Hidden | None = None,
) -> Tensor:
    """Return Σ_bk c_k E log p(y_bk | f_bk) as a float64 scalar, for moments of h (B, P), mixed by Φ (K, P) and b (K,).

    Each label may have a process of its own, whose moments (B, K) are added. Labels count c_k times, and
    entries that are `hidden` count for nothing.
    """
    weight = b.new_ones(len(b)) if column_weight is None else column_weight
    return -apply(_MixedLoss, mean, var, Phi, b, own_mean, own_var, truth, weight, n_points, hidden)


class _MixedLoss(torch.autograd.Function):
    """-Σ_bk c_k E log p(y_bk | f_bk), with the gradients that the top of this file has."""

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        var: Tensor,
        Phi: Tensor,
        b: Tensor,
        own_mean: Tensor | None,
        own_var: Tensor | None,
        truth: Truth,
        weight: Tensor,
        n_points: int,
        hidden: Hidden | None,
    ) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=b.device)
        squares, d_mean, d_var = Phi.square(), torch.zeros_like(mean), torch.zeros_like(var)
        d_Phi, d_b = torch.empty_like(Phi), torch.empty_like(b)
        d_own_mean, d_own_var = (None if own is None else torch.empty_like(own) for own in (own_mean, own_var))
        short = _short_type(b, len(mean) * len(b))
        mean_, var_, Phi_, squares_ = (part.to(short) for part in (mean, var, Phi, squares))
        room: list[Tensor] = []
        for columns in _blocks(len(mean), len(b), b.device):
            shape = len(mean), columns.stop - columns.start
            if not room or room[0].shape != shape:
                room = [b.new_empty(shape), b.new_empty(shape)]
            G = torch.add(product(mean, Phi[columns].T), b[columns], out=room[0])
            H = room[1].copy_(var_ @ squares_[columns].T)
            for own, moment in ((own_mean, G), (own_var, H)):
                if own is not None:
                    moment.add_(own[:, columns])
            if hidden is not None:
                hidden.take_out(G, H, columns.start)
            total += _to_derivatives(G, H, truth, columns, weight[columns], n_points)
            torch.sum(G, 0, out=d_b[columns])
            for d_own, derivative in ((d_own_mean, G), (d_own_var, H)):
                if d_own is not None:
                    d_own[:, columns] = derivative
            G_, H_ = G.to(short), H.to(short)
            d_mean += G_ @ Phi_[columns]
            d_var += H_ @ squares_[columns]
            d_Phi[columns] = H_.T @ var_
            d_Phi[columns].mul_(Phi[columns]).mul_(2).add_(G_.T @ mean_)
        ctx.save_for_backward(d_mean, d_var, d_Phi, d_b, d_own_mean, d_own_var)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scale = gradients[0].to(ctx.saved_tensors[0].dtype)
        return *(None if part is None else part.mul(scale) for part in ctx.saved_tensors), None, None, None, None


def _short_type(like: Tensor, size: int) -> torch.dtype:
    """Return the type in which variances and gradients are multiplied; means are always multiplied as they are.

    Some processors multiply bfloat16 two to three times as fast as float32. Its rounding of 1 in 500 is far below the
    noise of a batch: products are summed in float32, and scores on held-out rows are the same (docs/DECISIONS.md).
    """
    is_short = like.dtype == torch.float32 and like.device.type == "cpu" and size >= _WORTH_ROUNDING
    return torch.bfloat16 if is_short and _has_fast_bfloat16() else like.dtype


@cache
def _has_fast_bfloat16() -> bool:
    """Return whether this processor has instructions for products of bfloat16."""
    supported: Callable[[], bool] = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return supported()


def _blocks(n_rows: int, n_labels: int, device: torch.device) -> Iterator[slice]:
    """Yield consecutive slices of the labels, whose moments fit in a cache or keep a GPU busy."""
    step = max(16, CHUNK[device.type] // max(n_rows, 1) // 16 * 16)  # whole vector registers
    for start in range(0, n_labels, step):
        yield slice(start, min(start + step, n_labels))


def _to_derivatives(mean: Tensor, var: Tensor, truth: Truth, columns: slice, weight: Tensor, n_points: int) -> Tensor:
    """Return the loss of some labels, and replace the moments of f by its derivatives. Nothing is read from a GPU."""
    is_here = (truth.column >= columns.start) & (truth.column < columns.stop)
    place = truth.row, (truth.column - columns.start).clamp(0, columns.stop - columns.start - 1)
    held = (truth.weight * is_here).to(mean.dtype)
    own_mean, own_var = mean[place], var[place] if truth.more is not None else None
    loss: Tensor = softplus_in_place(mean, var, weight, n_points) - (own_mean * held).sum(dtype=torch.float64)
    mean.index_put_(place, -held, accumulate=True)
    if truth.more is not None and own_var is not None:
        value, d_mean, d_var = softplus_moments(own_mean, own_var, n_points)
        more = (truth.more * is_here).to(mean.dtype)
        loss += (value * more).sum(dtype=torch.float64)
        mean.index_put_(place, d_mean * more, accumulate=True)
        var.index_put_(place, d_var * more, accumulate=True)
    return loss
