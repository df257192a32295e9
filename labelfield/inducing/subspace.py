"""Inducing inputs in a subspace, Z = A X̃ [FSGP 4–6]: the number of their parameters does not depend on D."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labelfield.linalg.rows import Projected, Rows, dot, squared_norms


class Subspace(nn.Module):
    """A (M, R), learned or left where it starts ("S-FX"), on a basis X̃ (R, D) that is fixed, or learned too ("S-B").

    Products with rows are (X X̃ᵀ) Aᵀ. While neither the basis nor feature weights are learned, X X̃ᵀ can be computed
    once for all rows (`project`). With `unit_norm`, A X̃ is scaled to norm 1.
    """

    def __init__(
        self,
        A: Tensor,
        basis: Tensor,
        *,
        is_learned: bool = True,
        is_basis_learned: bool = False,
        unit_norm: bool = True,
    ) -> None:
        super().__init__()
        self.unit_norm = unit_norm
        self.A = nn.Parameter(A.clone(), requires_grad=is_learned)
        self.basis = nn.Parameter(basis.T.contiguous(), requires_grad=is_basis_learned)  # (D, R)
        self.register_buffer("basis_gram", basis @ basis.T, persistent=False)

    def refresh(self) -> None:
        """Compute what is derived from the basis, after the basis was filled."""
        self.register_buffer("basis_gram", (self.basis.T @ self.basis).detach(), persistent=False)

    def project(self, X: Tensor) -> Projected:
        """Return X X̃ᵀ and squared norms, all that a model needs of these rows if the basis is not learned."""
        with torch.no_grad():
            return Projected(dot(X, self.basis), squared_norms(X, None))

    def points(self) -> SubspacePoints:
        """Return the inducing inputs as the kernel sees them, to be formed once per step."""
        gram = self.basis.T @ self.basis if self.basis.requires_grad else self.get_buffer("basis_gram")
        A: Tensor = self.A
        if self.unit_norm:
            A = A / ((A @ gram) * A).sum(1, keepdim=True).clamp_min(1e-12).sqrt()
        return SubspacePoints(A, self.basis, gram)


class SubspacePoints:
    """Points A X̃."""

    def __init__(self, A: Tensor, basis: Tensor, gram: Tensor) -> None:
        self.A, self.basis, self.basis_gram = A, basis, gram

    def cross(self, X: Rows, squared_weights: Tensor | None) -> Tensor:
        if isinstance(X, Projected):
            if squared_weights is not None:
                raise ValueError("projected rows no longer have features, so they take no weights per feature")
            return X.coordinates @ self.A.T
        basis = self.basis if squared_weights is None else self.basis * squared_weights.unsqueeze(1)
        return dot(X, basis) @ self.A.T

    def gram(self, squared_weights: Tensor | None) -> Tensor:
        if squared_weights is None:
            return self.A @ self.basis_gram @ self.A.T
        return self.A @ ((self.basis * squared_weights.unsqueeze(1)).T @ self.basis) @ self.A.T

    def norms(self, squared_weights: Tensor | None) -> Tensor:
        return self.gram(squared_weights).diagonal()

    def cross_and_norms(self, X: Rows, squared_weights: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.cross(X, squared_weights), self.norms(squared_weights)
