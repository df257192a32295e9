"""Products of sparse rows with the weights of linear machines, in NumPy."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.compiled import has_numba

# Rows for which only the weights of their own features are put in order, and those that are too few to compile for.
FEW_ROWS, _VERY_FEW_ROWS = 64, 16


def weights_by_feature(
    weights: NDArray[np.float32],
    features: NDArray[np.int32],
    pointers: NDArray[np.int64],
    n_features: int,
    rows: sparse.csr_array | None = None,
) -> sparse.csr_array:
    """Return the weights of machines (pointers, features) by feature (D, machines).

    With some `rows`, return only those of features that these have: a few documents need few of many million weights.
    """
    if rows is not None:
        is_used = np.zeros(n_features, np.bool_)
        is_used[rows.indices] = True
        chosen = np.flatnonzero(is_used[features])
        weights, features, pointers = weights[chosen], features[chosen], np.searchsorted(chosen, pointers)
    if weights.size <= np.iinfo(np.int32).max:  # as the loops want them, so that no question converts them again
        features, pointers = features.astype(np.int32, copy=False), pointers.astype(np.int32, copy=False)
    shape = (len(pointers) - 1, n_features)
    result: sparse.csr_array = sparse.csr_array((weights, features, pointers), shape=shape).T.tocsr()
    return result


def products(X: sparse.csr_array, W: sparse.csr_array, n_threads: int) -> NDArray[np.float32]:
    """Return X W as a dense array (N, K) for sparse rows X and sparse weights W (D, K).

    Sums are in the order of the features of a row, however many rows there are.
    """
    if X.shape[0] <= _VERY_FEW_ROWS or not has_numba():
        return np.asarray((X @ W).toarray(), np.float32)
    from labelfield.compiled.descent import sparse_scores

    out = np.zeros((X.shape[0], W.shape[1]), np.float32)
    left = X.indptr.astype(np.int64), X.indices, X.data
    right = W.indptr.astype(np.int64), W.indices.astype(np.int32, copy=False), W.data
    if n_threads == 1:
        sparse_scores(*left, *right, 0, X.shape[0], out)
        return out
    cuts = np.linspace(0, X.shape[0], n_threads + 1).astype(np.int64)
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda first, last: sparse_scores(*left, *right, first, last, out), cuts[:-1], cuts[1:]))
    return out
