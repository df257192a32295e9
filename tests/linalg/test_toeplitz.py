"""Results from the first column of a Toeplitz matrix, and their gradients, equal those of the whole matrix."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from linear_operator.operators import ToeplitzLinearOperator

from labelfield.linalg import toeplitz as module
from labelfield.linalg.cholesky import FactorisationError
from labelfield.linalg.toeplitz import (
    levinson,
    toeplitz,
    toeplitz_logdet,
    toeplitz_multiply,
    toeplitz_solve,
    toeplitz_trace,
)


def rbf(r, length):
    return (-0.5 * (r / length).square()).exp()


def matern12(r, length):
    return (-r / length).exp()


def matern52(r, length):
    s = math.sqrt(5) * r / length
    return (1 + s + s.square() / 3) * (-s).exp()


def spectral_mixture(r, length):
    return 0.6 * rbf(r, length) + 0.4 * rbf(r, 1.0) * (2 * math.pi * r / length).cos()


KERNELS = (rbf, matern12, matern52, spectral_mixture)
COLUMNS = (
    st.sampled_from(KERNELS),
    st.integers(1, 200),
    st.sampled_from([(), (1,), (3,), (2, 2)]),
    st.floats(0.05, 2),
    st.sampled_from([1e-1, 1e-2, 1e-4]),
)


def columns(kernel, n, batch=(), length=0.4, jitter=1e-2):
    """First columns of covariances on a grid from -1 to 1, each longer than the one before it."""
    lags = torch.arange(n, dtype=torch.float64) * 2 / max(1, n - 1)
    lengths = length * 1.2 ** torch.arange(math.prod(batch), dtype=torch.float64).view(*batch, 1)
    column = kernel(lags, lengths)
    return torch.cat([(1 + jitter) * column[..., :1], column[..., 1:]], -1)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def close(a, b, jitter):
    """Up to rounding times the condition, which the jitter bounds."""
    torch.testing.assert_close(a, b, rtol=1e-9 / jitter, atol=1e-10 / jitter * b.abs().max().item())


@given(*COLUMNS)
def test_a_product_is_that_of_the_whole_matrix(kernel, n, batch, length, jitter):
    c, V = columns(kernel, n, batch, length, jitter), normal(*batch, n, 2)
    K = toeplitz(c)
    places = torch.arange(n)
    assert torch.equal(K, c[..., (places[:, None] - places).abs()])
    torch.testing.assert_close(toeplitz_multiply(c, V), K @ V, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(toeplitz_multiply(c, V), ToeplitzLinearOperator(c) @ V, rtol=1e-9, atol=1e-9)


@given(*COLUMNS)
def test_inverse_and_determinant_are_those_of_the_whole_matrix(kernel, n, batch, length, jitter):
    c, V = columns(kernel, n, batch, length, jitter), normal(*batch, n, 2)
    K = toeplitz(c)
    first, logdet = levinson(c)
    close(first, torch.linalg.inv(K)[..., 0], jitter)
    close(logdet, torch.logdet(K), jitter)
    close(toeplitz_solve(c, V), torch.linalg.solve(K, V), jitter)


def test_the_recursion_is_the_same_for_tensors_and_arrays():
    """A GPU's are tensors."""
    scaled = columns(matern52, 30, (3,), jitter=0).flip(-1)
    results = []
    for of, flip, dot in (
        (torch.Tensor.numpy, lambda part: part[:, ::-1], np.vecdot),
        (torch.Tensor.detach, lambda part: part.flip(-1), torch.linalg.vecdot),
    ):
        a, errors = torch.eye(3, 30, dtype=torch.float64)[:1].repeat(3, 1), torch.ones(3, 30, dtype=torch.float64)
        module._recursion(of(scaled), of(a), of(errors), flip, dot)
        results.append((a, errors))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


