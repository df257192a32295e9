"""Families of q(u) for inducing variables u_j on a grid (m = n^d values) with Kronecker covariances [DKL 4].

    q(u_j) = N(μ_j, S_j),  S_j = ⊗_d S_jd          p(u_j) = N(0, K_j),  K_j = ⊗_d K_jd,  K_jd Toeplitz

Three formulas of the paper are corrected: S = L Lᵀ, as u = μ + L ε implies; -m where [DKL 10] has -D; and rank_d of
[DKL 11] is m / n.
"""

from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor, nn

from labelfield.linalg import toeplitz
from labelfield.linalg.gaussian import kl_full_standard
from labelfield.linalg.kronecker import kronecker_logdet, kronecker_multiply, kronecker_solve, kronecker_trace
from labelfield.linalg.triangular import tril_log_det
from labelfield.variational.families import factor_parameter, mean_parameter

# From this many points per dimension on, the O(n²) recursions of Toeplitz matrices are faster than an n³ factorisation.
LARGE_GRID = 1024
_NAME = "K_Z, the covariance of the grid,"
# At the start, which happens once, a factor of K_d is worth its n³ up to this many points.
_LARGEST_FACTORISED = 4096


class GridPrior:
    """p(u_j) = N(0, ⊗_d K_jd), from the first columns of K_jd (J, d, n) in float64, or (1, d, n) for all processes."""

    def __init__(self, columns: Tensor, jitter: float) -> None:
        self.columns, self.jitter, self.n_points = columns, jitter, int(columns.shape[-1])
        self.is_large = self.n_points >= LARGE_GRID

    @cached_property
    def roots(self) -> Tensor:
        """The Cholesky factors R_jd of K_jd (J, d, n, n)."""
        return toeplitz.toeplitz_cholesky(self.columns, _NAME, self.jitter)

    @cached_property
    def _jittered(self) -> Tensor:
        """The first columns with the jitter that a factorisation adds."""
        at_zero = torch.zeros_like(self.columns[0, 0])
        at_zero[0] = self.jitter
        return self.columns + at_zero * self.columns[..., :1].detach()

    @cached_property
    def _inverse(self) -> toeplitz.Levinson:
        return toeplitz.levinson(self._jittered, _NAME)

    def log_dets(self) -> Tensor:
        """Return log |K_jd| (J, d)."""
        return toeplitz.toeplitz_logdet(self._jittered, self._inverse) if self.is_large else tril_log_det(self.roots)

    def traces(self, L: Tensor) -> Tensor:
        """Return tr(K_jd⁻¹ L_jd L_jdᵀ) (J, d) for factors (J, d, n, n)."""
        if self.is_large:
            return toeplitz.toeplitz_trace(self._jittered, L, self._inverse)
        white: Tensor = torch.linalg.solve_triangular(self.roots.expand_as(L), L, upper=False)
        return white.square().sum((-2, -1))

    def quadratic(self, mean: Tensor) -> Tensor:
        """Return μ_jᵀ K_j⁻¹ μ_j (J,)."""
        if not self.is_large:
            return kronecker_solve(self.roots, mean.unsqueeze(-1)).square().sum((-2, -1))
        n_dimensions = self.columns.shape[1]
        solved = mean.view(-1, *[self.n_points] * n_dimensions)
        for dimension in range(n_dimensions):
            moved = solved.movedim(1 + dimension, 1)
            inverse = toeplitz.Levinson(*(part[:, dimension] for part in self._inverse))
            found = toeplitz.toeplitz_solve(self._jittered[:, dimension], moved.reshape(*moved.shape[:2], -1), inverse)
            solved = found.view(moved.shape).movedim(1, 1 + dimension)
        return (solved.flatten(1) * mean).sum(1)


