"""The effect of each feature of a row on some labels: predict the row again without it, one feature at a time.

    effect_dl = s_l(x) - s_l(x without d),     s the log-odds of the raw probability of label l

This is exact for any model, and takes as many predictions as the row has features. Leaving a feature out sets it to 0,
or to its mean where the model subtracts that (`row_transform="scaled"`, for features far from 0 in all rows): for such
a feature 0 would be an extreme value, not an absent one. A code of a category is replaced by one that is not known.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.estimators.protocol import FittedClassifier

# Rows times labels, and entries of rows, that exist at once.
_BLOCK_ENTRIES = 1 << 22


class Effects(NamedTuple):
    """The features of a row (n,), their values (n,), and how much each raises the log-odds of some labels (n, k)."""

    features: NDArray[np.int64]
    values: NDArray[np.float32]
    effects: NDArray[np.float64]


def feature_effects(estimator: FittedClassifier, x: sparse.csr_array, labels: NDArray[np.int64]) -> Effects:
    """Return the effect of each feature of the row x (1, D) on these labels, from blocks of rows that stay sparse."""
    nothing = estimator.members()[0].row_transform_.absent()  # members differ in scale, not in the means of features
    columns = x.indices.astype(np.int64)
    if nothing is not None:
        columns = np.union1d(columns, np.flatnonzero(nothing))
    values = np.zeros(columns.size, np.float32)
    values[np.searchsorted(columns, x.indices)] = x.data
    absent = np.zeros_like(values) if nothing is None else nothing[columns]
    taken = np.flatnonzero(values != absent)
    whole = _log_odds(estimator, x, labels)
    effects = np.empty((taken.size, labels.size))
    step = max(1, _BLOCK_ENTRIES // max(columns.size, estimator.predictor_.n_labels))
    for first in range(0, taken.size, step):
        some = taken[first : first + step]
        left = np.tile(values, (some.size, 1))
        left[np.arange(some.size), some] = absent[some]
        pointers = np.arange(some.size + 1) * columns.size
        rows = sparse.csr_array((left.ravel(), np.tile(columns, some.size), pointers), shape=(some.size, x.shape[1]))
        rows.eliminate_zeros()
        effects[first : first + step] = whole - _log_odds(estimator, rows, labels)
    return Effects(columns[taken], values[taken], effects)


def _log_odds(estimator: FittedClassifier, X: sparse.csr_array, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    return estimator.predictor_.log_odds(estimator.rows(X))[:, labels]
