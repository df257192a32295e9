"""Families on a grid, which work through factors, equal Gaussians on all points of the grid."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, kl_divergence

import labelfield.variational.grid as grid_module
from labelfield.linalg.kronecker import kronecker_logdet, kronecker_trace
from labelfield.linalg.toeplitz import toeplitz
from labelfield.variational.grid import GridPrior, Kronecker, WhitenedKronecker
from tests.linalg.dense import kronecker_product

pytestmark = pytest.mark.usefixtures("in_double")
FAMILIES = [Kronecker, WhitenedKronecker]
JITTER = 1e-4
# d, n: few enough points that a matrix of all of them is small.
SIZES = st.sampled_from([(1, 5), (1, 9), (2, 5), (2, 6), (3, 5)])
CASES = (st.sampled_from(FAMILIES), SIZES, st.integers(1, 3), st.booleans(), st.integers(0, 999))
each_size = pytest.mark.parametrize(("d", "n"), [(1, 7), (2, 6), (3, 5)])
each_family = pytest.mark.parametrize("kind", FAMILIES)
each_prior = pytest.mark.parametrize("is_shared", [True, False])


def columns(d, n, J=2, is_shared=False):
    """First columns of squared-exponential kernels of many lengths and variances."""
    shape = (1 if is_shared else J, d, 1)
    lengths, variances = 0.5 + torch.rand(shape), 0.5 + torch.rand(shape)
    return variances * torch.exp(-0.5 * (torch.arange(n) / lengths) ** 2)


def random_family(kind, d, n, J=2):
    """Any factor: there are numbers above its diagonal, which are not part of it, and signs on it."""
    family = kind(n, d, J)
    with torch.no_grad():
        family.mean.normal_()
        family.factor.normal_(0, 0.3)
        diagonal = family.factor.diagonal(dim1=-2, dim2=-1)
        diagonal.copy_((0.5 + torch.rand_like(diagonal)) * torch.where(torch.rand_like(diagonal) < 0.5, -1, 1))
    return family


def dense_prior(column, J):
    """⊗ (K_d + jitter c_0 I) (J, m, m), from the definition."""
    K = toeplitz(column) + JITTER * column[..., :1, None] * torch.eye(column.shape[-1])
    return kronecker_product(K).expand(J, -1, -1)


def dense_q(family, prior):
    root = kronecker_product(family.roots(prior))
    return family.values(prior), root @ root.mT


def dense_kl(mean, S, K):
    return kl_divergence(MultivariateNormal(mean, S), MultivariateNormal(torch.zeros_like(mean), K))


@given(*CASES)
def test_the_divergence_is_that_of_gaussians_on_all_points(kind, size, J, is_shared, seed):
    torch.manual_seed(seed)
    column = columns(*size, J, is_shared)
    family, prior = random_family(kind, *size, J), GridPrior(column, JITTER)
    kl = family.kl(prior)
    assert kl.dtype == torch.float64
    torch.testing.assert_close(kl, dense_kl(*dense_q(family, prior), dense_prior(column, J)), rtol=1e-7, atol=1e-7)
    assert (kl > 0).all()


@each_prior
@each_size
@each_family
def test_float32_parameters_have_a_float64_divergence(kind, d, n, is_shared):
    prior = GridPrior(columns(d, n, 2, is_shared), JITTER)
    family = random_family(kind, d, n).float()
    kl = family.kl(prior)
    assert kl.dtype == torch.float64
    torch.testing.assert_close(kl, family.double().kl(prior), rtol=1e-6, atol=0)


@each_prior
@each_size
def test_no_divergence_at_the_prior(d, n, is_shared):
    prior = GridPrior(columns(d, n, 2, is_shared), JITTER)
    white, plain = WhitenedKronecker(n, d, 2), Kronecker(n, d, 2)
    with torch.no_grad():
        plain.factor.copy_(prior.roots.expand_as(plain.factor))
    for family in (white, plain):  # the whitened one as it is made
        assert family.kl(prior).abs().max() < 1e-9
        torch.testing.assert_close(dense_q(family, prior)[1], dense_prior(prior.columns, 2))
        family.kl(prior).sum().backward()
        assert family.mean.grad.abs().max() < 1e-9
        assert family.factor.grad.abs().max() < 1e-9


@each_prior
@each_size
def test_whitened_is_plain_under_the_change_of_variables(d, n, is_shared):
    """q(u) is the same, so its divergence and its draws are; gradients are not, which is the point of whitening."""
    prior = GridPrior(columns(d, n, 2, is_shared), JITTER)
    white, plain = random_family(WhitenedKronecker, d, n), Kronecker(n, d, 2)
    with torch.no_grad():
        plain.mean.copy_((kronecker_product(prior.roots) @ white.mean.unsqueeze(-1)).squeeze(-1))
        plain.factor.copy_(prior.roots @ white.factor.tril())
    torch.testing.assert_close(white.kl(prior), plain.kl(prior))
    for a, b in zip(dense_q(white, prior), dense_q(plain, prior), strict=True):
        torch.testing.assert_close(a, b)
    for family in (white, plain):
        for a, b in zip(family.values_and_roots(prior), (family.values(prior), family.roots(prior)), strict=True):
            torch.testing.assert_close(a, b)
    noise = torch.randn(2, n**d, 3)
    torch.testing.assert_close(white.draw(prior, noise), plain.draw(prior, noise))


@each_prior
@each_size
def test_determinants_traces_and_forms_by_factors(d, n, is_shared):
    column = columns(d, n, 2, is_shared)
    prior, family = GridPrior(column, JITTER), random_family(Kronecker, d, n)
    K, L = dense_prior(column, 2), family.factor.tril()
    S = kronecker_product(L @ L.mT)
    logdet = kronecker_logdet(prior.log_dets(), n).expand(2)
    torch.testing.assert_close(logdet, torch.logdet(K))
    trace = torch.linalg.solve(K, S).diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(kronecker_trace(prior.traces(L)), trace)
    form = (family.mean * torch.linalg.solve(K, family.mean.unsqueeze(-1)).squeeze(-1)).sum(1)
    torch.testing.assert_close(prior.quadratic(family.mean), form)


@each_prior
@pytest.mark.parametrize(("d", "n"), [(1, 5), (1, 30), (2, 6), (3, 5)])
def test_large_grids_have_the_same_divergence_and_gradient(d, n, is_shared, monkeypatch):
    """The recursions for Toeplitz matrices and Cholesky agree, also in the gradients of columns, means and factors."""
    column, family = columns(d, n, 2, is_shared), random_family(Kronecker, d, n)
    results = []
    for least in (n + 1, n):
        monkeypatch.setattr(grid_module, "LARGE_GRID", least)
        given = column.clone().requires_grad_()
        prior = GridPrior(given, JITTER)
        assert prior.is_large == (least == n)
        family.zero_grad()
        kl = family.kl(prior)
        (kl * torch.tensor([1.0, 2.0])).sum().backward()
        assert ("roots" in vars(prior)) == (least > n), "a large K is never factorised"
        results.append([kl.detach(), given.grad, family.mean.grad, family.factor.grad])
    for small, large in zip(*results, strict=True):
        torch.testing.assert_close(small, large, rtol=1e-7, atol=1e-7)


@each_prior
@each_size
@each_family
@pytest.mark.parametrize("noise", [0.05, 0.8])
def test_it_starts_where_it_is_told(kind, d, n, is_shared, noise):
    """The means are those given; with S_d = (K_d⁻¹ + I / σ_d²)⁻¹ it is surer than the prior and than the noise."""
    column = columns(d, n, 2, is_shared)
    prior, family, values = GridPrior(column, JITTER), random_family(kind, d, n), torch.randn(2, n**d)
    family.start(prior, values, noise)
    mean, S = dense_q(family, prior)
    torch.testing.assert_close(mean, values, rtol=1e-7, atol=1e-7)
    K = toeplitz(column) + JITTER * column[..., :1, None] * torch.eye(n)
    sigma2 = noise ** (1 / d) * n * column[..., :1, None]
    expected = kronecker_product(torch.linalg.inv(torch.linalg.inv(K) + torch.eye(n) / sigma2))
    torch.testing.assert_close(S, expected.expand_as(S), rtol=1e-6, atol=1e-8)
    whole, variance = dense_prior(column, 2), column[..., 0].prod(1)[:, None, None]
    assert torch.linalg.eigvalsh(whole - S).min() > -1e-9
    assert torch.linalg.eigvalsh(noise * n**d * variance * torch.eye(n**d) - S).min() > -1e-9
    if d == 1:
        # The posterior of u measured with noise.
        posterior = whole - whole @ torch.linalg.solve(whole + noise * n * variance * torch.eye(n), whole)
        torch.testing.assert_close(S, posterior, rtol=1e-6, atol=1e-8)


@each_prior
@each_size
def test_the_plain_family_starts_independent_on_a_large_grid(d, n, is_shared, monkeypatch):
    """It has the variance of the noise, and K is not factorised."""
    monkeypatch.setattr(grid_module, "_LARGEST_FACTORISED", n - 1)
    prior, family = GridPrior(columns(d, n, 2, is_shared), JITTER), random_family(Kronecker, d, n)
    values, noise = torch.randn(2, n**d), 0.3 / n**d
    family.start(prior, values, noise)
    mean, S = dense_q(family, prior)
    assert torch.equal(mean, values)
    variance = prior.columns[..., 0].prod(1)[:, None, None]
    torch.testing.assert_close(S, (0.3 * variance * torch.eye(n**d)).expand_as(S))
    assert "roots" not in vars(prior)


@each_family
@pytest.mark.parametrize(("d", "n"), [(1, 7), (2, 5)])
def test_draws_have_the_mean_and_covariance_of_q(kind, d, n):
    """Whitened by the stated covariance, T draws have a mean of T⁻¹ χ²_m squared length and Wishart second moments:
    each bound is at five standard errors. One noise gives one u, an affine image of it."""
    T, m = 20_000, n**d
    prior, family = GridPrior(columns(d, n), JITTER), random_family(kind, d, n)
    with torch.no_grad():
        noise = torch.randn(2, m, T, generator=torch.Generator().manual_seed(1))
        u, (mean, S) = family.draw(prior, noise), dense_q(family, prior)
    assert u.shape == (2, m, T)
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(S), u - mean.unsqueeze(-1), upper=False)
    chi2 = T * white.mean(-1).square().sum(1)
    assert ((chi2 - m).abs() <= 5 * (2 * m) ** 0.5).all()
    second = white @ white.mT / T
    error = (torch.ones(m, m) + torch.eye(m)).sqrt() / T**0.5
    assert ((second - torch.eye(m)).abs() <= 5 * error).all()


@each_prior
@each_family
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(("d", "n"), [(1, 6), (2, 5)])
def test_gradients(kind, d, n, is_shared, is_large, monkeypatch):
    if is_large:
        monkeypatch.setattr(grid_module, "LARGE_GRID", n)
    column, family = columns(d, n, 2, is_shared), random_family(kind, d, n)
    weights = torch.randn(2, n**d, 1)

    def value(column, mean, factor):
        prior = GridPrior(column, 1e-12)  # almost none: its size is taken as a number, without a gradient
        state = {"mean": mean, "factor": factor}
        return torch.func.functional_call(Everything(family), {f"family.{k}": v for k, v in state.items()}, (prior,))

    class Everything(torch.nn.Module):
        def __init__(self, family):
            super().__init__()
            self.family = family

        def forward(self, prior):
            return self.family.kl(prior), (self.family.draw(prior, weights) * weights).sum()

    inputs = [x.detach().clone().requires_grad_() for x in (column, family.mean, family.factor)]
    assert torch.autograd.gradcheck(value, inputs, fast_mode=d > 1)
