"""What a covariance function is."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from labelfield.kernels.points import Points
from labelfield.linalg.rows import Rows

__all__ = ["Kernel", "positive"]


class Kernel(nn.Module, ABC):
    """k(x, z), with everything computed from sparse X by products with dense matrices.

    A kernel with a parameter per latent process gives its matrices with P in front: (P, B, M), (P, M, M), (P, B).
    """

    @abstractmethod
    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        """k(x_i, z_j) (…, B, M)."""

    @abstractmethod
    def gram(self, Z: Tensor | Points) -> Tensor:
        """k(z_i, z_j) (…, M, M) in float64."""

    @abstractmethod
    def diag(self, X: Rows) -> Tensor:
        """k(x_i, x_i) (…, B)."""

    @property
    def n_processes(self) -> int | None:
        """How many latent processes have parameters of their own; None if all share one kernel."""
        return None

    def feature_relevance(self) -> Tensor | None:
        """Squared ARD weights (D,), or None for a kernel that treats all features alike."""
        return None


def positive(value: float | Tensor, shape: tuple[int, ...] = ()) -> nn.Parameter:
    """A parameter that stands for its exponential, started at `value`."""
    start = torch.as_tensor(value, dtype=torch.get_default_dtype()).log()
    return nn.Parameter(start.expand(shape).clone())
