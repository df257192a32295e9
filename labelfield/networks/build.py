"""Networks from the words and numbers that options and saved models use."""

from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod
from typing import Any

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
    if spec.name == "mlp":
        return MLP(spec.n_features, spec.hidden, spec.n_outputs, spec.dropout)
    if spec.name == "bag":
        return BagMLP(spec.n_features, spec.hidden, spec.n_outputs, spec.dropout)
    assert spec.image_shape is not None
    return CNN(spec.image_shape, spec.channels, spec.hidden, spec.n_outputs, spec.dropout)


def square_image_shape(n_features: int) -> tuple[int, int, int] | None:
    """Return the shape of square images with this many numbers, grey or in three colours, or None."""
    for n_channels in (1, 3):
        side = isqrt(n_features // n_channels)
        if side > 0 and n_channels * side**2 == n_features:
            return n_channels, side, side
    return None
