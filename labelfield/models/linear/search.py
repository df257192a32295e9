"""Linear machines as a search sees them: guesses are log-odds if each label is certain within its groups of trees.

That is what ρ(f_k | group(k)) = 0 means. Without trees guesses are exact; with trees alone log p stands for log-odds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.errors import CannotAnswerError
from labelfield.models.linear.model import rho
from labelfield.models.linear.scores import ByFeature, Weights
from labelfield.models.search import LEAST_IN_TREES, Asked, Own, Scorer, Trees, own_products
from labelfield.models.stack import NEVER

if TYPE_CHECKING:
    from labelfield.models.linear.predict import LinearPredictor

F4 = NDArray[np.float32]


class LinearScorer(Scorer):
    """Linear machines, with label trees or without."""

    n_numbers = 0

    def __init__(self, predictor: LinearPredictor) -> None:
        self.predictor, self.model = predictor, predictor.model
        model, stack = self.model, self.model.stack
        if model.weights.device.type != "cpu":
            raise CannotAnswerError("a search with an index is for the CPU; on a GPU all labels are ranked as fast")
        self.n_labels, self.n_features = model.n_labels, model.n_features
        self.intercepts = model.intercepts.numpy()
        offset, slopes = stack.by_label()
        self.bias = offset
        if model.has_own:
            self.bias = self.bias + slopes[0] * self.intercepts[: self.n_labels]
            self.own = [Own(self._weights(0, self.n_labels), slopes[0])]
        self.first_group = model.n_each * self.n_labels
        if model.n_trees:
            self.bias = self.bias + np.float32(LEAST_IN_TREES) * slopes[-1]
            groups = model.groups.numpy()[model.n_levels - 1 :: model.n_levels] - self.first_group
            n_groups = len(self.intercepts) - self.first_group
            self.trees = Trees(groups, slopes[-1], n_groups)
            # The group above each group, or itself on the highest level.
            self.above = np.arange(n_groups)
            self.above[groups] = model.groups.numpy()[:: model.n_levels] - self.first_group
        self.bias[stack.unseen.numpy() < 0] = NEVER
        self._by_feature: ByFeature | None = None

    def _weights(self, first: int, last: int) -> Weights:
        """Return the weights of a range of machines."""
        weights, features, pointers = self.predictor.weights
        own = pointers[first : last + 1]
        chosen = slice(int(own[0]), int(own[-1]))
        return Weights(weights[chosen], features[chosen], own - own[0])

    def vectors(self, labels: slice) -> F4:
        return np.zeros((len(range(self.n_labels)[labels]), 0), np.float32)

    def ask(self, rows: sparse.csr_array) -> AskedMachines:
        if self.trees is None:
            return AskedMachines(self, rows, None)
        if self._by_feature is None:
            self._by_feature = ByFeature(self._weights(self.first_group, len(self.intercepts)), self.n_features)
        return AskedMachines(self, rows, self._by_feature.scores(rows) + self.intercepts[self.first_group :])


class AskedMachines(Asked):
    """The scores of all groups of trees for some rows."""

    def __init__(self, scorer: LinearScorer, rows: sparse.csr_array, of_groups: F4 | None) -> None:
        self.scorer, self.rows, self.of_groups = scorer, rows, of_groups
        self.vectors = np.zeros((rows.shape[0], 0), np.float32)
        if of_groups is not None:
            log_p = rho(torch.from_numpy(of_groups)).numpy()
            if scorer.model.n_levels > 1:
                log_p = log_p + log_p[:, scorer.above]
            chosen = log_p > LEAST_IN_TREES
            row, group = np.nonzero(chosen)
            pointers = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(log_p)))])
            values = np.exp(log_p[chosen]) / np.float32(scorer.model.n_trees)
            self.groups = sparse.csr_array((values, group.astype(np.int32), pointers), shape=log_p.shape)

    def bound(self, guess: F4) -> F4:
        model = self.scorer.model
        # Guesses are then of log p, which is below log p / (1 - p), and take each lower group to be in one upper group.
        if model.n_trees and not (model.has_own and model.n_levels == 1):
            return super().bound(guess)
        least = model.stack.least
        return np.asarray(torch.from_numpy(guess).clamp_min(least).sigmoid().numpy(), np.float32)

    @torch.no_grad()
    def probabilities(self, labels: NDArray[np.int64]) -> F4:
        model, scorer = self.scorer.model, self.scorer
        parts = []
        for number in range(model.n_each):
            first = number * scorer.n_labels
            found = own_products(self.rows, scorer.predictor.weights, labels, first)
            parts.append(torch.from_numpy(found + scorer.intercepts[first + labels]))
        of_groups = []
        if self.of_groups is not None and scorer.trees is not None:
            rows = np.arange(len(labels))[:, None]
            groups = model.groups.numpy() - scorer.first_group
            of_groups = [rho(torch.from_numpy(self.of_groups[rows, group[labels]])) for group in groups]
        odds = model.stack(model.parts_of(parts, of_groups), torch.from_numpy(labels))
        return np.asarray(odds.sigmoid().numpy(), np.float32)
