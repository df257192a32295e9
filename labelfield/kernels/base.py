"""What a covariance function is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import log
from typing import Protocol

import torch
from torch import Tensor, nn

from labelfield.kernels.points import Points
from labelfield.linalg.rows import Rows

__all__ = ["Kernel", "LagKernel", "over_matrices", "over_rows", "positive", "shape_of"]


class Kernel(nn.Module, ABC):
    """k(x, z), with everything computed from sparse X by products with dense matrices.

    A kernel with parameters for each process, or points that are others for each, give matrices with P in front:
    (P, B, M), (P, M, M), (P, B).
    """

    # Parameters with a row for each process.
    per_process: tuple[str, ...] = ()

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
        """Squared ARD weights (…, D), or None for a kernel that treats all features alike."""
        return None


class LagKernel(Protocol):
    """A covariance k(|x - z|) of two numbers, which on a regular grid gives Toeplitz matrices."""

    def of_lag(self, lag: Tensor) -> Tensor:
        """k at distances (n,): (P, n) under each process's parameters or (1, n) if all share them, in their type."""
        ...


def shape_of(n_processes: int | None, n_features: int | None = None) -> tuple[int, ...]:
    """The shape of a parameter that processes, features, both or neither have for themselves."""
    return tuple(count for count in (n_processes, n_features) if count is not None)


def over_matrices(values: Tensor) -> Tensor:
    """One number for all matrices as it is, one for each of P processes (P,) as (P, 1, 1)."""
    return values if values.dim() == 0 else values[:, None, None]


def over_rows(values: Tensor) -> Tensor:
    """One number for all rows as it is, one for each of P processes (P,) as (P, 1)."""
    return values if values.dim() == 0 else values[:, None]


def positive(value: float, shape: tuple[int, ...] = ()) -> nn.Parameter:
    """A parameter that stands for its exponential, started at `value`."""
    # Not torch's logarithm: of a model without memory, as one to be loaded is, it would import torch's compiler.
    return nn.Parameter(torch.full(shape, log(value)))
