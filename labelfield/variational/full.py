"""The full family of the papers ("FP") [MLJ 9–13]: u_p ~ N(m_p, L_p L_pᵀ), not whitened."""

from __future__ import annotations

import torch
from torch import Tensor

from labelfield.linalg.gaussian import LEAST_VARIANCE, kl_full
from labelfield.linalg.triangular import projected_square_norms
from labelfield.variational.base import Family, Moments, Prior, factor_parameter, mean_of, mean_parameter, rows_first

__all__ = ["Full"]


class Full(Family):
    """With α = K_Z⁻¹ k_Z·: mean = αᵀ m_p, variance = k_ii - k_iZ α_i + ‖L_pᵀ α_i‖²."""

    per_process = ("mean", "factor")

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__()
        self.mean = mean_parameter(n_inducing, n_processes)
        self.factor = factor_parameter(spread, n_processes, n_inducing, n_inducing)

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        A = prior.whiten(Kzx)
        alpha = torch.linalg.solve_triangular(prior.L.mT, A.double(), upper=True).to(A.dtype)
        var = rows_first(kxx - A.square().sum(-2)) + projected_square_norms(self.factor, alpha).T
        return Moments(mean_of(alpha, self.mean), var.clamp_min(LEAST_VARIANCE))

    def coefficients(self, prior: Prior) -> Tensor:
        """Return K_Z⁻¹ m_p."""
        m = self.mean.double()
        if prior.L.dim() == 2:
            return torch.cholesky_solve(m.T, prior.L).T
        return torch.cholesky_solve(m.unsqueeze(2), prior.L).squeeze(2)

    def kl(self, prior: Prior) -> Tensor:
        return kl_full(self.mean, self.factor.tril(), prior.L)
