"""The moments of whitened processes on a one-dimensional grid, and their divergence, in one function.

    u = R m,  W = R L,  R Rᵀ = K          mean = wᵀ u,  var = wᵀ W Wᵀ w          KL(N(m, L Lᵀ) ‖ N(0, I))

The same computation is written step by step in `variational.grid` and `linalg.interpolation`. There each step is a node
of the graph with its own gradient: about forty small operations whose overhead exceeds their work.
Here they share intermediate results, and nothing is formed twice (docs/DECISIONS.md has the measurement).
"""

from typing import Any

import torch
from torch import Tensor

from labelfield.linalg.interpolation import CUBIC, SEXTIC, coefficients, powers_of, sums_of_cells
from labelfield.linalg.toeplitz import column_gradient, factorised, may_synchronise
from labelfield.linalg.triangular import tril_log_det

# On larger grids W Wᵀ, needed only in a band, costs too much.
LARGEST_GRID = 256
_NAME = "K_Z, the covariance of the grid,"


def whitened_moments(
    columns: Tensor, jitter: float, mean: Tensor, factor: Tensor, cells: Tensor, t: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return means and variances (B, J) at positions t in cells (B, J), and divergences (J,) in float64.

    The columns are the first columns of K (J, n) in float64, or (1, n) for all processes; the means m are (J, n), and
    of the factors (J, n, n) only the lower triangles count.
    """
    apply: Any = _WhitenedMoments.apply  # torch's is untyped
    result: tuple[Tensor, Tensor, Tensor] = apply(columns, jitter, mean, factor, cells, t, may_synchronise(columns))
    return result


class _WhitenedMoments(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, columns: Tensor, jitter: float, mean: Tensor, factor: Tensor, cells: Tensor, t: Tensor, may_read: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        J, n = mean.shape
        R = factorised(columns, _NAME, jitter, may_read)
        rounded = R.to(mean.dtype)
        both = torch.cat([factor.tril(), mean.unsqueeze(-1)], -1)  # L and m side by side
        L = both[..., :n]
        product = rounded @ both
        W, u = product[..., :n], product[..., n]
        S = W @ W.mT
        blocks = S.as_strided((J, n - 3, 4, 4), (n * n, n + 1, n, 1)).reshape(J, n - 3, 16)
        cubic, sextic = coefficients(CUBIC, mean), coefficients(SEXTIC, mean)
        table = torch.cat([u.unfold(-1, 4, 1) @ cubic, blocks @ sextic], -1)
        first = (torch.arange(0, J * (n - 3), n - 3, device=cells.device) + cells).view(-1)
        rows = table.view(-1, CUBIC + SEXTIC).index_select(0, first)
        powers = powers_of(t, SEXTIC)
        f_mean = (rows[:, :CUBIC] * powers[:, :CUBIC]).sum(1).view(t.shape)
        f_var = (rows[:, CUBIC:] * powers).sum(1).view(t.shape)
        traces = L.square().sum((-2, -1), dtype=torch.float64) + mean.square().sum(-1, dtype=torch.float64)
        ctx.save_for_backward(R, rounded, both, product, cells, first, powers, rows)
        return f_mean, f_var, 0.5 * (traces - n - tril_log_det(L))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor, Tensor, None, Tensor, None]:
        R, rounded, both, product, cells, first, powers, rows = ctx.saved_tensors
        J, n = product.shape[:2]
        g_mean, g_var, g_kl = gradients[0].reshape(-1, 1), gradients[1].reshape(-1, 1), gradients[2]
        cubic, sextic = coefficients(CUBIC, product), coefficients(SEXTIC, product)
        # To the polynomials of each cell, and to the position in it.
        parts = torch.cat([g_mean * powers[:, :CUBIC], g_var * powers], 1)
        d_table = sums_of_cells(parts, cells, first, (J, n - 3, CUBIC + SEXTIC))
        slopes = powers[:, :-1] * torch.arange(1, SEXTIC, dtype=powers.dtype, device=powers.device)
        d_t = (g_mean * rows[:, 1:CUBIC] * slopes[:, : CUBIC - 1]).sum(1)
        d_t += (g_var * rows[:, CUBIC + 1 :] * slopes).sum(1)
        # To u, and through the diagonals of ∂S to W: windows overlap, blocks are symmetric, and ∂W = 2 ∂S W.
        d_windows, d_blocks = d_table[..., :CUBIC] @ cubic.T, d_table[..., CUBIC:] @ sextic.T.mul(2)
        d_product, d_bands = torch.zeros_like(product), product.new_zeros(4, J, n)
        W, d_W = product[..., :n], d_product[..., :n]
        for a in range(4):
            d_product[:, a : a + n - 3, n].add_(d_windows[..., a])
            for k in range(4 - a):
                d_bands[k, :, a : a + n - 3].add_(d_blocks[..., 5 * a + k])
        for k in range(4):
            band = d_bands[k, :, : n - k, None]
            d_W[:, : n - k].addcmul_(band, W[:, k:])
            if k:
                d_W[:, k:].addcmul_(band, W[:, : n - k])
        # To m and L, with the gradient of the divergence, and to R.
        scale = g_kl.to(product.dtype)[:, None, None]
        d_both = torch.addcmul(rounded.mT @ d_product, both, scale)
        d_factor = d_both[..., :n].tril()
        d_factor.diagonal(dim1=-2, dim2=-1).sub_(scale[..., 0] / both.diagonal(dim1=-2, dim2=-1))
        d_columns = None
        if ctx.needs_input_grad[0]:
            d_R = (d_product @ both.mT).double()
            d_columns = column_gradient(R, d_R if len(R) == J else d_R.sum(0, keepdim=True))
        return d_columns, None, d_both[..., n], d_factor, None, d_t.view(cells.shape), None
