"""Stochastic variational deep kernel learning [DKL].

    h = network(x) (Q features)      f_j ~ GP(0, k_j) on some of them, j = 1 … J      g = A f + b
    p(y | g): a softmax for one class per row, Bernoulli for several labels per row

The plain network, which is trained first and serves as the baseline, has the sum of each process's features in place of
f_j. The processes start there too, so that training continues where the network stopped.

A process is f_j(h) = w(h)ᵀ u_j, w the local cubic interpolation from a grid [DKL 3]. Given u there is no variance left,
so q(f_j) = N(wᵀ μ_j, wᵀ S_j w) exactly. With S_j = ⊗_d S_jd and w = ⊗_d w_d the variance is ∏_d w_dᵀ S_jd w_d, which
involves four neighbouring points per dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from labelfield.inducing import Grid
from labelfield.kernels.stationary import Stationary
from labelfield.likelihoods import Bernoulli
from labelfield.likelihoods.monte_carlo import expected_mixed_softmax
from labelfield.likelihoods.softmax import mean_log_softmax
from labelfield.linalg import interpolation as grids
from labelfield.linalg.gaussian import ROUNDING
from labelfield.linalg.rows import first_columns, take
from labelfield.linalg.whitened_grid import LARGEST_GRID, whitened_moments
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.elbo import Elbo
from labelfield.models.sampling import choose_labels
from labelfield.networks import draw_dropout_from
from labelfield.variational.families import Moments
from labelfield.variational.grid import GridFamily, GridPrior, WhitenedKronecker

if TYPE_CHECKING:
    from labelfield.models.deep.spec import DeepSpec

# Processes start as if each had been measured once, with noise of this share of its variance.
_NOISE = 1e-3


class Features(nn.Module):
    """A network with its inputs: dense or sparse rows; in training on a GPU optionally in bfloat16."""

    def __init__(self, network: nn.Module, *, takes_sparse: bool, is_own: bool, is_mixed: bool = False) -> None:
        super().__init__()
        self.network = network
        self.takes_sparse, self.is_own, self.is_mixed = takes_sparse, is_own, is_mixed

    def forward(self, X: Tensor, generator: Generator | None = None) -> Tensor:
        """Return h (B, Q) in the type of the rest of the model. The generator, on the rows' device, is for dropout."""
        if X.layout == torch.sparse_csr and not self.takes_sparse:
            X = X.to_dense()
        if not self.training:
            generator = None
        if generator is not None and not self.is_own:
            draw_dropout_from(self.network, generator)
        # In training only, so that predictions are the same whether or not the model was saved in between.
        is_mixed = self.is_mixed and self.training and X.device.type == "cuda"
        with (
            _seeded(generator) if self.is_own and generator is not None else nullcontext(),
            torch.autocast("cuda", torch.bfloat16, enabled=is_mixed),
        ):
            h: Tensor = self.network(X)
        return h.float() if is_mixed else h


@contextmanager
def _seeded(generator: Generator) -> Iterator[None]:
    """Let torch's global generators follow this one, and restore them afterwards."""
    is_on_gpu = generator.device.type == "cuda"
    # A generator on a GPU is seeded for each step, so nothing need be read from it.
    seed = generator.initial_seed() if is_on_gpu else int(torch.randint(1 << 62, (), generator=generator))
    with torch.random.fork_rng(devices=[generator.device] if is_on_gpu else []):
        torch.manual_seed(seed)
        yield


