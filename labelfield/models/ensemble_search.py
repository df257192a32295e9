"""Several models as a search sees them: guesses are the weighted mean of those of all members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.models.search import Asked, Own, Scorer, Trees
from labelfield.models.stack import NEVER

if TYPE_CHECKING:
    from labelfield.models.ensemble import EnsemblePredictor

F4 = NDArray[np.float32]


class EnsembleScorer(Scorer):
    """All members together. Rows come untransformed, as an ensemble sees them."""

    def __init__(self, predictor: EnsemblePredictor) -> None:
        self.predictor, self.n_labels = predictor, predictor.n_labels
        self.members = [(member.transform, member.predictor.scorer()) for member in predictor.members]
        scorers = [scorer for _, scorer in self.members]
        stack = predictor.stack
        if stack is None:
            offset = np.zeros(self.n_labels, np.float32)
            self.slopes = [np.full(self.n_labels, 1 / len(scorers), np.float32) for _ in scorers]
        else:
            offset, self.slopes = stack.by_label()
        self.bias = offset + sum(slopes * scorer.bias for slopes, scorer in self._each())
        self.n_numbers = sum(scorer.n_numbers for scorer in scorers)
        firsts = np.cumsum([0, *(scorer.n_features for scorer in scorers)])
        self.n_features = int(firsts[-1])
        self.own = [
            Own(own.weights, own.slopes * slopes, int(first))
            for (slopes, scorer), first in zip(self._each(), firsts[:-1], strict=True)
            for own in scorer.own
        ]
        with_trees = [(slopes, scorer.trees) for slopes, scorer in self._each() if scorer.trees is not None]
        if with_trees:
            begins = np.cumsum([0, *(trees.n_groups for _, trees in with_trees)])
            groups = [trees.groups + begin for (_, trees), begin in zip(with_trees, begins[:-1], strict=True)]
            weight = sum(slopes * trees.slopes for slopes, trees in with_trees)
            self.trees = Trees(np.concatenate(groups), np.asarray(weight, np.float32), int(begins[-1]))
        if stack is not None:
            self.bias[stack.unseen.numpy() < 0] = NEVER

    def _each(self) -> list[tuple[F4, Scorer]]:
        return [(slopes, scorer) for slopes, (_, scorer) in zip(self.slopes, self.members, strict=True)]

    def vectors(self, labels: slice) -> F4:
        return np.concatenate([slopes[labels, None] * scorer.vectors(labels) for slopes, scorer in self._each()], 1)

    def ask(self, rows: sparse.csr_array) -> AskedMembers:
        return AskedMembers(self.predictor, [scorer.ask(transform(rows)) for transform, scorer in self.members])


class AskedMembers(Asked):
    """What each member says about some rows. There are no bounds: members do not say how low their log-odds may be."""

    def __init__(self, predictor: EnsemblePredictor, members: Sequence[Asked]) -> None:
        self.predictor, self.members = predictor, members
        self.vectors = np.concatenate([member.vectors for member in members], 1)
        self.rows = _beside([member.rows for member in members])
        groups = [member.groups for member in members if member.groups is not None]
        if groups:
            self.groups = _beside(groups) / np.float32(len(groups))

    @torch.no_grad()
    def probabilities(self, labels: NDArray[np.int64]) -> F4:
        found = [torch.from_numpy(member.probabilities(labels)) for member in self.members]
        return np.asarray(self.predictor.combined(found, torch.from_numpy(labels)).numpy(), np.float32)


def _beside(parts: Sequence[sparse.csr_array]) -> sparse.csr_array:
    """Return rows with the columns of all parts."""
    return parts[0] if len(parts) == 1 else sparse.csr_array(sparse.hstack(parts, format="csr"))
