"""The compiled loops keep w = Σ y α x, minimise the dual, and multiply as SciPy does."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("numba")

from labelfield.compiled.descent import dense_scores, forget, machine_scores, number_features, restrict, sweep

COST = 0.7


def arrays(X):
    return X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data


def random_rows(n_rows, n_features, seed):
    return sparse.csr_array(sparse.random(n_rows, n_features, 0.2, format="csr", rng=seed, dtype=np.float32))


@pytest.fixture
def problem():
    """Rows, the signs of labels, and the state that a sweep starts with."""
    X, rng = random_rows(60, 25, 0), np.random.default_rng(1)
    signs = np.where(rng.random((60, 6)) < 0.2, 1, -1).astype(np.int8)
    squares = np.asarray(X.multiply(X).sum(1), np.float32)
    W, alpha = np.zeros((25, 6), np.float32), np.zeros((60, 6), np.float32)
    return X, signs, squares, W, alpha


def swept(X, signs, squares, W, alpha, n_passes, rows=None):
    rows = np.flatnonzero(np.diff(X.indptr)) if rows is None else rows
    rng, worst = np.random.default_rng(0), np.inf
    for _ in range(n_passes):
        worst = sweep(*arrays(X), squares, signs, W, alpha, rng.permutation(rows), 0.5 / COST)
    return worst


def dual(X, signs, alpha):
    w = X.T @ (signs * alpha.astype(float))
    return ((1 + signs) * alpha).sum() - 0.5 * (w**2).sum() - 0.25 / COST * (alpha.astype(float) ** 2).sum()


def test_sweeps_keep_weights_and_alpha_together_and_never_lower_the_dual(problem):
    X, signs, squares, W, alpha = problem
    before = 0.0
    for _ in range(5):
        swept(X, signs, squares, W, alpha, 1)
        assert (alpha >= 0).all()
        np.testing.assert_allclose(W, X.T @ (signs * alpha), atol=1e-4)
        now = dual(X, signs, alpha)
        assert now >= before - 1e-4
        before = now
    assert before > 1


def test_at_the_optimum_alpha_is_the_slope_of_the_loss(problem):
    """The conditions of Karush, Kuhn and Tucker: α = 2C (1 - y (wᵀx - 1))₊."""
    X, signs, squares, W, alpha = problem
    assert swept(X, signs, squares, W, alpha, 400) < 1e-3
    beyond = np.maximum(1 - signs * (X @ W - 1), 0)
    filled = np.diff(X.indptr) > 0
    np.testing.assert_allclose(alpha[filled], 2 * COST * beyond[filled], atol=1e-3)
    assert not alpha[~filled].any()


def test_rows_that_are_forgotten_leave_nothing_behind(problem):
    X, signs, squares, W, alpha = problem
    swept(X, signs, squares, W, alpha, 3)
    rows = np.array([3, 10, 59])
    assert alpha[rows].any()
    others = np.delete(alpha, rows, axis=0).copy()
    forget(*arrays(X), signs, W, alpha, rows)
    assert not alpha[rows].any()
    np.testing.assert_array_equal(np.delete(alpha, rows, axis=0), others)
    np.testing.assert_allclose(W, X.T @ (signs * alpha), atol=1e-4)


def test_restriction_keeps_a_constant_and_all_values_on_features_that_have_a_place():
    X, places = random_rows(40, 90, 3), np.full(90, -1, np.int32)
    n = number_features(*arrays(X)[:2], np.array([5, 7, 5]), places, 1)
    n = number_features(*arrays(X)[:2], np.array([31, 7]), places, n)
    features = np.flatnonzero(places >= 0)
    assert features.tolist() == sorted(set(X[[5, 7, 31]].indices))
    assert sorted(places[features]) == list(range(1, n))
    rows, order = np.array([39, 0, 5, 5]), features[np.argsort(places[features])]
    starts, columns, values, squares = restrict(*arrays(X), rows, places, 0.5)
    found = sparse.csr_array((values, columns, starts), shape=(4, n)).toarray()
    np.testing.assert_array_equal(found[:, 0], 0.5)
    np.testing.assert_array_equal(found[:, 1:], X[rows][:, order].toarray())
    np.testing.assert_allclose(squares, (found**2).sum(1), rtol=1e-6)
    bare = restrict(*arrays(X), np.arange(40), np.full(90, -1, np.int32), 0.5)
    assert [part.size for part in bare] == [41, 40, 40, 40]


def test_products_are_those_of_scipy():
    X, W = random_rows(50, 30, 4), random_rows(30, 12, 5)
    expected = (X @ W).toarray()
    out = np.full((50, 12), np.nan, np.float32)
    for first, last in ((0, 5), (5, 5), (5, 12)):
        machine_scores(*arrays(W.T.tocsr()), *arrays(X.T.tocsr()), first, last, out)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    rows, dense = np.array([4, 4, 49]), np.full((3, 12), np.nan, np.float32)
    dense_scores(*arrays(X), W.toarray(), rows, dense)
    np.testing.assert_allclose(dense, expected[rows], atol=1e-5)