class GridProcesses(nn.Module):
    """Additive processes, interpolated from a grid: a kernel of lags and variances, per process or shared; q(u)."""

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
        values, roots = self.family.values_and_roots(prior)
        cells, t = self.grid.locate(h)
        table = grids.sextics(grids.banded_window_forms(roots))
        if self.grid.n_dimensions == 1:
            table = torch.cat([grids.cubics(values), table[:, 0]], -1)
            found = grids.evaluate(table, cells[..., 0], t[..., 0], (grids.CUBIC, grids.SEXTIC))
            return Moments(found[..., 0], found[..., 1].clamp_min(ROUNDING))
        mean = grids.interpolate(values.unsqueeze(-1), cells, grids.cubic_weights(t), self.grid.n_points).squeeze(-1)
        var = grids.evaluate(table.flatten(0, 1), cells.flatten(1), t.flatten(1), (grids.SEXTIC,)).view(t.shape)
        return Moments(mean, var.prod(-1).clamp_min(ROUNDING))

    def draw(
        self, h: Tensor, n_samples: int, generator: Generator | None = None, prior: GridPrior | None = None
    ) -> Tensor:
        """Return draws of f (T, B, J) at features, each from one u [DKL 9], which correlates the rows of a draw."""
        prior = prior or self.prior()
        mean = self.family.mean
        noise = torch.randn((*mean.shape, n_samples), dtype=mean.dtype, device=mean.device, generator=generator)
        cells, t = self.grid.locate(h)
        u = self.family.draw(prior, noise)
        return grids.interpolate(u, cells, grids.cubic_weights(t), self.grid.n_points).movedim(-1, 0)

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


