"""Inducing inputs with their own coordinates: learned ("free"), fixed at the start ("FX"), or per class [TH 3.24]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from labelfield.kernels import DensePoints
from labelfield.linalg.autograd import apply
from labelfield.linalg.products import product
from labelfield.linalg.rows import Rows, dot, transposed

_CHUNK = 1 << 16
_LEAST_NORM = 1e-12


class Free(nn.Module):
    """Z (M, D), stored transposed, which makes products with sparse rows fastest.

    With `unit_norm` every inducing input is kept at norm 1, like the rows; without it ("UN") its norm is free. With
    `n_features`, Z has values only on the features that `fill` names, and is 0 on the others.
    """

    def __init__(
        self, Z: Tensor, *, n_features: int | None = None, is_learned: bool = True, unit_norm: bool = True
    ) -> None:
        super().__init__()
        self.unit_norm, self.n_features = unit_norm, n_features
        self.transposed = nn.Parameter(Z.T.contiguous(), requires_grad=is_learned)
        if n_features is not None:
            self.register_buffer("support", torch.zeros(Z.shape[1], dtype=torch.int32))
        self._place: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the positions of features, which are computed again when needed."""
        return self.__dict__ | {"_place": None}

    def fill(self, Z: Tensor, support: Tensor | None = None) -> None:
        """Set the values (M, features), and the features they belong to."""
        with torch.no_grad():
            self.transposed.copy_(Z.T)
            if support is not None:
                self.get_buffer("support").copy_(support)
        self._place = None

    def points(self) -> FreePoints:
        """Return the inducing inputs as the kernel sees them, to be formed once per step."""
        Zt = apply(_UnitColumns, self.transposed) if self.unit_norm else self.transposed
        if self.n_features is None:
            return FreePoints(Zt)
        support = self.get_buffer("support")
        if self._place is None or self._place.device != support.device:
            self._place = torch.full((self.n_features,), -1, dtype=torch.int32, device=support.device)
            self._place[support.long()] = torch.arange(len(support), dtype=torch.int32, device=support.device)
        return FreePoints(Zt, support, self._place)


class FreePoints(DensePoints):
    """Points whose coordinates are stored as Zᵀ (D, M), or for the features of a support alone.

    `place` has the position of each feature in the support, or -1.
    """

    def __init__(self, Zt: Tensor, support: Tensor | None = None, place: Tensor | None = None) -> None:
        super().__init__(Zt.T)
        self.Zt, self.support, self.place = Zt, support, place

    def _supported(self, weights: Tensor | None) -> Tensor:
        if weights is None:
            return self.Zt.new_ones(len(self.Zt))
        return weights if self.support is None else weights[..., self.support.long()]

    def cross(self, X: Rows, squared_weights: Tensor | None) -> Tensor:
        if not isinstance(X, Tensor):
            return super().cross(X, squared_weights)  # raises the error for projected rows
        if _are_per_process(squared_weights):
            return super().cross(self._restricted(X), self._supported(squared_weights))
        weighted = self.Zt if squared_weights is None else self.Zt * self._supported(squared_weights).unsqueeze(1)
        return dot(self._restricted(X), weighted)

    def cross_and_norms(self, X: Rows, squared_weights: Tensor | None) -> tuple[Tensor, Tensor]:
        if not isinstance(X, Tensor) or _are_per_process(squared_weights):
            return self.cross(X, squared_weights), self.norms(squared_weights)
        apply: Any = _WeightedCross.apply  # torch's is untyped
        products, norms = apply(self._restricted(X), self.Zt, self._supported(squared_weights))
        return products, norms

    def _restricted(self, X: Tensor) -> Tensor:
        """Return the columns of the support. In sparse rows the other entries become 0 in column 0."""
        if self.support is None or self.place is None:
            return X
        if X.layout != torch.sparse_csr:
            return X[:, self.support.long()]
        column = self.place[X.col_indices().long()]
        values = torch.where(column >= 0, X.values(), 0)
        size = (X.shape[0], len(self.support))
        return torch.sparse_csr_tensor(X.crow_indices(), column.clamp_min(0), values, size=size, check_invariants=False)

    def gram(self, squared_weights: Tensor | None) -> Tensor:
        if _are_per_process(squared_weights):
            return super().gram(self._supported(squared_weights))
        return apply(_WeightedGram, self.Zt, self._supported(squared_weights))

    def norms(self, squared_weights: Tensor | None) -> Tensor:
        squares = self.Zt.square()
        return squares.sum(0) if squared_weights is None else self._supported(squared_weights) @ squares


