"""Which rows to label so that the labels of all others are known best: transductive design (Yu, Bi and Tresp, 2006).

Labels are thought to be linear in the features of a row: y = wᵀφ(x) + noise of variance λ, with w ~ N(0, I). Then what
will be known of a row x' after some rows have their labels does not depend on these labels: its variance is φ(x')ᵀ S φ(x')
for the posterior covariance S of w. Rows are chosen one after another, each the one that lowers the weighted sum of these
variances over the whole pool the most:

    gain of x = φ(x)ᵀ S M S φ(x) / (φ(x)ᵀ S φ(x) + λ),    M = Σ_i u_i φ(x_i) φ(x_i)ᵀ

where u_i is how uncertain the model is of row i. So outliers and copies of rows that are labelled gain little, and
frequent kinds of rows that the model is unsure of gain much. φ is a row of norm 1, in a sketch of a few hundred columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import row_norms

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
# Columns of the sketch, and the variance of the noise.
_WIDTH, _NOISE = 512, 0.1


def choose_rows(
    rows: sparse.csr_array, uncertainty: F8, n: int, labelled: sparse.csr_array | None = None
) -> NDArray[np.int64]:
    """Return n rows of a pool, in the order in which they are chosen; `labelled` are rows whose labels are known."""
    Phi = _sketch(rows)
    M = (Phi * (uncertainty / max(float(uncertainty.sum()), 1e-12))[:, None].astype(np.float32)).T @ Phi
    M = M.astype(np.float64)
    S = np.eye(Phi.shape[1])
    if labelled is not None and labelled.shape[0]:
        known = _sketch(labelled)
        S = np.linalg.inv(S + (known.T @ known).astype(np.float64) / _NOISE)
    Sx = Phi @ S.astype(np.float32)
    variance = np.einsum("nd,nd->n", Sx, Phi).astype(np.float64)
    gain = np.einsum("nd,nd->n", Sx @ M.astype(np.float32), Sx).astype(np.float64)
    chosen, left = np.empty(n, np.int64), np.ones(len(Phi), np.bool_)
    for place in range(n):
        chosen[place] = row = int(np.argmax(np.where(left, gain / (variance + _NOISE), -np.inf)))
        left[row] = False
        # S loses s sᵀ / c, and with it the variances and gains of all rows what they share with this one.
        s, c = S @ Phi[row], float(variance[row]) + _NOISE
        Ms = M @ s
        shared, passed = (Phi @ np.stack([s, S @ Ms], 1).astype(np.float32)).T.astype(np.float64)
        gain += shared * (shared * float(s @ Ms) / c - 2 * passed) / c
        variance -= np.square(shared) / c
        S -= np.outer(s, s) / c
    return chosen


def _sketch(rows: sparse.csr_array) -> F4:
    """Return rows of norm 1 (N, width) whose products are about those of the sparse rows: columns are added at random.

    A feature always gets the same column and sign, so that sketches of different rows can be compared.
    """
    n_features = rows.shape[1]
    if n_features > _WIDTH:
        rng = np.random.default_rng(0)
        column, sign = rng.integers(0, _WIDTH, n_features), rng.choice(np.array([-1, 1], np.float32), n_features)
        rows = rows @ sparse.csr_array((sign, column, np.arange(n_features + 1)), shape=(n_features, _WIDTH))
    norms = np.repeat(row_norms(rows.data, np.diff(rows.indptr)), np.diff(rows.indptr)[np.diff(rows.indptr) > 0])
    values = (rows.data / np.maximum(norms, 1e-12)).astype(np.float32)
    return np.asarray(sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape).toarray(), np.float32)
