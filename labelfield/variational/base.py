"""What a family of q(u) is, and what it is given: the prior p(u) = N(0, K_Z) and the covariances with the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labelfield.linalg.cholesky import cholesky
from labelfield.linalg.whitening import whitened

__all__ = ["SMALLEST_VARIANCE", "Family", "Moments", "Prior"]

# Rounding may leave k_ii - k_iZ K_Z⁻¹ k_Zi a little below 0.
SMALLEST_VARIANCE = 1e-6


class Moments(NamedTuple):
    """Marginal means and variances (B, P) of h, or (B, K) of f."""

    mean: Tensor
    var: Tensor


class Prior:
    """p(u) = N(0, K_Z + jitter I), with K_Z (M, M) or (P, M, M) in float64; factorised when first needed."""

    def __init__(self, K: Tensor, jitter: float) -> None:
        self.K = K
        self.jitter = jitter

    @cached_property
    def L(self) -> Tensor:
        """The Cholesky factor (…, M, M)."""
        return cholesky(self.K, "K_Z, the covariance of the inducing inputs,", self.jitter)

    def whiten(self, Kzx: Tensor) -> Tensor:
        """A = L⁻¹ k(Z, X) (…, M, B), solved in float64 and returned in the type of the rows."""
        return whitened(self.K, self.L, Kzx)


class Family(nn.Module, ABC):
    """q(u_p) = N(·, ·) for p = 1 … P."""

    @abstractmethod
    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        """Mean and variance (B, P) of h at rows with k(Z, X) (…, M, B) and k(x, x) (…, B)."""

    @abstractmethod
    def kl(self, prior: Prior) -> Tensor:
        """Σ_p KL(q(u_p) ‖ p(u_p)) in float64."""


def mean_parameter(n_inducing: int, n_processes: int) -> nn.Parameter:
    """Means (M, P), at the prior's."""
    return nn.Parameter(torch.zeros(n_inducing, n_processes))


class FullFactors(Family):
    """Families with a mean (M, P) and a lower factor of its own for each process (P, M, M), at `spread` times I."""

    def __init__(self, n_inducing: int, n_processes: int, spread: float = 1.0) -> None:
        super().__init__()
        self.mean = mean_parameter(n_inducing, n_processes)
        self.factor = nn.Parameter(spread * torch.eye(n_inducing).repeat(n_processes, 1, 1))


def mean_of(A: Tensor, m: Tensor) -> Tensor:
    """Aᵀ m (B, P) for A (M, B), or (P, M, B) with a matrix for each process, and m (M, P)."""
    return A.T @ m if A.dim() == 2 else torch.einsum("pmb,mp->bp", A, m)


def rows_first(values: Tensor) -> Tensor:
    """(B,) to (B, 1), or (P, B) to (B, P)."""
    return values.unsqueeze(1) if values.dim() == 1 else values.T
