"""Logistic regression with a few weights, some of them bounded from below, by projected Newton steps."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

_MOST_STEPS, _SHORTEST = 50, 1e-6
# The gradient over the number of entries at which steps end.
_PRECISE = 1e-7


def logistic_regression(
    features: NDArray[np.float64],
    is_true: NDArray[np.bool_],
    start: NDArray[np.float64],
    least: NDArray[np.float64],
    caution: float,
) -> NDArray[np.float64]:
    """Return the w ≥ least that minimises Σ log(1 + exp(-y xᵀw)) + caution/2 ‖w - start‖².

    The objective is strictly convex. Weights at their bound whose gradient pushes against it stay there in a step; the
    others take a Newton step, shortened until the objective falls by its share. That is a handful of passes over the
    entries where a quasi-Newton method takes dozens.
    """

    def objective(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        u, away = features @ w, w - start
        return float(np.logaddexp(0, u).sum() - u @ is_true + 0.5 * caution * away @ away), u

    w = np.maximum(start, least)
    value, u = objective(w)
    for _ in range(_MOST_STEPS):
        p = expit(u)
        gradient = features.T @ (p - is_true) + caution * (w - start)
        is_free = (w > least) | (gradient < 0)
        if np.abs(gradient[is_free]).max(initial=0) <= _PRECISE * len(u):
            break
        curvature = features.T @ (features * (p * (1 - p))[:, None]) + caution * np.eye(w.size)
        step = np.zeros(w.size)
        step[is_free] = -np.linalg.solve(curvature[np.ix_(is_free, is_free)], gradient[is_free])
        length = 1.0
        while length > _SHORTEST:
            tried = np.maximum(w + length * step, least)
            lower, moved = objective(tried)
            if lower <= value + 1e-4 * gradient @ (tried - w):
                break
            length /= 2
        else:
            break  # as precise as rounding allows
        w, value, u = tried, lower, moved
    return w
