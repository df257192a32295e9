"""Divergences between Gaussians, for each process p separately, and the smallest variances that are used."""

from __future__ import annotations

import torch
from torch import Tensor

from labelfield.linalg.triangular import trace_minus_log_det, tril_log_det

__all__ = ["LEAST_DIVISOR", "LEAST_VARIANCE", "ROUNDING", "kl_diagonal_standard", "kl_full", "kl_full_standard"]

# The least variance of a latent process: anything smaller is the rounding error of a difference.
LEAST_VARIANCE = 1e-6
# The same for interpolated variances, which are sums of squares and round less.
ROUNDING = 1e-8
# The least variance whose root is divided by or differentiated: 1/√v stays far from overflow.
LEAST_DIVISOR = 1e-12


def kl_diagonal_standard(mean: Tensor, variance: Tensor) -> Tensor:
    """Return KL(N(m_p, diag(v_p)) ‖ N(0, I)) (P,) in float64, for means and variances (P, M)."""
    m, v = mean.double(), variance.double()
    return 0.5 * (v + m.square() - 1 - v.log()).sum(1)


def kl_full_standard(mean: Tensor, L: Tensor) -> Tensor:
    """Return KL(N(m_p, L_p L_pᵀ) ‖ N(0, I)) (P,), for means (P, M) and lower triangles of (P, M, M) or one (M, M)."""
    return 0.5 * (trace_minus_log_det(L) - L.shape[-1] + mean.double().square().sum(1))


def kl_full(mean: Tensor, L: Tensor, L_prior: Tensor) -> Tensor:
    """Return KL(N(m_p, L_p L_pᵀ) ‖ N(0, L0 L0ᵀ)) (P,), with L0 (M, M) or (P, M, M)."""
    m, L = mean.double().unsqueeze(-1), L.double()
    white_mean = torch.linalg.solve_triangular(L_prior, m, upper=False)
    white_L = torch.linalg.solve_triangular(L_prior, L, upper=False)
    log_ratio = tril_log_det(L_prior).expand(L.shape[0]) - tril_log_det(L)
    twice: Tensor = white_L.square().sum((-2, -1)) + white_mean.square().sum((-2, -1)) - L.shape[-1] + log_ratio
    return 0.5 * twice
