import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from labelfield.likelihoods import Bernoulli
from labelfield.likelihoods.chunks import CHUNK
from labelfield.linalg.quadrature import gauss_hermite


def integral(g, m, v):
    s = np.sqrt(v)
    return quad(lambda f: g(f) * norm.pdf(f, m, s), m - 12 * s, m + 12 * s, points=[0.0] if abs(m) < 12 * s else None)[
        0
    ]


@pytest.mark.parametrize(("m", "v"), [(0.0, 1.0), (-3.0, 0.5), (2.0, 4.0), (-8.0, 9.0)])
def test_quadrature_equals_the_integral_and_monte_carlo(m, v):
    mean, var = torch.tensor([[m]], dtype=torch.float64), torch.tensor([[v]], dtype=torch.float64)
    ours = Bernoulli(30)
    exact = integral(lambda f: np.logaddexp(0, f), m, v)
    np.testing.assert_allclose(ours.expected_softplus(mean, var).item(), exact, rtol=1e-4)
    sigma = integral(lambda f: 1 / (1 + np.exp(-f)), m, v)
    np.testing.assert_allclose(ours.predict_proba(mean, var).item(), sigma, rtol=1e-3)
    draws = np.random.default_rng(0).normal(m, np.sqrt(v), 400_000)
    values = np.logaddexp(0, draws)
    assert abs(values.mean() - ours.expected_softplus(mean, var).item()) < 5 * values.std() / np.sqrt(400_000) + 1e-4


def test_hermite_is_exact_for_polynomials():
    nodes, weights = map(np.array, gauss_hermite(6))
    for power, moment in ((0, 1), (1, 0), (2, 1), (4, 3), (6, 15), (10, 945)):
        np.testing.assert_allclose((weights * nodes**power).sum(), moment, atol=1e-9)
    with pytest.raises(ValueError, match="n_points"):
        gauss_hermite(0)


def test_closed_form_gradients():
    """With many points the derivative of the sum is the closed form, which gradcheck confirms in float64."""
    torch.manual_seed(0)
    mean = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    var = (torch.rand(3, 4, dtype=torch.float64) + 0.2).requires_grad_()
    weight = torch.rand(4, dtype=torch.float64)
    likelihood = Bernoulli(60)
    assert torch.autograd.gradcheck(lambda m, v: likelihood.expected_softplus(m, v, weight), (mean, var), atol=1e-6)


def test_chunks_do_not_change_anything(monkeypatch):
    mean, var = torch.randn(50, 7), torch.rand(50, 7) + 0.1
    whole = Bernoulli(5).expected_softplus(mean, var)
    monkeypatch.setitem(CHUNK, "cpu", 10)
    torch.testing.assert_close(Bernoulli(5).expected_softplus(mean, var), whole)
