"""One Bernoulli per label: log p(y | f) = y f - softplus(f).

So Σ_k E log p = Σ_{k true} mean_k - Σ_k E softplus(f_k): only the true labels need a gather, and only E softplus needs
quadrature. Its derivatives have a closed form: ∂/∂mean = E σ(f), ∂/∂var = ½ E σ'(f).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from labelfield.likelihoods.chunks import chunks
from labelfield.linalg.autograd import apply
from labelfield.linalg.quadrature import gauss_hermite
from labelfield.linalg.rows import entry_rows

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
    try:
        from labelfield.compiled.softplus import softplus_in_place as found
    except ImportError:
        return None
    return cast("Callable[..., float]", found)


class _SumSoftplus(torch.autograd.Function):
    """Σ_bk c_k E softplus(N(m_bk, v_bk)) and, in the same pass, its derivatives, without a (Q, B, K) tensor."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, column_weight: Tensor, n_points: int) -> Tensor:
        d_mean, d_var = (part.clone(memory_format=torch.contiguous_format) for part in (mean, var))
        total = softplus_in_place(d_mean, d_var, column_weight, n_points)
        ctx.save_for_backward(d_mean, d_var)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_mean, d_var = ctx.saved_tensors
        scale = gradients[0].to(d_mean.dtype)
        return d_mean.mul(scale), d_var.mul(scale), None, None


class Bernoulli:
    """p(y_k = 1 | f_k) = σ(f_k), independent given f."""

    def __init__(self, n_points: int = 10) -> None:
        self.n_points = n_points

    def expected_softplus(self, mean: Tensor, var: Tensor, column_weight: Tensor | None = None) -> Tensor:
        """Return Σ_bk c_k E softplus(f_bk) as a float64 scalar, for means and variances (B, K) and weights c (K,)."""
        if column_weight is None:
            column_weight = mean.new_ones(mean.shape[1])
        return apply(_SumSoftplus, mean, var, column_weight, self.n_points)

    def expected_log_prob(
        self,
        mean: Tensor,
        var: Tensor,
        Y: Tensor,
        column: Tensor,
        column_weight: Tensor | None = None,
        positive_weight: Tensor | None = None,
    ) -> Tensor:
        """Return Σ_bk c_k E log p(y_bk | f_bk) as a float64 scalar, for labels Y (CSR) with entries in these columns.

        Entries of Y that are 0 are not labels. A label that holds counts `positive_weight` (K,) times.
        """
        total = self.expected_softplus(mean, var, column_weight)
        row = entry_rows(Y.crow_indices(), column.numel())
        own, counted = mean[row, column], Y.values()
        if positive_weight is not None:
            counted = counted * positive_weight[Y.col_indices().long()]
            # log σ(f) = f - softplus(f), and the sum over all labels already has the softplus once.
            more = (counted - Y.values()).to(own.dtype)
            total = total + self.expected_softplus(own[None], var[row, column][None], more)
        return (own * counted).sum(dtype=torch.float64) - total

    def predict_proba(self, mean: Tensor, var: Tensor) -> Tensor:
        """Return E σ(f) (B, K), the probability of each label, with the uncertainty of f integrated out."""
        deviation = var.sqrt()
        result = torch.zeros_like(mean)
        for node, weight in zip(*gauss_hermite(self.n_points), strict=True):
            result.add_(torch.sigmoid(torch.add(mean, deviation, alpha=node)), alpha=weight)
        return result.clamp_max_(1)  # the weights' sum of 1 may be rounded up
