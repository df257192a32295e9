"""The inputs of every score: truth as CSR, and scores as a dense matrix or CSR predictions."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import row_of_entries, sorted_csr
from labelfield.errors import DataError

Scores = Any
_BLOCK_ENTRIES = 1 << 21


def as_scores(scores: Scores, shape: tuple[int, int] | None = None) -> Any:
    """Return a float array (N, K), or a CSR array with sorted columns; check its shape, and that no score is nan."""
    scores = sorted_csr(scores) if sparse.issparse(scores) else np.asarray(scores)
    if isinstance(scores, np.ndarray) and scores.ndim == 2 and scores.dtype.kind in "biu":
        scores = scores.astype(np.float64)
    values = _stored(scores)
    if scores.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataError(f"scores of shape {scores.shape} and type {values.dtype}", expected="a matrix of numbers")
    if shape is not None and tuple(scores.shape) != tuple(shape):
        found = f"scores of {scores.shape[0]} rows and {scores.shape[1]} labels"
        expected = f"{shape[0]} rows and {shape[1]} labels, as in the truth"
        raise DataError(found, expected, "Score the same rows and the same label set.")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise DataError("a score is nan", expected="numbers that can be ranked", fix="Check the predictions.")
    return scores


def are_probabilities(scores: Any) -> bool:
    """Return whether all scores (of `as_scores`) are between 0 and 1."""
    values = _stored(scores)
    return bool(values.size == 0 or (values.min() >= 0 and values.max() <= 1))


def as_probabilities(scores: Scores, shape: tuple[int, int] | None = None) -> Any:
    """Return scores that are probabilities, as `as_scores` does; raise a DataError for any others."""
    scores = as_scores(scores, shape)
    if not are_probabilities(scores):
        found = f"scores from {_stored(scores).min():g} to {_stored(scores).max():g}"
        raise DataError(found, expected="probabilities", fix="Pass probabilities.")
    return scores


def _stored(scores: Any) -> NDArray[Any]:
    return np.asarray(scores.data if sparse.issparse(scores) else scores)


def block_rows(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Yield slices of rows whose dense blocks are small."""
    step = max(1, _BLOCK_ENTRIES // max(n_columns, 1))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def find(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the place of each wanted key among the ascending keys (any place if absent), and whether it is there."""
    if keys.size == 0:
        return np.zeros(wanted.shape, np.int64), np.zeros(wanted.shape, np.bool_)
    place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return place, np.asarray(keys[place] == wanted)


def entry_keys(array: sparse.csr_array) -> NDArray[np.int64]:
    """Return row * K + column of each stored entry; the keys ascend, so that they can be searched."""
    return np.asarray(row_of_entries(array) * array.shape[1] + array.indices, np.int64)


def scores_of(Y: sparse.csr_array, scores: Any) -> NDArray[Any]:
    """Return the score of each entry of Y, nan where none is stored."""
    if isinstance(scores, np.ndarray):
        return np.asarray(scores[row_of_entries(Y), Y.indices])
    found, is_stored = find(entry_keys(scores), entry_keys(Y))
    values = np.full(found.size, np.nan)
    values[is_stored] = scores.data[found[is_stored]]
    return values