class _UnitColumns(torch.autograd.Function):
    """Z / ‖z‖ for each column z, with the gradient (G - Z diag(Zᵀ G)) / ‖z‖ in terms of the unit columns Z."""

    @staticmethod
    def forward(ctx: Any, Zt: Tensor) -> Tensor:
        inverse = Zt.square().sum(0).sqrt_().clamp_min_(_LEAST_NORM).reciprocal_()
        unit = Zt * inverse
        ctx.save_for_backward(unit, inverse)
        return unit

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        unit, inverse = ctx.saved_tensors
        along = (unit * gradients[0]).sum(0)
        return torch.addcmul(gradients[0], unit, along, value=-1).mul_(inverse)


def _are_per_process(squared_weights: Tensor | None) -> bool:
    """Return whether there are weights per process (P, D)."""
    return squared_weights is not None and squared_weights.dim() == 2


class _WeightedGram(torch.autograd.Function):
    """Z W² Zᵀ from Zᵀ (D, M) and w² (D,). It is symmetric, so one product gives both gradients."""

    @staticmethod
    def forward(ctx: Any, Zt: Tensor, squared_weights: Tensor) -> Tensor:
        ctx.save_for_backward(Zt, squared_weights)
        return product(Zt.T, Zt * squared_weights.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        Zt, squared_weights = ctx.saved_tensors
        both = product(Zt, gradients[0] + gradients[0].T)
        d_weights = 0.5 * _row_products(both, Zt)
        return both.mul_(squared_weights.unsqueeze(1)), d_weights


class _WeightedCross(torch.autograd.Function):
    """X W² Zᵀ (B, M) and diag(Z W² Zᵀ) (M,) from X, Zᵀ (D, M) and w² (D,), with a single temporary of the size of Z.

    With gradients G and g, and T = Xᵀ G: ∂Zᵀ = W² (T + 2 Zᵀ diag(g)), ∂w² = Σ_m Zᵀ ∘ (T + Zᵀ diag(g)).
    """

    @staticmethod
    def forward(ctx: Any, X: Tensor, Zt: Tensor, squared_weights: Tensor) -> tuple[Tensor, Tensor]:
        ctx.X = X  # sparse tensors cannot be saved
        ctx.save_for_backward(Zt, squared_weights)
        weighted = Zt * squared_weights.unsqueeze(1)
        products = dot(X, weighted)
        return products, weighted.mul_(Zt).sum(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        Zt, squared_weights = ctx.saved_tensors
        T = dot(transposed(ctx.X), gradients[0])
        d_weights = _row_products(T, Zt)
        T.addcmul_(Zt, 2 * gradients[1])
        d_weights = (d_weights + _row_products(T, Zt)).mul_(0.5)
        return None, T.mul_(squared_weights.unsqueeze(1)), d_weights


def _row_products(first: Tensor, second: Tensor) -> Tensor:
    """Return Σ_m a_dm b_dm (D,); on a CPU a few rows at a time, so that the products stay in the cache."""
    step = max(1, _CHUNK // first.shape[1]) if first.device.type == "cpu" else len(first)
    parts = [torch.linalg.vecdot(first[d : d + step], second[d : d + step]) for d in range(0, len(first), step)]
    return torch.cat(parts)


class PerClass(nn.Module):
    """Z_k (K, M, D), learned; with `unit_norm` kept at norm 1, like the rows."""

    per_process = ("Z",)

    def __init__(self, Z: Tensor, *, unit_norm: bool = True) -> None:
        super().__init__()
        self.Z = nn.Parameter(Z)
        self.unit_norm = unit_norm

    def fill(self, Z: Tensor) -> None:
        """Set the values (K, M, D)."""
        with torch.no_grad():
            self.Z.copy_(Z)

    def points(self) -> DensePoints:
        """Return the inducing inputs as the kernel sees them, to be formed once per step."""
        return DensePoints(normalize(self.Z, dim=-1) if self.unit_norm else self.Z)
