"""The gradient that goes to K past its factor is the one through the factor, and as exact in single precision."""

import pytest
import torch

from labelfield.linalg.cholesky import whitened

M, B = 6, 4


def through_the_factor(K, C):
    A = torch.linalg.solve_triangular(torch.linalg.cholesky(K), C.double(), upper=False)
    return A.to(C.dtype)


def directly(K, C):
    return whitened(K, torch.linalg.cholesky(K.detach()), C)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_gradients(batch):
    torch.manual_seed(0)
    root = torch.randn(*batch, M, M, dtype=torch.float64, requires_grad=True)
    C = torch.randn(*batch, M, B, dtype=torch.float64, requires_grad=True)

    def value(root, C):
        return directly(root @ root.mT + torch.eye(M, dtype=torch.float64), C)

    assert torch.autograd.gradcheck(value, (root, C))


def test_as_exact_as_through_the_factor():
    """For nearly dependent inducing inputs (condition 1e6): errors against float64 throughout, with C in float32."""
    torch.manual_seed(0)
    Z, X = torch.randn(60, 2, dtype=torch.float64), torch.randn(80, 2, dtype=torch.float64)

    def covariance(a, b):
        return (-0.5 * torch.cdist(a, b).square()).exp()

    K0, C0 = covariance(Z, Z) + 1e-5 * torch.eye(60, dtype=torch.float64), covariance(Z, X)
    weights = torch.randn(60, 80, dtype=torch.float64)

    def gradients(form, dtype):
        K, C = K0.clone().requires_grad_(), C0.to(dtype, copy=True).requires_grad_()
        A = form(K, C)
        (A.square() * weights.to(dtype)).sum().backward()
        symmetric = (K.grad + K.grad.mT) / 2  # only this part of it means anything
        return [part.double() for part in (A.detach(), symmetric, C.grad)]

    exact = gradients(through_the_factor, torch.float64)
    errors = [
        [(a - b).norm() / b.norm() for a, b in zip(gradients(form, torch.float32), exact, strict=True)]
        for form in (directly, through_the_factor)
    ]
    for ours, usual in zip(*errors, strict=True):
        assert ours <= 1.01 * usual
    for ours, usual in zip(gradients(directly, torch.float64), exact, strict=True):
        torch.testing.assert_close(ours, usual, rtol=1e-9, atol=1e-9 * usual.abs().max().item())
