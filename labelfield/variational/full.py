"""The full family of the papers ("FP") [MLJ 9–13]: u_p ~ N(m_p, L_p L_pᵀ), not whitened."""

from __future__ import annotations

import torch
from torch import Tensor

from labelfield.linalg.gaussian import kl_full
from labelfield.variational.base import (
    SMALLEST_VARIANCE,
    Family,
    Moments,
    Prior,
    factor_parameter,
    mean_of,
    mean_parameter,
    rows_first,
)

__all__ = ["Full"]


class Full(Family):
    """With α = K_Z⁻¹ k_Z·: mean = αᵀ m_p, variance = k_ii - k_iZ α_i + ‖L_pᵀ α_i‖²."""

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__()
        self.mean = mean_parameter(n_inducing, n_processes)
        self.factor = factor_parameter(n_inducing, n_processes, spread)

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        A = prior.whiten(Kzx)
        alpha = torch.linalg.solve_triangular(prior.L.mT, A.double(), upper=True).to(A.dtype)
        var = rows_first(kxx - A.square().sum(-2)) + (self.factor.tril().mT @ alpha).square().sum(-2).T
        return Moments(mean_of(alpha, self.mean), var.clamp_min(SMALLEST_VARIANCE))

    def kl(self, prior: Prior) -> Tensor:
        return kl_full(self.mean, self.factor.tril(), prior.L)
