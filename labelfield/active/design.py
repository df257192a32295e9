"""Which rows to label so that the labels of the others are known best: transductive design (Yu, Bi and Tresp, 2006).

Suppose that labels are linear in the features of a row, y = wᵀφ(x) + noise of variance λ, with w ~ N(0, I). How well
the labels of a row x' are known once some rows are labelled does not depend on their labels: the variance of wᵀφ(x') is
φ(x')ᵀ S φ(x') for the posterior covariance S of w. Rows are chosen one after another, each time the one that lowers the
sum of these variances over the pool the most, where row i counts by u_i, how uncertain the model is of it:

    gain of x = φ(x)ᵀ S M S φ(x) / (φ(x)ᵀ S φ(x) + λ),    M = Σ_i u_i φ(x_i) φ(x_i)ᵀ

So neither an outlier gains much, nor a copy of a row that is labelled, but a frequent kind of row that the model is
unsure of. φ(x) is a row of norm 1 in a sketch of a few hundred columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows, row_norms
from labelfield.memory import row_blocks

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
# Columns of the sketch, the variance of the noise, and rows that are sketched at a time.
_WIDTH, _NOISE, _MOST_ROWS = 256, 0.1, 10_000


def choose_rows(
    rows: sparse.csr_array, uncertainty: F8, n: int, labelled: sparse.csr_array | None = None
) -> NDArray[np.int64]:
    """Return n rows of a pool, in the order in which they are chosen; `labelled` are rows whose labels are known."""
    Phi = _sketch(rows)
    M = ((Phi * uncertainty[:, None].astype(np.float32)).T @ Phi).astype(np.float64)
    S = np.eye(Phi.shape[1]) if labelled is None else np.linalg.inv(np.eye(Phi.shape[1]) + _products(labelled) / _NOISE)
    SPhi = Phi @ S.astype(np.float32)
    variance = np.einsum("nd,nd->n", SPhi, Phi).astype(np.float64)
    gain = np.einsum("nd,nd->n", SPhi @ M.astype(np.float32), SPhi).astype(np.float64)
    chosen, left = np.empty(n, np.int64), np.ones(len(Phi), np.bool_)
    for place in range(n):
        chosen[place] = row = int(np.argmax(np.where(left, gain / (variance + _NOISE), -np.inf)))
        left[row] = False
        # S loses s sᵀ / c; variances and gains lose what they share with the row.
        s, c = S @ Phi[row], float(variance[row]) + _NOISE
        Ms = M @ s
        shared, passed = (Phi @ np.stack([s, S @ Ms], 1).astype(np.float32)).T.astype(np.float64)
        gain += shared * (shared * float(s @ Ms) / c - 2 * passed) / c
        variance -= np.square(shared) / c
        S -= np.outer(s, s / c)
    return chosen


def _products(rows: sparse.csr_array) -> F8:
    """Return the sum of φ(x) φ(x)ᵀ over rows."""
    width = min(rows.shape[1], _WIDTH)
    total = np.zeros((width, width))
    for block in row_blocks(rows.shape[0], width, entries=_MOST_ROWS * width, most=_MOST_ROWS):
        Phi = _sketch(gather_rows(rows, np.arange(block.start, block.stop)))
        total += Phi.T @ Phi
    return total


def _sketch(rows: sparse.csr_array) -> F4:
    """Return rows of norm 1 whose products are about those of the sparse rows: features are added up at random.

    A feature always gets the same column and sign, so that sketches of different rows can be compared.
    """
    n_features = rows.shape[1]
    if n_features > _WIDTH:
        rng = np.random.default_rng(0)
        column, sign = rng.integers(0, _WIDTH, n_features), 2 * rng.integers(0, 2, n_features).astype(np.float32) - 1
        rows = rows @ sparse.csr_array((sign, column, np.arange(n_features + 1)), shape=(n_features, _WIDTH))
    counts = np.diff(rows.indptr)
    norms = np.maximum(row_norms(rows.data, counts), 1e-12)
    values = (rows.data / np.repeat(norms, counts[counts > 0])).astype(np.float32)
    return np.asarray(sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape).toarray(), np.float32)
