"""Families of q(u), and their inputs: the prior p(u) = N(0, K_Z) and the covariances with the rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, partial
from math import log
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labelfield.linalg.cholesky import cholesky, whitened
from labelfield.linalg.gaussian import LEAST_VARIANCE, kl_diagonal_standard, kl_full, kl_full_standard
from labelfield.linalg.products import product
from labelfield.linalg.triangular import projected_square_norms, tril_inverse, tril_log_det

_SMALLEST_NOISE = 1e-6
# q starts narrower than the prior.
_SPREAD = 0.3


class Moments(NamedTuple):
    """Marginal means and variances (B, P) of h, or (B, K) of f."""

    mean: Tensor
    var: Tensor

    def scaled(self, factor: float) -> "Moments":
        """Return the moments of `factor` times the variables."""
        return self if factor == 1 else Moments(self.mean * factor, self.var * factor**2)


class Prior:
    """p(u) = N(0, K_Z + jitter I), with K_Z (M, M) or (P, M, M) in float64, factorised when first needed."""

    def __init__(self, K: Tensor, jitter: float) -> None:
        self.K, self.jitter = K, jitter

    @cached_property
    def L(self) -> Tensor:
        """The Cholesky factor (…, M, M)."""
        return cholesky(self.K, "K_Z, the covariance of the inducing inputs,", self.jitter)

    @cached_property
    def _inverse(self) -> Tensor:
        """The inverse of the factor (…, M, M), without a gradient."""
        return tril_inverse(self.L)

    def whiten(self, Kzx: Tensor) -> Tensor:
        """Return A = L⁻¹ k(Z, X) (…, M, B) in the type of the rows."""
        return whitened(self.K, self._inverse, Kzx)


class Family(nn.Module, ABC):
    """q(u_p) = N(·, ·) for p = 1 … P, where the p-th row of a parameter belongs to process p.

    Whitened families have u_p = L v_p with L Lᵀ = K_Z and v_p ~ N(m_p, S_p), so that p(v) = N(0, I). With
    A = L⁻¹ k_Z·: mean = Aᵀ m_p, variance = k_ii - ‖A_i‖² + A_iᵀ S_p A_i.
    """

    # The names of parameters that have one row per process.
    per_process: tuple[str, ...] = ("mean",)

    def __init__(self, n_inducing: int, n_processes: int) -> None:
        super().__init__()
        self.mean = mean_parameter(n_inducing, n_processes)

    @abstractmethod
    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        """Return the mean and variance (B, P) of h at rows with k(Z, X) (…, M, B) and k(x, x) (…, B)."""

    def coefficients(self, prior: Prior) -> Tensor:
        """Return α (P, M) in float64, for which the mean of h_p at x is Σ_m k(x, z_m) α_pm: L⁻ᵀ m_p if whitened."""
        m = self.mean.double()
        columns = m.T if prior.L.dim() == 2 else m.unsqueeze(2)
        result: Tensor = torch.linalg.solve_triangular(prior.L.mT, columns, upper=True)
        return result.T if prior.L.dim() == 2 else result.squeeze(2)

    @abstractmethod
    def kl(self, prior: Prior) -> Tensor:
        """Return KL(q(u_p) ‖ p(u_p)) (P,) in float64."""


def mean_parameter(n_inducing: int, n_processes: int) -> nn.Parameter:
    """Make means (P, M) that start at those of the prior, 0."""
    return nn.Parameter(torch.zeros(n_processes, n_inducing))


def factor_parameter(spread: float, *shape: int) -> nn.Parameter:
    """Make lower factors (…, M, M) that start at `spread` times I."""
    factor = torch.zeros(*shape)
    # Not torch's eye, which imports torch's compiler on the meta device, where models to be loaded are built.
    factor.diagonal(dim1=-2, dim2=-1).fill_(spread)
    return nn.Parameter(factor)


def _mean_of(A: Tensor, m: Tensor) -> Tensor:
    """Return Aᵀ m (B, P) for A (M, B), or (P, M, B) per process, and m (P, M)."""
    return product(A.T, m.T) if A.dim() == 2 else torch.bmm(m.unsqueeze(1), A).squeeze(1).T


def _rows_first(values: Tensor) -> Tensor:
    """Return (B,) as (B, 1), or (P, B) as (B, P)."""
    return values.unsqueeze(1) if values.dim() == 1 else values.T


class WhitenedDiagonal(Family):
    """A diagonal S_p, which costs a factor M less than a full one and ranks as well."""

    per_process = ("mean", "log_var")

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__(n_inducing, n_processes)
        self.log_var = nn.Parameter(torch.full((n_processes, n_inducing), 2 * log(spread)))

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        A = prior.whiten(Kzx)
        # k_ii - ‖A_i‖² + Σ_m A_im² s_m in one product, with the weights s_m - 1.
        var = _rows_first(kxx) + _mean_of(A.square(), self.log_var.expm1())
        return Moments(_mean_of(A, self.mean), var.clamp_min(LEAST_VARIANCE))

    def kl(self, prior: Prior) -> Tensor:
        return kl_diagonal_standard(self.mean, self.log_var.double().exp())


class WhitenedShared(Family):
    """One full S for all processes."""

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__(n_inducing, n_processes)
        self.factor = factor_parameter(spread, n_inducing, n_inducing)

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        A = prior.whiten(Kzx)
        var = kxx - A.square().sum(-2) + product(self.factor.tril().T, A).square().sum(-2)
        mean = _mean_of(A, self.mean)
        return Moments(mean, _rows_first(var).clamp_min(LEAST_VARIANCE).expand_as(mean))

    def kl(self, prior: Prior) -> Tensor:
        return kl_full_standard(self.mean, self.factor)


class WhitenedFull(Family):
    """A full S_p per process."""

    per_process = ("mean", "factor")

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__(n_inducing, n_processes)
        self.factor = factor_parameter(spread, n_processes, n_inducing, n_inducing)

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        A = prior.whiten(Kzx)
        var = _rows_first(kxx - A.square().sum(-2)) + projected_square_norms(self.factor, A).T
        return Moments(_mean_of(A, self.mean), var.clamp_min(LEAST_VARIANCE))

    def kl(self, prior: Prior) -> Tensor:
        return kl_full_standard(self.mean, self.factor)


class Full(Family):
    """The full family of the papers ("FP") [MLJ 9–13]: u_p ~ N(m_p, L_p L_pᵀ), not whitened.

    With α = K_Z⁻¹ k_Z·: mean = αᵀ m_p, variance = k_ii - k_iZ α_i + ‖L_pᵀ α_i‖².
    """

    per_process = ("mean", "factor")

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__(n_inducing, n_processes)
        self.factor = factor_parameter(spread, n_processes, n_inducing, n_inducing)

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        A = prior.whiten(Kzx)
        alpha = torch.linalg.solve_triangular(prior.L.mT, A.double(), upper=True).to(A.dtype)
        var = _rows_first(kxx - A.square().sum(-2)) + projected_square_norms(self.factor, alpha).T
        return Moments(_mean_of(alpha, self.mean), var.clamp_min(LEAST_VARIANCE))

    def coefficients(self, prior: Prior) -> Tensor:
        """Return K_Z⁻¹ m_p."""
        m = self.mean.double()
        if prior.L.dim() == 2:
            return torch.cholesky_solve(m.T, prior.L).T
        return torch.cholesky_solve(m.unsqueeze(2), prior.L).squeeze(2)

    def kl(self, prior: Prior) -> Tensor:
        return kl_full(self.mean, self.factor.tril(), prior.L)


class Parsimonious(Family):
    """The parsimonious family ("PP") [FSGP 8–10, 22]: m_p = K_Z μ_p, S_p = K_Z - K_Z (K_Z + Σ_p)⁻¹ K_Z, Σ_p diagonal.

    It has 2 M parameters per process and P factors of K_Z + Σ_p, but none of K_Z itself and so no jitter. The mean is
    k_iZ μ_p and the variance k_ii - k_iZ (K_Z + Σ_p)⁻¹ k_Zi.
    """

    per_process = ("mean", "log_noise")

    def __init__(self, n_inducing: int, n_processes: int, noise: float = 1.0) -> None:
        super().__init__(n_inducing, n_processes)
        self.log_noise = nn.Parameter(torch.full((n_processes, n_inducing), log(noise)))

    def _noise(self) -> Tensor:
        """Return Σ (P, M) in float64, above 1e-6."""
        return self.log_noise.double().exp() + _SMALLEST_NOISE

    def _factor(self, prior: Prior) -> Tensor:
        return cholesky(prior.K + torch.diag_embed(self._noise()), "K_Z + Σ", 0.0)

    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        factor = self._factor(prior)
        target = Kzx.double().expand(factor.shape[0], -1, -1)
        A = torch.linalg.solve_triangular(factor, target, upper=False)
        var = _rows_first(kxx) - A.square().sum(-2).T.to(kxx.dtype)
        return Moments(_mean_of(Kzx, self.mean), var.clamp_min(LEAST_VARIANCE))

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


POSTERIORS: dict[str, Callable[[int, int], Family]] = {
    "whitened_diagonal": partial(WhitenedDiagonal, spread=_SPREAD),
    "whitened_shared": partial(WhitenedShared, spread=_SPREAD),
    "whitened_full": partial(WhitenedFull, spread=_SPREAD),
    "full": partial(Full, spread=_SPREAD),
    "parsimonious": Parsimonious,
}
