"""Piecewise polynomials are the interpolation that they stand for."""

import pytest
import torch

from labelfield.linalg import interpolation
from labelfield.linalg.interpolation import (
    CUBIC,
    SEXTIC,
    banded_window_forms,
    cubic_weights,
    cubics,
    evaluate,
    interpolate,
    sextics,
)

J, B = 3, 17


@pytest.fixture(params=[(), ("cpu",)], ids=["by adding", "by a product"])
def _way(request, monkeypatch):
    """Both ways of adding up rows by cells; the second is a GPU's."""
    monkeypatch.setattr(interpolation, "_BY_PRODUCT", request.param)


def drawn(n):
    generator = torch.Generator().manual_seed(n)
    u = torch.randn(J, n, generator=generator, dtype=torch.float64)
    W = torch.randn(J, n, n, generator=generator, dtype=torch.float64)
    cells = torch.randint(n - 3, (B, J), generator=generator)
    t = torch.rand(B, J, generator=generator, dtype=torch.float64)
    return u, W, cells, t


@pytest.mark.parametrize("n", [5, 9, 300])
def test_means_and_variances_are_those_of_the_weights(n):
    u, W, cells, t = drawn(n)
    forms = banded_window_forms(W)
    found = evaluate(torch.cat([cubics(u), sextics(forms)], -1), cells, t, (CUBIC, SEXTIC))
    weights = cubic_weights(t)
    mean = interpolate(u.unsqueeze(-1), cells.unsqueeze(-1), weights.unsqueeze(2), n).squeeze(-1)
    S = W @ W.mT
    window = cells.unsqueeze(-1) + torch.arange(4)
    blocks = S[torch.arange(J)[:, None, None], window[..., None], window[..., None, :]]
    var = torch.einsum("bja,bjac,bjc->bj", weights, blocks, weights)
    torch.testing.assert_close(found[..., 0], mean)
    torch.testing.assert_close(found[..., 1], var)


@pytest.mark.usefixtures("_way")
def test_gradients():
    u, W, cells, t = drawn(6)
    table = torch.cat([cubics(u), sextics(banded_window_forms(W))], -1)
    inputs = (table.requires_grad_(), t.requires_grad_())
    assert torch.autograd.gradcheck(lambda c, x: evaluate(c, cells, x, (CUBIC, SEXTIC)), inputs)


@pytest.mark.usefixtures("_way")
def test_no_rows():
    table = torch.randn(J, 4, SEXTIC, requires_grad=True)
    found = evaluate(table, torch.zeros(0, J, dtype=torch.long), torch.zeros(0, J), (SEXTIC,))
    found.sum().backward()
    assert found.shape == (0, J, 1)
    assert not table.grad.any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_adds_up_the_same():
    u, W, cells, t = drawn(40)
    table = torch.cat([cubics(u), sextics(banded_window_forms(W))], -1).requires_grad_()
    evaluate(table, cells, t, (CUBIC, SEXTIC)).square().sum().backward()
    there = table.detach().cuda().requires_grad_()
    evaluate(there, cells.cuda(), t.cuda(), (CUBIC, SEXTIC)).square().sum().backward()
    torch.testing.assert_close(there.grad.cpu(), table.grad)
