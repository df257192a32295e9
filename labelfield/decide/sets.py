"""Several labels at once: how probable it is that the tags of a row are exactly its labels.

If labels were independent, that would be Π p over tags times Π (1 - p) over all other labels. Labels go together, so
held-out rows teach a map from that product to how often the tags were exactly right:

    logit q = a + c logit(product)
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

# Probabilities closer to 0 or 1 than this are set to it.
_SMALLEST = 1e-6
# The prior belief that labels are independent, in numbers of rows.
_CAUTION = 3.0


def log_parts(p: NDArray[np.floating], is_tag: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return what each label adds to the logarithm of the product: log p of a tag, else log (1 - p)."""
    p = np.clip(p.astype(np.float64), _SMALLEST, 1 - _SMALLEST)
    return np.asarray(np.where(is_tag, np.log(p), np.log1p(-p)))


def learn_map(log_product: NDArray[np.float64], is_exact: NDArray[np.bool_]) -> tuple[float, float]:
    """Learn a and c ≥ 0 from held-out rows; a weak prior at 0 and 1 keeps a few rows from deciding."""
    from scipy.optimize import minimize  # a server starts without it

    z = _logit(log_product)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        u, away = weights[0] + weights[1] * z, weights - [0, 1]
        value = np.logaddexp(0, u).sum() - u @ is_exact + 0.5 * _CAUTION * away @ away
        error = expit(u) - is_exact
        return float(value), np.array([error.sum(), error @ z]) + _CAUTION * away

    found = minimize(loss, np.array([0.0, 1.0]), jac=True, method="L-BFGS-B", bounds=[(None, None), (0.0, None)]).x
    return float(found[0]), float(found[1])


def probability_of_set(log_product: NDArray[np.float64], learned: tuple[float, float]) -> NDArray[np.float64]:
    """Return the probability that tags are exactly right."""
    return np.asarray(expit(learned[0] + learned[1] * _logit(log_product)))


def _logit(log_product: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.clip(log_product, -50.0, np.log1p(-_SMALLEST))
    return np.asarray(x - np.log(-np.expm1(x)))
