"""Local cubic interpolation on a regular grid of n points at 0, 1, …, n - 1: f(x) = Σ_k w_k(x) u_k over four points.

The weights are those of Keys' convolution with a = -½: third order in the step, exact for quadratics. On a grid of d
dimensions they are products of d weights, over windows of 4^d points.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labelfield.linalg.autograd import apply

__all__ = ["banded_window_forms", "cubic_weights", "interpolate", "locate"]


def locate(x: Tensor, n_points: int) -> tuple[Tensor, Tensor]:
    """Return the first of the four points around each x in [1, n - 2], and the fraction from the second to the third.

    Coordinates must lie within; nothing is read from a GPU to check. NaN gets a valid window and a fraction of NaN.
    """
    second = x.detach().nan_to_num(nan=1.0).floor_().clamp_(1, n_points - 3)
    return second.long() - 1, x - second


def cubic_weights(t: Tensor) -> Tensor:
    """Return the weights (…, 4) of four adjacent points, at a fraction t of the way from the second to the third."""
    return apply(_CubicWeights, t)


def interpolate(u: Tensor, cells: Tensor, weights: Tensor, n_points: int) -> Tensor:
    """Return Σ_k w_bjk u_jkt (B, J, T) for values u (J, m, T) on m = n^d points, the last dimension varying fastest.

    Cells (B, J, d) and weights (B, J, d, 4) come from `locate` and `cubic_weights` in each dimension.
    """
    (J, m, _), d = u.shape, cells.shape[-1]
    if m != n_points**d:
        raise ValueError(f"{m} values for {n_points}^{d} grid points")
    starts, strides = torch.arange(0, J * m, m, device=u.device), [n_points ** (d - 1 - k) for k in range(d)]
    if d == 1:
        return apply(_WindowSums, u, starts.unsqueeze(-1) + cells, weights).squeeze(2)
    # A window is four consecutive values along the last dimension; there are 4^(d - 1) of them, with a weight each.
    first, product = starts, weights[:, :, -1:]
    for k in range(d):
        first = first + strides[k] * cells[:, :, k]
    first, window = first.unsqueeze(-1), torch.arange(4, device=u.device)
    for k in reversed(range(d - 1)):
        first = (strides[k] * window.unsqueeze(-1) + first.unsqueeze(-2)).flatten(-2)
        product = (weights[:, :, k, :, None, None] * product.unsqueeze(-3)).flatten(-3, -2)
    return apply(_WindowSums, u, first, product).sum(2)


def banded_window_forms(W: Tensor) -> Tensor:
    """Return the blocks (…, n - 3, 4, 4) of S = W Wᵀ around its diagonal, one for each window of four adjacent points.

    They are made of four diagonals of S, at a cost of n² each. A small S is formed in full, which is faster.
    """
    return apply(_BandedWindowForms, W)


# S is formed in full for grids of up to this many points.
_SMALL = 256


class _CubicWeights(torch.autograd.Function):
    """Linear interpolation (0, s, t, 0) plus p (-s, 3s - 1, 3t - 1, -t) / 2, where s = 1 - t and p = s t."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        ctx.save_for_backward(t)
        s = 1 - t
        p = s * t
        first, last = (-0.5 * p).mul_(s), (-0.5 * p).mul_(t)
        second, third = s.sub_(first, alpha=3).sub_(p, alpha=0.5), t.sub(last, alpha=3).sub_(p, alpha=0.5)
        return torch.stack((first, second, third, last), -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """By Horner's rule: ½ (g_2 - g_0) + t (2g_0 - 5g_1 + 4g_2 - g_3) + 3/2 t² (3 (g_1 - g_2) + g_3 - g_0)."""
        (t,) = ctx.saved_tensors
        g = gradients[0].unbind(-1)
        inner, outer = g[1] - g[2], g[3] - g[0]
        linear = (g[0] - g[1]).sub_(outer).sub_(inner, alpha=4)
        result: Tensor = outer.add_(inner, alpha=3).mul_(t).mul_(1.5).add_(linear).mul_(t)
        return result.add_(g[2] - g[0], alpha=0.5)


class _WindowSums(torch.autograd.Function):
    """Σ_k w_ik u[first_i + k] (…, T) over four consecutive rows of u (J, m, T), flattened, for first (…), w (…, 4)."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, first: Tensor, weights: Tensor) -> Tensor:
        n_rows, T = u.shape[0] * u.shape[1], u.shape[2]
        # Four consecutive rows are one row of overlapping memory: one look-up instead of four.
        overlapping = u.contiguous().as_strided((n_rows - 3, 4 * T), (T, 1))
        rows, w = overlapping.index_select(0, first.reshape(-1)), weights.reshape(-1, 4)
        ctx.save_for_backward(first, w, rows)
        ctx.u_shape, ctx.weights_shape = u.shape, weights.shape
        if T == 1:
            return (rows * w).mv(rows.new_ones(4)).view(*first.shape, 1)
        return torch.bmm(w.unsqueeze(1), rows.view(-1, 4, T)).view(*first.shape, T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        first, w, rows = ctx.saved_tensors
        T = ctx.u_shape[-1]
        g = gradients[0].reshape(-1, T)
        d_u = d_weights = None
        if ctx.needs_input_grad[0]:
            d_u = _sums_by_row(first.reshape(-1), w, g, ctx.u_shape)
        if ctx.needs_input_grad[2]:
            d_weights = rows * g if T == 1 else torch.bmm(rows.view(-1, 4, T), g.unsqueeze(2))
            d_weights = d_weights.view(ctx.weights_shape)
        return d_u, None, d_weights


def _sums_by_row(first: Tensor, w: Tensor, g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return, for each row of u, the sum of w_ik g_i over all i and k with first_i + k equal to that row."""
    n_rows, T = shape[0] * shape[1], shape[2]
    if T == 1:
        places = (first.unsqueeze(1) + torch.arange(4, device=first.device)).view(-1)
        return g.new_zeros(n_rows).scatter_add_(0, places, (w * g).view(-1)).view(shape)
    parts = (w.unsqueeze(2) * g.unsqueeze(1)).view(-1, 4 * T)
    sums = g.new_zeros(n_rows, 4 * T).index_add_(0, first, parts)
    result = sums[:, :T].clone()
    for k in range(1, 4):
        result[k:] += sums[:-k, k * T : (k + 1) * T]
    return result.view(shape)


class _BandedWindowForms(torch.autograd.Function):
    """Blocks of S. Block i has at (a, b) entry i + min(a, b) of diagonal |a - b|, with the entries w_iᵀ w_{i+|a-b|}."""

    @staticmethod
    def forward(ctx: Any, W: Tensor) -> Tensor:
        ctx.save_for_backward(W)
        n = W.shape[-2]
        if n <= _SMALL:
            S = W @ W.mT
            shape, strides = (*W.shape[:-2], n - 3, 4, 4), (*S.stride()[:-2], n + 1, n, 1)
            return S.as_strided(shape, strides).clone(memory_format=torch.contiguous_format)
        diagonals = [(W[..., : n - k, :] * W[..., k:, :]).sum(-1) for k in range(4)]
        entries = [diagonals[abs(a - b)].narrow(-1, min(a, b), n - 3) for a in range(4) for b in range(4)]
        return torch.stack(entries, -1).view(*W.shape[:-2], n - 3, 4, 4)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (W,) = ctx.saved_tensors
        n, both = W.shape[-2], gradients[0] + gradients[0].mT
        d_W = torch.zeros_like(W)
        for k in range(4):
            d_diagonal = W.new_zeros(*W.shape[:-2], n - k)
            for a in range(4 - k):
                d_diagonal.narrow(-1, a, n - 3).add_(both[..., a, a + k])
            d_W[..., : n - k, :].addcmul_(d_diagonal.unsqueeze(-1), W[..., k:, :])
            if k:
                d_W[..., k:, :].addcmul_(d_diagonal.unsqueeze(-1), W[..., : n - k, :])
        return d_W
