"""Properties of every likelihood of one class out of K."""

import pytest
import torch

from labelfield.likelihoods import OneVsEach, Softmax
from labelfield.likelihoods.chunks import CHUNK
from labelfield.likelihoods.monte_carlo import normal_draws

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.mark.parametrize("n_classes", [2, 3, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_sum_to_one(any_likelihood, moments, n_classes, dtype):
    mean, var, _ = moments(4, n_classes, dtype)
    result = any_likelihood.predict_proba(mean, var)
    assert result.dtype == dtype
    assert (result >= 0).all()
    torch.testing.assert_close(result.sum(1), torch.ones(4, dtype=dtype), atol=1e-5, rtol=0)


def test_many_classes_sum_to_one():
    mean, var = torch.zeros(2, 20_000), torch.ones(2, 20_000)
    torch.testing.assert_close(
        OneVsEach(n_samples=32).predict_proba(mean, var).sum(1), torch.ones(2), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variance", [0.0, 1e-12, 1.0, 1e8])
def test_extreme_values_are_finite(any_likelihood, dtype, variance):
    levels = torch.tensor([1e4, -1e4, 0.0, 1e4, 30.0], dtype=dtype)
    mean = torch.stack([levels, levels.flip(0), -levels, torch.zeros(5, dtype=dtype)]).requires_grad_()
    var = torch.full_like(mean, variance).requires_grad_()
    for target in range(5):
        expected = any_likelihood.expected_log_prob(mean, var, torch.full((4,), target))
        assert expected.dtype == dtype
        gradients = torch.autograd.grad(expected.sum(), (mean, var))
        assert all(values.isfinite().all() for values in (expected, *gradients))
    result = any_likelihood.predict_proba(mean, var)
    assert not result.requires_grad
    torch.testing.assert_close(result.sum(1), torch.ones(4, dtype=dtype), atol=1e-5, rtol=0)


def test_permuting_the_classes_permutes_the_result(any_likelihood, moments):
    mean, var, target = moments(30, 6)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    ours = any_likelihood.predict_proba(mean[:, order], var[:, order])
    torch.testing.assert_close(ours, any_likelihood.predict_proba(mean, var)[:, order], atol=1e-12, rtol=1e-10)
    found = any_likelihood.expected_log_prob(mean, var, target)
    if torch.equal(found, any_likelihood.expected_log_prob(mean, var, target)):  # else it draws, for each column
        permuted = any_likelihood.expected_log_prob(mean[:, order], var[:, order], order.argsort()[target])
        torch.testing.assert_close(permuted, found)


def test_chunks_do_not_change_anything(any_likelihood, moments, monkeypatch):
    mean, var, target = moments(20, 7)

    def both():
        expected = any_likelihood.expected_log_prob(mean, var, target, generator=torch.Generator().manual_seed(0))
        return expected, any_likelihood.predict_proba(mean, var)

    whole = both()
    monkeypatch.setitem(CHUNK, "cpu", 22)
    torch.testing.assert_close(both(), whole)


def test_nothing_is_drawn_from_the_global_generator(any_likelihood, moments):
    mean, var, target = moments(3, 4)
    before = torch.get_rng_state()
    any_likelihood.expected_log_prob(mean, var, target, generator=torch.Generator())
    normal_draws.cache_clear()
    any_likelihood.predict_proba(mean, var)
    assert torch.equal(torch.get_rng_state(), before)


def test_only_one_vs_each_takes_weights(any_likelihood, moments):
    mean, var, target = moments(3, 4)
    if any_likelihood.needs_all_classes:
        with pytest.raises(ValueError, match="needs all classes"):
            any_likelihood.expected_log_prob(mean, var, target, torch.ones(4))
    else:
        assert isinstance(any_likelihood, OneVsEach)


@needs_cuda
def test_devices_agree(any_likelihood, moments):
    mean, var, target = moments(30, 6)
    there = [values.cuda() for values in (mean, var, target)]
    if not isinstance(any_likelihood, Softmax):  # each device draws its own
        torch.testing.assert_close(
            any_likelihood.expected_log_prob(*there).cpu(), any_likelihood.expected_log_prob(mean, var, target)
        )
    torch.testing.assert_close(any_likelihood.predict_proba(*there[:2]).cpu(), any_likelihood.predict_proba(mean, var))
