"""Groups of labels that hold in similar rows."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import some_of

# Label centroids are compared in this many random dimensions, which so many rows have at a time.
_SKETCH, _ROWS_AT_ONCE = 32, 1 << 18
# Rounds of k-means, features of a centroid of norm 1 below which they are left out, and labels at a time.
_ROUNDS, _LEAST, _LABELS_AT_ONCE = 10, 0.05, 1 << 14


def similar_labels(X: sparse.csr_array, Y: sparse.csr_array, size: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the labels that hold anywhere in groups of at most this size."""
    every = np.unique(Y.indices).astype(np.int64)
    if every.size <= size:
        return [every] if every.size else []
    return split_apart(label_centroids(X, Y, seed), every, size)


def label_centroids(X: sparse.csr_array, Y: sparse.csr_array, seed: int) -> NDArray[np.float64]:
    """Return the direction of the mean of each label's rows, in a random projection."""
    sketch = np.random.default_rng(seed).standard_normal((X.shape[1], _SKETCH), np.float32)
    centroids = np.zeros((Y.shape[1], _SKETCH))
    for first in range(0, X.shape[0], _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, X.shape[0])
        own, held = (some_of(part, first, last) for part in (X, Y))
        centroids += sparse.csr_array(held.T) @ (own @ sketch)
    centroids /= np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-30)
    return centroids


def nested_groups(
    X: sparse.csr_array, Y: sparse.csr_array, labels: NDArray[np.int64], n_upper: int, lower_size: int, seed: int
) -> list[NDArray[np.int64]]:
    """Return labels in at most this many upper groups, and then again in lower groups of at most
    this size, all of which but the last in each upper group are full; those of the first upper group come first.

    Upper groups are of any size: what is alike stays together, most of all frequent labels.
    """
    upper, centroids = _clusters(X, Y, labels, n_upper, seed), label_centroids(X, Y, seed)
    return upper + [lower for group in upper for lower in split_apart(centroids, group, lower_size)]


def _clusters(
    X: sparse.csr_array, Y: sparse.csr_array, every: NDArray[np.int64], n_clusters: int, seed: int
) -> list[NDArray[np.int64]]:
    """Return labels in clusters by the cosine between their centroids: spherical k-means."""
    rng = np.random.default_rng(seed)
    if n_clusters == 1:
        return [every]
    rows_of, parts = sparse.csr_array(Y.T), list[sparse.csr_array]()
    for first in range(0, every.size, _LABELS_AT_ONCE):
        own = sparse.csr_array(rows_of[every[first : first + _LABELS_AT_ONCE]] @ X)
        norms = np.sqrt(np.asarray(own.multiply(own).sum(1)).ravel())
        own.data /= np.repeat(np.maximum(norms, 1e-30), np.diff(own.indptr)).astype(own.dtype)
        own.data[np.abs(own.data) < _LEAST] = 0
        own.eliminate_zeros()
        parts.append(own)
    centroids = sparse.csr_array(sparse.vstack(parts, format="csr"))
    middles = centroids[np.sort(rng.permutation(every.size)[:n_clusters])].toarray().T
    place = np.zeros(every.size, np.int64)
    for _ in range(_ROUNDS):
        for first in range(0, every.size, _LABELS_AT_ONCE):
            some = slice(first, first + _LABELS_AT_ONCE)
            place[some] = (centroids[some] @ middles).argmax(1)
        ones, where = np.ones(every.size, np.float32), (np.arange(every.size), place)
        middles = (centroids.T @ sparse.csr_array((ones, where), shape=(every.size, n_clusters))).toarray()
        middles /= np.maximum(np.linalg.norm(middles, axis=0), 1e-30)
    return [every[place == number] for number in np.unique(place)]


def split_apart(centroids: NDArray[np.float64], labels: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Return these labels in groups of at most this size, all of which but the last are full.

    Labels are halved again and again along the main direction of their centroids.
    """
    waiting, groups = [labels], []
    while waiting:
        labels = waiting.pop()
        if labels.size <= size:
            groups += [labels] if labels.size else []
            continue
        away = centroids[labels] - centroids[labels].mean(0)
        order = labels[np.argsort(away @ np.linalg.eigh(away.T @ away)[1][:, -1], kind="stable")]
        half = (labels.size // size + 1) // 2 * size
        waiting += [order[half:], order[:half]]
    return groups
