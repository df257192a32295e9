"""Divergences between Gaussians, summed over a batch of them."""

from __future__ import annotations

import torch
from torch import Tensor

from labelfield.linalg.triangular import trace_minus_log_det

__all__ = ["kl_diagonal_standard", "kl_full", "kl_full_standard", "tril_log_det"]


def tril_log_det(L: Tensor) -> Tensor:
    """log |L Lᵀ| (…) of a lower-triangular factor (…, M, M), in float64."""
    return 2 * L.diagonal(dim1=-2, dim2=-1).double().abs().log().sum(-1)


def kl_diagonal_standard(mean: Tensor, variance: Tensor) -> Tensor:
    """Σ KL(N(m, v) ‖ N(0, 1)) over all entries, in float64."""
    m, v = mean.double(), variance.double()
    return 0.5 * (v + m.square() - 1 - v.log()).sum()


def kl_full_standard(mean: Tensor, L: Tensor) -> Tensor:
    """Σ_p KL(N(m_p, L_p L_pᵀ) ‖ N(0, I)) for means (M, P) and lower triangles of (P, M, M) or of one (M, M)."""
    size, count = mean.shape
    n_factors = L[..., 0, 0].numel()
    covariances = trace_minus_log_det(L) - n_factors * size
    return 0.5 * (covariances * (count / n_factors) + mean.double().square().sum())


def kl_full(mean: Tensor, L: Tensor, L_prior: Tensor) -> Tensor:
    """Σ_p KL(N(m_p, L_p L_pᵀ) ‖ N(0, L0 L0ᵀ)) with L0 (M, M) or (P, M, M)."""
    m, L = mean.double().T.unsqueeze(-1), L.double()
    white_mean = torch.linalg.solve_triangular(L_prior, m, upper=False)
    white_L = torch.linalg.solve_triangular(L_prior, L, upper=False)
    log_ratio = tril_log_det(L_prior).expand(L.shape[0]) - tril_log_det(L)
    per = white_L.square().sum((-2, -1)) + white_mean.square().sum((-2, -1)) - L.shape[-1] + log_ratio
    total: Tensor = 0.5 * per.sum()
    return total
