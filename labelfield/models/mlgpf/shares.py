"""A factor model that several processes train: each has a range of the labels, and all have everything else.

In a step every process has the whole batch. It forms the moments of h for its share of the rows, all of them exchange
these, and each goes over its own labels. The gradient by the moments is summed over the processes and goes back to the
rows that each has formed. So Φ, b and the labels' own weights, with what the optimiser keeps of them, exist once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from labelfield.cluster import Cluster
from labelfield.linalg.autograd import apply
from labelfield.linalg.rows import Rows, n_rows, some_rows
from labelfield.models.sampling import Choice
from labelfield.variational.families import Moments, Prior

if TYPE_CHECKING:
    from labelfield.models.mlgpf.model import MLGPF

# Labels that stay together.
_BLOCK = 64


class Shares:
    """The part of one process in each step: its labels, from `labels.start` to `labels.stop`, and its rows."""

    def __init__(self, cluster: Cluster, labels: slice) -> None:
        self.cluster, self.labels = cluster, labels

    @classmethod
    def of(cls, model: MLGPF, cluster: Cluster) -> Shares:
        """Divide the labels of a model so that all processes have about as many parameters."""
        work = np.full(model.n_labels, model.Phi.shape[1] + 1, np.float64)
        if model.label_linear is not None:
            work += model.label_linear.get_buffer("pointers").diff().cpu().numpy()
        starts = np.arange(0, model.n_labels, _BLOCK)
        done = np.cumsum(np.add.reduceat(work, starts))
        wanted = done[-1] * np.arange(1, cluster.size) / cluster.size
        middles = done - 0.5 * np.diff(done, prepend=0)  # a block belongs to the process in whose share its middle is
        cuts = [0, *np.append(starts, model.n_labels)[np.searchsorted(middles, wanted)].tolist(), model.n_labels]
        return cls(cluster, slice(cuts[cluster.rank], cuts[cluster.rank + 1]))

    @torch.no_grad()
    def keep(self, model: MLGPF) -> dict[str, slice]:
        """Drop what a model has for other labels; return which rows of its arrays are left, by their names."""
        labels = self.labels
        model.Phi, model.b = (nn.Parameter(part[labels].clone()) for part in (model.Phi, model.b))
        left = dict.fromkeys(("Phi", "b"), labels)
        if model.b_mean is not None:
            model.b_mean, left["b_mean"] = model.b_mean[labels].clone(), labels
        if (linear := model.label_linear) is not None:
            pointers = linear.get_buffer("pointers")
            weights = slice(int(pointers[labels.start]), int(pointers[labels.stop]))
            model.label_linear = linear.of_labels(labels)
            left |= {f"label_linear.{name}": weights for name in ("features", "waiting", "weights")}
            left |= {"label_linear.pointers": labels}
            left |= {"label_linear.log_var": weights} if linear.kind == "mean_field" else {}
        return left

    def latent(self, model: MLGPF, X: Rows) -> tuple[Moments, Prior]:
        """Return q(h) at all rows, of which this process forms its share, and the prior of the inducing variables."""
        n = n_rows(X)
        first, last = (n * (self.cluster.rank + more) // self.cluster.size for more in (0, 1))
        h, prior = model.latent(some_rows(X, first, last))
        return Moments(*apply(_Gathered, h.mean, h.var, self.cluster, slice(first, last), n)), prior

    def own_labels(self, choice: Choice, Y: Tensor) -> tuple[Choice, Tensor]:
        """Return what the labels of this process are in a choice, and Y with the entries of these alone."""
        first, last = self.labels.start, self.labels.stop
        if choice.labels is None:
            is_own, place = (choice.column >= first) & (choice.column < last), choice.column - first
            labels = weight = None
        else:
            is_chosen = (choice.labels >= first) & (choice.labels < last)
            is_own, place = is_chosen[choice.column], (is_chosen.cumsum(0) - 1)[choice.column]
            labels, weight = choice.labels[is_chosen] - first, choice.weight
            weight = None if weight is None else weight[is_chosen]
        before = torch.cat([is_own.new_zeros(1, dtype=torch.long), is_own.cumsum(0)])  # own entries before each
        parts = before[Y.crow_indices().long()].int(), Y.col_indices()[is_own], Y.values()[is_own]
        own = torch.sparse_csr_tensor(*parts, size=Y.shape, check_invariants=False)
        return Choice(labels, weight, place[is_own]), own


class _Gathered(torch.autograd.Function):
    """The moments of all rows, of which each process has formed some. Sums with zeros are exact."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, cluster: Cluster, own: slice, n: int) -> tuple[Tensor, Tensor]:
        ctx.cluster, ctx.own = cluster, own
        whole = mean.new_zeros(2, n, mean.shape[1])
        whole[0, own], whole[1, own] = mean, var
        cluster.sum("a step", whole)
        return whole[0], whole[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        whole = torch.stack(gradients)
        ctx.cluster.sum("a step", whole)
        return whole[0, ctx.own], whole[1, ctx.own], None, None, None
