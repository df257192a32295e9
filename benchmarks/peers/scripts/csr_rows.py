"""Rows as SciPy matrices, for packages that cannot read several labels per row."""

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import normalize

__all__ = ["as_pairs", "read_rows"]


def read_rows(path, unit=True):
    """Read X, with rows scaled to norm one if `unit`, and Y."""
    with open(path, "rb") as lines:
        n_rows, n_features, n_labels = map(int, next(lines).split())
        X, labels = load_svmlight_file(lines, n_features=n_features, multilabel=True, zero_based=True, dtype=np.float32)
    counts = [len(row) for row in labels]
    indices = np.fromiter((label for row in labels for label in row), np.int64, sum(counts))
    Y = sparse.csr_matrix(
        (np.ones(len(indices), np.float32), indices, np.concatenate([[0], np.cumsum(counts)])), (n_rows, n_labels)
    )
    return normalize(X) if unit else X, Y


def as_pairs(P):
    """Yield each row of a sparse matrix as (label, score), the best first."""
    for row in range(P.shape[0]):
        own = slice(P.indptr[row], P.indptr[row + 1])
        order = np.argsort(-P.data[own], kind="stable")
        yield [
            (int(label), float(score)) for label, score in zip(P.indices[own][order], P.data[own][order], strict=True)
        ]
