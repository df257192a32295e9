"""Several models with their labels in the same cells: bounds and probabilities of all together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.models.cells import Layout, Vectors
from labelfield.models.search import Asked, CellScorer, Visits
from labelfield.models.stack import Stack, log_odds_of

if TYPE_CHECKING:
    from labelfield.models.ensemble import EnsemblePredictor

F4 = NDArray[np.float32]


class EnsembleCells(CellScorer):
    """The labels of all members in the same cells. Rows come untransformed, as an ensemble sees them."""

    def __init__(self, predictor: EnsemblePredictor, layout: Layout) -> None:
        self.layout, self.stack = layout, predictor.stack
        self.members = [(member.transform, member.predictor.scorer(layout)) for member in predictor.members]

    def ask(self, rows: sparse.csr_array) -> AskedMembers:
        return AskedMembers(self.stack, [scorer.ask(transform(rows)) for transform, scorer in self.members])


class AskedMembers(Asked):
    """What each member says about some rows.

    A stack is linear in the log-odds of members with slopes of at least 0, so that bounds of members give one of the
    whole: the largest of those at the levels of frequency between which slopes are linear.
    """

    def __init__(self, stack: Stack | None, members: Sequence[Asked]) -> None:
        self.stack, self.members = stack, members
        self.likely = self._at_most([member.likely_probability for member in members])
        self.most = self._at_most([member.most for member in members])

    @property
    def likely_probability(self) -> F4:
        return self.likely

    @torch.no_grad()
    def _at_most(self, parts: Sequence[F4]) -> F4:
        if self.stack is None:
            return np.asarray(np.mean(parts, axis=0), np.float32)
        odds = [log_odds_of(torch.from_numpy(part)) for part in parts]
        levels = [
            self.stack.offsets[level] + sum(own * slope for own, slope in zip(odds, slopes, strict=True))
            for level, slopes in enumerate(self.stack.slopes.T)
        ]
        found = torch.stack(levels).amax(0).clamp_min_(self.stack.least).sigmoid_()
        return np.asarray(found.numpy(), np.float32)

    def take(self, rows: NDArray[np.int64]) -> AskedMembers:
        return AskedMembers(self.stack, [member.take(rows) for member in self.members])

    @torch.no_grad()
    def probabilities(self, visits: Visits) -> F4:
        found = [torch.from_numpy(member.probabilities(visits)) for member in self.members]
        if self.stack is None:
            return np.asarray(torch.stack(found).mean(0).numpy(), np.float32)
        odds = self.stack([log_odds_of(P) for P in found], torch.from_numpy(visits.labels).long())
        return np.asarray(odds.sigmoid_().numpy(), np.float32)


def label_vectors(predictor: EnsemblePredictor, rows: sparse.csr_array) -> Vectors:
    """Return the vectors of labels of all members side by side."""
    each = [member.predictor.label_vectors(member.transform(rows)) for member in predictor.members]
    return lambda labels: np.concatenate([vectors(labels) for vectors in each], 1)
