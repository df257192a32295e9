"""The compiled loop gives what exact arithmetic gives, and hides no number that is not finite."""

import numpy as np
import pytest

from labelfield.linalg.quadrature import gauss_hermite

pytest.importorskip("numba")

from labelfield.compiled.softplus import softplus_in_place


def points(n):
    return [np.array(numbers, np.float32) for numbers in gauss_hermite(n)]


def exact(mean, var, n_points):
    """Return the value and both derivatives, element by element in float64."""
    value, by_mean, by_var = np.zeros((3, *mean.shape))
    for node, weight in zip(*points(n_points), strict=True):
        f = mean.astype(float) + float(node) * np.sqrt(var.astype(float))
        value += weight * np.logaddexp(0, f)
        by_mean += weight / (1 + np.exp(-f))
        by_var += 0.5 * weight / (np.exp(f / 2) + np.exp(-f / 2)) ** 2
    return value, by_mean, by_var


@pytest.mark.parametrize(("reach", "n_points"), [(1e-3, 1), (3.0, 3), (20.0, 10), (80.0, 3)])
def test_equals_exact_arithmetic(reach, n_points):
    rng = np.random.default_rng(0)
    mean = rng.uniform(-reach, reach, (7, 333)).astype(np.float32)
    var = rng.gamma(1, 0.5, mean.shape).astype(np.float32) * (reach < 50)
    weight = rng.uniform(0.5, 2, 333).astype(np.float32)
    value, by_mean, by_var = exact(mean, var, n_points)
    d_mean, d_var = mean.copy(), var.astype(np.float32)
    total = softplus_in_place(d_mean, d_var, weight, *points(n_points))
    np.testing.assert_allclose(total, (value * weight).sum(), rtol=1e-6)
    # f itself is rounded, which changes exp(f) by |f| times the rounding error of float32.
    tolerance = 2e-6 + 3e-7 * reach
    np.testing.assert_allclose(d_mean, by_mean * weight, rtol=tolerance)
    np.testing.assert_allclose(d_var, by_var * weight, rtol=tolerance)


def test_numbers_that_are_not_finite_stay_visible():
    for bad, expected in ((np.nan, np.nan), (np.inf, np.inf)):
        mean, var = np.zeros((2, 40), np.float32), np.ones((2, 40), np.float32)
        mean[1, 17] = bad
        total = softplus_in_place(mean, var, np.ones(40, np.float32), *points(3))
        np.testing.assert_equal(total, expected)
        assert np.isfinite(mean[0]).all()
        assert np.isfinite(np.delete(mean[1], 17)).all()
    mean = np.array([[-np.inf, -1e30, 1e30]], np.float32)
    total = softplus_in_place(mean, np.zeros((1, 3), np.float32), np.ones(3, np.float32), *points(3))
    np.testing.assert_allclose(total, 1e30, rtol=1e-6)
    np.testing.assert_allclose(mean, [[0, 0, 1]], atol=1e-30)
