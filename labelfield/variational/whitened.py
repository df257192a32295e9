"""Whitened families: u_p = L v_p with L Lᵀ = K_Z and v_p ~ N(m_p, S_p), so that p(v) = N(0, I).

With A = L⁻¹ k_Z·: mean = Aᵀ m_p, variance = k_ii - ‖A_i‖² + A_iᵀ S_p A_i.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor, nn

from labelfield.linalg.gaussian import LEAST_VARIANCE, kl_diagonal_standard, kl_full_standard
from labelfield.linalg.triangular import projected_square_norms
from labelfield.variational.base import (
    Family,
    Moments,
    Prior,
    factor_parameter,
    mean_of,
    mean_parameter,
    rows_first,
    solved,
)

__all__ = ["WhitenedDiagonal", "WhitenedFull", "WhitenedShared"]


class WhitenedDiagonal(Family):
    """A diagonal S_p, which costs a factor M less than a full one and ranks as well."""

    per_process = ("mean", "log_var")

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__()
        self.mean = mean_parameter(n_inducing, n_processes)
        self.log_var = nn.Parameter(torch.full((n_processes, n_inducing), 2 * log(spread)))

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        A = prior.whiten(Kzx)
        # k_ii - ‖A_i‖² + Σ_m A_im² s_m in one product, with the weights s_m - 1.
        var = rows_first(kxx) + mean_of(A.square(), self.log_var.expm1())
        return Moments(mean_of(A, self.mean), var.clamp_min(LEAST_VARIANCE))

    def coefficients(self, prior: Prior) -> Tensor:
        return solved(prior.L, self.mean)

    def kl(self, prior: Prior) -> Tensor:
        return kl_diagonal_standard(self.mean, self.log_var.double().exp())


class WhitenedShared(Family):
    """One full S for all processes."""

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__()
        self.mean = mean_parameter(n_inducing, n_processes)
        self.factor = factor_parameter(spread, n_inducing, n_inducing)

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        A = prior.whiten(Kzx)
        var = kxx - A.square().sum(-2) + (self.factor.tril().T @ A).square().sum(-2)
        mean = mean_of(A, self.mean)
        return Moments(mean, rows_first(var).clamp_min(LEAST_VARIANCE).expand_as(mean))

    def coefficients(self, prior: Prior) -> Tensor:
        return solved(prior.L, self.mean)

    def kl(self, prior: Prior) -> Tensor:
        return kl_full_standard(self.mean, self.factor)


class WhitenedFull(Family):
    """A full S_p per process."""

    per_process = ("mean", "factor")

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__()
        self.mean = mean_parameter(n_inducing, n_processes)
        self.factor = factor_parameter(spread, n_processes, n_inducing, n_inducing)

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        A = prior.whiten(Kzx)
        reduced = rows_first(kxx - A.square().sum(-2))
        var = reduced + projected_square_norms(self.factor, A).T
        return Moments(mean_of(A, self.mean), var.clamp_min(LEAST_VARIANCE))

    def coefficients(self, prior: Prior) -> Tensor:
        return solved(prior.L, self.mean)

    def kl(self, prior: Prior) -> Tensor:
        return kl_full_standard(self.mean, self.factor)
