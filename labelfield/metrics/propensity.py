"""Propensities of labels: how likely a true label is to have been recorded at all [Jain et al. 2016]."""

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import as_positives, column_counts
from labelfield.errors import DataError

PROPENSITY_A = 0.55
PROPENSITY_B = 1.5
# "probability", "utility", "propensity", or the power of the inverse propensity.
RankBy = str | float


def inverse_propensity(Y_train: Any, a: float = PROPENSITY_A, b: float = PROPENSITY_B) -> NDArray[np.float64]:
    """Return 1/p_l = 1 + C (N_l + b)^-a (K,) with C = (log N - 1)(b + 1)^a, from the training labels.

    Usual values of (a, b): (0.6, 2.6) for the Amazon data sets, (0.5, 0.4) for WikiLSHTC, the default for all others.
    """
    Y_train = as_positives(Y_train)
    frequency = column_counts(Y_train)
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


def rank_power(rank_by: Any) -> float:
    """Return the power of the inverse propensity that labels are ranked by: 1 for "propensity", 0 for "probability" and
    for "utility", whose lists have values in that order."""
    words = {"probability": 0.0, "utility": 0.0, "propensity": 1.0}
    if isinstance(rank_by, str) and rank_by in words:
        return words[rank_by]
    is_number = isinstance(rank_by, int | float | np.integer | np.floating) and not isinstance(rank_by, bool)
    if not is_number or not 0 <= rank_by < inf:
        raise ValueError(
            f"rank_by={rank_by!r}; expected 'probability', 'utility', 'propensity', or a power such as 0.5"
        )
    return float(rank_by)


def rank_weight(rank_by: Any, inverse: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64] | None:
    """Return the weight of each label (K,) in a ranking by p times weight; None for a ranking by p alone.

    A true label in the list adds its inverse propensity to PSP@k, so p times inverse propensity is what a label is
    expected to add: no other order has a higher expectation if p is the probability. A power below 1 leans less to rare
    labels. `inverse` is asked for inverse propensities only if they are needed.
    """
    power = rank_power(rank_by)
    # Under the formula propensities of one or two training rows exceed 1.
    return np.maximum(inverse(), 1.0) ** power if power else None
