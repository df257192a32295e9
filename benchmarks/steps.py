"""One step (bound, gradient, Adam) of the papers' model on dense rows, ours and GPyTorch's, in the same run.

The shapes are those of the papers on Bibtex and a smaller one: SE-ARD, learned Z shared by all processes, a full q(u),
float32, the same number of quadrature points; and ours with its default q(u).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from benchmarks.record import isolated

N_ROWS, N_FEATURES, N_LABELS = 500, 1836, 159
SHAPES = ((30, 100), (159, 400))
N_POINTS = 10


def _rows() -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N_ROWS, N_FEATURES, generator=generator)
    Y = (torch.rand(N_ROWS, N_LABELS, generator=generator) < 0.02).float()
    return X / X.norm(dim=1, keepdim=True), Y


def _time(step: Any, n_steps: int) -> float:
    step()  # warms up
    started = time.perf_counter()
    for _ in range(n_steps):
        step()
    return (time.perf_counter() - started) / n_steps


def _prepare_ours() -> Any:
    import labelfield.estimators  # noqa: F401  # imported before the measurement

    return _rows()


def _ours(n_latent: int, n_inducing: int, posterior: str, rows: Any) -> float:
    import torch

    from labelfield.models.build import Spec, build

    X, Y = rows
    spec = Spec(N_FEATURES, N_LABELS, n_latent, n_inducing, posterior=posterior, unit_norm=False, n_points=N_POINTS)
    model = build(spec)
    with torch.no_grad():
        model.inducing.fill(X[:n_inducing])  # type: ignore[operator]  # these are free
        model.Phi.normal_(0, n_latent**-0.5)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    labels = Y.to_sparse_csr()

    def step() -> None:
        optimiser.zero_grad()
        (-model.elbo(X, labels, N_ROWS).bound() / N_ROWS).backward()  # type: ignore[no-untyped-call]  # torch's is untyped
        optimiser.step()

    return _time(step, 3)


def _prepare_theirs() -> Any:
    import gpytorch  # noqa: F401  # imported before the measurement

    return _rows()


def _theirs(n_latent: int, n_inducing: int, rows: Any) -> float:
    import gpytorch
    import torch
    from gpytorch.utils.quadrature import GaussHermiteQuadrature1D

    X, Y = rows

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]  # GPyTorch is untyped
        def __init__(self) -> None:
            shape = torch.Size([n_latent])
            q = gpytorch.variational.CholeskyVariationalDistribution(n_inducing, batch_shape=shape)
            base = gpytorch.variational.VariationalStrategy(self, X[:n_inducing].clone(), q)
            super().__init__(
                gpytorch.variational.LMCVariationalStrategy(
                    base, num_tasks=N_LABELS, num_latents=n_latent, latent_dim=-1
                )
            )
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.RBFKernel(ard_num_dims=N_FEATURES)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model()
    quadrature = GaussHermiteQuadrature1D(N_POINTS)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    model.train()

    def step() -> None:
        optimiser.zero_grad()
        f = model(X)
        marginal = torch.distributions.Normal(f.mean, f.variance.clamp_min(1e-6).sqrt())
        fit = (Y * f.mean).sum() - quadrature(torch.nn.functional.softplus, marginal).sum()
        (-(fit - model.variational_strategy.kl_divergence().sum()) / N_ROWS).backward()
        optimiser.step()

    return _time(step, 3 if n_inducing < 200 else 1)


def run() -> dict[str, Any]:
    results: dict[str, Any] = {}
    for n_latent, n_inducing in SHAPES:
        theirs = isolated(_prepare_theirs, partial(_theirs, n_latent, n_inducing))
        full = isolated(_prepare_ours, partial(_ours, n_latent, n_inducing, "whitened_full"))
        default = isolated(_prepare_ours, partial(_ours, n_latent, n_inducing, "whitened_diagonal"))
        results[f"P={n_latent}, M={n_inducing}"] = {
            "gpytorch_seconds": theirs.value,
            "gpytorch_peak_mb": theirs.peak_mb,
            "full_q_seconds": full.value,
            "full_q_peak_mb": full.peak_mb,
            "full_q_times_faster": theirs.value / full.value,
            "full_q_memory_ratio": full.peak_mb / theirs.peak_mb,
            "default_q_seconds": default.value,
            "default_q_times_faster": theirs.value / default.value,
        }
    return results
