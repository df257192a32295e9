"""Robustmax [TH 3.39]: the class with the largest f, except for a probability ε of any other class.

Only the probability S_y = E_{N(m_y, s_y)} ∏_{ℓ≠y} Φ((f - m_ℓ)/√s_ℓ) that class y is the largest needs quadrature. It is
one-dimensional, and its products are formed as sums of logarithms.
"""

from math import log, pi

import torch
from torch import Tensor

from labelfield.likelihoods.chunks import RowSums, chunks
from labelfield.likelihoods.multiclass import MultiClass
from labelfield.linalg.autograd import apply
from labelfield.linalg.gaussian import LEAST_DIVISOR
from labelfield.linalg.quadrature import gauss_hermite

# Beyond this many deviations Φ is 0 or 1 even in float64. Arguments are limited to it because φ(x)/Φ(x), the
# exponential of a difference of squares, would lose all digits and overflow further out.
_FAR = 38.0


def _log_below(f: Tensor, mean: Tensor, deviation: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return x_ℓ = (f - m_ℓ)/√s_ℓ and log Φ(x_ℓ) (B, K), the latter 0 for the row's own class, for f and own (B, 1)."""
    x = f.sub(mean).div_(deviation).clamp_(-_FAR, _FAR)
    return x, torch.special.log_ndtr(x).scatter_(1, own, 0.0)


def _moments(mean: Tensor, var: Tensor, target: Tensor, n_points: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return S_y (B,) and its derivatives with respect to the means and variances (B, K), without a (Q, B, K) tensor.

    With f = m_y + √s_y z and g_ℓ = ∂∏Φ/∂f by factor ℓ: ∂/∂m_ℓ = -g_ℓ and ∂/∂s_ℓ = -g_ℓ x_ℓ/(2√s_ℓ) for a rival, ∂/∂m_y
    = Σ_ℓ g_ℓ and ∂/∂s_y = Σ_ℓ g_ℓ z/(2√s_y).
    """
    own = target.unsqueeze(1)
    deviation = var.clamp_min(LEAST_DIVISOR).sqrt()
    own_mean, own_deviation = mean.gather(1, own), deviation.gather(1, own)
    total, own_var = torch.zeros_like(own_mean), torch.zeros_like(own_mean)
    d_mean, d_var = torch.zeros_like(mean), torch.zeros_like(mean)
    for node, weight in zip(*gauss_hermite(n_points), strict=True):
        x, log_below = _log_below(torch.add(own_mean, own_deviation, alpha=node), mean, deviation, own)
        product = log_below.sum(1, keepdim=True).exp().mul_(weight)
        total += product
        # φ(x)/Φ(x) is at most about 38 here, so a product of 0 gives 0.
        ratio = x.square().mul_(-0.5).sub_(log_below).sub_(0.5 * log(2 * pi)).exp_()
        g = ratio.div_(deviation).mul_(product).scatter_(1, own, 0.0)
        d_mean -= g
        own_var.add_(g.sum(1, keepdim=True), alpha=0.5 * node)
        d_var -= g.mul_(x)
    d_mean.scatter_(1, own, -d_mean.sum(1, keepdim=True))
    d_var.mul_(0.5).scatter_(1, own, own_var).div_(deviation)
    return total.squeeze(1), d_mean, d_var


class RobustMax(MultiClass):
    """p(y | f) = 1 - ε where f_y is the largest of K, ε/(K-1) otherwise.

    The quadrature needs S to be smooth between the nodes of the row's own class. Where the deviation of a rival is a
    twentieth of the own class's, S is a step: 20 points are off by up to 0.08 and 80 points by 0.03. At a quarter, 20
    points are off by 0.008 and 40 by 0.0005. Among 1000 equal classes 20 points miss S = 1/K by 4 % of it.
    """

    needs_all_classes = True

    def __init__(self, epsilon: float = 1e-3, n_points: int = 20) -> None:
        if not 0 < epsilon < 1:
            raise ValueError(f"epsilon={epsilon}; expected a number between 0 and 1")
        self.epsilon, self.n_points = epsilon, n_points

    def _expected_log_prob(
        self, mean: Tensor, var: Tensor, target: Tensor, rival_weight: Tensor | None, generator: torch.Generator | None
    ) -> Tensor:
        """Return S_y log(1-ε) + (1-S_y) log(ε/(K-1)) [TH 3.39]."""
        other = log(self._other(mean.shape[1]))
        S = apply(RowSums, mean, var, lambda m, v, rows: _moments(m, v, target[rows], self.n_points))
        return S * (log(1 - self.epsilon) - other) + other

    @torch.no_grad()
    def predict_proba(self, mean: Tensor, var: Tensor) -> Tensor:
        """Return (1-ε) S_k + ε/(K-1) (1-S_k): [TH 3.41] with its second term. The cost grows with K²."""
        n_rows, n_classes = mean.shape
        other = self._other(n_classes)
        deviation = var.clamp_min(LEAST_DIVISOR).sqrt()
        largest = torch.zeros(n_rows * n_classes, 1, dtype=mean.dtype, device=mean.device)
        # Rows and classes form pairs, so that chunks are small enough for any K.
        for pairs in chunks((n_rows * n_classes, n_classes), mean.device):
            pair = torch.arange(pairs.start, pairs.stop, device=mean.device)
            row, own = pair // n_classes, (pair % n_classes).unsqueeze(1)
            m, d = mean[row], deviation[row]
            own_mean, own_deviation = m.gather(1, own), d.gather(1, own)
            for node, weight in zip(*gauss_hermite(self.n_points), strict=True):
                _, log_below = _log_below(torch.add(own_mean, own_deviation, alpha=node), m, d, own)
                largest[pairs].add_(log_below.sum(1, keepdim=True).exp_(), alpha=weight)
        S = largest.view(n_rows, n_classes)
        result = S.mul(1 - self.epsilon).add_(1 - S, alpha=other)
        return result.div_(result.sum(1, keepdim=True))  # the sum is one, up to quadrature error

    def _other(self, n_classes: int) -> float:
        """Return the probability of a class that is not the largest."""
        if n_classes < 2:
            raise ValueError(f"{n_classes} class; robustmax needs at least two classes")
        return self.epsilon / (n_classes - 1)
