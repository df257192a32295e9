"""Propensities of labels: how likely a true label is to have been recorded at all [Jain et al. 2016]."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import as_positives
from labelfield.errors import DataError

__all__ = ["PROPENSITY_A", "PROPENSITY_B", "inverse_propensity", "inverse_propensity_of"]

PROPENSITY_A = 0.55
PROPENSITY_B = 1.5


def inverse_propensity(Y_train: Any, a: float = PROPENSITY_A, b: float = PROPENSITY_B) -> NDArray[np.float64]:
    """Return 1/p_l = 1 + C (N_l + b)^-a (K,) with C = (log N - 1)(b + 1)^a, from the training labels.

    Usual values of (a, b): (0.6, 2.6) for the Amazon data sets, (0.5, 0.4) for WikiLSHTC, the default for all others.
    """
    Y_train = as_positives(Y_train)
    frequency = np.bincount(Y_train.indices, minlength=Y_train.shape[1])
    return inverse_propensity_of(frequency, Y_train.shape[0], a, b)


def inverse_propensity_of(
    frequency: NDArray[np.int64], n: int, a: float = PROPENSITY_A, b: float = PROPENSITY_B
) -> NDArray[np.float64]:
    """Return the same from the number of training rows, of n, that have each label (K,)."""
    if n == 0:
        raise DataError("no training rows to compute propensities from", fix="Pass the training labels.")
    if not (0 <= a < inf and 0 < b < inf):
        raise ValueError(f"propensity parameters a={a}, b={b}; expected a >= 0 and b > 0")
    c = (np.log(n) - 1) * (b + 1) ** a
    return np.asarray(1 + c * (frequency + b) ** -a, np.float64)
