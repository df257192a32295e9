"""The gradient that goes to K past its factor is the one through the factor, and about as exact in single precision."""

import pytest
import torch

from labelfield.kernels import squared_exponential
from labelfield.linalg.cholesky import whitened
from labelfield.linalg.triangular import tril_inverse

M, B = 6, 4


def through_the_factor(K, C):
    A = torch.linalg.solve_triangular(torch.linalg.cholesky(K), C.double(), upper=False)
    return A.to(C.dtype)


def directly(K, C):
    return whitened(K, tril_inverse(torch.linalg.cholesky(K.detach())), C)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_gradients(batch):
    torch.manual_seed(0)
    root = torch.randn(*batch, M, M, dtype=torch.float64, requires_grad=True)
    C = torch.randn(*batch, M, B, dtype=torch.float64, requires_grad=True)

    def value(root, C):
        return directly(root @ root.mT + torch.eye(M, dtype=torch.float64), C)

    assert torch.autograd.gradcheck(value, (root, C))


@pytest.mark.parametrize(("n_inducing", "n_features"), [(60, 2), (300, 5)])
def test_about_as_exact_as_through_the_factor(n_inducing, n_features):
    """For nearly dependent inducing inputs (conditions of 1e6 and 1e5), errors against float64 throughout.

    The kernel's own rounding in float32 is multiplied by the inverse factor in both forms; that of the inverse comes on
    top.
    """
    torch.manual_seed(0)
    kernel = squared_exponential()
    Z, X = torch.randn(n_inducing, n_features), torch.randn(n_inducing + 20, n_features)
    with torch.no_grad():
        K0 = kernel.double().gram(Z.double()) + 1e-5 * torch.eye(n_inducing, dtype=torch.float64)
        exact_C, rounded_C = kernel.cross(X.double(), Z.double()).mT, kernel.float().cross(X, Z).mT
    weights = torch.randn(n_inducing, n_inducing + 20, dtype=torch.float64)

    def gradients(form, covariances):
        K, C = K0.clone().requires_grad_(), covariances.clone().requires_grad_()
        A = form(K, C)
        (A.square() * weights.to(C.dtype)).sum().backward()
        symmetric = (K.grad + K.grad.mT) / 2  # only this part of it means anything
        return [part.double() for part in (A.detach(), symmetric, C.grad)]

    exact = gradients(through_the_factor, exact_C)
    errors = [
        [(a - b).norm() / b.norm() for a, b in zip(gradients(form, rounded_C), exact, strict=True)]
        for form in (directly, through_the_factor)
    ]
    for ours, usual in zip(*errors, strict=True):
        assert ours <= 5 * usual
    for ours, usual in zip(gradients(directly, exact_C), exact, strict=True):
        torch.testing.assert_close(ours, usual, rtol=1e-8, atol=1e-8 * usual.abs().max().item())
