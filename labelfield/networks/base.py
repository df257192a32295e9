"""What a network of features is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod, sqrt

import torch
from torch import Tensor, nn

__all__ = ["Network", "draw_weights", "empty"]


class Network(nn.Module, ABC):
    """Features h(x) of rows. One that was just made is all 0, and needs no memory on a device that has none."""

    takes_sparse: bool = False
    n_outputs: int

    @abstractmethod
    def forward(self, X: Tensor) -> Tensor:
        """h (B, n_outputs) of rows (B, D)."""

    @abstractmethod
    def start(self, generator: torch.Generator) -> None:
        """Draw the weights anew. The same generator gives the same weights on every device."""

    @property
    def is_capturable(self) -> bool:
        """Whether a step on a GPU can be recorded: shapes depend on the rows' alone."""
        return True


def empty(*shape: int) -> nn.Parameter:
    """Weights to be filled. torch's own layers would draw them at once, from the generator that everything shares."""
    return nn.Parameter(torch.zeros(shape))


@torch.no_grad()
def draw_weights(W: Tensor, b: Tensor, gain: float, generator: torch.Generator) -> None:
    """W ~ N(0, gain / inputs of an output) and b = 0: with gain 2, ReLUs keep the size of what passes (He et al.)."""
    n_inputs = prod(W.shape) // b.numel()
    drawn = torch.empty(W.shape, dtype=W.dtype, device=generator.device)
    W.copy_(drawn.normal_(0, sqrt(gain / n_inputs), generator=generator))
    b.zero_()
