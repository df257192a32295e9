"""One Bernoulli per label: log p(y | f) = y f - softplus(f).

A label that holds gains f, so only E softplus needs quadrature. Its derivatives have a closed form: ∂/∂mean = E σ(f),
∂/∂var = ½ E σ'(f).
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from labelfield.likelihoods.chunks import WeightedSum
from labelfield.likelihoods.mixed import Truth, mixed_log_prob
from labelfield.likelihoods.multilabel import Mixing, MultiLabel
from labelfield.likelihoods.softplus import softplus_moments
from labelfield.linalg.autograd import apply
from labelfield.linalg.partial import Hidden


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

    def mixed_log_prob(
        self,
        mixing: Mixing,
        Y: Tensor,
        column: Tensor,
        column_weight: Tensor | None = None,
        positive_weight: Tensor | None = None,
        hidden: Hidden | None = None,
    ) -> Tensor:
        """Return the same as the default, with value and gradient in one pass over the labels."""
        return mixed_log_prob(*mixing, Truth.of(Y, column, positive_weight), column_weight, self.n_points, hidden)
