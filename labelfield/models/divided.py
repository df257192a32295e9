"""What any model answers when several processes each answer for some of the rows."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.cluster import Cluster
from labelfield.csr import from_counts, gather_rows
from labelfield.models.predictor import Block, Predictor


class RowShares(Predictor):
    """The lists of labels of a predictor, found for a share of the rows by each process and then exchanged.

    All processes have the whole model, must ask the same, and get the same. What is not a list each finds by itself.
    """

    def __init__(self, predictor: Predictor, cluster: Cluster) -> None:
        self.predictor, self.cluster = predictor, cluster
        self.n_labels, self.calibration = predictor.n_labels, predictor.calibration
        self.is_exclusive, self.normalises = predictor.is_exclusive, predictor.normalises
        self.is_sampled = predictor.is_sampled

    def _lists(self, rows: sparse.csr_array, ask: Callable[[sparse.csr_array], sparse.csr_array]) -> sparse.csr_array:
        """Return what `ask` says of all rows, by asking it about those of this process."""
        first, last = (rows.shape[0] * (self.cluster.rank + more) // self.cluster.size for more in (0, 1))
        own = ask(gather_rows(rows, np.arange(first, last)))
        told = {"counts": np.diff(own.indptr).astype(np.int64), "labels": own.indices, "p": own.data}
        every = self.cluster.exchange("the answers about all rows", told)
        counts, labels, p = (np.concatenate([part[name] for part in every]) for name in told)
        return from_counts(counts, labels.astype(np.int32), p, self.n_labels)

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        return self.predictor.probabilities(rows, calibrated)

    def top_k(
        self, rows: sparse.csr_array, k: int, calibrated: bool = True, weight: NDArray[np.float64] | None = None
    ) -> sparse.csr_array:
        return self._lists(rows, lambda own: self.predictor.top_k(own, k, calibrated, weight))

    def top_k_by_utility(self, rows: sparse.csr_array, k: int) -> sparse.csr_array:
        return self._lists(rows, lambda own: self.predictor.top_k_by_utility(own, k))

    def reached(self, rows: sparse.csr_array, threshold: float) -> sparse.csr_array:
        return self._lists(rows, lambda own: self.predictor.reached(own, threshold))

    def scores(self, rows: sparse.csr_array) -> NDArray[np.float32]:
        return self.predictor.scores(rows)
