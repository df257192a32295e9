"""Inducing inputs per class [TH 3.2]."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from labelfield.kernels import DensePoints

__all__ = ["PerClass"]


class PerClass(nn.Module):
    """Z_k (K, M, D), learned; with `unit_norm` kept at norm 1, like the rows."""

    per_process = ("Z",)

    def __init__(self, Z: Tensor, *, unit_norm: bool = True) -> None:
        super().__init__()
        self.Z = nn.Parameter(Z)
        self.unit_norm = unit_norm

    def fill(self, Z: Tensor) -> None:
        """Set the values (K, M, D)."""
        with torch.no_grad():
            self.Z.copy_(Z)

    def points(self) -> DensePoints:
        """Return the inducing inputs as the kernel sees them, to be formed once per step."""
        return DensePoints(normalize(self.Z, dim=-1) if self.unit_norm else self.Z)
