"""What linear machines answer when several processes each have a share of the labels."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.cluster import Cluster
from labelfield.csr import gather_rows
from labelfield.memory import row_blocks
from labelfield.models.calibration import N_RANKS, Calibration
from labelfield.models.linear.model import LinearMachines, rho
from labelfield.models.linear.scores import Weights, products
from labelfield.models.predictor import Block, Predictor, to_csr
from labelfield.models.stack import Stack, log_odds_of

# Rows times machines of a rank whose scores exist at once, and rows at the most.
_BLOCK_ENTRIES, _MOST_ROWS = 1 << 23, 2000


class ShardedPredictor(Predictor):
    """Probabilities of linear machines. Each rank scores the machines of a range of labels, and of a range of groups of
    label trees, whose scores all ranks need; no other weights are read. All ranks must ask the same, and get the same.

    In a mix of machines alone, `transform` is what the machines do to rows, and `stack` what the mix does to them.
    """

    is_exclusive = False

    def __init__(
        self,
        model: LinearMachines,
        cluster: Cluster,
        *,
        calibration: Calibration | None = None,
        normalises: bool = False,
        transform: Callable[[sparse.csr_array], sparse.csr_array] = lambda rows: rows,
        stack: Stack | None = None,
    ) -> None:
        self.model, self.cluster, self.n_labels, self.normalises = model, cluster, model.n_labels, normalises
        self.calibration = model.calibration if calibration is None else calibration
        self.transform, self.stack = transform, stack
        sizes = model.pointers.diff().cpu().numpy()
        n_before = model.n_each * model.n_labels
        self.labels = self._share(sizes[:n_before].reshape(model.n_each, model.n_labels).sum(0))
        own = self._share(sizes[n_before:])
        self.groups, self.n_before = slice(own.start + n_before, own.stop + n_before), n_before

    def _share(self, sizes: NDArray[np.int64]) -> slice:
        """Return the range of this rank, so that all ranks have about as many weights."""
        until = np.cumsum(sizes)
        marks = np.linspace(0, until[-1] if until.size else 0, self.cluster.size + 1)[1:-1]
        cuts = [0, *np.searchsorted(until, marks).tolist(), sizes.size]
        return slice(cuts[self.cluster.rank], cuts[self.cluster.rank + 1])

    def _scores(self, rows: sparse.csr_array, machines: slice) -> Tensor:
        """Return f + 1 of a range of machines."""
        model = self.model
        pointers = model.pointers[machines.start : machines.stop + 1].cpu().numpy()
        if machines.start == machines.stop:
            return torch.zeros(rows.shape[0], 0)
        own = slice(int(pointers[0]), int(pointers[-1]))
        weights = Weights(model.weights[own].cpu().numpy(), model.features[own].cpu().numpy(), pointers - pointers[0])
        found = torch.from_numpy(products(rows, weights, torch.get_num_threads()))
        return found.add_(model.intercepts[machines].cpu())

    def _own(self, rows: sparse.csr_array) -> Tensor:
        """Return the raw probabilities of the labels of this rank."""
        groups, n_labels = self.model.groups, self.n_labels
        within = [
            self._scores(rows, slice(number * n_labels + self.labels.start, number * n_labels + self.labels.stop))
            for number in range(self.model.n_each)
        ]
        of_groups = list[Tensor]()
        if len(groups):
            told = {"scores": self._scores(rows, self.groups).numpy()}
            every = self.cluster.exchange("the scores of groups", told)
            whole = rho(torch.from_numpy(np.concatenate([part["scores"] for part in every], 1)))
            places = groups[:, self.labels].cpu() - self.n_before
            of_groups = [whole[:, place] for place in places]
        odds = self.model.stack(self.model.parts_of(within, of_groups), self.labels)
        P: Tensor = odds.sigmoid()
        return P if self.stack is None else self.stack([log_odds_of(P)], self.labels).sigmoid_()

    def _blocks(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Tensor]]:
        """Yield the raw probabilities of the labels of this rank, for blocks of rows that are the same on all ranks."""
        width = -(-self.model.intercepts.numel() // self.cluster.size)
        rows = self.transform(rows)
        for block in row_blocks(rows.shape[0], width, entries=_BLOCK_ENTRIES, most=_MOST_ROWS):
            with torch.no_grad():
                own = self._own(gather_rows(rows, np.arange(block.start, block.stop)))
            yield block, own

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        """Yield the probabilities of all labels, which all ranks send to each other; `top_k` need not."""

        def whole(own: Tensor) -> Tensor:
            every = self.cluster.exchange("the probabilities of all labels", {"p": own.numpy()})
            return torch.from_numpy(np.concatenate([part["p"] for part in every], 1))

        return self.whole_rows(self._blocks(rows), whole, calibrated)

    def top_k(
        self, rows: sparse.csr_array, k: int, calibrated: bool = True, weight: NDArray[np.float64] | None = None
    ) -> sparse.csr_array:
        """Return the k most probable labels of each row: those of all ranks are the best of each rank's best."""
        if weight is not None:
            return super().top_k(rows, k, calibrated, weight)
        k = min(k, self.n_labels)
        n_listed = min(max(k, N_RANKS), self.n_labels)

        def merged(own: Tensor) -> tuple[Tensor, Tensor]:
            p, place = own.topk(min(n_listed, own.shape[1]), dim=1)
            told: dict[str, NDArray[Any]] = {"p": p.numpy(), "labels": place.numpy() + self.labels.start}
            every = self.cluster.exchange("the best labels", told)
            p, labels = (torch.from_numpy(np.concatenate([part[name] for part in every], 1)) for name in told)
            best = p.sort(dim=1, descending=True, stable=True).indices[:, :k]
            p, labels = p.gather(1, best), labels.gather(1, best)
            if calibrated:  # which preserves the ranking
                p = self.calibration(p, torch.arange(k).expand_as(p))
            return labels, p

        return to_csr((found for _, found in self.answers(self._blocks(rows), merged)), k, self.n_labels)
