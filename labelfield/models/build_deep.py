"""A deep kernel model from words and numbers, as options and saved models write them, and where it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelfield.inducing.grid import LEAST_GRID, Grid
from labelfield.kernels.names import LAG_KERNELS, lag_kernel_from_name
from labelfield.models.build import MOST_POINTS
from labelfield.models.deep_kernel import DeepKernel, Features
from labelfield.models.grid_processes import GridProcesses
from labelfield.networks import Network, NetworkSpec, build_network
from labelfield.variational.grid import Kronecker, WhitenedKronecker

__all__ = [
    "DEEP_LIKELIHOODS",
    "DEEP_MOMENTS",
    "GRID_POSTERIORS",
    "MOST_DIMENSIONS",
    "DeepSpec",
    "build_deep",
    "start_deep",
]

DEEP_LIKELIHOODS = ("softmax", "bernoulli")
DEEP_MOMENTS = ("exact", "sampled")
GRID_POSTERIORS = {"whitened_kronecker": WhitenedKronecker, "kronecker": Kronecker}
MOST_DIMENSIONS = 3
_KINDS: dict[str, type] = {"own_kernel": bool, "is_plain": bool, "has_baseline": bool, "network_class": str}
# Its square is still a number.
_LARGEST_FEATURE = 1e18
# Of what is learned of u: beyond it nobody has the memory.
_MOST_NUMBERS = 1 << 33


@dataclass(frozen=True)
class DeepSpec:
    """What a model is made of, apart from its numbers. A `network` of None is the user's own."""

    n_features: int
    n_labels: int
    network: NetworkSpec | None
    n_outputs: int
    subsets: tuple[tuple[int, ...], ...]
    grid_size: int
    kernel: str = "se"
    n_mixtures: int = 4
    own_kernel: bool = True
    posterior: str = "whitened_kronecker"
    likelihood: str = "softmax"
    moments: str = "exact"
    n_samples: int = 1
    n_samples_predict: int = 128
    n_points: int = 10
    jitter: float = 1e-4
    is_plain: bool = False  # the network alone
    has_baseline: bool = False
    network_class: str = ""  # of the user's own

    def __post_init__(self) -> None:
        for name, known in (
            ("kernel", LAG_KERNELS),
            ("posterior", tuple(GRID_POSTERIORS)),
            ("likelihood", DEEP_LIKELIHOODS),
            ("moments", DEEP_MOMENTS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}; expected one of {', '.join(known)}")
        counts = ("n_features", "n_labels", "n_outputs", "n_mixtures", "n_samples", "n_samples_predict", "n_points")
        for name in (*counts, "grid_size"):
            value, least = getattr(self, name), LEAST_GRID if name == "grid_size" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r}; expected an integer of at least {least}")
        if self.n_points > MOST_POINTS:
            raise ValueError(f"n_points={self.n_points}; expected at most {MOST_POINTS}")
        if self.likelihood == "softmax" and self.n_labels < 2:
            raise ValueError(f"n_labels={self.n_labels}; expected at least 2 classes")
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name}={getattr(self, name)!r}; expected {kind.__name__}")
        is_number = isinstance(self.jitter, int | float) and not isinstance(self.jitter, bool)
        if not is_number or not 0 <= self.jitter < 1:
            raise ValueError(f"jitter={self.jitter!r}; expected a number of at least 0 and below 1")
        described: Any = self.network
        if isinstance(described, dict):  # as JSON has it
            try:
                object.__setattr__(self, "network", NetworkSpec(**described))
            except TypeError as error:
                raise ValueError(f"the network is described by other words: {error}") from None
        elif not isinstance(described, NetworkSpec | None):
            raise ValueError(f"network={described!r}; expected its description")
        object.__setattr__(self, "subsets", _subsets(self.subsets, self.n_outputs))
        if isinstance(self.network, NetworkSpec) and (
            self.network.n_outputs != self.n_outputs or self.network.n_features != self.n_features
        ):
            raise ValueError("the network takes or gives another number of features")
        n, d = self.grid_size, self.n_dimensions
        if self.n_processes * max(n**d, d * n * n) > _MOST_NUMBERS:
            raise ValueError(
                f"grid_size={n} for {self.n_processes} processes on {d} features each; expected a smaller grid"
            )

    @property
    def n_processes(self) -> int:
        """J."""
        return len(self.subsets)

    @property
    def n_dimensions(self) -> int:
        """Features of each process."""
        return len(self.subsets[0])

    @property
    def n_latent(self) -> int:
        """J, as other models call their processes."""
        return self.n_processes


