"""Moments and divergences of every family against naive float64 twins, and how the families relate."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence
from torch.func import functional_call

from labelfield.kernels import squared_exponential
from labelfield.variational.families import Full, Parsimonious, Prior, WhitenedDiagonal, WhitenedFull, WhitenedShared

pytestmark = pytest.mark.usefixtures("in_double")
M, P, B, D = 5, 3, 4, 2
FAMILIES = [WhitenedDiagonal, WhitenedShared, WhitenedFull, Full, Parsimonious]


def problem(per_process=False):
    kernel = squared_exponential(1.0, n_processes=P if per_process else None)
    if per_process:
        with torch.no_grad():
            kernel.log_inverse_length.copy_(torch.linspace(-0.5, 0.5, P))
    Z, X = torch.randn(M, D), torch.randn(B, D)
    with torch.no_grad():
        return Prior(kernel.gram(Z), 1e-10), kernel.cross(X, Z).mT, kernel.diag(X)


def random_family(kind):
    family = kind(M, P)
    with torch.no_grad():
        for parameter in family.parameters():
            parameter.normal_(0, 0.7)
    return family


def naive_q(family, p, K):
    """Mean and covariance of q(u_p), written out."""
    m = family.mean[p].detach()
    if isinstance(family, Parsimonious):
        S = torch.diag(family.log_noise[p].detach().exp() + 1e-6)
        return K @ m, K - K @ torch.linalg.inv(K + S) @ K
    if isinstance(family, Full):
        L = family.factor[p].detach().tril()
        return m, L @ L.T
    root = torch.linalg.cholesky(K)
    if isinstance(family, WhitenedDiagonal):
        S = torch.diag(family.log_var[p].detach().exp())
    else:
        L = (family.factor if isinstance(family, WhitenedShared) else family.factor[p]).detach().tril()
        S = L @ L.T
    return root @ m, root @ S @ root.T


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("per_process", [False, True])
def test_moments_and_divergence(kind, per_process):
    prior, Kzx, kxx = problem(per_process)
    family = random_family(kind)
    moments = family.moments(prior, Kzx, kxx)
    total = []
    for p in range(P):
        K, C, k = (prior.K[p], Kzx[p], kxx[p]) if per_process else (prior.K, Kzx, kxx)
        mean, S = naive_q(family, p, K)
        alpha = torch.linalg.solve(K, C)
        torch.testing.assert_close(moments.mean[:, p], alpha.T @ mean, atol=1e-6, rtol=1e-6)
        var = k - (C * alpha).sum(0) + (alpha * (S @ alpha)).sum(0)
        torch.testing.assert_close(moments.var[:, p], var.clamp_min(1e-6), atol=1e-6, rtol=1e-6)
        S = (S + S.T) / 2
        total.append(kl_divergence(MultivariateNormal(mean, S), MultivariateNormal(torch.zeros(M), K)))
    torch.testing.assert_close(family.kl(prior), torch.stack(total), atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("kind", FAMILIES)
def test_gradients(kind):
    _, Kzx, kxx = problem()
    family = random_family(kind)
    names = [name for name, _ in family.named_parameters()]

    class Everything(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.family = family

        def forward(self, K, C):
            prior = Prior(K @ K.T + torch.eye(M), 1e-10)
            return (*self.family.moments(prior, C, kxx), self.family.kl(prior))

    def value(K, C, *parameters):
        state = {f"family.{name}": parameter for name, parameter in zip(names, parameters, strict=True)}
        return functional_call(Everything(), state, (K, C))

    inputs = (torch.randn(M, M), Kzx.clone(), *(p.detach().clone() for p in family.parameters()))
    assert torch.autograd.gradcheck(value, [x.requires_grad_() for x in inputs])


def test_full_is_whitened_full_under_the_change_of_variables():
    prior, Kzx, kxx = problem()
    white, full = random_family(WhitenedFull), Full(M, P)
    with torch.no_grad():
        full.mean.copy_(white.mean @ prior.L.T)
        full.factor.copy_(prior.L @ white.factor.tril())
    for a, b in zip(white.moments(prior, Kzx, kxx), full.moments(prior, Kzx, kxx), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(white.kl(prior), full.kl(prior))


def test_the_prior_has_no_divergence_and_its_own_variance():
    prior, Kzx, kxx = problem()
    for kind in (WhitenedDiagonal, WhitenedShared, WhitenedFull):
        family = kind(M, P)
        assert family.kl(prior).abs().max() < 1e-9
        torch.testing.assert_close(family.moments(prior, Kzx, kxx).var, torch.ones(B, P), atol=1e-6, rtol=1e-6)
    assert Parsimonious(M, P, noise=1e9).kl(prior).abs().max() < 1e-6


def test_parsimonious_with_z_at_the_rows_is_optimal():
    """For Gaussian noise the exact posterior at the rows is in the family: Σ = noise, μ = (K + Σ)⁻¹ y [FSGP 8]."""
    kernel, X, y, noise = squared_exponential(1.0), torch.randn(6, D), torch.randn(6), 0.3
    prior = Prior(kernel.gram(X).detach(), 0.0)
    family = Parsimonious(6, 1)
    with torch.no_grad():
        family.log_noise.fill_(np.log(noise))
        family.mean.copy_(torch.linalg.solve(prior.K + noise * torch.eye(6), y)[None])

    def bound():
        q = family.moments(prior, kernel.cross(X, X).mT, kernel.diag(X))
        fit = -0.5 * (((y - q.mean[:, 0]) ** 2 + q.var[:, 0]) / noise + np.log(2 * np.pi * noise)).sum()
        return fit - family.kl(prior).sum()

    evidence = MultivariateNormal(torch.zeros(6), prior.K + noise * torch.eye(6)).log_prob(y)
    torch.testing.assert_close(bound(), evidence, atol=1e-4, rtol=1e-4)
    gradient = torch.autograd.grad(bound(), list(family.parameters()))
    assert max(g.abs().max().item() for g in gradient) < 1e-4
