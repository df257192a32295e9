"""The one-vs-each bound of the softmax [TH 3.20]: softmax_y(f) ≥ ∏_{ℓ≠y} σ(f_y - f_ℓ).

Its logarithm is a sum over rivals, so a sample of weighted rivals gives an unbiased estimate. Each term, E log σ(f_y -
f_ℓ) = -E softplus(N(m_ℓ - m_y, s_ℓ + s_y)) [TH 3.36], is one-dimensional, with derivatives in closed form.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labelfield.likelihoods.chunks import chunks
from labelfield.likelihoods.monte_carlo import expected_softmax
from labelfield.likelihoods.multiclass import MultiClass
from labelfield.likelihoods.softplus import softplus_moments
from labelfield.linalg.autograd import apply

__all__ = ["OneVsEach"]


class _SumRivals(torch.autograd.Function):
    """Σ_{ℓ≠y} w_ℓ E softplus(f_ℓ - f_y) (B,) and, in the same pass, its derivatives, without a (Q, B, C) tensor.

    Nothing is read from the device, so a GPU can capture it.
    """

    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, target: Tensor, rival_weight: Tensor, n_points: int) -> Tensor:
        total = mean.new_empty(mean.shape[0])
        d_mean, d_var = torch.empty_like(mean), torch.empty_like(var)
        for rows in chunks(mean.shape, mean.device):
            m, v, own = mean[rows], var[rows], target[rows].unsqueeze(1)
            weight = rival_weight.expand(m.shape).scatter(1, own, 0.0)
            value, by_mean, by_var = softplus_moments(m - m.gather(1, own), v + v.gather(1, own), n_points)
            total[rows] = value.mul_(weight).sum(1)
            by_mean.mul_(weight)
            by_var.mul_(weight)
            # The class of a row is in all of its differences: its mean with a minus, its variance with a plus.
            d_mean[rows] = by_mean.scatter_(1, own, -by_mean.sum(1, keepdim=True))
            d_var[rows] = by_var.scatter_(1, own, by_var.sum(1, keepdim=True))
        ctx.save_for_backward(d_mean, d_var)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_mean, d_var = ctx.saved_tensors
        scale = gradients[0].unsqueeze(1)
        return d_mean.mul(scale), d_var.mul(scale), None, None, None


class OneVsEach(MultiClass):
    """The one-vs-each likelihood: trained by the bound, for which rivals can be sampled, and predicting by the softmax.

    The product of sigmoids does not sum to one over classes and so is not used to predict.
    """

    needs_all_classes = False

    def __init__(self, n_points: int = 10, n_samples: int = 256) -> None:
        self.n_points = n_points
        self.n_samples = n_samples

    def _expected_log_prob(
        self, mean: Tensor, var: Tensor, target: Tensor, rival_weight: Tensor | None, generator: torch.Generator | None
    ) -> Tensor:
        """Return Σ_{ℓ≠y} w_ℓ E log σ(f_y - f_ℓ) [TH 3.36]."""
        if rival_weight is None:
            rival_weight = torch.ones(mean.shape[1], dtype=mean.dtype, device=mean.device)
        return -apply(_SumRivals, mean, var, target, rival_weight.to(mean.dtype), self.n_points)

    def predict_proba(self, mean: Tensor, var: Tensor) -> Tensor:
        return expected_softmax(mean, var, self.n_samples)
