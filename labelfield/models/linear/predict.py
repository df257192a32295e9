"""What linear machines answer."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.compiled import has_numba
from labelfield.csr import gather_rows
from labelfield.linalg.rows import to_tensor
from labelfield.memory import FEWER_ROWS, advising_on_memory, row_blocks
from labelfield.models.linear.model import LinearMachines
from labelfield.models.predictor import Block, Predictor

# Rows times machines whose scores exist at once, and rows at the most. A GPU lays all weights out again for each block.
_BLOCK_ENTRIES, _MOST_ROWS = {"cpu": 1 << 23, "cuda": 1 << 27}, 2000


class LinearPredictor(Predictor):
    """Probabilities of linear machines: the sigmoid of scaled scores, calibrated on rows that were held out."""

    is_exclusive = False

    def __init__(self, model: LinearMachines, normalises: bool = False) -> None:
        self.model, self.n_labels, self.normalises = model, model.n_labels, normalises
        self.calibration = model.calibration

    @cached_property
    def by_feature(self) -> sparse.csr_array:
        """The weights of all machines by feature (D, machines), formed at the first question."""
        parts = (self.model.weights, self.model.features, self.model.pointers)
        data, indices, indptr = (part.cpu().numpy() for part in parts)
        if data.size <= np.iinfo(np.int32).max:  # as the loops want them, so that no question converts them again
            indices, indptr = indices.astype(np.int32, copy=False), indptr.astype(np.int32)
        shape = (self.model.intercepts.numel(), self.model.n_features)
        result: sparse.csr_array = sparse.csr_array((data, indices, indptr), shape=shape).T.tocsr()
        return result

    def scores_of(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Tensor]]:
        """Yield f + 1 = wᵀx + b + 1 for blocks of rows and all machines."""
        n_machines, entries = self.model.intercepts.numel(), _BLOCK_ENTRIES[self.model.weights.device.type]
        for block in row_blocks(rows.shape[0], n_machines, entries=entries, most=_MOST_ROWS):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                some = gather_rows(rows, np.arange(block.start, block.stop))
                if self.model.weights.device.type == "cpu":
                    found = torch.from_numpy(products(some, self.by_feature)).add_(self.model.intercepts)
                else:
                    found = self.model.scores(to_tensor(some, self.model.weights.device))
            yield block, found

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        model = self.model
        return self.whole_rows(
            self.scores_of(rows), lambda found: model.stack(model.parts(found)).sigmoid(), calibrated
        )

    def feature_relevance(self) -> NDArray[np.float32]:
        """Return the sum of the squared weights of each feature over all machines, per label."""
        squares, n_features = np.square(self.by_feature.data), self.model.n_features
        total = np.bincount(np.repeat(np.arange(n_features), np.diff(self.by_feature.indptr)), squares, n_features)
        return np.asarray(total / self.n_labels, np.float32)


def products(X: sparse.csr_array, W: sparse.csr_array) -> NDArray[np.float32]:
    """Return X W as a dense array (N, K) for sparse rows X and sparse weights W (D, K)."""
    if not has_numba():
        return np.asarray((X @ W).toarray(), np.float32)
    from labelfield.compiled.descent import sparse_scores

    out, n_threads = np.zeros((X.shape[0], W.shape[1]), np.float32), torch.get_num_threads()
    left = X.indptr.astype(np.int64), X.indices, X.data
    right = W.indptr.astype(np.int64), W.indices.astype(np.int32, copy=False), W.data
    if min(n_threads, X.shape[0]) == 1:  # a thread would take longer to start than a row takes
        sparse_scores(*left, *right, 0, X.shape[0], out)
        return out
    cuts = np.linspace(0, X.shape[0], n_threads + 1).astype(np.int64)
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda first, last: sparse_scores(*left, *right, first, last, out), cuts[:-1], cuts[1:]))
    return out
