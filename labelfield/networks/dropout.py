"""Dropout whose masks can be drawn again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Dropout", "draw_dropout_from"]


class Dropout(nn.Module):
    """In training each number is 0 with probability p and else divided by 1 - p; afterwards nothing happens to it.

    torch's own draws from a generator that everything shares, so that a training that was resumed would see other masks
    than one that went on.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.generator is None:
            raise RuntimeError("dropout has nothing to draw from; call draw_dropout_from first")
        kept = torch.empty_like(x).bernoulli_(1 - self.p, generator=self.generator)
        return x * kept.div_(1 - self.p)

    def __getstate__(self) -> dict[str, Any]:
        # A generator of a GPU could not be read where there is none.
        return {**self.__dict__, "generator": None}

    def extra_repr(self) -> str:
        return f"p={self.p}"


def draw_dropout_from(module: nn.Module, generator: torch.Generator) -> None:
    """Let all dropout in a module, in the order it is passed, draw from this generator, where the module is."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.generator = generator
