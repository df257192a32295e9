"""Which labels a step looks at, where looking at all would cost too much."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["Choice", "Rivals", "choose_labels"]

# Half of the draws are uniform, so that no class is ever overlooked and no weight is above twice the uniform one.
_UNIFORM = 0.5
# How much of what is known of a rival a new look at it changes.
_LEARNT = 0.1
# The table is made anew after at least so many steps, and for one step in so many classes: its cost is spread thin.
_LEAST_STEPS, _CLASSES_PER_STEP = 50, 1000


class Choice(NamedTuple):
    """The labels of a step, how much each counts, and which of them each entry of Y is; (None, None) for all labels."""

    labels: Tensor | None
    weight: Tensor | None
    column: Tensor


def choose_labels(column: Tensor, n_negatives: int | None, n_labels: int, generator: torch.Generator | None) -> Choice:
    """All labels, or those that hold somewhere in the batch, each entry in its column, and so many others.

    The labels that hold somewhere in the batch count once; of the others so many are drawn, each to stand for as many
    as there are for one that was drawn. So a sum over these labels estimates one over all labels without bias.
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
    """So many labels that are not among these, each set of them equally likely, at a cost that does not grow with K."""
    n_others, where = n_labels - held.numel(), held.device
    if 2 * n_drawn >= n_others:
        places = torch.randperm(n_others, generator=generator, device=where)[:n_drawn]
    else:
        # Half of the places at most are taken, so that a few rounds find enough. Of places that were found together any
        # are as likely as any others.
        places = torch.zeros(0, dtype=torch.long, device=where)
        while places.numel() < n_drawn:
            more = torch.randint(n_others, (2 * n_drawn,), generator=generator, device=where)
            places = torch.unique(torch.cat([places, more]))
        places = places[torch.randperm(places.numel(), generator=generator, device=where)[:n_drawn]]
    # The place-th label that is not held: as many held ones come before it as have no more than `place` others below.
    others_below = held - torch.arange(held.numel(), device=where)
    return places + torch.searchsorted(others_below, places, right=True)


class Rivals(nn.Module):
    """Draws rivals by how high they have scored against the classes of other rows, and weights them so that sums over
    those drawn estimate sums over all without bias.

    Neither a draw nor what is learnt from it costs more for more classes; the table of probabilities is made anew so
    rarely that its cost does not count. All is in buffers: a training that is resumed draws as it would have.
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("score", torch.full((n_classes,), 0.5))
        # Not torch's arange: of a model without memory, as one to be loaded is, it would import torch's compiler.
        self.register_buffer("table", torch.from_numpy(np.arange(1, n_classes + 1) / n_classes))
        self.register_buffer("age", torch.zeros((), dtype=torch.long))

    def choose(self, column: Tensor, n_drawn: int, generator: torch.Generator | None = None) -> Choice:
        """The classes of a batch, and others: so many draws, fewer classes if some are drawn more than once."""
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
            # Of the draws that are not held each class has its share.
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
        """Look at the mean utilities (B, C) of these classes on rows whose own classes are at `target`."""
        own = mean.gather(1, target.unsqueeze(1))
        # A row does not rival itself: its own class would add σ(0).
        beats = torch.sigmoid(mean - own).scatter(1, target.unsqueeze(1), 0.0).mean(0)
        score, age = self.get_buffer("score"), self.get_buffer("age")
        score[classes] = score[classes].lerp(beats.to(score.dtype), _LEARNT)
        age += 1
        if int(age) % max(_LEAST_STEPS, len(score) // _CLASSES_PER_STEP) == 0:
            p = _UNIFORM / len(score) + (1 - _UNIFORM) * score.double() / score.double().sum()
            self.get_buffer("table").copy_(p.cumsum(0))
