"""E softplus(f) under a Gaussian and its derivatives by quadrature: in torch, and in a compiled loop for the CPU."""

from collections.abc import Callable
from functools import cache
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from labelfield.compiled import has_numba
from labelfield.likelihoods.chunks import chunks
from labelfield.linalg.quadrature import gauss_hermite

# With fewer numbers than this, importing the compiled loop takes longer than it saves in a training.
_WORTH_COMPILING = 1 << 16


def softplus_moments(mean: Tensor, var: Tensor, n_points: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return E softplus(f), E σ(f) and ½ E σ'(f) under N(mean, var): the value and its derivatives by mean and var."""
    deviation = var.sqrt()
    value, d_mean, d_var = torch.zeros_like(mean), torch.zeros_like(mean), torch.zeros_like(mean)
    for node, weight in zip(*gauss_hermite(n_points), strict=True):
        f = torch.add(mean, deviation, alpha=node)
        value.add_(softplus(f), alpha=weight)
        sigma = torch.sigmoid(f)
        d_mean.add_(sigma, alpha=weight)
        d_var.add_(sigma.sub(sigma.square()), alpha=0.5 * weight)
    return value, d_mean, d_var


def softplus_in_place(mean: Tensor, var: Tensor, column_weight: Tensor, n_points: int) -> Tensor:
    """Return Σ_bk c_k E softplus(f_bk) as a float64 scalar, and replace means and variances by its derivatives.

    On a CPU large contiguous float32 arrays go to a compiled loop, which is ten times as fast.
    """
    parts = (mean, var, column_weight)
    if mean.numel() >= _WORTH_COMPILING and all(_is_plain(part) for part in parts) and (compiled := _compiled()):
        nodes, weights = (np.array(numbers, np.float32) for numbers in gauss_hermite(n_points))
        return torch.tensor(compiled(*(part.numpy() for part in parts), nodes, weights), dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64, device=mean.device)
    for rows in chunks(mean.shape, mean.device):
        value, d_mean, d_var = softplus_moments(mean[rows], var[rows], n_points)
        total += (value @ column_weight).sum(dtype=torch.float64)
        torch.mul(d_mean, column_weight, out=mean[rows])
        torch.mul(d_var, column_weight, out=var[rows])
    return total


def _is_plain(part: Tensor) -> bool:
    return part.dtype == torch.float32 and part.device.type == "cpu" and part.is_contiguous()


@cache
def _compiled() -> Callable[..., float] | None:
    """Import the compiled loop when it is first needed; return None where numba is not installed."""
    if not has_numba():
        return None
    from labelfield.compiled.softplus import softplus_in_place as found

    return cast("Callable[..., float]", found)
