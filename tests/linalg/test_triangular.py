"""Functions of triangular factors, computed in blocks, and their gradients equal those of the whole factors."""

import pytest
import torch

from labelfield.linalg import triangular
from labelfield.linalg.triangular import projected_square_norms, trace_minus_log_det, tril_inverse

P, M, B = 3, 5, 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks, and several processes at a time but not all."""
    monkeypatch.setattr(triangular, "_N_BLOCKS", {"cpu": 3, "cuda": 3})
    monkeypatch.setattr(triangular, "_SMALLEST_BLOCK", 2)
    monkeypatch.setattr(triangular, "_SCRATCH", {"cpu": 2 * 2 * M, "cuda": 2 * 2 * M})
    monkeypatch.setattr(triangular, "_KEPT", 3 * 2 * B)
    torch.manual_seed(0)


def factors():
    return torch.randn(P, M, M, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("shape", [(M, B), (P, M, B)])
def test_projected_square_norms(shape):
    L, A = factors(), torch.randn(shape, dtype=torch.float64, requires_grad=True)
    naive = (L.tril().mT @ A).square().sum(-2)
    torch.testing.assert_close(projected_square_norms(L, A), naive)
    with torch.no_grad():
        torch.testing.assert_close(projected_square_norms(L, A), naive)
    assert torch.autograd.gradcheck(projected_square_norms, (L, A))


@pytest.mark.parametrize("shape", [(M, M), (P, M, M), (1, 1)])
def test_inverse(shape, monkeypatch):
    monkeypatch.setattr(triangular, "_LARGEST_SOLVED", 2)
    L = torch.randn(shape, dtype=torch.float64).tril() + 3 * torch.eye(shape[-1], dtype=torch.float64)
    torch.testing.assert_close(tril_inverse(L), torch.linalg.inv(L))


def test_a_second_gradient_of_the_same_graph_is_the_first():
    L, A = factors(), torch.randn(M, B, dtype=torch.float64, requires_grad=True)
    total = projected_square_norms(L, A).square().sum()
    first = torch.autograd.grad(total, (L, A), retain_graph=True)
    for a, b in zip(first, torch.autograd.grad(total, (L, A)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("needed", [0, 1])
def test_one_gradient_alone(needed):
    inputs = [factors(), torch.randn(M, B, dtype=torch.float64)]
    inputs[0].requires_grad_(needed == 0)
    inputs[1].requires_grad_(needed == 1)
    assert torch.autograd.gradcheck(projected_square_norms, inputs)


@pytest.mark.parametrize("shape", [(P, M, M), (M, M)])
def test_trace_minus_log_det(shape):
    L = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    S = L.tril() @ L.tril().mT
    naive = S.diagonal(dim1=-2, dim2=-1).sum(-1) - torch.logdet(S)
    torch.testing.assert_close(trace_minus_log_det(L), naive)
    assert torch.autograd.gradcheck(trace_minus_log_det, (L,))
