"""One Bernoulli per label: log p(y | f) = y f - softplus(f).

A label that holds gains f, so only E softplus needs quadrature. Its derivatives have a closed form: ∂/∂mean = E σ(f),
∂/∂var = ½ E σ'(f).
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from labelfield.likelihoods.chunks import WeightedSum
from labelfield.likelihoods.multilabel import MultiLabel
from labelfield.linalg.autograd import apply
from labelfield.linalg.quadrature import gauss_hermite


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


class Bernoulli(MultiLabel):
    """p(y_k = 1 | f_k) = σ(f_k), independent given f."""

    scale = 1.0

    def __init__(self, n_points: int = 10) -> None:
        super().__init__(n_points)

    def expected_softplus(self, mean: Tensor, var: Tensor, column_weight: Tensor | None = None) -> Tensor:
        """Return Σ_bk c_k E softplus(f_bk) as a float64 scalar, for means and variances (B, K) and weights c (K,)."""
        if column_weight is None:
            column_weight = mean.new_ones(mean.shape[1])
        return apply(WeightedSum, mean, var, column_weight, partial(softplus_moments, n_points=self.n_points))

    def absent(self, mean: Tensor, var: Tensor, column_weight: Tensor) -> Tensor:
        return -self.expected_softplus(mean, var, column_weight)

    def gain(self, mean: Tensor, var: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return mean[row, column]

    def at_margin(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        wrong = torch.sigmoid(-t)
        return logsigmoid(t), wrong, wrong * (1 - wrong)

    def for_training(self, n_points: int) -> "Bernoulli":
        return Bernoulli(n_points)
