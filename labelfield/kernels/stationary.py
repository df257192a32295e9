"""Kernels of the weighted distance r² = Σ_d w_d² (x_d - z_d)², and of the weighted inner product Σ_d w_d² x_d z_d."""

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from labelfield.kernels.base import Kernel, Points, as_points, over_matrices, over_rows, positive, shape_of
from labelfield.linalg.autograd import apply
from labelfield.linalg.rows import Rows, n_rows, squared_norms


class Stationary(Kernel):
    """A function of distance with one length or one weight per feature (ARD), shared or per process.

    `of_squared` gives the covariance at squared distance r². `of_lag` is the covariance of two numbers at a distance,
    which gives Toeplitz matrices on a regular grid.
    """

    def __init__(
        self,
        of_squared: Callable[[Tensor], Tensor],
        length: float = 1.0,
        *,
        n_features: int | None = None,
        n_processes: int | None = None,
    ) -> None:
        super().__init__()
        self._of_distance = of_squared
        self.is_ard = n_features is not None
        self.per_process = () if n_processes is None else ("log_inverse_length",)
        self.log_inverse_length = positive(1 / length, shape_of(n_processes, n_features))

    def feature_relevance(self) -> Tensor | None:
        return (2 * self.log_inverse_length).exp() if self.is_ard else None

    def _scaled(self, squared_distance: Tensor) -> Tensor:
        """Scale distances by the shared length, or by that of each process, stacked (P, …)."""
        if self.is_ard:
            return squared_distance
        return over_matrices((2 * self.log_inverse_length).exp().to(squared_distance.dtype)) * squared_distance

    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        return self._of_distance(self._scaled(_cross_distances(X, as_points(Z), self.feature_relevance())[0]))

    def gram(self, Z: Tensor | Points) -> Tensor:
        products = as_points(Z).gram(self.feature_relevance()).double()
        return self._of_distance(self._scaled(squared_distances(products)))

    def of_lag(self, lag: Tensor) -> Tensor:
        """Return the covariance at distances (n,) of two numbers: (P, n) with lengths per process or (1, n) with a
        shared one, in the type of the distances."""
        if self.is_ard:
            raise ValueError(
                "this kernel has one weight per feature; a distance between two numbers takes a single length"
            )
        inverse = self.log_inverse_length.to(lag.dtype).exp().view(-1, 1)
        return self._of_distance((inverse * lag).square())

    def diag(self, X: Rows) -> Tensor:
        n_processes = self.log_inverse_length.shape[0] if self.per_process else None
        return self.log_inverse_length.new_ones(shape_of(n_processes, n_rows(X)))


