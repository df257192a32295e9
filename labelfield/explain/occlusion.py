"""What each feature of a row does for some labels: the row is asked about again without it, one feature at a time.

    effect_dl = s_l(x) - s_l(x without d),     s the log-odds of the raw probability of label l

This is exact for any model, and takes as many rows as the row has features. A feature is taken out by setting it to 0;
where the model subtracts a mean from it (`row_transform="scaled"`, of features that are far from 0 in all rows), by
setting it to that mean, since nothing is what 0 would say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.estimators.deep import DeepKernelClassifier
from labelfield.estimators.gp import GPClassifier

__all__ = ["Effects", "feature_effects", "label_log_odds"]

# Rows times labels, and entries of rows, that exist at once.
_BLOCK_ENTRIES = 1 << 22


class Effects(NamedTuple):
    """The features of a row (n,), their values (n,), and how much each raises the log-odds of some labels (n, k)."""

    features: NDArray[np.int64]
    values: NDArray[np.float32]
    effects: NDArray[np.float64]


def label_log_odds(estimator: Any, X: sparse.csr_array, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Log-odds of the raw probabilities (N, k) of these labels, from `decision_function`.

    That gives log-odds of labels, the difference of two classes, and of more classes log p, of which log-odds are made
    here, so that effects are in the same units whatever the model is.
    """
    scores = np.asarray(estimator.decision_function(X), np.float64)
    if scores.ndim == 1:
        return np.stack([-scores, scores], 1)[:, labels]
    scores = scores[:, labels]
    if estimator.label_kind_ != "classes" or not isinstance(estimator, GPClassifier | DeepKernelClassifier):
        return scores
    # A probability in float32 comes no closer to 1 than this.
    most = np.log1p(-np.finfo(np.float32).epsneg)
    return np.asarray(scores - np.log(-np.expm1(np.minimum(scores, most))))


def feature_effects(estimator: Any, x: sparse.csr_array, labels: NDArray[np.int64]) -> Effects:
    """What each feature of the row x (1, D) does for these labels, some rows at a time; none is made dense."""
    nothing = _without_features(estimator, x.shape[1])
    columns = x.indices.astype(np.int64)
    if nothing is not None:
        columns = np.union1d(columns, np.flatnonzero(nothing))
    values = np.zeros(columns.size, np.float32)
    values[np.searchsorted(columns, x.indices)] = x.data
    base = np.zeros_like(values) if nothing is None else nothing[columns]
    taken = np.flatnonzero(values != base)
    whole = label_log_odds(estimator, x, labels)
    effects = np.empty((taken.size, labels.size))
    step = max(1, _BLOCK_ENTRIES // max(columns.size, estimator.spec_.n_labels))
    for first in range(0, taken.size, step):
        some = taken[first : first + step]
        left = np.tile(values, (some.size, 1))
        left[np.arange(some.size), some] = base[some]
        pointers = np.arange(some.size + 1) * columns.size
        rows = sparse.csr_array((left.ravel(), np.tile(columns, some.size), pointers), shape=(some.size, x.shape[1]))
        rows.eliminate_zeros()
        effects[first : first + step] = whole - label_log_odds(estimator, rows, labels)
    return Effects(columns[taken], values[taken], effects)


def _without_features(estimator: Any, n_features: int) -> NDArray[np.float32] | None:
    """What features are set to where that is not 0: the means that the model subtracts."""
    shifts: NDArray[np.float32] | None = estimator.row_transform_.shifts
    return None if shifts is None or not shifts.any() or shifts.size != n_features else shifts
