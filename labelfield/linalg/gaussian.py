"""Divergences between Gaussians, summed over a batch of them."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["kl_diagonal_standard", "kl_full", "kl_full_standard", "tril_log_det"]


def tril_log_det(L: Tensor) -> Tensor:
    """log |L Lᵀ| (…) of a lower-triangular factor (…, M, M), in float64."""
    return 2 * L.diagonal(dim1=-2, dim2=-1).double().abs().log().sum(-1)


def kl_diagonal_standard(mean: Tensor, variance: Tensor) -> Tensor:
    """Σ KL(N(m, v) ‖ N(0, 1)) over all entries, in float64."""
    m, v = mean.double(), variance.double()
    return 0.5 * (v + m.square() - 1 - v.log()).sum()


def kl_full_standard(mean: Tensor, L: Tensor) -> Tensor:
    """Σ_p KL(N(m_p, L_p L_pᵀ) ‖ N(0, I)) with means (M, P) and factors (P, M, M) or one (M, M) for all p."""
    size, count = mean.shape
    # Sums in float64 of squares in float32: a copy of all factors in float64 would be the largest array of a step.
    trace = L.square().sum((-2, -1), dtype=torch.float64)
    per = 0.5 * (trace - size - tril_log_det(L))
    return torch.as_tensor(per.sum() * (count if L.dim() == 2 else 1) + 0.5 * mean.double().square().sum())


def kl_full(mean: Tensor, L: Tensor, L_prior: Tensor) -> Tensor:
    """Σ_p KL(N(m_p, L_p L_pᵀ) ‖ N(0, L0 L0ᵀ)) with L0 (M, M) or (P, M, M)."""
    m, L = mean.double().T.unsqueeze(-1), L.double()
    white_mean = torch.linalg.solve_triangular(L_prior, m, upper=False)
    white_L = torch.linalg.solve_triangular(L_prior, L, upper=False)
    log_ratio = tril_log_det(L_prior).expand(L.shape[0]) - tril_log_det(L)
    per = white_L.square().sum((-2, -1)) + white_mean.square().sum((-2, -1)) - L.shape[-1] + log_ratio
    total: Tensor = 0.5 * per.sum()
    return total