def _subsets(subsets: Any, n_outputs: int) -> tuple[tuple[int, ...], ...]:
    """Which features each process is on: as many for each, all of them there."""
    expected = f"a list for each process of 1 to {MOST_DIMENSIONS} numbers of features, as many in each"
    if not isinstance(subsets, list | tuple) or not subsets or not all(isinstance(s, list | tuple) for s in subsets):
        raise ValueError(f"subsets={subsets!r}; expected {expected}")
    sizes = {len(subset) for subset in subsets}
    if len(sizes) != 1 or not 1 <= min(sizes) <= MOST_DIMENSIONS:
        raise ValueError(f"subsets of {', '.join(map(str, sorted(sizes)))} features; expected {expected}")
    for subset in subsets:
        for feature in subset:
            if not isinstance(feature, int) or isinstance(feature, bool) or not 0 <= feature < n_outputs:
                raise ValueError(
                    f"subsets has the feature {feature!r}; expected numbers from 0 to {n_outputs - 1}, which the "
                    "network gives"
                )
        if len(set(subset)) < len(subset):
            raise ValueError(f"subsets has {tuple(subset)}; expected each feature once")
    return tuple(tuple(subset) for subset in subsets)


def build_deep(spec: DeepSpec, network: nn.Module | None = None, *, is_mixed: bool = False) -> DeepKernel:
    """A model of this make with nothing in it yet, around the user's own network where the spec has none."""
    is_own = spec.network is None
    if spec.network is not None:
        network = build_network(spec.network)
    assert network is not None
    features = Features(
        network, takes_sparse=bool(getattr(network, "takes_sparse", False)), is_own=is_own, is_mixed=is_mixed
    )
    grid = Grid(spec.grid_size, spec.subsets, spec.n_outputs)
    J, d = spec.n_processes, spec.n_dimensions
    n_own = J if spec.own_kernel else 1
    kernel = lag_kernel_from_name(spec.kernel, n_own * d, spec.n_mixtures)
    family = GRID_POSTERIORS[spec.posterior](spec.grid_size, d, J)
    model = DeepKernel(
        features,
        GridProcesses(kernel, grid, family, n_own, spec.jitter),
        torch.zeros(spec.n_labels, J),
        torch.zeros(spec.n_labels),
        is_multilabel=spec.likelihood == "bernoulli",
        n_samples=spec.n_samples,
        is_sampled=spec.moments == "sampled",
        n_points=spec.n_points,
        n_samples_predict=spec.n_samples_predict,
        is_plain=spec.is_plain,
    )
    if spec.has_baseline:
        model.keep_baseline()
    return model


def start_deep(model: DeepKernel, counts: NDArray[np.int64], n_rows: int, seed: int) -> None:
    """Fill a model in place: a built-in network is drawn; A is the identity, or drawn where it is not square; b is at
    the log-odds of each label, or 0 for classes."""
    generator = torch.Generator().manual_seed(seed)
    network = model.features.network
    if isinstance(network, Network):
        network.start(generator)
    with torch.no_grad():
        K, J = model.A.shape
        if K == J:
            model.A.copy_(torch.eye(K))
        else:
            model.A.copy_(torch.randn(K, J, generator=generator) / J**0.5)
        if model.is_multilabel:
            odds = (counts + 0.5) / (n_rows - counts + 0.5)
            model.b.copy_(torch.from_numpy(np.log(odds)))


def require_features(h: Tensor, first_row: int = 0) -> None:
    """Features must be finite, and their squares too: one error that names the first row whose are not."""
    is_bad = ~(h.abs() < _LARGEST_FEATURE).all(1)
    if bool(is_bad.any()):
        row = int(is_bad.nonzero()[0, 0])
        found = f"as large as {h[row].abs().max():.3g}" if bool(torch.isfinite(h[row]).all()) else "that are not finite"
        raise FeatureError(
            f"the network gives features {found} for row {first_row + row}; check the row, the network and its "
            "weights; scale its last layer, or lower learning_rate"
        )


class FeatureError(ValueError):
    """What a network gives cannot be used."""
