from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelfield.likelihoods import Bernoulli, OneVsEach, Softmax

# What 256 draws are off by at most at these moments: the largest of thousands of errors is 0.003.
MC_ERROR = 0.005

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@given(st.lists(st.floats(-60, 60), min_size=2, max_size=8), st.integers(0, 7))
def test_the_product_never_exceeds_the_softmax(f, place):
    """∏_{ℓ≠y} σ(f_y - f_ℓ) ≤ softmax_y(f) [TH 3.20]; without variance the expectation is the value at f."""
    f, target = torch.tensor([f], dtype=torch.float64), torch.tensor([place % len(f)])
    product = OneVsEach().expected_log_prob(f, torch.zeros_like(f), target)
    assert product.item() <= f.log_softmax(1)[0, target].item() + 1e-7


def test_the_bound_never_exceeds_the_expected_log_softmax(moments):
    mean, var, target = moments(50, 6)
    softmax = Softmax(4000).expected_log_prob(mean, var, target, generator=torch.Generator().manual_seed(0))
    # The bound is slack by far more than the error of these draws, which is about 0.01.
    assert (OneVsEach(30).expected_log_prob(mean, var, target) < softmax).all()


def test_two_classes_attain_the_bound(moments):
    """Without variance and with one rival, product and softmax are the same number."""
    f, _, target = moments(20, 2)
    product = OneVsEach().expected_log_prob(f, torch.zeros_like(f), target)
    torch.testing.assert_close(product, f.log_softmax(1).gather(1, target[:, None])[:, 0])


def test_expectation_equals_monte_carlo(moments, draws_of):
    mean, var, target = moments(4, 5)
    weight = torch.tensor([1.0, 2.5, 0.0, 0.3, 1.0], dtype=torch.float64)
    ours = OneVsEach(30).expected_log_prob(mean, var, target, weight)
    for row, y in enumerate(target.tolist()):
        f = draws_of(mean[row], var[row], 200_000)
        terms = torch.nn.functional.logsigmoid(f[:, [y]] - f) * weight
        terms[:, y] = 0
        values = terms.sum(1)
        assert abs(values.mean() - ours[row]) < 5 * values.std() / len(f) ** 0.5 + 1e-6


def test_closed_form_gradients(moments):
    """With many points the derivatives of the sum are the closed forms, which gradcheck confirms in float64."""
    mean, var, target = moments(3, 4)
    weight = torch.tensor([1.0, 0.5, 3.0, 0.0], dtype=torch.float64)
    mean, var = mean.requires_grad_(), var.requires_grad_()
    likelihood = OneVsEach(60)
    for w in (None, weight):
        assert torch.autograd.gradcheck(
            lambda m, v, w=w: likelihood.expected_log_prob(m, v, target, w), (mean, var), atol=1e-6
        )


@pytest.mark.parametrize("n_drawn", [1, 2, 4])
def test_sampled_rivals_are_unbiased(moments, n_drawn):
    """Over all sets of n_drawn rivals, each counted (K-1)/r times, values and gradients average to the full sum."""
    mean, var, _ = moments(1, 6)
    y, others = 2, [0, 1, 3, 4, 5]
    mean, var = mean.requires_grad_(), var.requires_grad_()
    likelihood = OneVsEach()

    def with_gradients(value):
        return value, *torch.autograd.grad(value.sum(), (mean, var))

    def estimate(rivals):
        columns = [*rivals, y]
        weight = torch.full((len(columns),), len(others) / n_drawn, dtype=torch.float64)
        # The own class has a weight too here, which must not count.
        return with_gradients(
            likelihood.expected_log_prob(mean[:, columns], var[:, columns], torch.tensor([n_drawn]), weight)
        )

    full = with_gradients(likelihood.expected_log_prob(mean, var, torch.tensor([y])))
    estimates = [estimate(rivals) for rivals in combinations(others, n_drawn)]
    for whole, parts in zip(full, zip(*estimates, strict=True), strict=True):
        torch.testing.assert_close(torch.stack(parts).mean(0), whole)


def test_two_classes_are_a_bernoulli_of_the_difference(moments):
    mean, var, target = moments(30, 2)
    rival = 1 - target
    difference = mean.gather(1, rival[:, None]) - mean.gather(1, target[:, None])
    bernoulli = -Bernoulli(10).expected_softplus(difference, var.sum(1, keepdim=True))
    torch.testing.assert_close(OneVsEach(10).expected_log_prob(mean, var, target).sum(), bernoulli)


def test_two_classes_predict_the_sigmoid_of_the_difference(moments):
    mean, var, _ = moments(200, 2)
    sigma = Bernoulli(40).predict_proba(mean[:, 1:] - mean[:, :1], var.sum(1, keepdim=True))[:, 0]
    error = OneVsEach().predict_proba(mean, var)[:, 1] - sigma
    assert error.abs().max() < MC_ERROR


def test_equal_classes_are_equally_likely():
    """Ties are in the order of their columns, which draws then tell apart, but only by their error."""
    ours = OneVsEach().predict_proba(torch.zeros(1, 5), torch.ones(1, 5))
    assert (ours - 0.2).abs().max() < MC_ERROR


def test_probabilities_are_the_expected_softmax(moments, draws_of):
    mean, var, _ = moments(10, 6)
    ours = OneVsEach().predict_proba(mean, var)
    for row in range(10):
        values = draws_of(mean[row], var[row], 100_000).softmax(1)
        assert (values.mean(0) - ours[row]).abs().max() < MC_ERROR


def test_odd_numbers_of_samples(moments):
    mean, var, _ = moments(10, 4)
    likelihood, more = OneVsEach(n_samples=255), OneVsEach(n_samples=256)
    assert (likelihood.predict_proba(mean, var) - more.predict_proba(mean, var)).abs().max() < MC_ERROR
    torch.testing.assert_close(OneVsEach(n_samples=1).predict_proba(mean, var), mean.softmax(1))
    with pytest.raises(ValueError, match="n_samples=0"):
        OneVsEach(n_samples=0).predict_proba(mean, var)


def test_single_precision_agrees_with_double(moments):
    mean, var, target = moments(20, 6)
    likelihood = OneVsEach()
    single = likelihood.expected_log_prob(mean.float(), var.float(), target)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), likelihood.expected_log_prob(mean, var, target), atol=1e-5, rtol=1e-5)
    proba = likelihood.predict_proba(mean.float(), var.float())
    torch.testing.assert_close(proba.double(), likelihood.predict_proba(mean, var), atol=1e-5, rtol=1e-4)


@needs_cuda
def test_a_gpu_can_capture_it(moments):
    mean, var, target = (values.cuda() for values in moments(30, 6))
    weight, likelihood = torch.rand(6, device="cuda"), OneVsEach()

    def step():
        m, v = (values.detach().requires_grad_() for values in (mean, var))
        value = likelihood.expected_log_prob(m, v, target, weight)
        return value, *torch.autograd.grad(value.sum(), (m, v))

    plain = step()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    torch.testing.assert_close(captured, plain)
