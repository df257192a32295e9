"""Local cubic interpolation on a regular grid of n points at 0, 1, …, n - 1: f(x) = Σ_k w_k(x) u_k over four points.

The weights are those of Keys' convolution with a = -½: third order in the step, exact for quadratics. On a grid of d
dimensions they are products of d weights, over windows of 4^d points.

Between grid points the mean of an interpolated process is a cubic and its variance a sextic: with the weights
w_a(t) = Σ_k C_ak t^k of the four points around t, wᵀu = Σ_k (Cᵀu)_k t^k and wᵀSw = Σ_k (Dᵀ vec S)_k t^k. The
coefficients are computed once per cell; a row then needs one look-up and a few products.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from labelfield.linalg.autograd import apply

# The number of coefficients of a cubic and of a sextic.
CUBIC, SEXTIC = 4, 7
# Devices on which rows are summed by a matrix product, and the most numbers that this may create.
_BY_PRODUCT = ("cuda",)
_MOST_INDICATORS = 1 << 28
# The rows of each such product: a single product over all rows would leave most of a GPU idle.
_ROWS_OF_PRODUCT = 512
# The coefficients of w_a(t), a = 0 … 3, for Keys' convolution (a = -½), by powers of t.
_WEIGHTS = np.array([[0, -0.5, 1, -0.5], [1, 0, -2.5, 1.5], [0, 0.5, 2, -1.5], [0, 0, -0.5, 0.5]])
# S is formed in full for grids of up to this many points.
_SMALL = 256


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


def cubics(u: Tensor) -> Tensor:
    """Return the coefficients (…, n - 3, 4) of the mean in each cell, from values u (…, n)."""
    return u.unfold(-1, 4, 1) @ coefficients(CUBIC, u)


def sextics(forms: Tensor) -> Tensor:
    """Return the coefficients (…, n - 3, 7) of the variance in each cell, from the blocks (…, n - 3, 4, 4) of S."""
    return forms.flatten(-2) @ coefficients(SEXTIC, forms)


def evaluate(table: Tensor, cells: Tensor, t: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Evaluate p polynomials of these sizes at t (B, G) in cells (B, G), for tables (G, C, Σ sizes): (B, G, p)."""
    return apply(_Evaluate, table, cells, t, sizes)


def coefficients(size: int, like: Tensor) -> Tensor:
    """Return the matrix from values of a window to its cubic (4, 4), or from its block of S to its sextic (16, 7)."""
    return _constant(size, like.dtype, like.device)


@lru_cache(maxsize=16)
def _constant(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    products = [np.convolve(a, b) for a in _WEIGHTS for b in _WEIGHTS]  # of w_a(t) w_b(t), by powers of t
    return torch.from_numpy(_WEIGHTS if size == CUBIC else np.stack(products)).to(device, dtype)


def powers_of(t: Tensor, n: int) -> Tensor:
    """Return 1, t, t² … (numel, n). On a GPU each power is separate, since cumulative products run row by row."""
    if t.device.type == "cuda":
        return t.reshape(-1, 1) ** torch.arange(n, device=t.device)
    powers = t.new_ones(t.numel(), n)
    torch.cumprod(t.reshape(-1, 1).expand(-1, n - 1), 1, out=powers[:, 1:])
    return powers


class _Evaluate(torch.autograd.Function):
    """Polynomials Σ_k c_k t^k, with ∂c_k = g t^k and ∂t = g Σ_k k c_k t^(k - 1)."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, cells: Tensor, t: Tensor, sizes: tuple[int, ...]) -> Tensor:
        G, C, width = table.shape
        first = (torch.arange(0, G * C, C, device=cells.device) + cells).view(-1)
        rows = table.reshape(-1, width).index_select(0, first)
        powers = powers_of(t, max(sizes))
        ctx.save_for_backward(cells, first, powers, rows)
        ctx.sizes, ctx.table_shape = sizes, table.shape
        parts = torch.split(rows, list(sizes), 1)
        return torch.stack([(part * powers[:, : part.shape[1]]).sum(1) for part in parts], 1).view(*t.shape, len(sizes))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        cells, first, powers, rows = ctx.saved_tensors
        g, d_table, d_t = gradients[0].reshape(-1, len(ctx.sizes)), None, None
        if ctx.needs_input_grad[0]:
            parts = torch.cat([g[:, i : i + 1] * powers[:, :size] for i, size in enumerate(ctx.sizes)], 1)
            d_table = sums_of_cells(parts, cells, first, ctx.table_shape)
        if ctx.needs_input_grad[2]:
            slopes = powers[:, :-1] * torch.arange(1, powers.shape[1], dtype=powers.dtype, device=powers.device)
            polynomials = torch.split(rows, list(ctx.sizes), 1)
            each = [(part[:, 1:] * slopes[:, : part.shape[1] - 1]).sum(1) for part in polynomials]
            d_t = (g * torch.stack(each, 1)).sum(1).view(cells.shape)
        return d_table, None, d_t, None


def sums_of_cells(parts: Tensor, cells: Tensor, first: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Return the sum of the rows (B G, width) in each cell (G, C, width).

    On a GPU, thousands of rows that fall into one cell would wait for each other and be added in any order. A product
    with indicators of cells is many times as fast, and its result is always the same.
    """
    G, C, width = shape
    if parts.device.type not in _BY_PRODUCT or cells.numel() * C > _MOST_INDICATORS:
        return parts.new_zeros(G * C, width).index_add_(0, first, parts).view(shape)
    n_products = -(-len(cells) // _ROWS_OF_PRODUCT)
    missing = n_products * _ROWS_OF_PRODUCT - len(cells)  # zero rows, assigned to cell 0
    cell = pad(cells.T, (0, missing)).reshape(-1, 1, _ROWS_OF_PRODUCT)
    part = pad(parts.view(len(cells), G, width).transpose(0, 1), (0, 0, 0, missing))
    indicators = parts.new_zeros(G * n_products, C, _ROWS_OF_PRODUCT).scatter_(1, cell, 1)
    sums = torch.bmm(indicators, part.reshape(-1, _ROWS_OF_PRODUCT, width))
    return sums.view(G, n_products, C, width).sum(1)
