"""A Cholesky factorisation that says what is wrong with a matrix, and adds jitter where a little is enough."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from labelfield.errors import LabelfieldError

__all__ = ["FactorisationError", "JitterWarning", "cholesky"]

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
    if not is_captured and not torch.isfinite(K).all():
        raise FactorisationError(
            f"{name} of shape {tuple(K.shape)} has entries that are not finite; lower the learning rate or check "
            "the data"
        )
    scale = K.diagonal(dim1=-2, dim2=-1).mean(-1).detach().clamp_min(torch.finfo(K.dtype).tiny)[..., None, None]
    eye = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    raised = jitter
    for attempt in range(_N_RAISES + 1):
        if attempt:
            raised = 10 * max(raised, _LEAST_RAISE)
        L, info = torch.linalg.cholesky_ex(K + raised * scale * eye)
        if is_captured:
            return torch.where((info > 0)[..., None, None], torch.nan, L)
        if not info.any():
            if attempt:
                warnings.warn(f"{name}: jitter raised from {jitter:g} to {raised:g}", JitterWarning, stacklevel=2)
            return torch.as_tensor(L)
    smallest = torch.linalg.eigvalsh(K.detach()).min().item()
    raise FactorisationError(
        f"{name} of shape {tuple(K.shape)} is not positive definite even with a jitter of {raised:g}: its smallest "
        f"eigenvalue is {smallest:.3g}; use fewer inducing inputs, a shorter length scale or a larger jitter"
    )
