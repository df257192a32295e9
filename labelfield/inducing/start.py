"""Where inducing inputs start: centres of the rows, and the basis of a subspace."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import column_counts
from labelfield.linalg.rows import dot, entry_rows, to_tensor, transposed

_ROWS_PER_CENTRE = 20
_OVERSAMPLING = 10
_N_ITERATIONS = 4
# Vectors that are multiplied together.
_COLUMNS = 64


def kmeans(
    X: sparse.csr_array | NDArray[np.float32],
    count: int,
    rng: np.random.Generator,
    device: torch.device | str = "cpu",
    columns: NDArray[np.integer] | None = None,
) -> NDArray[np.float32]:
    """Return centres (M, D) after a few rounds of Lloyd's algorithm from random rows, on at most 20 rows per centre.

    With `columns`, centres are those of the rows on these alone.
    This is a start, not a clustering: the centres are trained further. A centre without rows moves to a random one.
    """
    n = X.shape[0]
    chosen = np.sort(rng.choice(n, min(n, _ROWS_PER_CENTRE * count), replace=False))
    rows = _on(X[chosen], columns)
    count = min(count, rows.shape[0])
    points = to_tensor(rows, device) if sparse.issparse(rows) else torch.from_numpy(rows).to(device)
    centres = torch.from_numpy(_dense(rows[np.sort(rng.choice(rows.shape[0], count, replace=False))])).to(device)
    for _ in range(_N_ITERATIONS):
        # The nearest centre maximises x·c - ‖c‖² / 2.
        nearest = (dot(points, centres.T.contiguous()) - 0.5 * centres.square().sum(1)).argmax(1)
        counts = torch.bincount(nearest, minlength=count)
        centres = _sums(points, nearest, count) / counts.clamp_min(1).unsqueeze(1)
        empty = (counts == 0).nonzero().squeeze(1)
        centres[empty] = torch.from_numpy(_dense(rows[rng.choice(rows.shape[0], empty.numel())])).to(device)
    return centres.cpu().numpy()


def random_rows(
    X: sparse.csr_array | NDArray[np.float32],
    count: int,
    rng: np.random.Generator,
    columns: NDArray[np.integer] | None = None,
) -> NDArray[np.float32]:
    """Return rows (M, D) that are drawn without replacement, all of them if there are no more; of these `columns`."""
    n = X.shape[0]
    return _dense(_on(X[np.sort(rng.choice(n, min(n, count), replace=False))], columns))


def _on(rows: Any, columns: NDArray[np.integer] | None) -> Any:
    return rows if columns is None else rows[:, columns]


def _sums(points: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """Return the sum of the rows of each group (groups, D), in float64, where the order of additions has no effect."""
    total = torch.zeros(n_groups, points.shape[1], dtype=torch.float64, device=points.device)
    if points.layout != torch.sparse_csr:
        return total.index_add_(0, group, points.double()).float()
    row = entry_rows(points.crow_indices(), points.col_indices().numel())
    total.view(-1).index_add_(0, group[row] * points.shape[1] + points.col_indices(), points.values().double())
    return total.float()


def _dense(rows: Any) -> NDArray[np.float32]:
    """Return a few rows as a dense array."""
    return np.array(rows.toarray() if sparse.issparse(rows) else rows, np.float32)


def singular_vectors(
    X: sparse.csr_array | NDArray[np.float32], rank: int, rng: np.random.Generator, device: torch.device | str = "cpu"
) -> NDArray[np.float32]:
    """Return at most rank(X) leading right singular vectors X̃ (R, D) of X, by randomised subspace iteration.

    Iterations are in the smaller of the spaces of rows and features, with X Xᵀ or Xᵀ X, in float64: no array of
    features by vectors is factorised, and none in float64 is formed as a whole.
    """
    n, d = X.shape
    points = to_tensor(X, device) if sparse.issparse(X) else torch.from_numpy(np.asarray(X)).to(device)
    points = points.double()
    turned = transposed(points)
    there, back = (turned, points) if n <= d else (points, turned)  # into the larger space, and back
    start = rng.standard_normal((min(n, d), min(rank + _OVERSAMPLING, n, d)))
    Q = torch.linalg.qr(torch.from_numpy(start).to(device)).Q
    for _ in range(_N_ITERATIONS):
        Q = torch.linalg.qr(_there_and_back(there, back, Q)).Q
    squares, rotation = torch.linalg.eigh(Q.T @ _there_and_back(there, back, Q))
    squares, rotation = squares.flip(0).clamp_min(0), rotation.flip(1)
    kept = min(rank, int((squares > squares.max() * 1e-10).sum()) if squares.numel() else 0)
    vectors = Q @ rotation[:, :kept]
    if n > d:
        return np.ascontiguousarray(vectors.T.float().cpu().numpy())
    vectors = vectors / squares[:kept].sqrt()
    result = np.empty((kept, d), np.float32)
    for some in _column_blocks(kept):
        result[some] = dot(turned, vectors[:, some].contiguous()).T.float().cpu().numpy()
    return result


def _there_and_back(there: Tensor, back: Tensor, Q: Tensor) -> Tensor:
    """Return back (there Q), a few columns at a time: only these exist in the larger space."""
    return torch.cat([dot(back, dot(there, Q[:, some].contiguous())) for some in _column_blocks(Q.shape[1])], 1)


def _column_blocks(n_columns: int) -> Iterator[slice]:
    return (slice(first, min(first + _COLUMNS, n_columns)) for first in range(0, n_columns, _COLUMNS))


def frequent_features(X: sparse.csr_array, n_features: int) -> NDArray[np.int32]:
    """Return the features that occur in the most rows, in ascending order."""
    counts = column_counts(X)
    return np.sort(np.argsort(-counts, kind="stable")[:n_features]).astype(np.int32)
