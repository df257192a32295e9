"""Local cubic interpolation on a regular grid of n points at 0, 1, …, n - 1: f(x) = Σ_k w_k(x) u_k over four points.

The weights are those of Keys' convolution with a = -½: third order in the step, exact for quadratics. On a grid of d
dimensions they are products of d weights, over windows of 4^d points.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["banded_window_forms", "cubic_weights", "interpolate", "locate", "quadratic"]


def locate(x: Tensor, n_points: int, *, check: bool = True) -> tuple[Tensor, Tensor]:
    """The first of the four points around each x in [1, n - 2], and the fraction in [0, 1] from second to third.

    Outside there are no four points around x: that is an error, unless the caller knows and says so with `check=False`,
    when nothing is asked of a GPU. What is not a number has a valid window and a fraction that is not a number.
    """
    if n_points < 4:
        raise ValueError(f"n_points={n_points}; cubic interpolation needs at least 4")
    known = x.detach().nan_to_num(nan=1.0)
    if check and x.numel():
        low, high = (float(end) for end in torch.aminmax(known))
        if low < 1 or high > n_points - 2:
            raise ValueError(
                f"coordinates from {low:g} to {high:g}; a grid of {n_points} points interpolates within [1, "
                f"{n_points - 2}]"
            )
    second = known.floor_().clamp_(1, n_points - 3)
    return second.long() - 1, x - second


def cubic_weights(t: Tensor) -> Tensor:
    """The weights (…, 4) of four adjacent points at a fraction t of the way from the second to the third."""
    apply: Any = _CubicWeights.apply  # torch's is untyped
    result: Tensor = apply(t)
    return result


def interpolate(u: Tensor, cells: Tensor, weights: Tensor, n_points: int) -> Tensor:
    """Σ_k w_bjk u_jkt (B, J, T) for values u (J, m, T) on m = n^d points, the last dimension running fastest.

    Cells (B, J, d) and weights (B, J, d, 4) are those of `locate` and `cubic_weights` in each dimension.
    """
    (J, m, T), (B, _, d) = u.shape, cells.shape
    if m != n_points**d:
        raise ValueError(f"{m} values for {n_points}^{d} grid points")
    first = torch.arange(0, J * m, m, device=u.device)
    window, product = torch.arange(4, device=u.device), weights[:, :, -1]
    for k in range(d):
        first = first + n_points ** (d - 1 - k) * cells[:, :, k]
    # Windows of four in a row along the last dimension; along the others, 4^(d - 1) of them.
    first = first.unsqueeze(-1)
    for k in reversed(range(d - 1)):
        first = (n_points ** (d - 1 - k) * window.unsqueeze(-1) + first.unsqueeze(-2)).flatten(-2)
        product = (weights[:, :, k].unsqueeze(-1) * product.unsqueeze(-2)).flatten(-2)
    apply: Any = _WindowSums.apply  # torch's is untyped
    sums: Tensor = apply(u.reshape(J * m, T), first.reshape(-1), product.reshape(-1, 4))
    return sums.view(B, J, T) if d == 1 else sums.view(B, J, -1, T).sum(2)


def banded_window_forms(W: Tensor) -> Tensor:
    """The blocks (…, n - 3, 4, 4) of S = W Wᵀ around its diagonal, one for each window of four adjacent points.

    They come from four diagonals of S, at a cost of 4 n² each; S is never formed.
    """
    apply: Any = _BandedWindowForms.apply  # torch's is untyped
    result: Tensor = apply(W)
    return result


def quadratic(forms: Tensor, cells: Tensor, weights: Tensor) -> Tensor:
    """wᵀ S w (B, J, d) in each dimension, for forms (J, d, n - 3, 4, 4), cells (B, J, d) and weights (B, J, d, 4).

    For S = ⊗_d S_d and w = ⊗_d w_d their product over d is the whole form.
    """
    J, d, windows = forms.shape[:3]
    first = torch.arange(0, J * d * windows, windows, device=forms.device).view(J, d) + cells
    apply: Any = _Quadratic.apply  # torch's is untyped
    values: Tensor = apply(forms.reshape(-1, 16), first.reshape(-1), weights.reshape(-1, 4))
    return values.view(cells.shape)


class _CubicWeights(torch.autograd.Function):
    """With s = 1 - t and p = s t: linear interpolation (0, s, t, 0) plus p (-s, 3s - 1, 3t - 1, -t) / 2."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        ctx.save_for_backward(t)
        s = 1 - t
        p = s * t
        first, last = -0.5 * p * s, -0.5 * p * t
        return torch.stack((first, s - 3 * first - 0.5 * p, t - 3 * last - 0.5 * p, last), -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (t,) = ctx.saved_tensors
        g = gradients[0].unbind(-1)
        s = 1 - t
        p, dp = s * t, s - t
        first, last, middle = 0.5 * (p - dp * s), -0.5 * (p + dp * t), 0.5 * dp
        total: Tensor = g[0] * first - g[1] * (1 + 3 * first + middle) + g[2] * (1 - 3 * last - middle) + g[3] * last
        return total


class _WindowSums(torch.autograd.Function):
    """Σ_k w_ik table[first_i + k] (N, T) over four rows of a table (M, T) in a row."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, first: Tensor, weights: Tensor) -> Tensor:
        M, T = table.shape
        # Four rows in a row are one row of overlapping memory: one look-up instead of four.
        rows = table.contiguous().as_strided((M - 3, 4 * T), (T, 1)).index_select(0, first)
        ctx.save_for_backward(first, weights, rows)
        ctx.size = (M, T)
        if T == 1:
            return (rows * weights).mv(rows.new_ones(4)).unsqueeze(1)
        return torch.bmm(weights.unsqueeze(1), rows.view(-1, 4, T)).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        first, weights, rows = ctx.saved_tensors
        (M, T), g = ctx.size, gradients[0]
        d_table = d_weights = None
        if ctx.needs_input_grad[0]:
            if T == 1:
                places = (first.unsqueeze(1) + torch.arange(4, device=first.device)).view(-1)
                d_table = g.new_zeros(M).scatter_add_(0, places, (weights * g).view(-1)).unsqueeze(1)
            else:
                parts = (weights.unsqueeze(2) * g.unsqueeze(1)).flatten(1)
                sums = g.new_zeros(M, 4 * T).index_add_(0, first, parts)
                d_table = sums[:, :T].clone()
                for k in range(1, 4):
                    d_table[k:] += sums[:-k, k * T : (k + 1) * T]
        if ctx.needs_input_grad[2]:
            d_weights = rows * g if T == 1 else torch.bmm(rows.view(-1, 4, T), g.unsqueeze(2)).squeeze(2)
        return d_table, None, d_weights


class _BandedWindowForms(torch.autograd.Function):
    """Block i has at (a, b) the entry i + min(a, b) of the diagonal |a - b|, whose entries are w_iᵀ w_{i+|a-b|}."""

    @staticmethod
    def forward(ctx: Any, W: Tensor) -> Tensor:
        ctx.save_for_backward(W)
        n = W.shape[-2]
        diagonals = [(W[..., : n - k, :] * W[..., k:, :]).sum(-1) for k in range(4)]
        entries = [diagonals[abs(a - b)].narrow(-1, min(a, b), n - 3) for a in range(4) for b in range(4)]
        return torch.stack(entries, -1).view(*W.shape[:-2], n - 3, 4, 4)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (W,) = ctx.saved_tensors
        n, G = W.shape[-2], gradients[0]
        d_W = torch.zeros_like(W)
        for k in range(4):
            d_diagonal = W.new_zeros(*W.shape[:-2], n - k, 1)
            for a in range(4 - k):
                both = G[..., a, a + k] if k == 0 else G[..., a, a + k] + G[..., a + k, a]
                d_diagonal.narrow(-2, a, n - 3).add_(both.unsqueeze(-1))
            d_W[..., : n - k, :].addcmul_(d_diagonal, W[..., k:, :])
            d_W[..., k:, :].addcmul_(d_diagonal, W[..., : n - k, :])
        return d_W


class _Quadratic(torch.autograd.Function):
    """w_iᵀ S_i w_i (N,) for the symmetric blocks S_i = table[first_i] of a table (M, 16)."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, first: Tensor, weights: Tensor) -> Tensor:
        ones = weights.new_ones(4)
        blocks = table.index_select(0, first).view(-1, 4, 4)
        products = blocks.mul_(weights.unsqueeze(1)).view(-1, 4).mv(ones).view(-1, 4)
        ctx.save_for_backward(first, weights, products)
        ctx.size = table.shape
        return (products * weights).mv(ones)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        first, weights, products = ctx.saved_tensors
        g = gradients[0].unsqueeze(1)
        d_table = d_weights = None
        if ctx.needs_input_grad[0]:
            outer = ((weights * g).unsqueeze(2) * weights.unsqueeze(1)).view(-1, 16)
            d_table = weights.new_zeros(ctx.size).index_add_(0, first, outer)
        if ctx.needs_input_grad[2]:
            d_weights = products * (2 * g)
        return d_table, None, d_weights
