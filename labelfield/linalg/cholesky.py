"""A Cholesky factorisation that says what is wrong with a matrix and adds a little jitter where needed; whitening."""

import warnings
from typing import Any

import torch
from torch import Tensor

from labelfield.errors import LabelfieldError
from labelfield.linalg.autograd import apply
from labelfield.linalg.products import product

_N_RAISES = 3
# A jitter of 0 is raised from here: the rounding error of float64 over a few hundred rows.
_LEAST_RAISE = 1e-9


class FactorisationError(LabelfieldError):
    """A covariance matrix that could not be factorised."""


class JitterWarning(UserWarning):
    """A covariance matrix that needed more jitter than requested."""


def cholesky(K: Tensor, name: str, jitter: float) -> Tensor:
    """Return the lower L with L Lᵀ = K + jitter·mean(diag K)·I, for K (…, M, M) in float64.

    If that matrix is not positive definite, jitter is raised tenfold up to three times, with a JitterWarning. After
    that an error names the matrix, its size, its smallest eigenvalue and a remedy. While work is being captured on a
    GPU its result cannot be read, so a failed factorisation returns NaN.
    """
    is_captured = K.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    scale = K.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True).detach().clamp_min(torch.finfo(K.dtype).tiny)
    raised = jitter
    for attempt in range(_N_RAISES + 1):
        if attempt:
            raised = 10 * max(raised, _LEAST_RAISE)
        shifted = K.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(raised * scale)
        L, info = torch.linalg.cholesky_ex(shifted)
        if is_captured:
            return torch.where((info > 0)[..., None, None], torch.nan, L)
        if not info.any():
            if attempt:
                warnings.warn(f"{name}: jitter raised from {jitter:g} to {raised:g}", JitterWarning, stacklevel=2)
            return torch.as_tensor(L)
        if not torch.isfinite(K).all():
            raise FactorisationError(
                f"{name} of shape {tuple(K.shape)} has entries that are not finite; lower the learning rate or check "
                "the data"
            )
    smallest = torch.linalg.eigvalsh(K.detach()).min().item()
    raise FactorisationError(
        f"{name} of shape {tuple(K.shape)} is not positive definite even with a jitter of {raised:g}: its smallest "
        f"eigenvalue is {smallest:.3g}; use fewer inducing inputs, a shorter length scale or a larger jitter"
    )


def whitened(K: Tensor, inverse: Tensor, C: Tensor) -> Tensor:
    """Return A = L⁻¹ C (…, M, B) in the type of C, for the inverse in float64 of the factor L of K plus some jitter I.

    The gradient goes to K directly instead of through L, which is cheaper than that of a factorisation and a solve. All
    products are in the type of C. The factor is inverted in float64 and its inverse rounded once, which costs about as
    much precision as C has lost to rounding already: both roundings are multiplied by L⁻¹ in the same way.
    """
    return apply(_Whitened, K, inverse.detach().to(C.dtype), C)


class _Whitened(torch.autograd.Function):
    """With the gradient G of A: ∂C = L⁻ᵀ G and ∂K = -L⁻ᵀ Φ(G Aᵀ) L⁻¹, where Φ takes tril and halves its diagonal.

    Through L it would be ∂L = -tril(L⁻ᵀ G Aᵀ), ∂K = L⁻ᵀ Φ(Lᵀ ∂L) L⁻¹. The part that tril removes is strictly upper
    triangular and stays so when multiplied by Lᵀ, so Φ drops it, and Lᵀ L⁻ᵀ cancels. As K is symmetric, only the
    symmetric part of ∂K means anything.
    """

    @staticmethod
    def forward(ctx: Any, K: Tensor, inverse: Tensor, C: Tensor) -> Tensor:
        A = product(inverse, C)
        ctx.save_for_backward(inverse, A)
        ctx.type = K.dtype
        return A

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        inverse, A = ctx.saved_tensors
        G = gradients[0]
        d_K = d_C = None
        if ctx.needs_input_grad[0]:
            lower = product(G, A.mT).tril_()
            lower.diagonal(dim1=-2, dim2=-1).mul_(0.5)
            d_K = product(inverse.mT, product(lower, inverse)).neg_().to(ctx.type)
        if ctx.needs_input_grad[2]:
            d_C = product(inverse.mT, G)
        return d_K, None, d_C
