"""Products of sparse rows with the weights of linear machines, in NumPy."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.compiled import has_numba

# Rows that are too few to load compiled loops for.
_FEW_ROWS = 16
# Share of machines with a weight of a feature from which its weights are a dense vector.
_DENSE = 0.0625
# The largest weight of a machine, in the steps that weights are multiples of: they then have 16 bits.
LARGEST = 32767
# Bytes in a line of the cache.
_LINE = 64


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
    """All weights by feature: answers any number of rows without another order.

    The features that most machines have weights of are dense vectors, which are added at many numbers a time. Weights
    that have 16 bits are kept so, each machine's in steps of its own power of 2: half as much is read, for the same
    sums, because such steps change no rounding.
    """

    def __init__(self, machines: Weights, n_features: int) -> None:
        self.n_machines = len(machines.pointers) - 1
        self.plain = None if has_numba() else _transposed(*machines, n_features)
        if self.plain is not None:
            return
        from labelfield.compiled.scores import are_whole, count_features, largest_weights, lay_out

        features = machines.features.astype(np.int32, copy=False)
        counts = count_features(features, n_features)
        is_dense = counts >= _DENSE * self.n_machines
        n_dense = int(is_dense.sum())
        # Those of most machines, which are mostly those of most rows, beside each other: fewer pages are in use.
        self.place = np.full(n_features, -1, np.int32)
        self.place[np.argsort(-counts, kind="stable")[:n_dense]] = np.arange(n_dense)
        pointers = machines.pointers.astype(np.int64, copy=False)
        # The largest weight is 2¹⁴ to LARGEST steps.
        exponents = np.frexp(largest_weights(pointers, machines.weights) / np.float32(LARGEST + 1))[1]
        steps = np.ldexp(np.float32(1), exponents)
        is_short = are_whole(pointers, machines.weights, steps)
        self.steps = steps if is_short else np.ones_like(steps)
        kind = np.int16 if is_short else np.float32
        self.dense = _by_lines(n_dense, self.n_machines, kind)
        self.starts = np.concatenate([[0], np.cumsum(np.where(is_dense, 0, counts))])
        self.machines, self.values = np.empty(self.starts[-1], np.int32), np.empty(self.starts[-1], kind)
        own = pointers, features, machines.weights, self.steps
        lay_out(*own, self.place, self.dense, self.starts[:-1].copy(), self.machines, self.values)

    def scores(self, X: sparse.csr_array) -> NDArray[np.float32]:
        """Return the scores wᵀx of all machines (N, machines) for sparse rows X, in the order of their features."""
        if self.plain is not None:
            return np.asarray((X @ self.plain).toarray(), np.float32)
        from labelfield.compiled.scores import scores_by_feature

        out = _by_lines(X.shape[0], self.n_machines, np.float32)
        rows = X.indptr.astype(np.int32), X.indices.astype(np.int32, copy=False), X.data.astype(np.float32, copy=False)
        scores_by_feature(*rows, self.place, self.dense, self.starts, self.machines, self.values, self.steps, out)
        return out[:, : self.n_machines]


def _by_lines(n_rows: int, width: int, kind: type) -> NDArray[Any]:
    """Return zeros (n_rows, at least width) of which each row longer than a line of the cache begins with one.

    Registers as wide as a line are then filled from one line each, not from two.
    """
    per_line = _LINE // np.dtype(kind).itemsize
    if width <= per_line:  # of a few labels and millions of features, most would be what is left free
        return np.zeros((n_rows, width), kind)
    padded = -(-width // per_line) * per_line
    every: NDArray[Any] = np.zeros(n_rows * padded + per_line, kind)
    first = -(every.ctypes.data // every.itemsize) % per_line
    return every[first : first + n_rows * padded].reshape(n_rows, padded)


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
