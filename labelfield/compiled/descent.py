"""Dual coordinate descent for many labels at once, and products with sparse weights, on arrays of NumPy.

For each label of a block, and y = ±1, the problem is

    min_w  ½ ‖w‖² + C Σ_i (1 - y_i (wᵀx_i - 1))₊²,    w = Σ_i y_i α_i x_i,    α_i ≥ 0

The first entry of every x_i is a constant, whose weight moves the intercept away from -1. A step takes one row and
minimises exactly over its α, for all labels of the block: α ← (α - g / (‖x‖² + 1 / 2C))₊ with
g = y wᵀx - (1 + y) + α / 2C (Hsieh et al. 2008). The weights of a feature for all labels of a block lie side by side,
so that a step is a sum of a few short vectors that stay in cache.
"""

import numpy as np
from numpy.typing import NDArray

from labelfield.compiled import compiled

F4 = NDArray[np.float32]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]

_ZERO, _ONE = np.float32(0), np.float32(1)
# Steps below this change no score that matters, and need not be carried over to the weights.
_LEAST_STEP = np.float32(1e-6)
# Machines whose scores are written together: a line of cache.
_MACHINES = 16


@compiled()
def number_features(indptr: I8, indices: I4, rows: I8, places: I4, n_before: int) -> int:
    """Give every feature of these rows (CSR) that has none a place, from n_before on; return how many have one then.

    `places` (D,) is -1 for features without a place.
    """
    n_features = n_before
    for row in rows:
        for j in range(indptr[row], indptr[row + 1]):
            if places[indices[j]] < 0:
                places[indices[j]] = n_features
                n_features += 1
    return n_features


@compiled()
def restrict(indptr: I8, indices: I4, values: F4, rows: I8, places: I4, constant: float) -> tuple[I8, I4, F4, F4]:
    """Return these rows (CSR) on the features that have a place, in the columns of their places, and squared norms.

    Places begin at 1: column 0 of the result is the constant.
    """
    n_rows, n_values = rows.shape[0], 0
    starts = np.empty(n_rows + 1, np.int64)
    starts[0] = 0
    for at in range(n_rows):
        n_values += 1
        for j in range(indptr[rows[at]], indptr[rows[at] + 1]):
            n_values += places[indices[j]] >= 0
        starts[at + 1] = n_values
    columns, kept = np.empty(n_values, np.int32), np.empty(n_values, np.float32)
    squares = np.full(n_rows, np.float32(constant * constant))
    end = 0
    for at in range(n_rows):
        columns[end], kept[end] = 0, constant
        end += 1
        for j in range(indptr[rows[at]], indptr[rows[at] + 1]):
            place = places[indices[j]]
            if place >= 0:
                columns[end], kept[end] = place, values[j]
                squares[at] += values[j] * values[j]
                end += 1
    return starts, columns, kept, squares


@compiled(fastmath=True)
def sweep(
    starts: I8, columns: I4, values: F4, squares: F4, signs: NDArray[np.int8], W: F4, alpha: F4, order: I8, ridge: float
) -> float:
    """Take a step on each of these rows, in this order, for all labels: change W and alpha (rows, labels) in place.

    `signs` (rows, labels) is y, and `ridge` is 1 / 2C. Return the largest change of a gradient.
    """
    n_labels, diagonal = W.shape[1], np.float32(ridge)
    f, step, worst = np.empty(n_labels, np.float32), np.empty(n_labels, np.float32), _ZERO
    for row in order:
        first, last = starts[row], starts[row + 1]
        f[:] = _ZERO
        for j in range(first, last):
            w, value = W[columns[j]], values[j]
            for k in range(n_labels):
                f[k] += value * w[k]
        curvature = squares[row] + diagonal
        rate, largest = _ONE / curvature, _ZERO
        for k in range(n_labels):
            y, a = np.float32(signs[row, k]), alpha[row, k]
            new = max(a - (y * f[k] - (_ONE + y) + a * diagonal) * rate, _ZERO)
            alpha[row, k] = new
            step[k] = (new - a) * y
            largest = max(largest, abs(new - a))
        worst = max(worst, largest * curvature)
        if largest > _LEAST_STEP:
            for j in range(first, last):
                w, value = W[columns[j]], values[j]
                for k in range(n_labels):
                    w[k] += value * step[k]
    return float(worst)


@compiled(fastmath=True)
def forget(starts: I8, columns: I4, values: F4, signs: NDArray[np.int8], W: F4, alpha: F4, rows: I8) -> None:
    """Take the part of these rows out of the weights, and set their alpha to 0."""
    n_labels = W.shape[1]
    for row in rows:
        for j in range(starts[row], starts[row + 1]):
            w, value = W[columns[j]], values[j]
            for k in range(n_labels):
                w[k] -= value * alpha[row, k] * np.float32(signs[row, k])
        alpha[row] = _ZERO


@compiled(fastmath=True)
def dense_scores(starts: I8, columns: I4, values: F4, W: F4, rows: I8, out: F4) -> None:
    """Write the scores X W of these rows into `out` (rows, labels)."""
    for place in range(rows.shape[0]):
        out[place] = _ZERO
        for j in range(starts[rows[place]], starts[rows[place] + 1]):
            w, value = W[columns[j]], values[j]
            for k in range(W.shape[1]):
                out[place, k] += value * w[k]


@compiled()
def machine_scores(
    pointers: I8, features: I4, weights: F4, starts: I8, rows: I4, values: F4, first: int, last: int, out: F4
) -> None:
    """Write the scores of machines from first to last into `out` (N, machines), for rows by feature: (starts, rows).

    The weights of a machine are read once for all rows, so that neither they nor the scores need another order. Scores
    of a few machines are written together: those of one alone lie too far apart.
    """
    own = np.zeros((_MACHINES, out.shape[0]), np.float32)
    for begin in range(first, last, _MACHINES):
        n = min(_MACHINES, last - begin)
        own[:] = _ZERO
        for place in range(n):
            to = own[place]
            for j in range(pointers[begin + place], pointers[begin + place + 1]):
                weight = weights[j]
                for at in range(starts[features[j]], starts[features[j] + 1]):
                    to[rows[at]] += values[at] * weight
        for row in range(out.shape[0]):
            for place in range(n):
                out[row, begin + place] = own[place, row]
