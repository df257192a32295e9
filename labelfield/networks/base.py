"""The interface of networks that compute features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod, sqrt

import torch
from torch import Tensor, nn

__all__ = ["Network", "draw_weights", "empty"]


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


def empty(*shape: int) -> nn.Parameter:
    """Make weights to be filled. torch's own layers would draw them at once, from its global generator."""
    return nn.Parameter(torch.zeros(shape))


@torch.no_grad()
def draw_weights(W: Tensor, b: Tensor, gain: float, generator: torch.Generator) -> None:
    """Draw W ~ N(0, gain / inputs per output) and set b = 0. With gain 2, ReLUs preserve scale (He et al.)."""
    n_inputs = prod(W.shape) // b.numel()
    drawn = torch.empty(W.shape, dtype=W.dtype, device=generator.device)
    W.copy_(drawn.normal_(0, sqrt(gain / n_inputs), generator=generator))
    b.zero_()