class DeepKernel(nn.Module):
    """The model: features, processes, the mixing A (K, J), the bias b (K,) and the likelihood."""

    def __init__(self, features: Features, processes: GridProcesses, spec: DeepSpec) -> None:
        super().__init__()
        self.features, self.processes = features, processes
        self.n_labels, self.is_plain = spec.n_labels, spec.is_plain
        self.A = nn.Parameter(torch.zeros(spec.n_labels, spec.n_processes))
        self.b = nn.Parameter(torch.zeros(spec.n_labels))
        self.is_multilabel, self.is_sampled = spec.likelihood == "bernoulli", spec.moments == "sampled"
        self.n_samples, self.n_samples_predict = spec.n_samples, spec.n_samples_predict
        self.bernoulli = Bernoulli(spec.n_points)
        self.calibration: Calibration | Temperature = Calibration() if self.is_multilabel else Temperature()
        self.baseline: Baseline | None = None

    def sums(self, h: Tensor) -> Tensor:
        """Return the sum of each process's features (B, J), which the plain network has in place of f."""
        return h[:, self.processes.grid.subsets].sum(-1)

    def elbo(
        self, h: Tensor, Y: Tensor, n_data: int, *, n_negatives: int | None = None, generator: Generator | None = None
    ) -> Elbo:
        """Estimate the bound [DKL 4] on n_data rows, without bias, from the features (B, Q) and labels of a batch.

        f is drawn at each row from its exact moments, or with `is_sampled` u is drawn once for all rows. Several labels
        per row need draws only in the latter case; for one class per row the softmax always does.
        """
        scale = n_data / h.shape[0]
        f, drawn, kl = self._latent_and_kl(h, generator)
        if not self.is_multilabel:
            each = mean_log_softmax(drawn @ self.A.T + self.b, first_columns(Y))
            return Elbo(each.sum(dtype=torch.float64) * scale, kl)
        A, b, column, weight = self._labels(Y, n_negatives, generator)
        if f is not None:
            g = Moments(torch.addmm(b, f.mean, A.T), f.var @ A.square().T)
            return Elbo(self.bernoulli.expected_log_prob(*g, Y, column, weight) * scale, kl)
        total = torch.zeros((), dtype=torch.float64, device=h.device)
        for f_drawn in drawn:
            total = total + _certain_fit(torch.addmm(b, f_drawn, A.T), Y, column, weight)
        return Elbo(total * (scale / self.n_samples), kl)

    def _latent_and_kl(self, h: Tensor, generator: Generator | None) -> tuple[Moments | None, Tensor, Tensor]:
        """Return the moments of f, unless u is drawn; draws of f (T, B, J), as far as needed; and the divergence."""
        if self.is_sampled:
            prior = self.processes.prior()
            return None, self.processes.draw(h, self.n_samples, generator, prior), self.processes.kl(prior).sum()
        f, kl = self.processes.moments_and_kl(h)
        if self.is_multilabel:
            return f, f.mean.unsqueeze(0), kl.sum()
        shape = self.n_samples, *f.mean.shape
        noise = torch.randn(shape, dtype=f.mean.dtype, device=f.mean.device, generator=generator)
        return f, torch.addcmul(f.mean, f.var.sqrt(), noise), kl.sum()

    def _labels(
        self, Y: Tensor, n_negatives: int | None, generator: Generator | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Choose all labels or some: return their A and b, the column of each entry of Y, and the columns' weights."""
        chosen, weight, column = choose_labels(Y.col_indices().long(), n_negatives, self.n_labels, generator)
        A, b = (self.A, self.b) if chosen is None else (take(self.A, chosen), take(self.b, chosen))
        return A, b, column, None if weight is None else weight.to(b.dtype)

    def plain_log_prob(
        self, h: Tensor, Y: Tensor, n_data: int, *, n_negatives: int | None = None, generator: Generator | None = None
    ) -> Elbo:
        """Return the log-likelihood of n_data rows under the plain network, with a divergence of 0."""
        nothing = torch.zeros((), dtype=torch.float64, device=h.device)
        scale = n_data / h.shape[0]
        # A square mixing stays the identity until the processes are trained.
        is_fixed = self.A.shape[0] == self.A.shape[1]
        if not self.is_multilabel:
            A = self.A.detach() if is_fixed else self.A
            each = mean_log_softmax((self.sums(h) @ A.T + self.b).unsqueeze(0), first_columns(Y))
            return Elbo(each.sum(dtype=torch.float64) * scale, nothing)
        A, b, column, weight = self._labels(Y, n_negatives, generator)
        mean = torch.addmm(b, self.sums(h), (A.detach() if is_fixed else A).T)
        return Elbo(_certain_fit(mean, Y, column, weight) * scale, nothing)

    def latent(self, h: Tensor, prior: GridPrior | None = None) -> Moments:
        """Return q(f) (B, J) at features; for the plain network the sums of features, without variance."""
        if not self.is_plain:
            return self.processes.moments(h, prior)
        sums = self.sums(h)
        return Moments(sums, torch.zeros_like(sums))

    def utilities(self, f: Moments) -> Moments:
        """Return the marginals of q(g) (B, K), which A makes correlated between labels."""
        return Moments(torch.addmm(self.b, f.mean, self.A.T), f.var @ self.A.square().T)

    def predict_proba(self, f: Moments) -> Tensor:
        """Return the probability of each label (B, K), with the uncertainty of f integrated out; it has no gradient."""
        if self.is_plain:
            return plain_proba(torch.addmm(self.b, f.mean, self.A.T), self.is_multilabel)
        if self.is_multilabel:
            return self.bernoulli.predict_proba(*self.utilities(f))
        return expected_mixed_softmax(f.mean, f.var, self.A, self.b, self.n_samples_predict)

    def keep_baseline(self) -> None:
        """Keep a copy of the plain network in its present state."""
        self.baseline = Baseline(self)


def _certain_fit(g: Tensor, Y: Tensor, column: Tensor, weight: Tensor | None) -> Tensor:
    """Return the log-likelihood of labels under utilities g (B, K) without uncertainty."""
    return Bernoulli(1).expected_log_prob(g, torch.zeros_like(g), Y, column, weight)


def plain_proba(g: Tensor, is_multilabel: bool) -> Tensor:
    """Return probabilities (B, K) from utilities without uncertainty."""
    return torch.sigmoid(g) if is_multilabel else g.softmax(1)


class Baseline(nn.Module):
    """The plain network: features, their sums and the mixing, without processes. It is not trained further."""

    def __init__(self, model: DeepKernel) -> None:
        super().__init__()
        self.features = deepcopy(model.features)
        self.calibration = deepcopy(model.calibration)
        self.is_multilabel = model.is_multilabel
        self.register_buffer("A", model.A.detach().clone())
        self.register_buffer("b", model.b.detach().clone())
        self.requires_grad_(False)

    def predict_proba(self, sums: Tensor) -> Tensor:
        """Return the probability of each label (B, K) from the sums of features (B, J)."""
        return plain_proba(torch.addmm(self.get_buffer("b"), sums, self.get_buffer("A").T), self.is_multilabel)
