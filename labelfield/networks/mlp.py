"""Fully connected layers."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from labelfield.networks.base import Network, draw_weights, empty
from labelfield.networks.dropout import Dropout

__all__ = ["MLP", "Affine"]


class Affine(nn.Module):
    """x W + b."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.W, self.b = empty(n_inputs, n_outputs), empty(n_outputs)

    def forward(self, X: Tensor) -> Tensor:
        return torch.addmm(self.b, X, self.W)

    def start(self, gain: float, generator: torch.Generator) -> None:
        draw_weights(self.W, self.b, gain, generator)


class MLP(Network):
    """ReLU layers of these widths, each with dropout, and a linear last layer, for dense rows."""

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_outputs = n_outputs
        self.hidden = nn.ModuleList(Affine(*sizes) for sizes in pairwise((n_features, *hidden)))
        self.last = Affine((n_features, *hidden)[-1], n_outputs)
        self.dropout = Dropout(dropout)

    def forward(self, X: Tensor) -> Tensor:
        for layer in self.hidden:
            X = self.dropout(layer(X).relu())
        result: Tensor = self.last(X)
        return result

    def start(self, generator: torch.Generator) -> None:
        for layer in self.hidden:
            assert isinstance(layer, Affine)
            layer.start(2, generator)
        self.last.start(1, generator)
