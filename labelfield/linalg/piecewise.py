"""Interpolated processes as piecewise polynomials: between grid points the mean is a cubic and the variance a sextic.

With the weights w_a(t) = Σ_k C_ak t^k of the four points around t, wᵀu = Σ_k (Cᵀu)_k t^k and wᵀSw = Σ_k (Dᵀ vec S)_k
t^k. The coefficients are computed once per cell; a row then needs one look-up and a few products.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from labelfield.linalg.autograd import apply

__all__ = ["CUBIC", "SEXTIC", "coefficients", "cubics", "evaluate", "powers_of", "sextics", "sums_of_cells"]

# The number of coefficients of a cubic and of a sextic.
CUBIC, SEXTIC = 4, 7
# Devices on which rows are summed by a matrix product, and the most numbers that this may create.
_BY_PRODUCT = ("cuda",)
_MOST_INDICATORS = 1 << 28
# The rows of each such product: a single product over all rows would leave most of a GPU idle.
_ROWS_OF_PRODUCT = 512
# The coefficients of w_a(t), a = 0 … 3, for Keys' convolution (a = -½), by powers of t.
_WEIGHTS = np.array([[0, -0.5, 1, -0.5], [1, 0, -2.5, 1.5], [0, 0.5, 2, -1.5], [0, 0, -0.5, 0.5]])


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
    return torch.from_numpy(_WEIGHTS if size == CUBIC else _products()).to(device, dtype)


def _products() -> NDArray[np.float64]:
    """Return the coefficients (16, 7) of w_a(t) w_b(t), by powers of t."""
    return np.stack([np.convolve(a, b) for a in _WEIGHTS for b in _WEIGHTS])


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
