"""GPyTorch's SV-DKL as its documentation writes it, the network alone, and its layers with more inducing points.

Each `prepare…` returns a step on fixed random rows, for `steps_per_second` to time. Everything is float32. The
processes share a kernel and a mean; each has a full q(u) of its own. On a grid, the strategy interpolates q(u); the
covariance of the prior is a dense matrix that every step fills and factorises again, so that m points still cost m³.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["prepare", "prepare_layer_scaling", "prepare_mlp", "steps_per_second"]

BOUNDS = (-10.0, 10.0)


def _import() -> Any:
    with warnings.catch_warnings():
        # linear_operator compiles two functions in a way that torch has deprecated.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        import gpytorch
    return gpytorch


def _gp(n_processes: int, grid: int, n_dims: int = 1, is_free: bool = False) -> Any:
    """Make processes with grid^n_dims inducing inputs each, interpolated on the grid, or free and starting there."""
    gpytorch = _import()
    n_inducing = grid**n_dims

    class Layer(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]  # GPyTorch is untyped
        def __init__(self) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(n_inducing, batch_shape=torch.Size([n_processes]))
            if is_free:
                axes = torch.linspace(*BOUNDS, grid).expand(n_dims, -1)
                base = gpytorch.variational.VariationalStrategy(self, torch.cartesian_prod(*axes).view(-1, n_dims), q)
            else:
                base = gpytorch.variational.GridInterpolationVariationalStrategy(self, grid, [BOUNDS] * n_dims, q)
            super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(base, num_tasks=n_processes))
            box = gpytorch.priors.SmoothedBoxPrior(math.exp(-1), math.exp(1), sigma=0.1, transform=torch.exp)
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(lengthscale_prior=box))
            self.mean_module = gpytorch.means.ConstantMean()

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Layer()


def _network(n_inputs: int, hidden: tuple[int, ...], n_outputs: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for n_from, n_to in zip((n_inputs, *hidden), hidden, strict=False):
        layers += [torch.nn.Linear(n_from, n_to), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear((n_inputs, *hidden)[-1], n_outputs))


def _rows(batch: int, n_inputs: int, n_classes: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, n_inputs, device=device), torch.randint(n_classes, (batch,), device=device)


def prepare(
    n_inputs: int = 784,
    hidden: tuple[int, ...] = (256, 128),
    n_classes: int = 10,
    grid: int = 64,
    n_samples: int = 8,
    batch: int = 256,
    device: str = "cpu",
) -> Callable[[], None]:
    """Return a step of SV-DKL (bound, gradient, Adam): one feature per class, one process per feature."""
    gpytorch = _import()
    torch.manual_seed(0)
    X, y = _rows(batch, n_inputs, n_classes, device)
    network = _network(n_inputs, hidden, n_classes).to(device)
    layer = _gp(n_classes, grid).to(device)
    to_grid = gpytorch.utils.grid.ScaleToBounds(*BOUNDS).to(device)
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_features=n_classes, num_classes=n_classes).to(device)
    objective = gpytorch.mlls.VariationalELBO(likelihood, layer, num_data=10 * batch)
    parts = (network, layer, likelihood)
    optimiser = torch.optim.Adam([parameter for part in parts for parameter in part.parameters()], lr=0.01)

    def step() -> None:
        optimiser.zero_grad()
        with gpytorch.settings.num_likelihood_samples(n_samples):
            features = to_grid(network(X)).mT.unsqueeze(-1)
            (-objective(layer(features), y)).backward()
        optimiser.step()

    return step


def prepare_mlp(
    n_inputs: int = 784,
    hidden: tuple[int, ...] = (256, 128),
    n_classes: int = 10,
    batch: int = 256,
    device: str = "cpu",
) -> Callable[[], None]:
    """Return a step of the network alone (cross-entropy, gradient, Adam)."""
    torch.manual_seed(0)
    X, y = _rows(batch, n_inputs, n_classes, device)
    network = _network(n_inputs, hidden, n_classes).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)

    def step() -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(X), y).backward()  # type: ignore[no-untyped-call]  # torch's is untyped
        optimiser.step()

    return step


def prepare_layer_scaling(
    n_inducing: int,
    n_dims: int = 1,
    is_free: bool = False,
    is_exact: bool = True,
    n_processes: int = 2,
    n_classes: int = 2,
    n_samples: int = 8,
    batch: int = 1000,
    device: str = "cpu",
) -> Callable[[], None]:
    """Return the bound and gradient of the layers above the network, also in the features, without an optimiser.

    Each process has `n_dims` features of its own and `n_inducing` points on their grid; free points are learned.
    `is_exact` takes a Cholesky factor at any size. By default GPyTorch switches to conjugate gradients and a stochastic
    determinant above 800 points: on these grids that is slower, and its KL divergence comes out far below 0.
    """
    grid = round(n_inducing ** (1 / n_dims))
    if grid**n_dims != n_inducing:
        raise ValueError(f"no grid of {n_dims} equal sides has {n_inducing} points")
    gpytorch = _import()
    torch.manual_seed(0)
    layer = _gp(n_processes, grid, n_dims, is_free).to(device)
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_features=n_processes, num_classes=n_classes).to(device)
    objective = gpytorch.mlls.VariationalELBO(likelihood, layer, num_data=10 * batch)
    features = torch.empty(n_processes, batch, n_dims, device=device).uniform_(*BOUNDS).mul_(0.95).requires_grad_()
    y = torch.randint(n_classes, (batch,), device=device)
    largest = n_inducing if is_exact else gpytorch.settings.max_cholesky_size.value()

    def step() -> None:
        layer.zero_grad()
        likelihood.zero_grad()
        features.grad = None
        with gpytorch.settings.num_likelihood_samples(n_samples), gpytorch.settings.max_cholesky_size(largest):
            (-objective(layer(features), y)).backward()

    return step


def _run(step: Callable[[], None], n_steps: int) -> float:
    started = time.perf_counter()
    for _ in range(n_steps):
        step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def steps_per_second(step: Callable[[], None], seconds: float = 3.0) -> float:
    """Return the best of three rounds: other load on the machine can only slow them. Each takes a third of the time."""
    _run(step, 2)  # the first makes Adam's state, the second finds its memory
    n_steps = max(1, int(seconds / 3 / _run(step, 1)))
    return n_steps / min(_run(step, n_steps) for _ in range(3))
