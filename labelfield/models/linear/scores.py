"""Products of sparse rows with the weights of linear machines, in NumPy."""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.compiled import has_numba

# Rows that are too few to load compiled loops for.
_FEW_ROWS = 16
# Share of machines with a weight of a feature from which its weights are a dense vector.
_DENSE = 0.125


class Weights(NamedTuple):
    """The weights of machines one after another: where each begins, and the features that they are of, which rise."""

    weights: NDArray[np.float32]
    features: NDArray[np.int32]
    pointers: NDArray[np.int64]

    def require_inside(self, n_features: int) -> None:
        """Raise a ValueError if weights are not those of features there are: compiled loops do not look."""
        weights, features, pointers = self
        is_whole = pointers.size > 0 and pointers[0] == 0 and bool((np.diff(pointers) >= 0).all())
        if not is_whole or not pointers[-1] == features.size == weights.size:
            raise ValueError("the weights of labels do not fit together")
        if features.size and not 0 <= int(features.min()) <= int(features.max()) < n_features:
            raise ValueError("the weights of labels point outside the features")


class ByFeature:
    """All weights by feature: takes as much memory again, and answers any number of rows without another order.

    The features that most machines have weights of are dense vectors, which are added at many numbers a time.
    """

    def __init__(self, machines: Weights, n_features: int) -> None:
        self.n_machines = len(machines.pointers) - 1
        self.plain = None if has_numba() else _transposed(*machines, n_features)
        if self.plain is not None:
            return
        from labelfield.compiled.scores import count_features, lay_out

        features = machines.features.astype(np.int32, copy=False)
        counts = count_features(features, n_features)
        is_dense = counts >= _DENSE * self.n_machines
        self.place = np.where(is_dense, np.cumsum(is_dense) - 1, -1).astype(np.int32)
        self.dense = np.zeros((int(is_dense.sum()), self.n_machines), np.float32)
        self.starts = np.concatenate([[0], np.cumsum(np.where(is_dense, 0, counts))])
        self.machines, self.values = np.empty(self.starts[-1], np.int32), np.empty(self.starts[-1], np.float32)
        own = machines.pointers.astype(np.int64, copy=False), features, machines.weights
        lay_out(*own, self.place, self.dense, self.starts[:-1].copy(), self.machines, self.values)

    def scores(self, X: sparse.csr_array) -> NDArray[np.float32]:
        """Return the scores wᵀx of all machines (N, machines) for sparse rows X, in the order of their features."""
        if self.plain is not None:
            return np.asarray((X @ self.plain).toarray(), np.float32)
        from labelfield.compiled.scores import scores_by_feature

        out = np.empty((X.shape[0], self.n_machines), np.float32)
        rows = X.indptr.astype(np.int32), X.indices.astype(np.int32, copy=False), X.data.astype(np.float32, copy=False)
        scores_by_feature(*rows, self.place, self.dense, self.starts, self.machines, self.values, out)
        return out


def products(X: sparse.csr_array, machines: Weights, n_threads: int) -> NDArray[np.float32]:
    """Return the scores wᵀx of all machines (N, machines) for sparse rows X.

    Sums are in the order of the features, however many rows there are.
    """
    n_machines = len(machines.pointers) - 1
    if X.shape[0] <= _FEW_ROWS or not has_numba():
        return np.asarray((X @ _used_by_feature(X, machines)).toarray(), np.float32)
    from labelfield.compiled.descent import machine_scores

    by_feature = X.T.tocsr()
    out = np.empty((X.shape[0], n_machines), np.float32)
    rows = by_feature.indptr.astype(np.int64), by_feature.indices.astype(np.int32, copy=False), by_feature.data
    own = machines.pointers, machines.features, machines.weights
    # As many weights for each thread.
    shares = np.linspace(0, machines.pointers[-1], n_threads + 1)
    cuts = np.searchsorted(machines.pointers, shares)
    cuts[0], cuts[-1] = 0, n_machines
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda first, last: machine_scores(*own, *rows, first, last, out), cuts[:-1], cuts[1:]))
    return out


def _used_by_feature(X: sparse.csr_array, machines: Weights) -> sparse.csr_array:
    """Return weights by feature (D, machines), only for features that the rows have: a few of many millions."""
    is_used = np.zeros(X.shape[1], np.bool_)
    is_used[X.indices] = True
    chosen = np.flatnonzero(is_used[machines.features])
    pointers = np.searchsorted(chosen, machines.pointers)
    return _transposed(machines.weights[chosen], machines.features[chosen], pointers, X.shape[1])


def _transposed(
    weights: NDArray[np.float32], features: NDArray[np.int32], pointers: NDArray[np.int64], n_features: int
) -> sparse.csr_array:
    result: sparse.csr_array = sparse.csr_array(
        (weights, features, pointers), (len(pointers) - 1, n_features)
    ).T.tocsr()
    return result
