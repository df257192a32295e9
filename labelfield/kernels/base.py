"""The interface of covariance functions, and of the points at which they are evaluated against rows."""

from abc import ABC, abstractmethod
from math import log
from typing import Protocol

import torch
from torch import Tensor, nn

from labelfield.linalg.rows import Projected, Rows, dot


class Points(Protocol):
    """M points in any representation."""

    def cross(self, X: Rows, squared_weights: Tensor | None) -> Tensor:
        """Return Σ_d w_d² x_id z_jd (…, B, M) for weights (…, D), with P in front if either is per process."""

    def gram(self, squared_weights: Tensor | None) -> Tensor:
        """Return Σ_d w_d² z_id z_jd (…, M, M)."""

    def norms(self, squared_weights: Tensor | None) -> Tensor:
        """Return Σ_d w_d² z_id² (…, M), the diagonal of the gram matrix, without the rest of it."""

    def cross_and_norms(self, X: Rows, squared_weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return both, as distances need; together they may cost less."""


class DensePoints:
    """Points given by their coordinates Z (M, D), or (P, M, D) per process."""

    def __init__(self, Z: Tensor) -> None:
        self.Z = Z

    def cross(self, X: Rows, squared_weights: Tensor | None) -> Tensor:
        if isinstance(X, Projected):
            raise ValueError("projected rows can only be compared with points of the subspace they were projected onto")
        W = self._weighted(squared_weights)
        if W.dim() == 2:
            return dot(X, W.T.contiguous())
        # One product with the points of all processes side by side.
        products = dot(X, W.flatten(0, 1).T.contiguous())
        return products.view(-1, *W.shape[:2]).movedim(1, 0)

    def gram(self, squared_weights: Tensor | None) -> Tensor:
        return self._weighted(squared_weights) @ self.Z.mT

    def norms(self, squared_weights: Tensor | None) -> Tensor:
        return (self._weighted(squared_weights) * self.Z).sum(-1)

    def _weighted(self, squared_weights: Tensor | None) -> Tensor:
        return self.Z if squared_weights is None else self.Z * squared_weights.unsqueeze(-2)

    def cross_and_norms(self, X: Rows, squared_weights: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.cross(X, squared_weights), self.norms(squared_weights)


def as_points(Z: Tensor | Points) -> Points:
    """Return coordinates as points, and points as they are."""
    return DensePoints(Z) if isinstance(Z, Tensor) else Z


class Kernel(nn.Module, ABC):
    """k(x, z), computed from sparse X by products with dense matrices.

    If parameters or points are per process, the matrices have P in front: (P, B, M), (P, M, M), (P, B).
    """

    # The names of parameters that have one row per process.
    per_process: tuple[str, ...] = ()

    @abstractmethod
    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        """Return k(x_i, z_j) (…, B, M)."""

    @abstractmethod
    def gram(self, Z: Tensor | Points) -> Tensor:
        """Return k(z_i, z_j) (…, M, M) in float64."""

    @abstractmethod
    def diag(self, X: Rows) -> Tensor:
        """Return k(x_i, x_i) (…, B)."""

    def feature_relevance(self) -> Tensor | None:
        """Return the squared ARD weights (…, D), or None for a kernel that treats all features alike."""
        return None


def shape_of(n_processes: int | None, n_features: int | None = None) -> tuple[int, ...]:
    """Return the shape of a parameter that is per process, per feature, both or neither."""
    return tuple(count for count in (n_processes, n_features) if count is not None)


def over_matrices(values: Tensor) -> Tensor:
    """Return a number as it is, or one number per process (P,) as (P, 1, 1), to scale matrices."""
    return values if values.dim() == 0 else values[:, None, None]


def over_rows(values: Tensor) -> Tensor:
    """Return a number as it is, or one number per process (P,) as (P, 1), to scale rows."""
    return values if values.dim() == 0 else values[:, None]


def positive(value: float, shape: tuple[int, ...] = ()) -> nn.Parameter:
    """Make a parameter that stands for its exponential, which starts at `value`."""
    # Not torch's logarithm, which imports torch's compiler on the meta device, where models to be loaded are built.
    return nn.Parameter(torch.full(shape, log(value)))
