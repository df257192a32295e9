"""One step of the papers' model in GPyTorch, run by the interpreter of an environment that has it.

`python -m benchmarks.peers.gpytorch_step P M OWN_Z OWN_KERNEL rows.npz` prints seconds, peak memory, versions as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

from benchmarks.measuring.isolated import measured

N_POINTS = 10


def _prepare(path: str) -> Any:
    import gpytorch  # noqa: F401  # imported before the measurement
    import numpy as np
    import torch

    with np.load(path) as rows:
        return torch.from_numpy(rows["X"]), torch.from_numpy(rows["Y"])


def _work(n_latent: int, n_inducing: int, has_own_Z: bool, has_own_kernel: bool, rows: Any) -> float:
    import gpytorch
    import torch
    from gpytorch.utils.quadrature import GaussHermiteQuadrature1D

    X, Y = rows

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]  # GPyTorch is untyped
        def __init__(self) -> None:
            shape = torch.Size([n_latent])
            q = gpytorch.variational.CholeskyVariationalDistribution(n_inducing, batch_shape=shape)
            Z = X[:n_inducing].repeat(n_latent, 1, 1) if has_own_Z else X[:n_inducing].clone()
            base = gpytorch.variational.VariationalStrategy(self, Z, q)
            super().__init__(
                gpytorch.variational.LMCVariationalStrategy(
                    base, num_tasks=Y.shape[1], num_latents=n_latent, latent_dim=-1
                )
            )
            own = shape if has_own_kernel else torch.Size([])
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=own)
            self.covar_module = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1], batch_shape=own)

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
        (-(fit - model.variational_strategy.kl_divergence().sum()) / len(X)).backward()
        optimiser.step()

    for _ in range(2):  # the first makes Adam's state, the second finds its memory
        step()
    n_steps = 3 if n_inducing < 200 else 1
    started = time.perf_counter()
    for _ in range(n_steps):
        step()
    return (time.perf_counter() - started) / n_steps


def main() -> None:
    n_latent, n_inducing, own_Z, own_kernel = map(int, sys.argv[1:5])
    work = partial(_work, n_latent, n_inducing, bool(own_Z), bool(own_kernel))
    found = measured(partial(_prepare, sys.argv[5]), work)
    import gpytorch
    import torch

    versions = {"gpytorch": gpytorch.__version__, "torch": torch.__version__.partition("+")[0]}
    print(json.dumps({"seconds": found.value, "peak_mb": found.peak_mb, "versions": versions}))


if __name__ == "__main__":
    main()
