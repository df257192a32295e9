"""Projected Newton steps end where scipy's bounded quasi-Newton method ends, in a handful of passes."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from labelfield.linalg.newton import logistic_regression


def problem(seed, n=400, p=6, scale=1.0):
    rng = np.random.default_rng(seed)
    features = scale * rng.normal(size=(n, p))
    truth = rng.random(n) < expit(features @ rng.normal(size=p))
    return features, truth, rng.normal(size=p), np.r_[np.zeros(p // 2), np.full(p - p // 2, -np.inf)]


def objective(w, features, is_true, start, caution):
    u = features @ w
    return np.logaddexp(0, u).sum() - u @ is_true + 0.5 * caution * np.sum((w - start) ** 2)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_the_optimum_is_that_of_scipy(seed, scale):
    features, is_true, start, least = problem(seed, scale=scale)
    found = logistic_regression(features, is_true, start, least, 3.0)
    bounds = [(low, None) for low in least]
    judge = minimize(
        objective,
        np.maximum(start, least),
        (features, is_true, start, 3.0),
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 5000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9},
    )
    assert (found >= least).all()
    assert objective(found, features, is_true, start, 3.0) <= judge.fun + 1e-6 * (1 + abs(judge.fun))
    np.testing.assert_allclose(found, judge.x, atol=2e-3)


def test_entries_that_a_line_separates_leave_weights_finite():
    features = np.linspace(-1, 1, 50)[:, None]
    found = logistic_regression(features, features[:, 0] > 0, np.ones(1), np.zeros(1), 1e-3)
    assert np.isfinite(found).all()
    assert found[0] > 10


def test_what_pushes_against_its_bound_stays_there():
    features, is_true, start, least = problem(0)
    features[:, 0] = -5.0 * (2 * is_true - 1)
    assert logistic_regression(features, is_true, start, least, 3.0)[0] == 0


def test_entries_may_be_grouped_into_shares_with_weights():
    features, is_true, start, least = problem(1, n=60)
    each = np.arange(60) % 3 + 1
    together = logistic_regression(features, is_true, start, least, 3.0, each.astype(np.float64))
    apart = logistic_regression(np.repeat(features, each, axis=0), np.repeat(is_true, each), start, least, 3.0)
    np.testing.assert_allclose(together, apart, atol=1e-6)
    twice = np.concatenate([features, features])
    halves = logistic_regression(features, np.full(60, 0.5), start, least, 3.0, np.full(60, 2.0))
    both = logistic_regression(twice, np.r_[np.ones(60), np.zeros(60)], start, least, 3.0)
    np.testing.assert_allclose(halves, both, atol=1e-6)
