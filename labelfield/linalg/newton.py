"""Logistic regression with a few weights, some of them bounded from below, by projected Newton steps."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

_MOST_STEPS, _SHORTEST = 50, 1e-6
# The gradient over the number of entries at which steps end.
_PRECISE = 1e-7


def logistic_regression(
    features: NDArray[np.float64],
    target: NDArray[np.bool_ | np.floating],
    start: NDArray[np.float64],
    least: NDArray[np.float64],
    caution: float,
    weight: NDArray[np.float64] | None = None,
    near: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the w ≥ least that minimises Σ_i c_i (log(1 + exp(xᵢᵀw)) - t_i xᵢᵀw) + caution/2 ‖w - start‖².

    The target t is whether an entry holds, or the share that does of c entries (weight, 1 for all by default). Steps
    begin at `start`, or at a point that is known to be near the solution.

    The objective is strictly convex. Weights at their bound whose gradient pushes against it stay there in a step; the
    others take a Newton step, shortened until the objective falls by its share. That is a handful of passes over the
    entries where a quasi-Newton method takes dozens.
    """

    def objective(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        u, away = features @ w, w - start
        softplus = np.maximum(u, 0) + np.log1p(np.exp(-np.abs(u)))  # a fifth of the time of np.logaddexp(0, u)
        return float(softplus @ c - u @ expected + 0.5 * caution * away @ away), u

    c = np.ones(len(target)) if weight is None else weight
    expected, precise = c * target, _PRECISE * float(c.sum())
    w = np.maximum(start if near is None else near, least)
    value, u = objective(w)
    for _ in range(_MOST_STEPS):
        p = expit(u)
        gradient = features.T @ (c * p - expected) + caution * (w - start)
        is_free = (w > least) | (gradient < 0)
        if np.abs(gradient[is_free]).max(initial=0) <= precise:
            break
        curvature = features.T @ (features * (c * p * (1 - p))[:, None]) + caution * np.eye(w.size)
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
