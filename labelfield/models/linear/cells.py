"""Linear machines with their labels in cells: bounds of log-odds, and probabilities of the labels of some cells.

Where there are label trees, the groups of the first one are the cells. Machines of groups are few and all of them are
scored; ρ(f_k | group(k)) ≤ 0 then bounds t_k of all labels of a cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.errors import CannotAnswerError
from labelfield.models.cells import Layout, Vectors, by_cell, sketch
from labelfield.models.linear.model import parts_of
from labelfield.models.linear.scores import ByFeature, Weights
from labelfield.models.search import Asked, CellScorer, Visits, WeightsByCell, require_compiled

if TYPE_CHECKING:
    from labelfield.models.linear.predict import LinearPredictor

F4 = NDArray[np.float32]
# f of a machine within its group that is beyond any doubt: ρ is 0 from f = 1 on.
_SURE = 2.0


class LinearCells(CellScorer):
    """The labels of linear machines in cells."""

    def __init__(self, predictor: LinearPredictor, layout: Layout) -> None:
        require_compiled()
        self.model = model = predictor.model
        if model.weights.device.type != "cpu":
            raise CannotAnswerError("a search in cells is for the CPU; on a GPU all labels are ranked as fast")
        self.layout, n_labels = layout, model.n_labels
        n_trees = len(model.groups)
        self.intercepts = model.intercepts.numpy()
        # The labels' own machines, and those within the groups of each tree.
        self.machines = [
            WeightsByCell(some_weights(predictor, number * n_labels, (1 + number) * n_labels), layout, model.n_features)
            for number in range(1 + n_trees)
        ]
        self.own_intercepts = [
            self.intercepts[number * n_labels : (1 + number) * n_labels] for number in range(1 + n_trees)
        ]
        self.most_intercept = by_cell(np.maximum, self.own_intercepts[0], layout)
        # Levels of the stack that labels of a cell are at: their log-odds are means of those at these levels.
        places, is_seen = model.stack.places.numpy(), model.stack.unseen.numpy() == 0
        self.has_level = np.stack(
            [by_cell(np.maximum, np.where(is_seen, place > 0, 0), layout) > 0 for place in places.T], 1
        )
        self.n_before = (1 + n_trees) * n_labels
        self.groups = model.groups.numpy() - self.n_before
        self.by_feature: ByFeature | None = None
        if n_trees:
            of_groups = some_weights(predictor, self.n_before, len(self.intercepts))
            self.by_feature = ByFeature(of_groups, model.n_features)
            # Which groups of each tree the labels of a cell are in: a few, one cell after another.
            self.groups_of_cells = [_pairs(layout, groups, is_seen) for groups in self.groups]

    @torch.no_grad()
    def ask(self, rows: sparse.csr_array) -> AskedMachines:
        most, guess = self.machines[0].bounds(rows)
        most += self.most_intercept
        guess += self.most_intercept
        of_groups, trees = None, list[F4]()
        if self.by_feature is not None:
            of_groups = self.by_feature.scores(rows) + self.intercepts[self.n_before :]
            for group, starts in self.groups_of_cells:
                there = np.flatnonzero(np.diff(starts))
                best = np.full(most.shape, -np.inf, np.float32)
                best[:, there] = np.maximum.reduceat(of_groups[:, group], starts[there], axis=1)
                trees.append(best)
        return AskedMachines(self, rows, of_groups, self._log_odds(guess, trees), self._log_odds(most, trees))

    def _log_odds(self, own: F4, trees: list[F4]) -> F4:
        """Return what log-odds of labels of cells (rows, C) are at the most, if scores are at the most these."""
        stack, sure = self.model.stack, torch.tensor(_SURE)
        within = [sure.expand(own.shape)] * len(trees)
        parts = parts_of(torch.from_numpy(own), within, (torch.from_numpy(tree) for tree in trees))
        result = torch.full(own.shape, -torch.inf)
        for level in range(stack.offsets.numel()):
            odds = stack.offsets[level] + sum(
                part * slope for part, slope in zip(parts, stack.slopes[:, level], strict=True)
            )
            has_it = torch.from_numpy(self.has_level[:, level])
            result = torch.where(has_it, torch.maximum(result, odds), result)
        # Log-odds of labels that were seen are cut off from below, and others are beneath.
        return np.asarray(result.clamp_min(stack.least).numpy(), np.float32)


class AskedMachines(Asked):
    """The scores of all groups of trees for some rows, and what follows for cells."""

    def __init__(
        self, scorer: LinearCells, rows: sparse.csr_array, of_groups: F4 | None, likely: F4, most_odds: F4
    ) -> None:
        self.scorer, self.rows, self.of_groups, self.likely, self.most_odds = scorer, rows, of_groups, likely, most_odds

        self.most = np.asarray(torch.from_numpy(most_odds).sigmoid().numpy(), np.float32)

    @property
    def likely_probability(self) -> F4:
        return np.asarray(torch.from_numpy(self.likely).sigmoid().numpy(), np.float32)

    def take(self, rows: NDArray[np.int64]) -> AskedMachines:
        of_groups = None if self.of_groups is None else self.of_groups[rows]
        return AskedMachines(
            self.scorer, gather_rows(self.rows, rows), of_groups, self.likely[rows], self.most_odds[rows]
        )

    @torch.no_grad()
    def probabilities(self, visits: Visits) -> F4:
        scorer, labels = self.scorer, visits.labels
        own, *within = (
            torch.from_numpy(machines.products(self.rows, visits)).add_(torch.from_numpy(intercepts[labels]))
            for machines, intercepts in zip(scorer.machines, scorer.own_intercepts, strict=True)
        )
        of_groups = []
        if self.of_groups is not None:
            of_groups = [torch.from_numpy(self.of_groups[visits.rows, groups[labels]]) for groups in scorer.groups]
        odds = scorer.model.stack(parts_of(own, within, of_groups), torch.from_numpy(labels).long())
        return np.asarray(odds.sigmoid().numpy(), np.float32)


def some_weights(predictor: LinearPredictor, first: int, last: int) -> Weights:
    """Return the weights of a range of machines."""
    weights, features, pointers = predictor.weights
    own = pointers[first : last + 1]
    chosen = slice(int(own[0]), int(own[-1]))
    return Weights(weights[chosen], features[chosen], own - own[0])


def _pairs(
    layout: Layout, group_of_label: NDArray[np.int64], is_seen: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the groups that the labels of each cell are in, one cell after another, and where each begins."""
    seen = is_seen[layout.order]
    n_groups = int(group_of_label.max(initial=0)) + 1
    keys = np.unique(layout.cell_of_place[seen].astype(np.int64) * n_groups + group_of_label[layout.order[seen]])
    counts = np.bincount(keys // n_groups, minlength=layout.n_cells)
    return keys % n_groups, np.concatenate([[0], np.cumsum(counts)])


def natural_cells(predictor: LinearPredictor) -> NDArray[np.int32] | None:
    """Return the cell of each label: its group in the first label tree. Labels that held in no row have one together.

    None without trees.
    """
    model = predictor.model
    if not len(model.groups):
        return None
    groups = model.groups[0].numpy()
    is_seen = model.stack.unseen.numpy() == 0
    found = np.where(is_seen, groups, groups.max() + 1)
    return np.unique(found, return_inverse=True)[1].astype(np.int32)


def label_vectors(predictor: LinearPredictor, rows: sparse.csr_array) -> Vectors:
    """Return vectors of labels whose distance says how much scores differ in rows such as these."""
    return sketch(some_weights(predictor, 0, predictor.n_labels), rows)
