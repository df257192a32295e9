"""Labels ranked by probability times a weight of each label, such as its inverse propensity."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from labelfield.models.calibration import N_RANKS, Calibration

# Labels of similar weight share a threshold.
_N_GROUPS = 64
# Thresholds are lower than computed by this, relative to the probability: a margin for rounding.
_MARGIN = 1e-4


class Weighting(NamedTuple):
    """The order of the labels of some rows by w_k c_k, with c_k the calibrated probability.

    Calibration depends on the place of a label in the ranking by probability: `first` (B, N_RANKS - 1) are the labels
    of the first places, whose maps are their own; all others share one. Without calibration c_k is the raw probability.
    """

    weight: Tensor  # (K,) in float64
    calibration: Calibration | None = None
    first: Tensor | None = None

    def take(self, rows: Tensor) -> Weighting:
        """Return the same for some of the rows."""
        return self if self.first is None else self._replace(first=self.first[rows])

    def calibrated(self, labels: Tensor, p: Tensor) -> Tensor:
        """Return the calibrated probabilities of these labels (B, n) from raw ones."""
        if self.calibration is None or self.first is None:
            return p
        is_first = labels.unsqueeze(2) == self.first.unsqueeze(1)
        rank = torch.where(is_first.any(2), is_first.to(torch.uint8).argmax(2), N_RANKS - 1)
        result: Tensor = self.calibration(p, rank)
        return result

    def score(self, labels: Tensor, p: Tensor) -> Tensor:
        """Return w_k c_k of these labels (B, n) from raw probabilities, in float64."""
        return self.weight[labels] * self.calibrated(labels, p)

    def likely(self, logits: Tensor, labels: slice) -> Tensor:
        """Return roughly log(w_k c_k) of a block of labels, and infinity for those of the first places."""
        result = logits + self.weight[labels].log().to(logits.dtype)
        if self.first is not None:
            row, place = ((self.first >= labels.start) & (self.first < labels.stop)).nonzero(as_tuple=True)
            result[row, self.first[row, place] - labels.start] = torch.inf
        return result

    def least(self, score: Tensor, labels: slice) -> tuple[Tensor, Tensor]:
        """Return the log of the least raw probability with which a label that is not first reaches a score (B, 1).

        It is the same for labels of similar weight: found for groups of them (B, G), with the group of each label.
        """
        log_weight = self.weight[labels].log()
        low, high = log_weight.min(), log_weight.max()
        group = ((log_weight - low) / (high - low).clamp_min(1e-9) * _N_GROUPS).long().clamp_max(_N_GROUPS - 1)
        most = torch.full((_N_GROUPS,), -torch.inf, dtype=torch.float64, device=group.device)
        most.scatter_reduce_(0, group, log_weight, "amax")
        c = score * (-most.clamp_min(low)).exp()
        log_p = c.log() if self.calibration is None else self.calibration.log_inverse(c.clamp_max(1))
        return torch.where(c > 1 + _MARGIN, torch.inf, log_p - _MARGIN), group


def ranked_calibrated(
    rank: Callable[..., tuple[Tensor, Tensor]], k: int, calibration: Calibration | None, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the k best labels of rows and their probabilities, calibrated if there is a calibration.

    `rank(k, weighting)` gives labels and raw probabilities, largest first. With a `weight` (K,) the best are those with
    the largest weighted probability, else the most probable.
    """
    if calibration is not None and calibration.is_identity():
        calibration = None
    if weight is None:
        labels, p = rank(k, None)
        return labels, p if calibration is None else calibration(p, torch.arange(k, device=p.device))
    # The map of a label depends on its place in the ranking by probability.
    first = None if calibration is None else rank(N_RANKS - 1, None)[0]
    weighting = Weighting(weight, calibration, first)
    labels, p = rank(k, weighting)
    return labels, weighting.calibrated(labels, p)
