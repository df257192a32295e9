"""Operations on the factors of a Kronecker product equal those on the whole product."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelfield.linalg.kronecker import (
    kronecker_logdet,
    kronecker_multiply,
    kronecker_solve,
    kronecker_trace,
)
from tests.linalg.dense import kronecker_product

SIZES = (st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.booleans())


def random(J, d, n, T, is_shared=False):
    """Lower factors, of one product or of J, and right-hand sides."""
    generator = torch.Generator().manual_seed(J + 10 * d + 100 * n)
    shape = (1 if is_shared else J, d, n, n)
    factors = torch.randn(shape, dtype=torch.float64, generator=generator)
    factors = factors.tril(-1) + torch.diag_embed(factors.diagonal(dim1=-2, dim2=-1).exp())
    return factors, torch.randn(J, n**d, T, dtype=torch.float64, generator=generator)


def test_the_first_factor_varies_slowest():
    factors = torch.randn(1, 3, 2, 2)
    a, b, c = factors[0]
    torch.testing.assert_close(kronecker_product(factors)[0], torch.kron(torch.kron(a, b), c))


@given(*SIZES)
def test_products_and_solutions(J, d, n, T, is_shared):
    factors, V = random(J, d, n, T, is_shared)
    dense = kronecker_product(factors)
    torch.testing.assert_close(kronecker_multiply(factors, V), dense @ V)
    torch.testing.assert_close(kronecker_multiply(factors, kronecker_solve(factors, V)), V)
    torch.testing.assert_close(kronecker_solve(factors, dense @ V), V, rtol=1e-6, atol=1e-6)


@given(*SIZES[:3])
def test_determinants_and_traces(J, d, n):
    factors, _ = random(J, d, n, 1)
    dense = kronecker_product(factors)
    torch.testing.assert_close(kronecker_logdet(torch.logdet(factors), n), torch.logdet(dense))
    traces = factors.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(kronecker_trace(traces), dense.diagonal(dim1=-2, dim2=-1).sum(-1))


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("d", [1, 2])
def test_gradients(d, is_shared):
    factors, V = (tensor.requires_grad_() for tensor in random(2, d, 3, 2, is_shared))
    assert torch.autograd.gradcheck(kronecker_multiply, (factors, V))
    assert torch.autograd.gradcheck(lambda L, V: kronecker_solve(L.tril(), V), (factors, V))
    assert torch.autograd.gradcheck(kronecker_trace, (V[:, :, 0],))


def test_sizes_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match="V has 5 rows; a product of 2 matrices of 2 rows needs 4"):
        kronecker_multiply(torch.ones(1, 2, 2, 2), torch.ones(1, 5, 1))
