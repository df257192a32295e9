"""Where inducing inputs start: singular vectors are those of a dense factorisation, rows are rows."""

import numpy as np
import pytest
from scipy import sparse

from labelfield.inducing import random_rows, singular_vectors


def low_rank(n, d, rank, seed=0):
    rng = np.random.default_rng(seed)
    values = 2.0 ** -np.arange(rank)
    return ((rng.standard_normal((n, rank)) * values) @ rng.standard_normal((rank, d))).astype(np.float32)


@pytest.mark.parametrize("form", [sparse.csr_array, np.asarray])
@pytest.mark.parametrize("shape", [(30, 90), (90, 30)])
def test_singular_vectors_are_those_of_a_dense_factorisation(shape, form):
    """On either side: orthonormal, and up to signs the leading right singular vectors."""
    X = low_rank(*shape, 12)
    found = singular_vectors(form(X), 8, np.random.default_rng(0))
    _, values, expected = np.linalg.svd(X.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(found @ found.T, np.eye(8), atol=1e-5)
    np.testing.assert_allclose(np.abs((found * expected[:8]).sum(1)), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(X @ found.T, axis=0), values[:8], rtol=1e-4)


@pytest.mark.parametrize("shape", [(30, 90), (90, 30)])
def test_no_more_than_the_rank(shape):
    found = singular_vectors(low_rank(*shape, 5), 20, np.random.default_rng(0))
    assert found.shape == (5, shape[1])
    assert singular_vectors(sparse.csr_array((4, 3), dtype=np.float32), 2, np.random.default_rng(0)).shape == (0, 3)


def test_blocks_of_columns_change_nothing(monkeypatch):
    X = sparse.csr_array(low_rank(40, 70, 20))
    whole = singular_vectors(X, 15, np.random.default_rng(1))
    monkeypatch.setattr("labelfield.inducing.start._COLUMNS", 4)
    np.testing.assert_allclose(singular_vectors(X, 15, np.random.default_rng(1)), whole, atol=1e-5)


def test_random_rows_are_rows_each_at_most_once():
    X = sparse.random_array((20, 9), density=0.5, format="csr", dtype=np.float32, rng=0)
    found = random_rows(X, 8, np.random.default_rng(0))
    same = (np.abs(found[:, None] - X.toarray()[None]).max(2) == 0).sum(0)
    assert found.shape == (8, 9)
    assert same.max() == 1
    assert len(random_rows(X, 50, np.random.default_rng(0))) == 20
