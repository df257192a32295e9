"""Kernels of the weighted inner product Σ_d w_d² x_d z_d."""

from __future__ import annotations

from torch import Tensor

from labelfield.kernels.base import Kernel, positive, shape_of
from labelfield.kernels.points import Points, as_points
from labelfield.linalg.rows import Rows, squared_norms

__all__ = ["DotPower"]


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
