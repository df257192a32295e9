"""The parsimonious family ("PP") [FSGP 8–10, 22]: m_p = K_Z μ_p, S_p = K_Z - K_Z (K_Z + Σ_p)⁻¹ K_Z, Σ_p diagonal."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor, nn

from labelfield.linalg.cholesky import cholesky
from labelfield.linalg.gaussian import LEAST_VARIANCE
from labelfield.linalg.triangular import tril_log_det
from labelfield.variational.base import Family, Moments, Prior, mean_of, mean_parameter, rows_first

__all__ = ["Parsimonious"]

_SMALLEST_NOISE = 1e-6


class Parsimonious(Family):
    """A family with 2 M parameters per process and P factors of K_Z + Σ_p, but none of K_Z itself and so no jitter.

    mean = k_iZ μ_p, variance = k_ii - k_iZ (K_Z + Σ_p)⁻¹ k_Zi.
    """

    per_process = ("mean", "log_noise")

    def __init__(self, n_inducing: int, n_processes: int, noise: float = 1.0) -> None:
        super().__init__()
        self.mean = mean_parameter(n_inducing, n_processes)
        self.log_noise = nn.Parameter(torch.full((n_processes, n_inducing), log(noise)))

    def _noise(self) -> Tensor:
        """Return Σ (P, M) in float64, above 1e-6."""
        return self.log_noise.double().exp() + _SMALLEST_NOISE

    def _factor(self, prior: Prior) -> Tensor:
        return cholesky(prior.K + torch.diag_embed(self._noise()), "K_Z + Σ", 0.0)

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        target = Kzx.double()
        factor = self._factor(prior)
        if target.dim() == 2:
            target = target.expand(factor.shape[0], -1, -1)
        A = torch.linalg.solve_triangular(factor, target, upper=False)
        var = rows_first(kxx) - A.square().sum(-2).T.to(kxx.dtype)
        return Moments(mean_of(Kzx, self.mean), var.clamp_min(LEAST_VARIANCE))

    def coefficients(self, prior: Prior) -> Tensor:
        return self.mean.double()

    def kl(self, prior: Prior) -> Tensor:
        """Return ½ [ μᵀ K μ - tr((K + Σ)⁻¹ K) + log |K + Σ| - log |Σ| ] for each p."""
        mu, noise, factor = self.mean.double(), self._noise(), self._factor(prior)
        quadratic = (mu * (mu.unsqueeze(1) @ prior.K).squeeze(1)).sum(1)
        # tr((K + Σ)⁻¹ K) = M - tr((K + Σ)⁻¹ Σ). The diagonal of the inverse comes from the factor's inverse: torch's
        # own inverse cannot be captured on a GPU.
        eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device).expand_as(factor)
        inverse = torch.linalg.solve_triangular(factor, eye, upper=False).square().sum(-2)
        trace = noise.shape[1] - (inverse * noise).sum(1)
        divergence: Tensor = quadratic - trace + tril_log_det(factor) - noise.log().sum(1)
        return 0.5 * divergence
