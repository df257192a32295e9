"""Dropout whose masks can be reproduced."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Dropout", "draw_dropout_from"]


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
