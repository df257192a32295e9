"""Log-odds from the scores of one or more parts, with weights learned on rows that no part has seen.

    z_k = Σ_j a_j(ℓ_k) s_jk + c(ℓ_k),    ℓ_k = log n_k

n_k is the number of training rows that have label k. The slopes a_j ≥ 0 and the offset c are piecewise linear in ℓ,
because the same score means more for a rare label: a machine that has seen a label three times scores even the clearest
row low. Labels that no training row has come last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelfield.linalg.newton import logistic_regression

# Points of ℓ between which slopes and offset are linear: the rarest label, the most frequent, and between.
N_LEVELS = 3
# The prior belief in the weights that a stack starts with, in numbers of held-out entries.
_CAUTION = 3.0
# Log-odds of labels that held in no training row, and the least of all others.
NEVER, _LEAST = -30.0, -25.0
# Probabilities closer to 0 or 1 than this are set to it.
_SMALLEST = 1e-7


def log_odds_of(p: Tensor) -> Tensor:
    """Return the log-odds of probabilities, none of which is taken to be certain."""
    return torch.logit(p, _SMALLEST)


class Stack(nn.Module):
    """The slopes of parts (parts, levels) and offsets (levels,), and how labels lie between levels (K, levels)."""

    # The least log-odds of labels that held in some training row.
    least = _LEAST

    slopes: Tensor
    offsets: Tensor
    places: Tensor
    unseen: Tensor

    def __init__(self, n_parts: int, n_labels: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.full((n_parts, N_LEVELS), 1 / n_parts))
        self.register_buffer("offsets", torch.zeros(N_LEVELS))
        self.register_buffer("places", torch.zeros(n_labels, N_LEVELS))
        self.register_buffer("unseen", torch.zeros(n_labels))  # 0, or NEVER

    def count(self, label_counts: NDArray[np.int64]) -> None:
        """Set how often labels held. Half of all positives belong to labels more frequent than the middle level."""
        level = np.log(np.maximum(label_counts, 1))
        order = np.argsort(label_counts, kind="stable")
        share = np.cumsum(label_counts[order]) / max(label_counts.sum(), 1)
        marks = np.interp(np.linspace(0, 1, N_LEVELS), share, level[order])
        marks += np.linspace(0, 1e-6, N_LEVELS)  # rising, also where all labels are equally frequent
        places = np.stack([np.interp(level, marks, unit) for unit in np.eye(N_LEVELS)], 1)
        self.places.copy_(torch.from_numpy(places.astype(np.float32)))
        self.unseen.copy_(torch.from_numpy(np.where(label_counts > 0, 0, NEVER).astype(np.float32)))

    def forward(self, scores: Sequence[Tensor], labels: Tensor | slice = slice(None)) -> Tensor:
        """Return the log-odds of labels (..., labels) from the scores of each part, of the same shape."""
        places = self.places[labels]
        result = places @ self.offsets
        for part, slopes in zip(scores, self.slopes, strict=True):
            result = torch.addcmul(result, part, places @ slopes)
        return torch.where(self.unseen[labels] < 0, NEVER, result.clamp_min(_LEAST))

    def by_label(self) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """Return the offset of each label (K,), and its slope for each part; 0 for labels that held in no row."""
        is_seen = self.unseen >= 0
        offset, *slopes = (((self.places @ part) * is_seen).numpy() for part in (self.offsets, *self.slopes))
        return offset, slopes

    def _weights(self) -> NDArray[np.float64]:
        """Return slopes and offsets, one after another."""
        return np.asarray(torch.cat([self.slopes.flatten(), self.offsets]).cpu().double().numpy())

    def check(self) -> None:
        """Raise a ValueError if scores could lower the log-odds of a label, or a number is not finite."""
        is_finite = all(bool(torch.isfinite(values).all()) for values in self.buffers())
        if not is_finite or bool((self.slopes < 0).any() or (self.places < 0).any()):
            raise ValueError("the weights of members are not numbers of at least 0")

    def fit(
        self,
        scores: Sequence[NDArray[np.floating]],
        labels: NDArray[np.integer],
        is_true: NDArray[np.bool_],
        near: Stack | None = None,
    ) -> None:
        """Learn slopes and offsets from the scores of entries (n,), their labels, and whether these hold.

        This is logistic regression: the likelihood is concave. A weak prior at what the stack holds so far keeps a few
        rows from deciding. A stack that was learned from much the same entries, if given, is where steps begin.
        """
        if not len(labels):
            return
        places = self.places.cpu().double().numpy()[labels]
        features = np.concatenate([part[:, None] * places for part in (*scores, np.ones(len(is_true)))], 1)
        start, begin = (one._weights() for one in (self, near or self))
        # Steps in units of each part's spread, so that the prior means the same for scores of any scale, and holds
        # where few entries are of labels at a level.
        each = [np.sqrt(np.mean(np.square(part))) for part in (*scores, np.ones(len(is_true)))]
        spread = np.maximum(np.repeat(each, N_LEVELS), 1e-6)

        n_slopes = self.slopes.numel()
        least = np.r_[np.zeros(n_slopes), np.full(N_LEVELS, -np.inf)]
        found = logistic_regression(features / spread, is_true, start * spread, least, _CAUTION, near=begin * spread)
        learned = torch.from_numpy((found / spread).astype(np.float32))
        self.slopes.copy_(learned[:n_slopes].view(self.slopes.shape))
        self.offsets.copy_(learned[n_slopes:])
