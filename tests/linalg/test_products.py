"""Products by oneDNN have the values and gradients of torch's own, for every layout of their factors."""

import pytest
import torch

from labelfield.linalg import products
from labelfield.linalg.products import product


@pytest.fixture(autouse=True, params=[True, False], ids=["oneDNN", "torch"])
def library(request, monkeypatch):
    """Ask for both libraries, whatever this processor prefers."""
    if request.param and products._onednn() is None:
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(products, "_has_wide_registers", lambda: request.param)
    monkeypatch.setattr(products, "_WORTH_ASKING", 1)


@pytest.mark.parametrize("is_turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 70, 5), (40, 33, 65)])
def test_values_and_gradients(shape, is_turned):
    torch.manual_seed(0)
    m, n, p = shape
    A, B, G = torch.randn(m, n), torch.randn(n, p), torch.randn(m, p)
    A, B = (part.T.contiguous().T if turn else part for part, turn in zip((A, B), is_turned, strict=True))
    A.requires_grad_(), B.requires_grad_()
    result = product(A, B)
    (result * G).sum().backward()
    for ours, exact in (
        (result, A.double() @ B.double()),
        (A.grad, G.double() @ B.double().T),
        (B.grad, A.double().T @ G.double()),
    ):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5)


def test_parts_of_larger_matrices():
    A = torch.randn(20, 30)
    torch.testing.assert_close(product(A[3:9, 5:11], A[4:10, 2:7]), A[3:9, 5:11] @ A[4:10, 2:7])


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty_matrices(shape):
    m, n, p = shape
    assert torch.equal(product(torch.ones(m, n), torch.ones(n, p)), torch.zeros(m, p))


def test_other_types_and_batches_are_multiplied_by_torch():
    A = torch.randn(2, 5, 5)
    assert torch.equal(product(A, A), A @ A)
    assert torch.equal(product(A[0].double(), A[0].double()), A[0].double() @ A[0].double())
