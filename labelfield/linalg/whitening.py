"""A = L⁻¹ C with L Lᵀ = K, differentiated with respect to K and C at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labelfield.linalg.autograd import apply

__all__ = ["whitened"]


def whitened(K: Tensor, L: Tensor, C: Tensor) -> Tensor:
    """Return A = L⁻¹ C (…, M, B) in the type of C, solved in float64, for the float64 factor L of K plus some jitter I.

    The gradient goes to K directly instead of through L, which is cheaper than that of a factorisation and a solve.
    """
    return apply(_Whitened, K, L.detach(), C)


class _Whitened(torch.autograd.Function):
    """With the gradient G of A: ∂C = L⁻ᵀ G and ∂K = -sym(L⁻ᵀ Φ(G Aᵀ) L⁻¹), where Φ takes tril and halves its diagonal.

    Through L it would be ∂L = -tril(L⁻ᵀ G Aᵀ), ∂K = sym(L⁻ᵀ Φ(Lᵀ ∂L) L⁻¹). The part that tril removes is strictly upper
    triangular and stays so when multiplied by Lᵀ, so Φ drops it, and Lᵀ L⁻ᵀ cancels.
    """

    @staticmethod
    def forward(ctx: Any, K: Tensor, L: Tensor, C: Tensor) -> Tensor:  # noqa: ARG004  # K only receives its gradient
        A: Tensor = torch.linalg.solve_triangular(L, C.double(), upper=False)
        ctx.save_for_backward(L, A)
        ctx.dtype = C.dtype
        return A.to(C.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        L, A = ctx.saved_tensors
        G = gradients[0].double()
        d_K = d_C = None
        if ctx.needs_input_grad[0]:
            lower = (G @ A.mT).tril_()
            lower.diagonal(dim1=-2, dim2=-1).mul_(0.5)
            half = torch.linalg.solve_triangular(L.mT, lower, upper=True)
            half = torch.linalg.solve_triangular(L, half, upper=False, left=False)
            d_K = (half + half.mT).mul_(-0.5)
        if ctx.needs_input_grad[2]:
            d_C = torch.linalg.solve_triangular(L.mT, G, upper=True).to(ctx.dtype)
        return d_K, None, d_C
