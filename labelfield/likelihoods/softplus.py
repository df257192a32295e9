"""E softplus(f) and its derivatives, shared by the Bernoulli and the one-vs-each likelihood."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from labelfield.linalg.quadrature import gauss_hermite

__all__ = ["softplus_moments"]


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
