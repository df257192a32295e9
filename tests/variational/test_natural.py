"""Natural steps reach the exact posterior of a Gaussian likelihood, and stop where the gradient of the bound is 0."""

import pytest
import torch

from labelfield.kernels import squared_exponential
from labelfield.likelihoods import OneVsEach
from labelfield.variational.families import Prior, WhitenedFull
from labelfield.variational.natural import NaturalSteps

pytestmark = pytest.mark.usefixtures("in_double")
M, P, B = 6, 3, 40


def random_factor():
    return torch.randn(P, M, M).tril() + 2 * torch.eye(M)


def test_one_whole_step_gives_the_posterior_of_a_gaussian_likelihood():
    A, noise, factor = torch.randn(M, B), torch.rand(P, B) + 0.1, random_factor()
    steps = NaturalSteps()
    steps.scale = 7.0  # the loss is the bound over 7; E log N(y | f, σ²) falls by 1 / 2σ² per variance
    steps.step(factor, A, 1 / (2 * noise) / 7, 1.0)
    exact = torch.linalg.inv(torch.eye(M) + A @ (A / noise.unsqueeze(1)).mT)
    torch.testing.assert_close(factor @ factor.mT, exact)
    assert torch.equal(factor, factor.tril())


def test_a_share_of_the_way_is_in_terms_of_precisions():
    A, g, factor = torch.randn(M, B), torch.rand(P, B) - 0.2, random_factor()
    before = torch.linalg.inv(factor @ factor.mT)
    NaturalSteps().step(factor, A, g, 0.25)
    target = torch.eye(M) + 2 * A @ (A * g.clamp_min(0).unsqueeze(1)).mT
    torch.testing.assert_close(torch.linalg.inv(factor @ factor.mT), 0.75 * before + 0.25 * target)


def bound_of(family, prior, Kzx, target):
    f = family.moments(prior, Kzx, torch.ones(B))
    return OneVsEach(20).expected_log_prob(f.mean, f.var, target).sum() - family.kl(prior).sum()


def problem():
    kernel = squared_exponential(1.0)
    Z, X = torch.randn(M, 2), torch.randn(B, 2)
    prior, Kzx = Prior(kernel.gram(Z).detach(), 1e-8), kernel.cross(X, Z).mT.detach().requires_grad_()
    family = WhitenedFull(M, P)
    with torch.no_grad():
        family.mean.normal_()
        family.factor.copy_(random_factor())
    return family, prior, Kzx, torch.randint(P, (B,))


def test_the_bound_and_all_other_gradients_stay_the_same():
    family, prior, Kzx, target = problem()
    found = {}
    for natural in (None, NaturalSteps()):
        family.learn(natural)
        bound = bound_of(family, prior, Kzx, target)
        before = family.factor.clone()
        found[natural is None] = bound, *torch.autograd.grad(-bound, [Kzx, family.mean])
        assert torch.equal(before, family.factor) == (natural is None)
    for plain, other in zip(found[True], found[False], strict=True):
        torch.testing.assert_close(plain, other)


def test_they_stop_where_the_gradient_is_zero_and_the_bound_is_highest(monkeypatch):
    monkeypatch.setattr("labelfield.variational.natural._EVERY", 1)
    family, prior, Kzx, target = problem()
    family.learn(NaturalSteps())
    bounds = []
    for _ in range(300):
        bound = bound_of(family, prior, Kzx, target)
        (-bound).backward()
        bounds.append(bound.item())
    assert bounds[-1] == pytest.approx(max(bounds), rel=1e-9)
    assert bounds[-1] > bounds[0]
    family.learn(None)
    (slope,) = torch.autograd.grad(bound_of(family, prior, Kzx, target), family.factor)
    assert slope.abs().max() < 1e-6


def test_gradients_that_are_not_finite_change_nothing():
    factor, A = random_factor(), torch.randn(M, B, requires_grad=True)
    before, steps = factor.clone(), NaturalSteps()
    steps.square_norms(factor, A).backward(torch.full((P, B), torch.nan))
    assert torch.equal(factor, before)
    steps.square_norms(factor, A).backward(torch.ones(P, B))  # not yet: steps are counted
    assert torch.equal(factor, before)
