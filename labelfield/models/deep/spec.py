"""The specification of a deep kernel model, in words and numbers, as options and saved models write it."""

from dataclasses import dataclass
from math import inf
from typing import Any

from torch import nn

from labelfield.constraints import Constraint, Flag, Integer, OneOf, Real, Word, check_options
from labelfield.inducing.grid import LEAST_GRID, Grid
from labelfield.kernels.names import LAG_KERNELS, lag_kernel_from_name
from labelfield.models.deep.model import DeepKernel, Features, GridProcesses
from labelfield.models.sparse import MOST_POINTS
from labelfield.networks import NetworkSpec, build_network
from labelfield.variational.grid import Kronecker, WhitenedKronecker

MOST_DIMENSIONS = 3
# The most numbers that q(u) may have: beyond it no machine has the memory.
_MOST_NUMBERS = 1 << 33
_POSTERIORS = {"whitened_kronecker": WhitenedKronecker, "kronecker": Kronecker}
# Constraints on the options of the model; the estimator adds those of training.
CONSTRAINTS: dict[str, Constraint] = {
    "grid_size": Integer(LEAST_GRID, 100_000),
    "kernel": OneOf(LAG_KERNELS),
    "kernel_per_process": Flag(),
    "posterior": OneOf(_POSTERIORS),
    "likelihood": OneOf(("softmax", "bernoulli")),
    "moments": OneOf(("exact", "sampled")),
    "n_samples": Integer(1, 10_000),
    "n_samples_predict": Integer(1, 100_000),
    "jitter": Real(0, 0.5),
}
_SPEC_CONSTRAINTS = {
    **CONSTRAINTS,
    **dict.fromkeys(("n_features", "n_labels", "n_outputs"), Integer(1)),
    **dict.fromkeys(("is_plain", "has_baseline"), Flag()),
    "n_points": Integer(1, MOST_POINTS),
    "network_class": Word(),
}


@dataclass(frozen=True)
class DeepSpec:
    """The structure of a model, without its arrays. A `network` of None stands for the user's own."""

    n_features: int
    n_labels: int
    network: NetworkSpec | None
    n_outputs: int
    subsets: tuple[tuple[int, ...], ...]
    grid_size: int
    kernel: str = "se"
    kernel_per_process: bool = True
    posterior: str = "whitened_kronecker"
    likelihood: str = "softmax"
    moments: str = "exact"
    n_samples: int = 1
    n_samples_predict: int = 128
    n_points: int = 10
    jitter: float = 1e-4
    is_plain: bool = False  # only the network
    has_baseline: bool = False
    network_class: str = ""  # the class of the user's own network

    def __post_init__(self) -> None:
        check_options(vars(self), _SPEC_CONSTRAINTS)
        if self.likelihood == "softmax" and self.n_labels < 2:
            raise ValueError(f"n_labels={self.n_labels}; expected at least 2 classes")
        described: Any = self.network
        if isinstance(described, dict):  # as JSON has it
            try:
                object.__setattr__(self, "network", NetworkSpec(**described))
            except TypeError as error:
                raise ValueError(f"the description of the network is not valid: {error}") from None
        elif not isinstance(described, NetworkSpec | None):
            raise ValueError(f"network={described!r}; expected its description")
        object.__setattr__(self, "subsets", checked_subsets(self.subsets, self.n_outputs))
        if isinstance(self.network, NetworkSpec) and (
            self.network.n_outputs != self.n_outputs or self.network.n_features != self.n_features
        ):
            raise ValueError("the network takes or returns a different number of features")
        n, d = self.grid_size, self.n_dimensions
        if self.n_processes * max(n**d, d * n * n) > _MOST_NUMBERS:
            found = f"grid_size={n} for {self.n_processes} processes on {d} features each"
            raise ValueError(f"{found}; expected a smaller grid")

    @property
    def n_processes(self) -> int:
        return len(self.subsets)

    # As other models call their processes.
    n_latent = n_processes

    @property
    def n_dimensions(self) -> int:
        """The number of features per process."""
        return len(self.subsets[0])


def checked_subsets(subsets: Any, n_outputs: float = inf) -> tuple[tuple[int, ...], ...]:
    """Check the features of each process: the same number for each, and only those of the n_outputs that exist."""
    expected = f"a list for each process of 1 to {MOST_DIMENSIONS} numbers of features, as many in each"
    if not isinstance(subsets, list | tuple) or not subsets or not all(isinstance(s, list | tuple) for s in subsets):
        raise ValueError(f"subsets={subsets!r}; expected {expected}")
    sizes = {len(subset) for subset in subsets}
    if len(sizes) != 1 or not 1 <= min(sizes) <= MOST_DIMENSIONS:
        raise ValueError(f"subsets of {', '.join(map(str, sorted(sizes)))} features; expected {expected}")
    for subset in subsets:
        for feature in subset:
            if not isinstance(feature, int) or isinstance(feature, bool) or not 0 <= feature < n_outputs:
                most = "" if n_outputs == inf else f" to {n_outputs - 1}, which the network gives"
                raise ValueError(f"subsets has the feature {feature!r}; expected numbers from 0{most}")
        if len(set(subset)) < len(subset):
            raise ValueError(f"subsets has {tuple(subset)}; expected each feature once")
    return tuple(tuple(subset) for subset in subsets)


def build(spec: DeepSpec, network: nn.Module | None = None, *, is_mixed: bool = False) -> DeepKernel:
    """Build the model that the spec describes, not yet filled, around the user's network if it has one."""
    is_own = spec.network is None
    if spec.network is not None:
        network = build_network(spec.network)
    assert network is not None
    takes_sparse = bool(getattr(network, "takes_sparse", False))
    features = Features(network, takes_sparse=takes_sparse, is_own=is_own, is_mixed=is_mixed)
    grid = Grid(spec.grid_size, spec.subsets, spec.n_outputs)
    n_own = spec.n_processes if spec.kernel_per_process else 1
    kernel = lag_kernel_from_name(spec.kernel, n_own * spec.n_dimensions)
    family = _POSTERIORS[spec.posterior](spec.grid_size, spec.n_dimensions, spec.n_processes)
    model = DeepKernel(features, GridProcesses(kernel, grid, family, n_own, spec.jitter), spec)
    if spec.has_baseline:
        model.keep_baseline()
    return model