@given(*COLUMNS)
def test_gradients_are_those_through_the_whole_matrix(kernel, n, batch, length, jitter):
    """Compared with a factorisation and two triangular solves."""
    c, V = columns(kernel, n, batch, length, jitter).requires_grad_(), normal(*batch, n, 2).requires_grad_()
    G = normal(*batch, n, 2).cos()
    inverse = levinson(c)
    ours = toeplitz_logdet(c, inverse).sum() + (toeplitz_solve(c, V, inverse) * G).sum()
    L = torch.linalg.cholesky(toeplitz(c))
    dense = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum() + (torch.cholesky_solve(V, L) * G).sum()
    for a, b in zip(torch.autograd.grad(ours, (c, V)), torch.autograd.grad(dense, (c, V)), strict=True):
        close(a, b, jitter)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradients(n, batch):
    c, V = columns(rbf, n, batch, jitter=0.5).requires_grad_(), normal(*batch, n, 3).requires_grad_()
    assert torch.autograd.gradcheck(toeplitz, (c,))
    assert torch.autograd.gradcheck(toeplitz_multiply, (c, V))
    assert torch.autograd.gradcheck(toeplitz_logdet, (c,))
    assert torch.autograd.gradcheck(toeplitz_solve, (c, V))


def test_one_matrix_for_many_right_hand_sides():
    c, V = columns(rbf, 4, (1,), jitter=0.5).requires_grad_(), normal(3, 4, 2).requires_grad_()
    torch.testing.assert_close(toeplitz_solve(c, V), torch.linalg.solve(toeplitz(c), V))
    assert torch.autograd.gradcheck(toeplitz_solve, (c, V))


def test_a_few_right_hand_sides_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "_SCRATCH", {"cpu": 64, "cuda": 64})
    c, V = columns(rbf, 5, (2,), jitter=0.5).requires_grad_(), normal(2, 5, 7).requires_grad_()
    torch.testing.assert_close(toeplitz_solve(c, V), torch.linalg.solve(toeplitz(c), V))
    assert torch.autograd.gradcheck(toeplitz_solve, (c, V))


@pytest.mark.parametrize("kernel", KERNELS)
def test_as_exact_as_a_factorisation(kernel):
    """The residual for a condition of 1e8."""
    c, V = columns(kernel, 200, jitter=1e-6), normal(200, 1)
    K = toeplitz(c)
    left = [(K @ X - V).norm() for X in (toeplitz_solve(c, V), torch.cholesky_solve(V, torch.linalg.cholesky(K)))]
    assert left[0] < 2 * left[1]


def test_single_precision_is_solved_in_double():
    c, V = columns(rbf, 6).float(), normal(6, 1).float()
    for result in (*levinson(c), toeplitz_logdet(c), toeplitz_solve(c, V)):
        assert result.dtype == torch.float64


def test_what_is_not_positive_definite_is_an_error():
    good = columns(rbf, 3)
    cases = (([1.0, 0.9, 0.0], "-3.26"), ([-1.0, 0.0, 0.0], "-1"), ([0.0, 0.0, 0.0], "0"), ([1.0, 1.0, 1.0], "0"))
    for bad, variance in cases:
        c = torch.stack([good, torch.tensor(bad, dtype=torch.float64)])
        with pytest.raises(FactorisationError, match=rf"K of 3 rows is not positive .* variance of {variance};"):
            levinson(c, "K")
    with pytest.raises(FactorisationError, match="not finite"):
        toeplitz_logdet(torch.tensor([1.0, float("nan")]))


@pytest.mark.parametrize("n", [1, 2, 7, 60])
@pytest.mark.parametrize("n_columns", [3, 1], ids=["own columns", "one column"])
def test_traces_are_dense_ones(n, n_columns):
    generator = torch.Generator().manual_seed(n)
    lags = torch.arange(n, dtype=torch.float64)
    column = (-lags / torch.tensor([[2.0], [3.0], [5.0]])[:n_columns]).exp().requires_grad_()
    L = torch.randn(3, n, n, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    ours = toeplitz_trace(column, L)
    dense = (torch.linalg.solve(toeplitz(column), L) * L).sum((-2, -1))
    torch.testing.assert_close(ours, dense)
    for one, other in zip(
        torch.autograd.grad((ours * weight).sum(), (column, L)),
        torch.autograd.grad((dense * weight).sum(), (column, L)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
