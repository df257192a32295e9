"""The squared hinge as a pseudo-likelihood of each label: p(y | f) ∝ exp(-C (1 - y f)₊²) with y = 1 or -1.

Its mode under a Gaussian prior is the support vector machine with squared hinge loss. It does not sum to one over y and
so says nothing about how probable a label is; the posterior is that of generalised Bayes, in which a loss takes the
place of the negative log-likelihood (Polson and Scott 2011, Data augmentation for support vector machines; Wenzel et
al. 2017, Bayesian nonlinear support vector machines for big data). Raw probabilities are E σ(3 f): they rank labels,
and calibration on held-out rows makes probabilities of them.

With u = 1 - y mean, s = √var and z = u / s the expectation is exact, and so are its derivatives:

    E (1 - y f)₊² = (u² + var) Φ(z) + u s φ(z)        ∂/∂mean = -2 y (u Φ(z) + s φ(z))        ∂/∂var = Φ(z)
"""

from math import pi, sqrt

import torch
from torch import Tensor

from labelfield.likelihoods.chunks import RowSums, WeightedSum
from labelfield.likelihoods.multilabel import MultiLabel
from labelfield.linalg.autograd import apply
from labelfield.linalg.gaussian import LEAST_DIVISOR

# The utility of a label that nothing speaks for: on the margin of the rows that do not have it.
ABSENT = -1.0


def hinge_moments(u: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return E (u + √var ε)₊² for a standard normal ε, and its derivatives by u and var."""
    deviation = var.clamp_min(LEAST_DIVISOR).sqrt()
    z = u / deviation
    Phi = z.mul(-sqrt(0.5)).erfc_().mul_(0.5)
    s_phi = z.square_().mul_(-0.5).exp_().mul_(deviation).mul_(1 / sqrt(2 * pi))
    # Far below the margin both terms are tiny, and their sum may be rounded below 0.
    half = torch.addcmul(s_phi, u, Phi).clamp_min_(0)
    return torch.addcmul(half * u, var, Phi).clamp_min_(0), half.mul_(2), Phi


class SquaredHinge(MultiLabel):
    """p(y_k | f_k) ∝ exp(-C (1 ∓ f_k)₊²), independent given f, with C the cost of a row inside the margin."""

    scale = 3.0

    def __init__(self, cost: float = 1.0, n_points: int = 10) -> None:
        super().__init__(n_points)
        self.cost = cost

    def absent(self, mean: Tensor, var: Tensor, column_weight: Tensor) -> Tensor:
        def moments(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return hinge_moments(1 + m, v)

        return -self.cost * apply(WeightedSum, mean, var, column_weight, moments)

    def gain(self, mean: Tensor, var: Tensor, row: Tensor, column: Tensor) -> Tensor:
        def moments(m: Tensor, v: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
            lost, lost_by_u, lost_by_var = hinge_moments(1 + m, v)
            left, left_by_u, left_by_var = hinge_moments(1 - m, v)
            return lost.sub_(left).squeeze(1), lost_by_u.add_(left_by_u), lost_by_var.sub_(left_by_var)

        own = mean[row, column].unsqueeze(1), var[row, column].unsqueeze(1)
        return self.cost * apply(RowSums, *own, moments)

    def at_margin(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inside = (1 - t).clamp_min(0)
        curvature = (inside > 0).to(t.dtype).mul_(2 * self.cost)
        return -self.cost * inside.square(), 2 * self.cost * inside, curvature

    def for_training(self, n_points: int) -> "SquaredHinge":
        return self  # expectations are exact
