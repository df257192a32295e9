"""The fused computation has the values and gradients of its parts."""

import pytest
import torch

from labelfield.linalg.gaussian import kl_full_standard
from labelfield.linalg.interpolation import CUBIC, SEXTIC, banded_window_forms, cubics, evaluate, sextics
from labelfield.linalg.toeplitz import toeplitz_cholesky
from labelfield.linalg.whitened_grid import whitened_moments

J, B, JITTER = 3, 11, 1e-4


def drawn(n, n_own):
    generator = torch.Generator().manual_seed(n)
    lags = torch.arange(n, dtype=torch.float64) * 2 / (n - 3)
    lengths = torch.tensor([0.3, 0.5, 0.9], dtype=torch.float64)[:n_own, None]
    columns = (1 + lengths) * (-0.5 * (lags / lengths).square()).exp()
    mean = torch.randn(J, n, generator=generator, dtype=torch.float64)
    factor = torch.eye(n, dtype=torch.float64) + 0.3 * torch.randn(J, n, n, generator=generator, dtype=torch.float64)
    cells = torch.randint(n - 3, (B, J), generator=generator)
    t = torch.rand(B, J, generator=generator, dtype=torch.float64)
    return columns.requires_grad_(), mean.requires_grad_(), factor.requires_grad_(), cells, t.requires_grad_()


def in_parts(columns, mean, factor, cells, t):
    R = toeplitz_cholesky(columns, "K", JITTER)
    u = (R @ mean.unsqueeze(-1)).squeeze(-1)
    table = torch.cat([cubics(u), sextics(banded_window_forms(R @ factor.tril()))], -1)
    found = evaluate(table, cells, t, (CUBIC, SEXTIC))
    return found[..., 0], found[..., 1], kl_full_standard(mean, factor)


@pytest.mark.parametrize("n", [5, 12, 64])
@pytest.mark.parametrize("n_own", [J, 1], ids=["own kernels", "one kernel"])
def test_values_and_gradients_are_those_of_the_parts(n, n_own):
    columns, mean, factor, cells, t = drawn(n, n_own)
    inputs = (columns, mean, factor, t)
    weights = [torch.randn(B, J, dtype=torch.float64), torch.rand(B, J, dtype=torch.float64), torch.rand(J)]
    results = []
    for outputs in (
        whitened_moments(columns, JITTER, mean, factor, cells, t),
        in_parts(columns, mean, factor, cells, t),
    ):
        total = sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True))
        results.append((*outputs, *torch.autograd.grad(total, inputs)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("n_own", [J, 1], ids=["own kernels", "one kernel"])
def test_gradients(n_own):
    columns, mean, factor, cells, t = drawn(6, n_own)
    assert torch.autograd.gradcheck(
        lambda c, m, L, x: whitened_moments(c, JITTER, m, L, cells, x), (columns, mean, factor, t), atol=1e-5
    )


def test_what_is_above_the_diagonal_does_not_count():
    columns, mean, factor, cells, t = drawn(8, J)
    with torch.no_grad():
        changed = factor + torch.ones_like(factor).triu(1)
    for ours, theirs in zip(
        whitened_moments(columns, JITTER, mean, factor, cells, t),
        whitened_moments(columns, JITTER, mean, changed, cells, t),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("n_own", [J, 1], ids=["own kernels", "one kernel"])
def test_a_gpu_says_the_same(n_own):
    results = []
    for device in ("cpu", "cuda"):
        *inputs, cells, t = (part.detach().to(device) for part in drawn(40, n_own))
        columns, mean, factor, t = (part.requires_grad_() for part in (*inputs, t))
        outputs = whitened_moments(columns, JITTER, mean, factor, cells, t)
        gradients = torch.autograd.grad(sum(output.sum() for output in outputs), (columns, mean, factor, t))
        results.append([part.cpu() for part in (*outputs, *gradients)])
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-7, atol=1e-9)
