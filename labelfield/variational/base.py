"""The interface of families of q(u), and their inputs: the prior p(u) = N(0, K_Z) and the covariances with the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labelfield.linalg.cholesky import cholesky
from labelfield.linalg.whitening import whitened

__all__ = ["Family", "Moments", "Prior"]


class Moments(NamedTuple):
    """Marginal means and variances (B, P) of h, or (B, K) of f."""

    mean: Tensor
    var: Tensor


class Prior:
    """p(u) = N(0, K_Z + jitter I), with K_Z (M, M) or (P, M, M) in float64, factorised when first needed."""

    def __init__(self, K: Tensor, jitter: float) -> None:
        self.K = K
        self.jitter = jitter

    @cached_property
    def L(self) -> Tensor:
        """The Cholesky factor (…, M, M)."""
        return cholesky(self.K, "K_Z, the covariance of the inducing inputs,", self.jitter)

    def whiten(self, Kzx: Tensor) -> Tensor:
        """Return A = L⁻¹ k(Z, X) (…, M, B), solved in float64 and returned in the type of the rows."""
        return whitened(self.K, self.L, Kzx)


class Family(nn.Module, ABC):
    """q(u_p) = N(·, ·) for p = 1 … P, where the p-th row of a parameter belongs to process p."""

    # The names of parameters that have one row per process.
    per_process: tuple[str, ...] = ("mean",)

    @abstractmethod
    def moments(self, prior: Prior, Kzx: Tensor, kxx: Tensor) -> Moments:
        """Return the mean and variance (B, P) of h at rows with k(Z, X) (…, M, B) and k(x, x) (…, B)."""

    @abstractmethod
    def coefficients(self, prior: Prior) -> Tensor:
        """Return α (P, M) in float64, for which the mean of h_p at x is Σ_m k(x, z_m) α_pm."""

    @abstractmethod
    def kl(self, prior: Prior) -> Tensor:
        """Return KL(q(u_p) ‖ p(u_p)) (P,) in float64."""


def mean_parameter(n_inducing: int, n_processes: int) -> nn.Parameter:
    """Make means (P, M) that start at those of the prior, 0."""
    return nn.Parameter(torch.zeros(n_processes, n_inducing))


def factor_parameter(spread: float, *shape: int) -> nn.Parameter:
    """Make lower factors (…, M, M) that start at `spread` times I."""
    factor = torch.zeros(*shape)
    # Not torch's eye, which imports torch's compiler on the meta device, where models to be loaded are built.
    factor.diagonal(dim1=-2, dim2=-1).fill_(spread)
    return nn.Parameter(factor)


def mean_of(A: Tensor, m: Tensor) -> Tensor:
    """Return Aᵀ m (B, P) for A (M, B), or (P, M, B) per process, and m (P, M)."""
    return A.T @ m.T if A.dim() == 2 else torch.bmm(m.unsqueeze(1), A).squeeze(1).T


def solved(factor: Tensor, m: Tensor) -> Tensor:
    """Return factor⁻ᵀ m_p (P, M) in float64, for one lower factor (M, M) or one per process (P, M, M)."""
    columns = m.double().T if factor.dim() == 2 else m.double().unsqueeze(2)
    result: Tensor = torch.linalg.solve_triangular(factor.mT, columns, upper=True)
    return result.T if factor.dim() == 2 else result.squeeze(2)


def rows_first(values: Tensor) -> Tensor:
    """Return (B,) as (B, 1), or (P, B) as (B, P)."""
    return values.unsqueeze(1) if values.dim() == 1 else values.T
