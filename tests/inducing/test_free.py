import torch
from torch.nn.functional import normalize

from labelfield.inducing import Free


def test_unit_columns_have_the_gradient_of_a_normalisation():
    Z = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    free = Free(Z)
    weight = torch.randn(9, 4, dtype=torch.float64)
    found = free.points().Zt
    torch.testing.assert_close(found, normalize(Z.T, dim=0))
    (found * weight).sum().backward()
    other = Z.T.clone().requires_grad_()
    (normalize(other, dim=0) * weight).sum().backward()
    torch.testing.assert_close(free.transposed.grad, other.grad)


def test_an_input_of_zeros_stays_finite():
    free = Free(torch.zeros(2, 3))
    free.points().Zt.sum().backward()
    assert torch.isfinite(free.points().Zt).all()
    assert torch.isfinite(free.transposed.grad).all()
