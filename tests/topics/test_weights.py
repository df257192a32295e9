"""The M-step of W: a quadratic below the negative binomial, its matrices, and two ways to its least point."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelfield.linalg.rows import to_tensor
from labelfield.topics.rows import DesignMatrix
from labelfield.topics.weights import Quadratic, conjugate_gradients, matrices, omega_of, solve_exactly

SHAPES = (st.integers(1, 12), st.integers(1, 8), st.integers(1, 4), st.integers(0, 1000))


def problem(n_rows, n_features, n_topics, seed, scale=1.0):
    """A quadratic in float64, its features with the constant beside them (N, D + 1), and weights to start from."""
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n_rows, n_features), density=0.5, format="csr", rng=rng, dtype=np.float64)
    X.sort_indices()
    arrays = (
        rng.gamma(1, 1, (n_rows, n_topics)),
        rng.normal(size=(n_rows, n_topics)),
        rng.gamma(1, 1, n_features + 1) + 0.1,
        rng.normal(size=(n_features + 1, n_topics)),
    )
    omega, target, precision, W = (torch.from_numpy(array) for array in arrays)
    dense = np.concatenate([X.toarray(), np.ones((n_rows, 1))], axis=1)
    return Quadratic(DesignMatrix(to_tensor(X)), omega, target, precision, scale), dense, W


def dense_matrices(quadratic, dense):
    for omega in quadratic.omega.numpy().T:
        yield quadratic.scale * dense.T @ (omega[:, None] * dense) + np.diag(quadratic.precision)


def values(quadratic, dense, W):
    """½ wᵀ(s XᵀΩX + Λ)w - s wᵀXᵀg (K,)."""
    W, right = W.numpy(), quadratic.scale * dense.T @ quadratic.target.numpy()
    return np.array(
        [0.5 * w @ A @ w - w @ g for w, g, A in zip(W.T, right.T, dense_matrices(quadratic, dense), strict=True)]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_omega_is_the_mean_of_polya_gamma(dtype):
    """b tanh(ψ/2) / (2ψ), b/4 at ψ = 0, the same for -ψ."""
    psi = torch.tensor([1e-8, 1e-5, 1e-3, 0.1, 1.0, 10.0, 60.0, 1e4], dtype=dtype)
    total = torch.linspace(0.1, 7, len(psi), dtype=dtype)
    exact = total.double() * torch.tanh(psi.double() / 2) / (2 * psi.double())
    for signed in (psi, -psi):
        # Below 2e-4 tanh(x) / x is taken at 1e-4, which is 3e-9 less than 1.
        torch.testing.assert_close(
            omega_of(total, signed).double(), exact, rtol=1e-6 if dtype is torch.float32 else 4e-9, atol=0
        )
    torch.testing.assert_close(omega_of(total, torch.zeros_like(psi)), total / 4, rtol=1e-6, atol=0)


def test_the_quadratic_is_below_and_touches():
    """-b log(1 + e^ψ) ≥ -b ψ/2 - ½ ω ψ² + const for the ω of another ψ, and both are equal there."""
    psi = torch.linspace(-30, 30, 601, dtype=torch.float64)
    b = torch.tensor(2.5, dtype=torch.float64)
    for at in torch.tensor([-20.0, -3.0, 0.0, 0.5, 8.0], dtype=torch.float64):
        omega = omega_of(b, at)
        gap = -b * torch.nn.functional.softplus(psi) + b * psi / 2 + omega * psi.square() / 2
        here = -b * torch.nn.functional.softplus(at) + b * at / 2 + omega * at.square() / 2
        assert (gap >= here - 1e-12 * b * (1 + at.abs()) ** 2).all()


@given(*SHAPES)
@settings(max_examples=10)
def test_matrices_are_dense_ones(n_rows, n_features, n_topics, seed):
    quadratic, dense, _ = problem(n_rows, n_features, n_topics, seed, scale=1 + seed % 3)
    ours = list(matrices(quadratic))
    assert len(ours) == n_topics
    for one, other in zip(ours, dense_matrices(quadratic, dense), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@given(*SHAPES)
@settings(max_examples=10)
def test_the_solution_is_that_of_dense_algebra(n_rows, n_features, n_topics, seed):
    quadratic, dense, _ = problem(n_rows, n_features, n_topics, seed, scale=1 + seed % 3)
    right = quadratic.scale * dense.T @ quadratic.target.numpy()
    expected = [np.linalg.solve(A, g) for A, g in zip(dense_matrices(quadratic, dense), right.T, strict=True)]
    # Λ is 0.1 at least and XᵀΩX some hundreds at most: a condition of thousands.
    np.testing.assert_allclose(solve_exactly(quadratic, torch.float64), np.transpose(expected), rtol=1e-9, atol=1e-11)
    assert solve_exactly(quadratic).dtype == torch.float32


@given(*SHAPES)
@settings(max_examples=10)
def test_each_step_of_conjugate_gradients_lowers_the_quadratic(n_rows, n_features, n_topics, seed):
    """For every topic, until it is where it is least: after D + 1 steps if there were no rounding."""
    quadratic, dense, W = problem(n_rows, n_features, n_topics, seed, scale=1 + seed % 3)
    psi = torch.from_numpy(dense @ W.numpy())
    lowest = values(quadratic, dense, solve_exactly(quadratic, torch.float64))
    size = np.abs(values(quadratic, dense, W)) + np.abs(lowest)
    before = values(quadratic, dense, W)
    for n_steps in range(n_features + 4):
        found, at = conjugate_gradients(quadratic, W, psi, n_steps)
        torch.testing.assert_close(at, torch.from_numpy(dense @ found.numpy()))
        now = values(quadratic, dense, found)
        assert (now <= before + 1e-12 * size).all()
        has_far_to_go = before - lowest > 1e-6 * size
        assert n_steps == 0 or (now < before)[has_far_to_go].all()
        before = now
    np.testing.assert_allclose(found, solve_exactly(quadratic, torch.float64), rtol=1e-6, atol=1e-7)


def test_no_steps_leave_everything_where_it_is():
    quadratic, dense, W = problem(5, 3, 2, 0)
    psi = torch.from_numpy(dense @ W.numpy())
    found, at = conjugate_gradients(quadratic, W, psi, 0)
    assert found.equal(W)
    assert at.equal(psi)


def test_the_solution_stays_where_it_is():
    """Also if there is nothing left to do, so that lengths are 0 / 0."""
    quadratic, dense, _ = problem(9, 4, 3, 1)
    zero = quadratic._replace(target=torch.zeros(9, 3, dtype=torch.float64))
    W = torch.zeros(5, 3, dtype=torch.float64)
    found, psi = conjugate_gradients(zero, W, torch.zeros(9, 3, dtype=torch.float64), 4)
    assert found.equal(W)
    assert not psi.any()
    exact = solve_exactly(quadratic, torch.float64)
    found, _ = conjugate_gradients(quadratic, exact, torch.from_numpy(dense @ exact.numpy()), 3)
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-12)


def test_steps_end_at_the_tolerance(monkeypatch):
    quadratic, dense, W = problem(200, 40, 3, 2)
    psi = torch.from_numpy(dense @ W.numpy())
    calls = []
    times = DesignMatrix.times
    monkeypatch.setattr(DesignMatrix, "times", lambda self, W: calls.append(1) or times(self, W))
    found, _ = conjugate_gradients(quadratic, W, psi, 1000, tolerance=1e-6)
    assert len(calls) < 45
    exact = solve_exactly(quadratic, torch.float64)
    assert (found - exact).norm() < 1e-5 * (W - exact).norm()


def test_topics_do_not_meet():
    """All at once is each alone."""
    quadratic, dense, W = problem(30, 10, 4, 3)
    psi = torch.from_numpy(dense @ W.numpy())
    together, _ = conjugate_gradients(quadratic, W, psi, 3)
    for k in range(4):
        own = slice(k, k + 1)
        alone = quadratic._replace(omega=quadratic.omega[:, own], target=quadratic.target[:, own])
        found, _ = conjugate_gradients(alone, W[:, own], psi[:, own], 3)
        torch.testing.assert_close(found, together[:, own])
