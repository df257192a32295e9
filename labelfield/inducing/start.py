"""Where inducing inputs start: centres of the rows, and the basis of a subspace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["frequent_features", "kmeans", "singular_vectors"]

_ROWS_PER_CENTRE = 20
_OVERSAMPLING = 10


def kmeans(
    X: sparse.csr_array | NDArray[np.float32], n_centres: int, rng: np.random.Generator, n_iterations: int = 4
) -> NDArray[np.float32]:
    """Centres (M, D) by a few rounds of Lloyd's algorithm on at most 20 rows a centre, from random rows.

    A start, not a clustering: the centres are trained further. A centre that loses its rows moves to a random one.
    """
    n = X.shape[0]
    chosen = np.sort(rng.choice(n, min(n, _ROWS_PER_CENTRE * n_centres), replace=False))
    rows = X[chosen]
    n_centres = min(n_centres, rows.shape[0])
    centres = _dense(rows[np.sort(rng.choice(rows.shape[0], n_centres, replace=False))])
    for _ in range(n_iterations):
        # The nearest centre maximises x·c - ‖c‖² / 2.
        nearest = np.argmax(np.asarray(rows @ centres.T) - 0.5 * np.square(centres).sum(1), axis=1)
        counts = np.bincount(nearest, minlength=n_centres)
        assign = sparse.csr_array(
            (np.ones(nearest.size, np.float32), (nearest, np.arange(nearest.size))), shape=(n_centres, nearest.size)
        )
        centres = _dense(assign @ rows)
        centres /= np.maximum(counts, 1)[:, None]
        empty = np.flatnonzero(counts == 0)
        centres[empty] = _dense(rows[rng.choice(rows.shape[0], empty.size)])
    return np.ascontiguousarray(centres, np.float32)


def _dense(rows: Any) -> NDArray[np.float32]:
    """A few rows as a dense array."""
    return np.array(rows.toarray() if sparse.issparse(rows) else rows, np.float32)


def singular_vectors(
    X: sparse.csr_array | NDArray[np.float32], rank: int, rng: np.random.Generator, n_iterations: int = 4
) -> NDArray[np.float32]:
    """The leading right singular vectors X̃ (R, D) of X, by randomised subspace iteration; at most rank(X) of them."""
    n, d = X.shape
    width = min(rank + _OVERSAMPLING, n, d)
    Q = np.linalg.qr(X.T @ rng.standard_normal((n, width), np.float32))[0]
    for _ in range(n_iterations):
        Q = np.linalg.qr(X.T @ np.linalg.qr(X @ Q)[0])[0]
    _, values, rotation = np.linalg.svd(X @ Q, full_matrices=False)
    kept = min(rank, int(np.count_nonzero(values > values.max(initial=0) * 1e-5)))
    return np.ascontiguousarray((Q @ rotation[:kept].T).T, np.float32)


def frequent_features(X: sparse.csr_array, n_features: int) -> NDArray[np.int32]:
    """The features that occur in the most rows, in their order."""
    counts = np.bincount(X.indices, minlength=X.shape[1])
    return np.sort(np.argsort(-counts, kind="stable")[:n_features]).astype(np.int32)
