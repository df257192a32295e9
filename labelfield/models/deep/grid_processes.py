"""J additive Gaussian processes, each on some features of a network, interpolated from a grid [DKL 3].

    f_j(h) = w(h)ᵀ u_j,  w the local cubic interpolation from the grid

Given u there is no variance left, so q(f_j) = N(wᵀ μ_j, wᵀ S_j w) exactly. With S_j = ⊗_d S_jd and w = ⊗_d w_d the
variance is ∏_d w_dᵀ S_jd w_d, which involves four neighbouring points per dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labelfield.inducing.grid import Grid
from labelfield.kernels import Stationary
from labelfield.linalg.gaussian import ROUNDING
from labelfield.linalg.interpolation import banded_window_forms, cubic_weights, interpolate
from labelfield.linalg.piecewise import CUBIC, SEXTIC, cubics, evaluate, sextics
from labelfield.linalg.whitened_grid import LARGEST_GRID, whitened_moments
from labelfield.variational import Moments
from labelfield.variational.grid import GridFamily, GridPrior, WhitenedKronecker

__all__ = ["GridProcesses"]

# Processes start as if each had been measured once, with noise of this share of its variance.
_NOISE = 1e-3


class GridProcesses(nn.Module):
    """The layer: a kernel of lags and a variance, per process or shared, a grid, and q(u)."""

    def __init__(self, kernel: Stationary, grid: Grid, family: GridFamily, n_own: int, jitter: float = 1e-4) -> None:
        super().__init__()
        self.kernel, self.grid, self.family, self.jitter = kernel, grid, family, jitter
        self.log_variance = nn.Parameter(torch.zeros(n_own))

    def prior(self) -> GridPrior:
        """Return p(u), for each process with its own kernel or for one that all share."""
        columns = self.kernel.of_lag(self.grid.lags(self.log_variance.device))
        columns = columns.view(-1, self.grid.n_dimensions, self.grid.n_points)
        variance = self.log_variance.double().exp()[:, None, None]
        if self.grid.n_dimensions == 1:
            return GridPrior(columns * variance, self.jitter)
        # The variance of a process is applied in the first dimension.
        return GridPrior(torch.cat([columns[:, :1] * variance, columns[:, 1:]], 1), self.jitter)

    def moments_and_kl(self, h: Tensor) -> tuple[Moments, Tensor]:
        """Return q(f) (B, J) at features (B, Q), and KL(q(u_j) ‖ p(u_j)) (J,); together they cost less."""
        prior = self.prior()
        is_small = self.grid.n_dimensions == 1 and self.grid.n_points <= LARGEST_GRID
        if not is_small or not isinstance(self.family, WhitenedKronecker):
            return self.moments(h, prior), self.kl(prior)
        cells, t = self.grid.locate(h)
        mean, var, kl = whitened_moments(
            prior.columns[:, 0], self.jitter, self.family.mean, self.family.factor[:, 0], cells[..., 0], t[..., 0]
        )
        return Moments(mean, var.clamp_min(ROUNDING)), kl

    def moments(self, h: Tensor, prior: GridPrior | None = None) -> Moments:
        """Return q(f) (B, J) at features (B, Q)."""
        prior = prior or self.prior()
        J, n, d = self.grid.n_processes, self.grid.n_points, self.grid.n_dimensions
        values, roots = self.family.values_and_roots(prior)
        cells, t = self.grid.locate(h)
        table = sextics(banded_window_forms(roots))
        if d == 1:
            table = torch.cat([cubics(values), table[:, 0]], -1)
            found = evaluate(table, cells[..., 0], t[..., 0], (CUBIC, SEXTIC))
            return Moments(found[..., 0], found[..., 1].clamp_min(ROUNDING))
        mean = interpolate(values.unsqueeze(-1), cells, cubic_weights(t), n).squeeze(-1)
        var = evaluate(table.flatten(0, 1), cells.flatten(1), t.flatten(1), (SEXTIC,)).view(-1, J, d).prod(-1)
        return Moments(mean, var.clamp_min(ROUNDING))

    def draw(
        self, h: Tensor, n_samples: int, generator: torch.Generator | None = None, prior: GridPrior | None = None
    ) -> Tensor:
        """Return draws of f (T, B, J) at features, each from one u [DKL 9], which correlates the rows of a draw."""
        prior = prior or self.prior()
        mean = self.family.mean
        noise = torch.randn((*mean.shape, n_samples), dtype=mean.dtype, device=mean.device, generator=generator)
        cells, t = self.grid.locate(h)
        u = self.family.draw(prior, noise)
        return interpolate(u, cells, cubic_weights(t), self.grid.n_points).movedim(-1, 0)

    def kl(self, prior: GridPrior | None = None) -> Tensor:
        """Return KL(q(u_j) ‖ p(u_j)) (J,)."""
        return self.family.kl(prior or self.prior())

    @torch.no_grad()
    def start(self, h: Tensor) -> None:
        """Place the grid on features (N, Q), and start as the sum of each process's features, a little uncertain."""
        grid = self.grid
        grid.follow(h)
        at_points = grid.features()[grid.subsets]  # (J, d, n)
        shape = [grid.n_points] * grid.n_dimensions
        values = at_points.new_zeros(grid.n_processes, *shape, dtype=torch.float64)
        for d in range(grid.n_dimensions):
            along = [1] * grid.n_dimensions
            along[d] = grid.n_points
            values += at_points[:, d].view(-1, *along)
        sizes = values.flatten(1).square().mean(1).clamp_min(1e-6)
        self.log_variance.copy_((sizes if len(self.log_variance) > 1 else sizes.mean(0, keepdim=True)).log())
        self.family.start(self.prior(), values.flatten(1), _NOISE)

    def prior_variance(self) -> Tensor:
        """Return the prior variance of f, the same at all features, (J,) or (1,)."""
        return self.log_variance.exp()
