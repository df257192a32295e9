"""Inducing inputs that are rows of their own: learned ("free") or left where they start ("FX")."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from labelfield.kernels import DensePoints
from labelfield.linalg.rows import Rows, dot

__all__ = ["Free"]


class Free(nn.Module):
    """Z (M, D), stored as its transpose, in which the products with sparse rows are quickest.

    With `unit_norm` every inducing input is kept at norm 1, as the rows are; without it ("UN") it is free.
    """

    def __init__(self, Z: Tensor, *, is_learned: bool = True, unit_norm: bool = True) -> None:
        super().__init__()
        self.unit_norm = unit_norm
        self.transposed = nn.Parameter(Z.T.contiguous(), requires_grad=is_learned)

    @property
    def n_inducing(self) -> int:
        return int(self.transposed.shape[1])

    def points(self) -> FreePoints:
        """The inducing inputs as the kernel sees them; formed once a step."""
        Zt = normalize(self.transposed, dim=0) if self.unit_norm else self.transposed
        return FreePoints(Zt)


class FreePoints(DensePoints):
    """Points whose coordinates are held as Zᵀ (D, M)."""

    def __init__(self, Zt: Tensor) -> None:
        super().__init__(Zt.T)
        self.Zt = Zt
        self._weighted: tuple[Tensor | None, Tensor] | None = None

    def _times(self, squared_weights: Tensor | None) -> Tensor:
        """diag(w²) Zᵀ, kept for the second use in the same step."""
        if squared_weights is None:
            return self.Zt
        if self._weighted is None or self._weighted[0] is not squared_weights:
            self._weighted = (squared_weights, self.Zt * squared_weights.unsqueeze(1))
        return self._weighted[1]

    def cross(self, X: Rows, squared_weights: Tensor | None) -> Tensor:
        if not isinstance(X, Tensor):
            return super().cross(X, squared_weights)
        return dot(X, self._times(squared_weights))

    def gram(self, squared_weights: Tensor | None) -> Tensor:
        if squared_weights is None:
            squared_weights = self.Zt.new_ones(self.Zt.shape[0])
        apply: Any = _WeightedGram.apply  # torch's is untyped
        result: Tensor = apply(self.Zt, squared_weights)
        return result

    def norms(self, squared_weights: Tensor | None) -> Tensor:
        squares = self.Zt.square()
        return squares.sum(0) if squared_weights is None else squared_weights @ squares


class _WeightedGram(torch.autograd.Function):
    """Z W² Zᵀ from Zᵀ (D, M) and w² (D,). It is symmetric, so that one product gives both gradients."""

    @staticmethod
    def forward(ctx: Any, Zt: Tensor, squared_weights: Tensor) -> Tensor:
        ctx.save_for_backward(Zt, squared_weights)
        return Zt.T @ (Zt * squared_weights.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        Zt, squared_weights = ctx.saved_tensors
        product = Zt @ (gradients[0] + gradients[0].T)
        return product * squared_weights.unsqueeze(1), 0.5 * (product * Zt).sum(1)
