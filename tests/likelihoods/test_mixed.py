"""The fit of mixed processes in blocks of labels is the Bernoulli likelihood of their moments, with its gradients."""

import sys

import pytest
import torch
from scipy import sparse

from labelfield.likelihoods import Bernoulli, mixed, softplus
from labelfield.likelihoods.chunks import CHUNK
from labelfield.likelihoods.mixed import Truth, mixed_log_prob
from labelfield.linalg.rows import to_tensor


def problem(n=13, n_labels=70, n_latent=5, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, dtype=dtype, generator=generator)

    mean, var, Phi, b = draw(n, n_latent), draw(n, n_latent).square(), draw(n_labels, n_latent), draw(n_labels) - 2
    own = [draw(n, n_labels), draw(n, n_labels).square()]
    Y = to_tensor(sparse.random_array((n, n_labels), density=0.1, format="csr", dtype="float32", rng=seed).ceil())
    weights = draw(n_labels).square() + 0.5, draw(n_labels).square()
    inputs = [part.requires_grad_() for part in (mean, var, Phi, b, *own)]
    return inputs, Y, weights


def reference(inputs, Y, column_weight, positive_weight, n_points):
    """Return the same from arrays of all moments."""
    mean, var, Phi, b, own_mean, own_var = inputs
    f = mean @ Phi.T + b + (0 if own_mean is None else own_mean), var @ Phi.square().T
    f = f[0], f[1] + (0 if own_var is None else own_var)
    return Bernoulli(n_points).expected_log_prob(*f, Y, Y.col_indices().long(), column_weight, positive_weight)


def ours(inputs, Y, column_weight, positive_weight, n_points):
    truth = Truth.of(Y, Y.col_indices().long(), positive_weight)
    return mixed_log_prob(*inputs, truth, column_weight, n_points)


@pytest.mark.parametrize("has_own", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_equals_the_likelihood_of_all_moments(monkeypatch, has_own, is_weighted):
    monkeypatch.setitem(CHUNK, "cpu", 13 * 32)  # three blocks of labels, the last one smaller
    inputs, Y, weights = problem()
    inputs = inputs if has_own else [*inputs[:4], None, None]
    weights = weights if is_weighted else (None, None)
    given = [part for part in inputs if part is not None]
    expected, found = (f(inputs, Y, *weights, 3) for f in (reference, ours))
    torch.testing.assert_close(found, expected)
    # Twice: what is kept for the gradient is not changed by it.
    for _ in range(2):
        gradients = torch.autograd.grad(3 * found, given, retain_graph=True)
        torch.testing.assert_close(gradients, torch.autograd.grad(3 * expected, given, retain_graph=True))


def test_gradients_are_those_of_the_value():
    inputs, Y, weights = problem(n=3, n_labels=6, n_latent=2)
    # With many points the closed-form derivative by the variance is that of the quadrature.
    assert torch.autograd.gradcheck(lambda *parts: ours(parts, Y, *weights, 20), inputs, rtol=1e-3)


@pytest.fixture
def large():
    """A problem that is large enough for compiled loops and short numbers, in float32."""
    return problem(n=300, n_labels=400, n_latent=40, dtype=torch.float32)


def value_and_gradients(inputs, *rest):
    value = ours(inputs, *rest)
    return value, torch.autograd.grad(value, inputs)


def test_compiled_and_plain_agree(monkeypatch, large):
    pytest.importorskip("numba")
    inputs, Y, weights = large
    monkeypatch.setattr(mixed, "_has_fast_bfloat16", lambda: False)
    value, gradients = value_and_gradients(inputs, Y, *weights, 3)
    assert "labelfield.compiled.softplus" in sys.modules
    monkeypatch.setattr(softplus, "_compiled", lambda: None)
    plain, plain_gradients = value_and_gradients(inputs, Y, *weights, 3)
    torch.testing.assert_close(value, plain, rtol=1e-6, atol=0)
    for found, expected in zip(gradients, plain_gradients, strict=True):
        assert (found - expected).norm() < 3e-6 * expected.norm()


def test_short_numbers_change_gradients_less_than_a_batch_does(monkeypatch, large):
    """Products in bfloat16 are wrong by less than one part in 300, where a batch of other rows differs by half."""
    inputs, Y, weights = large
    monkeypatch.setattr(mixed, "_has_fast_bfloat16", lambda: False)
    value, gradients = value_and_gradients(inputs, Y, *weights, 3)
    monkeypatch.setattr(mixed, "_has_fast_bfloat16", lambda: True)
    short, short_gradients = value_and_gradients(inputs, Y, *weights, 3)
    torch.testing.assert_close(short, value, rtol=1e-4, atol=0)
    errors = [(found - exact).norm() / exact.norm() for found, exact in zip(short_gradients, gradients, strict=True)]
    assert 0 < max(errors) < 1 / 300


def test_a_number_that_is_not_finite_is_noticed(large):
    inputs, Y, weights = large
    with torch.no_grad():
        inputs[0][7, 3] = torch.nan
    assert not torch.isfinite(ours(inputs, Y, *weights, 3))
