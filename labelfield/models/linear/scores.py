"""Products of sparse rows with the weights of linear machines, in NumPy."""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.compiled import has_numba

# Rows that are too few to load compiled loops for.
_FEW_ROWS = 16


class Weights(NamedTuple):
    """The weights of machines one after another: where each begins, and the features that they are of, which rise."""

    weights: NDArray[np.float32]
    features: NDArray[np.int32]
    pointers: NDArray[np.int64]


def products(
    X: sparse.csr_array, machines: Weights, n_threads: int, by_feature: sparse.csr_array | None = None
) -> NDArray[np.float32]:
    """Return the scores wᵀx of all machines (N, machines) for sparse rows X.

    Sums are in the order of the features, however many rows there are. A few rows are answered faster with the weights
    `by_feature`, from `weights_by_feature`, which take as much memory again.
    """
    n_machines = len(machines.pointers) - 1
    if X.shape[0] <= _FEW_ROWS or not has_numba():
        weights = _used_by_feature(X, machines) if by_feature is None else by_feature
        return np.asarray((X @ weights).toarray(), np.float32)
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


def weights_by_feature(machines: Weights, n_features: int) -> sparse.csr_array:
    """Return all weights by feature (D, machines)."""
    features, pointers = machines.features, machines.pointers
    if features.size <= np.iinfo(np.int32).max:  # as rows have them, so that no question converts them again
        features, pointers = features.astype(np.int32, copy=False), pointers.astype(np.int32, copy=False)
    found = sparse.csr_array((machines.weights, features, pointers), shape=(len(pointers) - 1, n_features))
    result: sparse.csr_array = found.T.tocsr()
    return result


def _used_by_feature(X: sparse.csr_array, machines: Weights) -> sparse.csr_array:
    """Return weights by feature (D, machines), only for features that the rows have: a few of many millions."""
    is_used = np.zeros(X.shape[1], np.bool_)
    is_used[X.indices] = True
    chosen = np.flatnonzero(is_used[machines.features])
    pointers = np.searchsorted(chosen, machines.pointers)
    shape = (len(pointers) - 1, X.shape[1])
    found = (machines.weights[chosen], machines.features[chosen], pointers)
    result: sparse.csr_array = sparse.csr_array(found, shape=shape).T.tocsr()
    return result
