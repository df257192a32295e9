"""The interface of networks that compute features, and their common parts: weights, and dropout that can be
reproduced."""

from abc import ABC, abstractmethod
from math import prod, sqrt
from typing import Any

import torch
from torch import Tensor, nn


class Network(nn.Module, ABC):
    """Features h(x) of rows. A new network is all 0, and takes no memory on the meta device."""

    takes_sparse: bool = False
    n_outputs: int

    @abstractmethod
    def forward(self, X: Tensor) -> Tensor:
        """Return h (B, n_outputs) for rows (B, D)."""

    @abstractmethod
    def start(self, generator: torch.Generator) -> None:
        """Draw new weights. The same generator gives the same weights on every device."""

    @property
    def is_capturable(self) -> bool:
        """Whether a step can be recorded on a GPU: all shapes follow from the shape of the rows."""
        return True


class Layer(nn.Module):
    """Weights W and b of these shapes, to be drawn. torch's own layers draw at once, from its global generator."""

    def __init__(self, *shape: int, n_outputs: int) -> None:
        super().__init__()
        self.W, self.b = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(n_outputs))

    @torch.no_grad()
    def start(self, gain: float, generator: torch.Generator) -> None:
        """Draw W ~ N(0, gain / inputs per output) and set b = 0. With gain 2, ReLUs preserve scale (He et al.)."""
        n_inputs = prod(self.W.shape) // self.b.numel()
        drawn = torch.empty(self.W.shape, dtype=self.W.dtype, device=generator.device)
        self.W.copy_(drawn.normal_(0, sqrt(gain / n_inputs), generator=generator))
        self.b.zero_()


class Dropout(nn.Module):
    """In training, sets each number to 0 with probability p and divides it by 1 - p otherwise; afterwards does nothing.

    torch's own dropout draws from a global generator, so a resumed training would see other masks.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.generator is None:
            raise RuntimeError("dropout has no generator to draw from; call draw_dropout_from first")
        kept = torch.empty_like(x).bernoulli_(1 - self.p, generator=self.generator)
        return x * kept.div_(1 - self.p)

    def __getstate__(self) -> dict[str, Any]:
        # A generator of a GPU could not be loaded on a machine without one.
        return {**self.__dict__, "generator": None}


def draw_dropout_from(module: nn.Module, generator: torch.Generator) -> None:
    """Let all dropout in a module, in the order of its parts, draw from this generator, on the module's device."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.generator = generator
