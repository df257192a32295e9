"""The one-vs-each bound of the softmax [TH 3.20]: softmax_y(f) ≥ ∏_{ℓ≠y} σ(f_y - f_ℓ).

Its logarithm is a sum over rivals, so a sample of weighted rivals gives an unbiased estimate. Each term, E log σ(f_y -
f_ℓ) = -E softplus(N(m_ℓ - m_y, s_ℓ + s_y)) [TH 3.36], is one-dimensional, with derivatives in closed form.
"""

import torch
from torch import Tensor

from labelfield.likelihoods.chunks import RowSums
from labelfield.likelihoods.monte_carlo import expected_softmax
from labelfield.likelihoods.multiclass import MultiClass
from labelfield.likelihoods.softplus import softplus_moments
from labelfield.linalg.autograd import apply


class OneVsEach(MultiClass):
    """The one-vs-each likelihood: trained by the bound, for which rivals can be sampled, and predicting by the softmax.

    The product of sigmoids does not sum to one over classes and so is not used to predict.
    """

    needs_all_classes = False

    def __init__(self, n_points: int = 10, n_samples: int = 256) -> None:
        self.n_points, self.n_samples = n_points, n_samples

    def _expected_log_prob(
        self, mean: Tensor, var: Tensor, target: Tensor, rival_weight: Tensor | None, generator: torch.Generator | None
    ) -> Tensor:
        """Return Σ_{ℓ≠y} w_ℓ E log σ(f_y - f_ℓ) [TH 3.36]."""
        every = mean.new_ones(mean.shape[1]) if rival_weight is None else rival_weight.to(mean.dtype)

        def moments(m: Tensor, v: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
            """Return Σ_{ℓ≠y} w_ℓ E softplus(f_ℓ - f_y) of some rows and its derivatives, without a (Q, B, C) tensor."""
            own = target[rows].unsqueeze(1)
            weight = every.expand(m.shape).scatter(1, own, 0.0)
            found = softplus_moments(m - m.gather(1, own), v + v.gather(1, own), self.n_points)
            value, by_mean, by_var = (part.mul_(weight) for part in found)
            # The class of a row is in all of its differences: its mean with a minus, its variance with a plus.
            by_mean.scatter_(1, own, -by_mean.sum(1, keepdim=True))
            return value.sum(1), by_mean, by_var.scatter_(1, own, by_var.sum(1, keepdim=True))

        return -apply(RowSums, mean, var, moments)

    def predict_proba(self, mean: Tensor, var: Tensor) -> Tensor:
        return expected_softmax(mean, var, self.n_samples)
