"""The interface of likelihoods of several labels per row: p(y | f) = Π_k g(±f_k), with + where label k holds.

Almost all of the N × K decisions are that a label does not hold. So the sum over all of them is that of labels that do
not hold, and the few that do hold add what they gain:

    Σ_k E log p(y_k | f_k) = Σ_k E log g(-f_k) + Σ_{k true} E [log g(f_k) - log g(-f_k)]
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from labelfield.linalg.partial import Hidden
from labelfield.linalg.quadrature import gauss_hermite
from labelfield.linalg.rows import entry_rows


class Mixing(NamedTuple):
    """Moments of h (B, P), Φ (K, P) and b (K,) that mix them into those of f, and moments (B, K) that labels add."""

    mean: Tensor
    var: Tensor
    Phi: Tensor
    b: Tensor
    own_mean: Tensor | None = None
    own_var: Tensor | None = None


class MultiLabel(ABC):
    """p(y | f) of K labels that are independent given f, with q(f) = ∏_k N(mean_k, var_k) in each row.

    The raw probability of a label is E σ(scale f), by quadrature with n_points.
    """

    scale: float

    def __init__(self, n_points: int) -> None:
        self.n_points = n_points

    @abstractmethod
    def absent(self, mean: Tensor, var: Tensor, column_weight: Tensor) -> Tensor:
        """Return Σ_bk c_k E log g(-f_bk) as a float64 scalar, for means and variances (B, K) and weights c (K,)."""

    @abstractmethod
    def gain(self, mean: Tensor, var: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Return E [log g(f) - log g(-f)] of single entries of means and variances (B, K)."""

    @abstractmethod
    def at_margin(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log g(t), its derivative, and its second derivative with a minus; neither is negative."""

    @abstractmethod
    def for_training(self, n_points: int) -> "MultiLabel":
        """Return the same likelihood with this many quadrature points in its expectations, if it needs any."""

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
        total = self.absent(mean, var, mean.new_ones(mean.shape[1]) if column_weight is None else column_weight)
        row = entry_rows(Y.crow_indices(), column.numel())
        gain, counted = self.gain(mean, var, row, column), Y.values()
        if positive_weight is not None:
            counted = counted * positive_weight[Y.col_indices().long()]
            # log g(f) = gain + log g(-f), and the sum over all labels already has the latter once.
            more = (counted - Y.values()).to(mean.dtype)
            total = total + self.absent(mean[row, column][None], var[row, column][None], more)
        return (gain * counted).sum(dtype=torch.float64) + total

    def mixed_log_prob(
        self,
        mixing: Mixing,
        Y: Tensor,
        column: Tensor,
        column_weight: Tensor | None = None,
        positive_weight: Tensor | None = None,
        hidden: Hidden | None = None,
    ) -> Tensor:
        """Return the same as `expected_log_prob` for utilities f = Φ h + b, whose moments need not be formed.

        Entries that are `hidden` count for nothing.
        """
        mean, var = torch.addmm(mixing.b, mixing.mean, mixing.Phi.T), mixing.var @ mixing.Phi.square().T
        mean = mean if mixing.own_mean is None else mean + mixing.own_mean
        var = var if mixing.own_var is None else var + mixing.own_var
        if hidden is not None:
            hidden.take_out(mean, var)
        return self.expected_log_prob(mean, var, Y, column, column_weight, positive_weight)

    def predict_proba(self, mean: Tensor, var: Tensor) -> Tensor:
        """Return E σ(scale f) (B, K), the raw probability of each label, with the uncertainty of f integrated out."""
        deviation = var.sqrt()
        result = torch.zeros_like(mean)
        for node, weight in zip(*gauss_hermite(self.n_points), strict=True):
            f = torch.add(mean, deviation, alpha=node)
            result.add_(torch.sigmoid(f if self.scale == 1 else f.mul_(self.scale)), alpha=weight)
        return result.clamp_max_(1)  # the weights' sum of 1 may be rounded up