class GridFamily(nn.Module, ABC):
    """q(u_j) for j = 1 … J, with means (J, m) and lower factors (J, d, n, n)."""

    per_process = ("mean", "factor")

    def __init__(self, n_points: int, n_dimensions: int, n_processes: int) -> None:
        super().__init__()
        self.n_points, self.n_dimensions = n_points, n_dimensions
        self.mean = mean_parameter(n_points**n_dimensions, n_processes)
        self.factor = factor_parameter(1.0, n_processes, n_dimensions, n_points, n_points)

    @abstractmethod
    def values(self, prior: GridPrior) -> Tensor:
        """Return the means of u (J, m)."""

    @abstractmethod
    def roots(self, prior: GridPrior) -> Tensor:
        """Return W_jd (J, d, n, n) with S_jd = W_jd W_jdᵀ."""

    def values_and_roots(self, prior: GridPrior) -> tuple[Tensor, Tensor]:
        """Return both, which together may cost less."""
        return self.values(prior), self.roots(prior)

    @abstractmethod
    def kl(self, prior: GridPrior) -> Tensor:
        """Return KL(q(u_j) ‖ p(u_j)) (J,) in float64."""

    @abstractmethod
    def start(self, prior: GridPrior, values: Tensor, noise: float) -> None:
        """Start with these means of u (J, m), and as uncertain as if u had been measured in each dimension, with noise
        of this share of the prior's variance overall.

        Directions that such a measurement does not inform stay as in the prior and cost no divergence. In several
        dimensions the covariance is the product of the one-dimensional ones.
        """

    def draw(self, prior: GridPrior, noise: Tensor) -> Tensor:
        """Return u = μ + (⊗_d W_d) ε (J, m, T) for standard normal ε of that shape [DKL 9]."""
        return self.values(prior).unsqueeze(-1) + kronecker_multiply(self.roots(prior), noise)

    def _noise(self, noise: float) -> float:
        """Return the noise per point. It grows with their number, so that fine and coarse grids are as uncertain."""
        return float(noise ** (1 / self.n_dimensions) * self.n_points)

    def _measured(self, prior: GridPrior, noise: float) -> Tensor:
        """Return Cholesky factors (…, n, n) of (I + Rᵀ R / σ²)⁻¹, the covariances of v = R⁻¹ u once measured."""
        R = prior.roots
        precision = R.mT @ R / (self._noise(noise) * prior.columns[..., :1, None])
        precision.diagonal(dim1=-2, dim2=-1).add_(1)
        covariance = torch.cholesky_inverse(torch.linalg.cholesky(precision))
        return torch.as_tensor(torch.linalg.cholesky(covariance))

    def _log_det(self) -> Tensor:
        """Return log |⊗_d L_d L_dᵀ| (J,)."""
        return kronecker_logdet(tril_log_det(self.factor), self.n_points)


class WhitenedKronecker(GridFamily):
    """u_j = (⊗_d R_jd) v_j with R_jd R_jdᵀ = K_jd, and q(v_j) = N(m_j, ⊗_d L_jd L_jdᵀ), so that p(v_j) = N(0, I)."""

    def values(self, prior: GridPrior) -> Tensor:
        return kronecker_multiply(prior.roots.to(self.mean.dtype), self.mean.unsqueeze(-1)).squeeze(-1)

    def roots(self, prior: GridPrior) -> Tensor:
        return prior.roots.to(self.factor.dtype) @ self.factor.tril()

    def values_and_roots(self, prior: GridPrior) -> tuple[Tensor, Tensor]:
        if self.n_dimensions > 1:
            return super().values_and_roots(prior)
        both = torch.cat([self.factor.tril(), self.mean[:, None, :, None]], -1)
        product = prior.roots.to(both.dtype) @ both
        return product[:, 0, :, -1], product[..., :-1]

    def kl(self, prior: GridPrior) -> Tensor:
        if self.n_dimensions == 1:
            return kl_full_standard(self.mean, self.factor[:, 0])
        traces = self.factor.tril().double().square().sum((-2, -1))
        squares = self.mean.double().square().sum(1)
        return 0.5 * (kronecker_trace(traces) + squares - self.mean.shape[1] - self._log_det())

    @torch.no_grad()
    def start(self, prior: GridPrior, values: Tensor, noise: float) -> None:
        self.mean.copy_(kronecker_solve(prior.roots, values.double().unsqueeze(-1)).squeeze(-1))
        self.factor.copy_(self._measured(prior, noise).expand_as(self.factor))


class Kronecker(GridFamily):
    """q(u_j) = N(μ_j, ⊗_d L_jd L_jdᵀ) itself, as in the paper. It never factorises a large K_jd."""

    def values(self, prior: GridPrior) -> Tensor:
        return self.mean

    def roots(self, prior: GridPrior) -> Tensor:
        return self.factor.tril()

    def kl(self, prior: GridPrior) -> Tensor:
        log_ratio = kronecker_logdet(prior.log_dets(), self.n_points) - self._log_det()
        trace = kronecker_trace(prior.traces(self.factor.tril().double()))
        return 0.5 * (log_ratio - self.mean.shape[1] + trace + prior.quadratic(self.mean.double()))

    @torch.no_grad()
    def start(self, prior: GridPrior, values: Tensor, noise: float) -> None:
        self.mean.copy_(values)
        if self.n_points > _LARGEST_FACTORISED:  # independent points, with a large divergence
            variance = min(self._noise(noise), 1.0) * prior.columns[..., :1]
            self.factor.copy_(torch.diag_embed(variance.sqrt().expand(*self.factor.shape[:2], self.n_points)))
        else:
            self.factor.copy_((prior.roots @ self._measured(prior, noise)).expand_as(self.factor))