def _cross_distances(X: Rows, points: Points, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the weighted squared distances and inner products (…, B, M) of rows and points."""
    products, norms = points.cross_and_norms(X, weights)
    return apply(_CrossDistances, squared_norms(X, weights), norms, products), products


class _CrossDistances(torch.autograd.Function):
    """n_i + n_j - 2 p_ij, at least 0, in one array; where it is above 0 the gradients are sums of E, and -2 E."""

    @staticmethod
    def forward(ctx: Any, of_rows: Tensor, of_points: Tensor, products: Tensor) -> Tensor:
        squared = torch.mul(products, -2).add_(of_rows.unsqueeze(-1)).add_(of_points.unsqueeze(-2)).clamp_min_(0)
        ctx.save_for_backward(squared)
        ctx.shapes = of_rows.shape, of_points.shape
        return squared

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (squared,) = ctx.saved_tensors
        gradient = gradients[0] * (squared > 0)
        # Norms of rows, or of points, that all processes share are summed over processes.
        sums = [gradient.sum(dim).sum_to_size(shape) for dim, shape in zip((-1, -2), ctx.shapes, strict=True)]
        return sums[0], sums[1], gradient.mul_(-2)


def squared_distances(products: Tensor) -> Tensor:
    """Return ‖z_i - z_j‖² from the inner products of points (…, M, M)."""
    return apply(_SquaredDistances, products)


class _SquaredDistances(torch.autograd.Function):
    """p_ii + p_jj - p_ij - p_ji. With gradients E where that is above 0: -2 E, and the sums of E + Eᵀ on the diagonal.

    Products are symmetric but for rounding, so that only the symmetric part of a gradient means anything. Forward both
    halves count: for points that are close together their roundings cancel, those of 2 p_ij do not.
    """

    @staticmethod
    def forward(ctx: Any, products: Tensor) -> Tensor:
        norms = products.diagonal(dim1=-2, dim2=-1)
        squared = (norms.unsqueeze(-1) + norms.unsqueeze(-2)).sub_(products).sub_(products.mT).clamp_min_(0)
        squared.diagonal(dim1=-2, dim2=-1).zero_()  # exactly, in spite of rounding
        ctx.save_for_backward(squared)
        return squared

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (squared,) = ctx.saved_tensors
        gradient: Tensor = gradients[0] * (squared > 0)
        sums = gradient.sum(-1) + gradient.sum(-2)  # on the diagonal itself E is 0
        gradient.mul_(-2).diagonal(dim1=-2, dim2=-1).copy_(sums)
        return gradient


def squared_exponential(length: float = 1.0, **sizes: int | None) -> Stationary:
    """Make the kernel k = exp(-r² / 2)."""
    return Stationary(_squared_exponential, length, **sizes)


def _squared_exponential(squared: Tensor) -> Tensor:
    return (-0.5 * squared).exp()


def matern(smoothness: float, length: float = 1.0, **sizes: int | None) -> Stationary:
    """Make the Matérn kernel of smoothness ½, 3/2 or 5/2."""
    if smoothness not in (0.5, 1.5, 2.5):
        raise ValueError(f"smoothness={smoothness}; expected 0.5, 1.5 or 2.5")
    return Stationary(partial(_matern, smoothness), length, **sizes)


def _matern(smoothness: float, squared: Tensor) -> Tensor:
    return apply(_Matern, squared, smoothness)


class _Matern(torch.autograd.Function):
    """With r² = 2ν s for the squared distance s: e⁻ʳ, (1 + r) e⁻ʳ or (1 + r + r² / 3) e⁻ʳ.

    The derivatives by s are -½ e⁻ʳ / r, -3/2 e⁻ʳ and -5/6 (1 + r) e⁻ʳ: only the first needs a root at 0.
    """

    @staticmethod
    def forward(ctx: Any, squared: Tensor, smoothness: float) -> Tensor:
        # A distance of 1e-10 is as good as 0, and can be divided by.
        r = squared.add(1e-20).sqrt_().mul_(sqrt(2 * smoothness))
        decay = r.neg().exp_()
        ctx.smoothness = smoothness
        if smoothness == 0.5:
            ctx.save_for_backward(decay, r)
            return decay.clone()
        if smoothness == 1.5:
            ctx.save_for_backward(decay)
            return r.add_(1).mul_(decay)
        ctx.save_for_backward(decay, r)
        return (r.square() / 3).add_(r).add_(1).mul_(decay)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        decay, *r = ctx.saved_tensors
        slope = gradients[0] * decay
        if ctx.smoothness == 0.5:
            return slope.div_(r[0]).mul_(-0.5), None
        if ctx.smoothness == 1.5:
            return slope.mul_(-1.5), None
        return slope.mul_(r[0] + 1).mul_(-5 / 6), None


class SquaredExponentialLinear(Kernel):
    """k = a exp(-r² / 2) + b xᵀ W² z, with one weight per feature for both parts, and a and b learned.

    One weighted inner product serves both parts, at half the cost of a sum of two kernels with separate weights.
    """

    def __init__(self, n_features: int, n_processes: int | None = None) -> None:
        super().__init__()
        self.per_process = () if n_processes is None else ("log_weights", "log_variance", "log_slope")
        self.log_weights = positive(1.0, shape_of(n_processes, n_features))
        self.log_variance = positive(1.0, shape_of(n_processes))
        self.log_slope = positive(1.0, shape_of(n_processes))

    def feature_relevance(self) -> Tensor:
        return (2 * self.log_weights).exp()

    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        squared, products = _cross_distances(X, as_points(Z), self.feature_relevance())
        variance, slope = self._scales()
        return variance * (-0.5 * squared).exp() + slope * products

    def gram(self, Z: Tensor | Points) -> Tensor:
        products = as_points(Z).gram(self.feature_relevance()).double()
        variance, slope = (scale.double() for scale in self._scales())
        return variance * (-0.5 * squared_distances(products)).exp() + slope * products

    def diag(self, X: Rows) -> Tensor:
        variance, slope = (over_rows(scale.exp()) for scale in (self.log_variance, self.log_slope))
        return variance + slope * squared_norms(X, self.feature_relevance())

    def _scales(self) -> tuple[Tensor, Tensor]:
        """Return a and b, each a number or (P, 1, 1)."""
        return over_matrices(self.log_variance.exp()), over_matrices(self.log_slope.exp())


class DotPower(Kernel):
    """k = (xᵀ W² z)^power, where W has one weight for each of n_features, or is the identity."""

    def __init__(self, power: int, *, n_features: int | None = None, n_processes: int | None = None) -> None:
        super().__init__()
        if not (isinstance(power, int) and power >= 1):
            raise ValueError(f"power={power!r}; expected an integer of at least 1")
        self.power = power
        self.log_weights = None if n_features is None else positive(1.0, shape_of(n_processes, n_features))
        self.per_process = () if self.log_weights is None or n_processes is None else ("log_weights",)

    def feature_relevance(self) -> Tensor | None:
        return None if self.log_weights is None else (2 * self.log_weights).exp()

    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        return as_points(Z).cross(X, self.feature_relevance()) ** self.power

    def gram(self, Z: Tensor | Points) -> Tensor:
        return as_points(Z).gram(self.feature_relevance()).double() ** self.power

    def diag(self, X: Rows) -> Tensor:
        return squared_norms(X, self.feature_relevance()) ** self.power
