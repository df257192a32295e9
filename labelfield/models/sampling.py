"""The labels that a step uses, where using all would cost too much."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

# Half of the draws are uniform, so that every class is drawn and no weight exceeds twice the uniform one.
_UNIFORM = 0.5
# The weight of a new observation of a rival's score.
_LEARNT = 0.1
# The table is recomputed every 50 steps, or every K / 1000 steps if that is more, at a negligible cost per step.
_LEAST_STEPS, _CLASSES_PER_STEP = 50, 1000


class Choice(NamedTuple):
    """The labels of a step, how much each counts, and the column of each entry of Y; (None, None) for all labels."""

    labels: Tensor | None
    weight: Tensor | None
    column: Tensor


def choose_labels(column: Tensor, n_negatives: int | None, n_labels: int, generator: torch.Generator | None) -> Choice:
    """Choose all labels, or those that hold in the batch plus n_negatives others, and return the column of each entry.

    Labels that hold in the batch count once. Each of the others that are drawn stands for an equal share of those that
    are not held, so that a sum over the chosen labels estimates the sum over all labels without bias.
    """
    if n_negatives is None:
        return Choice(None, None, column)
    held, column = torch.unique(column, return_inverse=True)
    n_others = n_labels - held.numel()
    drawn = _draw_others(held, n_labels, min(n_negatives, n_others), generator)
    weight = torch.ones(held.numel() + drawn.numel(), device=held.device)
    weight[held.numel() :] = n_others / max(drawn.numel(), 1)
    return Choice(torch.cat([held, drawn]), weight, column)


def _draw_others(held: Tensor, n_labels: int, n_drawn: int, generator: torch.Generator | None) -> Tensor:
    """Draw labels that are not held, every set being equally likely, at a cost that does not grow with K."""
    n_others, where = n_labels - held.numel(), held.device
    if 2 * n_drawn >= n_others:
        places = torch.randperm(n_others, generator=generator, device=where)[:n_drawn]
    else:
        # At most half of the places are taken, so a few rounds suffice. Any subset of those found is equally likely.
        places = torch.zeros(0, dtype=torch.long, device=where)
        while places.numel() < n_drawn:
            more = torch.randint(n_others, (2 * n_drawn,), generator=generator, device=where)
            places = torch.unique(torch.cat([places, more]))
        places = places[torch.randperm(places.numel(), generator=generator, device=where)[:n_drawn]]
    # The place-th label that is not held: held labels before it are those with at most `place` others below them.
    others_below = held - torch.arange(held.numel(), device=where)
    return places + torch.searchsorted(others_below, places, right=True)


class Rivals(nn.Module):
    """Draws rivals in proportion to their scores against the classes of other rows, weighted so that sums over the
    drawn classes estimate sums over all classes without bias.

    Neither a draw nor learning from it costs more with more classes; the table of probabilities is recomputed so rarely
    that its cost is negligible. All state is in buffers, so a resumed training draws the same rivals.
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("score", torch.full((n_classes,), 0.5))
        # Not torch's arange, which imports torch's compiler on the meta device, where models to be loaded are built.
        self.register_buffer("table", torch.from_numpy(np.arange(1, n_classes + 1) / n_classes))
        self.register_buffer("age", torch.zeros((), dtype=torch.long))

    def choose(self, column: Tensor, n_drawn: int, generator: torch.Generator | None = None) -> Choice:
        """Choose the classes of a batch and n_drawn rivals, which are fewer if some are drawn more than once."""
        table = self.get_buffer("table")
        held, place = torch.unique(column, return_inverse=True)
        n_others = len(table) - held.numel()
        if 2 * n_drawn >= n_others:
            every = torch.ones(len(table), dtype=torch.bool, device=held.device)
            every[held] = False
            drawn, weight = every.nonzero().squeeze(1), torch.ones(n_others, device=held.device)
        else:
            found = torch.zeros(0, dtype=torch.long, device=held.device)
            while found.numel() < n_drawn:
                u = torch.rand(2 * n_drawn, dtype=torch.float64, generator=generator, device=held.device)
                more = torch.searchsorted(table, u * table[-1]).clamp_max_(len(table) - 1)
                found = torch.cat([found, more[~torch.isin(more, held)]])
            drawn, counts = torch.unique(found[:n_drawn], return_counts=True)
            # The probability of each class among the draws that are not held.
            share = self._probability(drawn) / (1 - self._probability(held).sum())
            weight = (counts / (n_drawn * share)).float()
        ones = torch.ones(held.numel(), device=held.device)
        return Choice(torch.cat([held, drawn]), torch.cat([ones, weight]), place)

    def _probability(self, classes: Tensor) -> Tensor:
        table = self.get_buffer("table")
        before = torch.where(classes > 0, table[classes - 1], 0.0)
        return (table[classes] - before) / table[-1]

    @torch.no_grad()
    def learn(self, classes: Tensor, mean: Tensor, target: Tensor) -> None:
        """Update scores from the mean utilities (B, C) of these classes on rows whose own classes are at `target`."""
        own = mean.gather(1, target.unsqueeze(1))
        # A class is not a rival of its own rows, to which it would add σ(0).
        beats = torch.sigmoid(mean - own).scatter(1, target.unsqueeze(1), 0.0).mean(0)
        score, age = self.get_buffer("score"), self.get_buffer("age")
        score[classes] = score[classes].lerp(beats.to(score.dtype), _LEARNT)
        age += 1
        if int(age) % max(_LEAST_STEPS, len(score) // _CLASSES_PER_STEP) == 0:
            p = _UNIFORM / len(score) + (1 - _UNIFORM) * score.double() / score.double().sum()
            self.get_buffer("table").copy_(p.cumsum(0))
