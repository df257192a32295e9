"""The points at which a covariance function is evaluated against rows: anything that has weighted inner products."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from labelfield.linalg.rows import Projected, Rows, dot

__all__ = ["DensePoints", "Points", "as_points"]


class Points(Protocol):
    """M points in any representation."""

    def cross(self, X: Rows, squared_weights: Tensor | None) -> Tensor:
        """Return Σ_d w_d² x_id z_jd (…, B, M) for weights (…, D); P is in front if weights or points are per
        process."""
        ...

    def gram(self, squared_weights: Tensor | None) -> Tensor:
        """Return Σ_d w_d² z_id z_jd (…, M, M)."""
        ...

    def norms(self, squared_weights: Tensor | None) -> Tensor:
        """Return Σ_d w_d² z_id² (…, M), the diagonal of the gram matrix, without the rest of it."""
        ...

    def cross_and_norms(self, X: Rows, squared_weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return both, which distances need; together they may cost less."""
        ...


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
