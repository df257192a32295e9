"""Kernels of the weighted distance r² = Σ_d w_d² (x_d - z_d)²: squared-exponential and Matérn."""

from __future__ import annotations

from abc import abstractmethod
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from labelfield.kernels.base import Kernel, positive
from labelfield.kernels.points import Points, as_points
from labelfield.linalg.rows import Rows, n_rows, squared_norms

__all__ = ["Matern", "SquaredExponential", "SquaredExponentialLinear"]


class _Stationary(Kernel):
    """A function of distance, with one length, one length per latent process, or one weight per feature (ARD)."""

    def __init__(self, length: float = 1.0, *, n_features: int | None = None, n_processes: int | None = None) -> None:
        super().__init__()
        if n_features is not None and n_processes is not None:
            raise ValueError("a length per feature and per process at once is not supported")
        self.is_ard = n_features is not None
        self._n_processes = n_processes
        count = n_features if n_features is not None else n_processes
        self.log_inverse_length = positive(1 / length, () if count is None else (count,))

    @property
    def n_processes(self) -> int | None:
        return self._n_processes

    def feature_relevance(self) -> Tensor | None:
        return self._squared_weights()

    def _squared_weights(self) -> Tensor | None:
        return (2 * self.log_inverse_length).exp() if self.is_ard else None

    def _scaled(self, squared_distance: Tensor) -> Tensor:
        """Distances under the shared length, or stacked (P, …) under each process's."""
        if self.is_ard:
            return squared_distance
        factor = (2 * self.log_inverse_length).exp().to(squared_distance.dtype)
        if self._n_processes is not None:
            factor = factor[:, None, None]
        return factor * squared_distance

    @abstractmethod
    def _of_distance(self, squared: Tensor) -> Tensor:
        """The covariance at squared distance r²."""

    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        points, weights = as_points(Z), self._squared_weights()
        products, norms = points.cross_and_norms(X, weights)
        squared = torch.add(squared_norms(X, weights).unsqueeze(1) + norms, products, alpha=-2)
        return self._of_distance(self._scaled(squared.clamp_min(0)))

    def gram(self, Z: Tensor | Points) -> Tensor:
        products = as_points(Z).gram(self._squared_weights()).double()
        return self._of_distance(self._scaled(squared_distances(products)))

    def diag(self, X: Rows) -> Tensor:
        shape = (n_rows(X),) if self._n_processes is None else (self._n_processes, n_rows(X))
        return torch.ones(shape, dtype=self.log_inverse_length.dtype, device=self.log_inverse_length.device)


def squared_distances(products: Tensor) -> Tensor:
    """‖z_i - z_j‖² from the inner products of points (M, M)."""
    apply: Any = _SquaredDistances.apply  # torch's is untyped
    result: Tensor = apply(products)
    return result


class _SquaredDistances(torch.autograd.Function):
    """p_ii + p_jj - p_ij - p_ji. With gradients E where it is above 0: -(E + Eᵀ), and on the diagonal its sums."""

    @staticmethod
    def forward(ctx: Any, products: Tensor) -> Tensor:
        norms = products.diagonal()
        squared = (norms.unsqueeze(1) + norms).sub_(products).sub_(products.T).clamp_min_(0)
        squared.fill_diagonal_(0)  # whatever rounding says
        ctx.save_for_backward(squared)
        return squared

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (squared,) = ctx.saved_tensors
        gradient = gradients[0] * (squared > 0)
        both: Tensor = (gradient + gradient.T).neg_()
        both.diagonal().copy_(-both.sum(0))
        return both


class SquaredExponential(_Stationary):
    """k = exp(-r² / 2)."""

    def _of_distance(self, squared: Tensor) -> Tensor:
        return (-0.5 * squared).exp()


class Matern(_Stationary):
    """Matérn of smoothness ½, 3/2 or 5/2."""

    def __init__(
        self,
        smoothness: float,
        length: float = 1.0,
        *,
        n_features: int | None = None,
        n_processes: int | None = None,
    ) -> None:
        super().__init__(length, n_features=n_features, n_processes=n_processes)
        if smoothness not in (0.5, 1.5, 2.5):
            raise ValueError(f"smoothness={smoothness}; expected 0.5, 1.5 or 2.5")
        self.smoothness = smoothness

    def _of_distance(self, squared: Tensor) -> Tensor:
        # The root has no derivative at 0; a distance of 1e-10 is 0 to every other purpose.
        r = sqrt(2 * self.smoothness) * (squared + 1e-20).sqrt()
        if self.smoothness == 0.5:
            return (-r).exp()
        if self.smoothness == 1.5:
            return (1 + r) * (-r).exp()
        return (1 + r + r.square() / 3) * (-r).exp()


class SquaredExponentialLinear(Kernel):
    """k = a exp(-r² / 2) + b xᵀ W² z with one weight per feature for both, and a and b learned.

    One weighted inner product serves both parts, at half the cost of a sum of two kernels with weights of their own.
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.log_weights = positive(1.0, (n_features,))
        self.log_variance = positive(1.0)
        self.log_slope = positive(1.0)

    def feature_relevance(self) -> Tensor:
        return (2 * self.log_weights).exp()

    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        points, weights = as_points(Z), self.feature_relevance()
        products, norms = points.cross_and_norms(X, weights)
        squared = torch.add(squared_norms(X, weights).unsqueeze(1) + norms, products, alpha=-2)
        smooth = (-0.5 * squared.clamp_min(0)).exp()
        return self.log_variance.exp() * smooth + self.log_slope.exp() * products

    def gram(self, Z: Tensor | Points) -> Tensor:
        products = as_points(Z).gram(self.feature_relevance()).double()
        smooth = (-0.5 * squared_distances(products)).exp()
        return self.log_variance.double().exp() * smooth + self.log_slope.double().exp() * products

    def diag(self, X: Rows) -> Tensor:
        return self.log_variance.exp() + self.log_slope.exp() * squared_norms(X, self.feature_relevance())
