"""Columns whose numbers are codes of categories: which ones they are, and an indicator for each code.

A kernel or a network treats 0, 1, 2 as points on a line. Where they stand for categories without an order, that order
misleads it. Labels show the difference: their frequencies change smoothly along a measurement, but jump from code to
code.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts

# Columns with more codes are left as they are: each code would have few rows.
_MOST_CODES = 100
_LEAST_ROWS_PER_CODE = 20
# Codes are close together; numbers far apart are measurements that happen to have few values.
_MOST_GAPS = 10
# The share of what the values say about labels that a smooth function of them must miss, and by how many standard
# deviations more than by chance.
_UNEVEN, _DEVIATIONS = 0.25, 3.0
# Numbers in one table of codes by labels: beyond it only frequent labels could say anything.
_MOST_CELLS = 1 << 22
_BLOCK_ROWS = 4096


class Codes(NamedTuple):
    """The codes of some columns, by column and then by value; each becomes one indicator."""

    columns: NDArray[np.int32]
    values: NDArray[np.int32]

    def indicators(self, X: sparse.csr_array) -> sparse.csr_array:
        """Return a 1 for the code that each row has in each column (N, codes); an unknown code gets no 1."""
        coded, first = np.unique(self.columns, return_index=True)
        ends = np.append(first[1:], self.columns.size)
        counts, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for start in range(0, X.shape[0], _BLOCK_ROWS):
            rows = X[start : start + _BLOCK_ROWS, coded].toarray()
            place = np.empty(rows.shape, np.int32)
            for number, (begin, end) in enumerate(zip(first, ends, strict=True)):
                known, own = self.values[begin:end], rows[:, number]
                nearest = np.minimum(np.searchsorted(known, own), known.size - 1)
                place[:, number] = np.where(known[nearest] == own, begin + nearest, -1)
            counts.append((place >= 0).sum(1))
            found.append(place[place >= 0])
        indices = np.concatenate(found)
        return from_counts(np.concatenate(counts), indices, np.ones(indices.size, np.float32), self.columns.size)

    def unknown(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the columns that hold codes, and for each a value that is not one of its codes."""
        coded, first = np.unique(self.columns, return_index=True)
        return coded, self.values[first] - 1


def find_codes(X: sparse.csr_array, Y: sparse.csr_array | None = None) -> Codes | None:
    """Return the codes of those columns that look like codes of categories, or None if there is no such column.

    A column may hold codes if its values are 3 to 100 different integers, close together, with at least 20 rows for
    each on average. It does if the frequencies of labels, as a function of the value, jump: a polynomial of low degree
    misses a quarter of their variation. Columns with the same values, such as the squares of a board, are judged
    together. Without labels, every such column is taken to hold codes.
    """
    by_column, groups = X.tocsc(), dict[bytes, list[int]]()
    for column in range(X.shape[1]):
        known = _few_integers(by_column.data[by_column.indptr[column] : by_column.indptr[column + 1]], X.shape[0])
        if known is not None:
            groups.setdefault(known.tobytes(), []).append(column)
    found = []
    for values, alike in groups.items():
        known = np.frombuffer(values, np.int32)
        if Y is None or _jumps(by_column[:, alike], known, Y):
            found += [(column, known) for column in alike]
    if not found:
        return None
    found.sort(key=lambda one: one[0])
    sizes = [known.size for _, known in found]
    columns = np.repeat(np.array([column for column, _ in found], np.int32), sizes)
    return Codes(columns, np.concatenate([known for _, known in found]))


def _few_integers(stored: NDArray[np.float32], n_rows: int) -> NDArray[np.int32] | None:
    """Return the different values of a column, including 0 if some rows store none; None if they cannot be codes."""
    if stored.size == 0:
        return None
    low, high = min(float(stored.min()), 0.0), max(float(stored.max()), 0.0)
    if high - low > _MOST_GAPS * _MOST_CODES or (stored != np.rint(stored)).any():
        return None
    counts = np.bincount((stored - low).astype(np.int64), minlength=int(-low) + 1)
    counts[int(-low)] += n_rows - stored.size
    known = np.flatnonzero(counts)
    is_close = known[-1] - known[0] <= _MOST_GAPS * known.size
    few = 3 <= known.size <= _MOST_CODES and n_rows >= _LEAST_ROWS_PER_CODE * known.size
    return (known + int(low)).astype(np.int32) if few and is_close else None


def _jumps(columns: sparse.csc_array, known: NDArray[np.int32], Y: sparse.csr_array) -> bool:
    """Return whether the frequencies of labels jump from value to value of these columns, which have the same values.

    This is an analysis of variance after removing a polynomial fit. The polynomial is in the rank of a value, since
    measurements such as counts may have a long tail.
    """
    size = known.size
    if size * Y.shape[1] > _MOST_CELLS:
        return False
    degree = min(3, max(1, size // 4))
    left, missed, whole, spread = size - 1 - degree, 0.0, 0.0, 0.0
    for counts, rates in _rates(columns, known, Y):
        n = counts.sum()
        noise = float((counts @ (rates * (1 - rates))).sum()) / max(n - size, 1)
        root = np.sqrt(counts)[:, None]
        differences = (rates - counts @ rates / n) * root
        rank = 2 * (counts.cumsum() - counts / 2) / n - 1
        basis = np.linalg.qr(np.vander(rank, degree + 1) * root)[0]
        # Both less what chance alone gives.
        missed += float(((differences - basis @ (basis.T @ differences)) ** 2).sum()) - left * noise
        whole += float((differences**2).sum()) - (size - 1) * noise
        spread += 2 * left * noise**2
    return missed > _DEVIATIONS * spread**0.5 and missed > _UNEVEN * whole


def _rates(
    columns: sparse.csc_array, known: NDArray[np.int32], Y: sparse.csr_array
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield for each column how many rows have each value, and the share of each label among them (values, K)."""
    n, size = Y.shape[0], known.size
    zero = np.searchsorted(known, 0)
    for begin, end in pairwise(columns.indptr.tolist()):
        code = np.full(n, zero)
        code[columns.indices[begin:end]] = np.searchsorted(known, columns.data[begin:end])
        rows = sparse.csr_array((np.ones(n), code, np.arange(n + 1)), shape=(n, size))
        counts = np.bincount(code, minlength=size).astype(np.float64)
        yield counts, (rows.T @ Y).toarray() / counts[:, None]
