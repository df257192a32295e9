"""The interface of covariance functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import log

import torch
from torch import Tensor, nn

from labelfield.kernels.points import Points
from labelfield.linalg.rows import Rows

__all__ = ["Kernel", "over_matrices", "over_rows", "positive", "shape_of"]


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
