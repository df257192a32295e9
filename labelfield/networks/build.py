"""Networks from the words and numbers that options and saved models use.

A network of the user's own is tried on some rows before anything is trained.
"""

import warnings
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod
from typing import Any

import torch
from torch import Tensor, nn

from labelfield.networks.base import Network
from labelfield.networks.cnn import CNN, KERNEL_SIZE, pooled_shape
from labelfield.networks.mlp import MLP, BagMLP

NETWORKS = ("mlp", "bag", "cnn")
# Sizes beyond any plausible network: columns are numbered in 32 bits, and 2³² weights take 16 GiB.
_MOST_FEATURES, _MOST_WIDE, _MOST_LAYERS, _MOST_WEIGHTS = (1 << 31) - 1, 1 << 16, 64, 1 << 32


@dataclass(frozen=True)
class NetworkSpec:
    """The architecture of a network, without its weights."""

    name: str
    n_features: int
    n_outputs: int
    hidden: tuple[int, ...]
    channels: tuple[int, ...] = (32, 64)  # of convolutions
    image_shape: tuple[int, int, int] | None = None  # channels, height, width
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in NETWORKS:
            raise ValueError(f"name={self.name!r}; expected one of {', '.join(NETWORKS)}")
        _require_integer("n_features", self.n_features, _MOST_FEATURES)
        _require_integer("n_outputs", self.n_outputs, _MOST_WIDE)
        # JSON turns tuples into lists.
        for name in ("hidden", "channels"):
            object.__setattr__(self, name, _integers(name, getattr(self, name), _MOST_WIDE))
        if self.image_shape is not None:
            object.__setattr__(self, "image_shape", _integers("image_shape", self.image_shape, _MOST_FEATURES))
            if len(self.image_shape) != 3 or prod(self.image_shape) != self.n_features:
                raise ValueError(
                    f"image_shape={self.image_shape}; expected channels, height and width, whose product is "
                    f"n_features={self.n_features}"
                )
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout!r}; expected a number of at least 0 and below 1")
        if self.name == "bag" and not self.hidden:
            raise ValueError("hidden=() with name='bag'; expected at least one width")
        if self.name == "cnn" and self.image_shape is None:
            raise ValueError("image_shape=None with name='cnn'; expected channels, height and width")
        if self.n_weights > _MOST_WEIGHTS:
            raise ValueError(f"{self.n_weights} weights; expected at most {_MOST_WEIGHTS}. Make the layers narrower")

    @property
    def n_weights(self) -> int:
        """The number of weights to be learned."""
        n_inputs, result = self.n_features, 0
        if self.name == "cnn":
            assert self.image_shape is not None
            sizes = pairwise((self.image_shape[0], *self.channels))
            result = sum((KERNEL_SIZE**2 * before + 1) * after for before, after in sizes)
            n_inputs = prod(pooled_shape(self.image_shape, self.channels))
        sizes = pairwise((n_inputs, *self.hidden, self.n_outputs))
        return result + sum((before + 1) * after for before, after in sizes)


def _require_integer(name: str, value: Any, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(f"{name}={value!r}; expected an integer from 1 to {most}")


def _integers(name: str, values: Any, most: int) -> tuple[int, ...]:
    if not isinstance(values, list | tuple) or len(values) > _MOST_LAYERS:
        raise ValueError(f"{name}={values!r}; expected a list of at most {_MOST_LAYERS} integers")
    for number, value in enumerate(values):
        _require_integer(f"{name}[{number}]", value, most)
    return tuple(values)


def build_network(spec: NetworkSpec) -> Network:
    """Build the network that the spec describes, with all weights 0."""
    rest = (spec.hidden, spec.n_outputs, spec.dropout)
    if spec.name == "cnn":
        assert spec.image_shape is not None
        return CNN(spec.image_shape, spec.channels, *rest)
    return MLP(spec.n_features, *rest) if spec.name == "mlp" else BagMLP(spec.n_features, *rest)


def square_image_shape(n_features: int) -> tuple[int, int, int] | None:
    """Return the shape of square images with this many numbers, grey or in three colours, or None."""
    for n_channels in (1, 3):
        side = isqrt(n_features // n_channels)
        if side > 0 and n_channels * side**2 == n_features:
            return n_channels, side, side
    return None


def count_outputs(own: nn.Module, X: Tensor) -> int:
    """Return how many features a copy of a network gives for rows X; raise a ValueError if it gives none.

    A warning says if no gradient would reach its parameters.
    """
    network = deepcopy(own).to(X.device)
    h = _try(network.eval(), X)
    if not isinstance(h, Tensor) or h.dim() != 2 or h.shape[0] != X.shape[0] or not h.is_floating_point():
        found = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
        raise ValueError(f"the network returns {found} for {X.shape[0]} rows; expected a tensor ({X.shape[0]}, Q)")
    if h.dtype != X.dtype:
        raise ValueError(f"the network returns {h.dtype} features; expected {X.dtype}, like the rows")
    trained = _try(network.train(), X)
    if isinstance(trained, Tensor) and not trained.requires_grad and any(p.requires_grad for p in network.parameters()):
        warnings.warn(
            f"no gradient reaches the parameters of the network {type(network).__name__}, so they will not be trained",
            UserWarning,
            stacklevel=6,  # the call of fit
        )
    return int(h.shape[1])


def _try(network: nn.Module, X: Tensor) -> Any:
    """Return the output of a network for rows; anything that it raises becomes one error."""
    try:
        # Torch's generators are afterwards as they were, even if the network draws from them.
        with torch.random.fork_rng(devices=[X.device] if X.device.type == "cuda" else []):
            return network(X)
    except Exception as error:  # it may raise anything
        mode = ", in training," if network.training else ""
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"the network {type(network).__name__} cannot process{mode} rows of shape {tuple(X.shape)}: "
            f"{type(error).__name__}: {reason}"
        ) from None
