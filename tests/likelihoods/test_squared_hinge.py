"""The squared hinge: exact expectations, and in the limit of no variance the support vector machine."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.svm import LinearSVC

from labelfield import Batch, Dataset
from labelfield.likelihoods import Bernoulli, SquaredHinge
from labelfield.likelihoods.chunks import CHUNK
from labelfield.likelihoods.squared_hinge import hinge_moments
from labelfield.models.mlgpf.cooccurrence import LabelFeatures
from labelfield.models.mlgpf.spec import Spec, build
from labelfield.models.sampling import choose_labels


def as_csr(Y):
    return torch.as_tensor(Y, dtype=torch.float64).to_sparse_csr()


def log_prob(likelihood, mean, var, Y, **weights):
    Y = as_csr(Y)
    return likelihood.expected_log_prob(mean, var, Y, Y.col_indices().long(), **weights)


@pytest.mark.parametrize("u", [-6.0, -1.3, 0.0, 0.4, 2.0, 9.0])
@pytest.mark.parametrize("v", [1e-4, 0.3, 1.0, 7.0, 50.0])
def test_closed_form_equals_quadrature_and_monte_carlo(u, v):
    s = np.sqrt(v)
    ours = hinge_moments(*(torch.tensor([x], dtype=torch.float64) for x in (u, v)))[0].item()
    low, high = max(0.0, u - 12 * s), max(u + 12 * s, 0.0)
    exact = quad(lambda x: x**2 * norm.pdf(x, u, s), low, high, epsabs=1e-14, limit=500)[0] if high > low else 0.0
    np.testing.assert_allclose(ours, exact, rtol=1e-7, atol=1e-12)
    values = np.maximum(np.random.default_rng(0).normal(u, s, 400_000), 0) ** 2
    assert abs(values.mean() - ours) <= 5 * values.std() / np.sqrt(400_000) + 1e-4


def test_the_sum_is_that_of_every_decision():
    """Against a loop over rows and labels, with labels and rows that count more or less."""
    rng = np.random.default_rng(1)
    mean, var = (torch.from_numpy(part) for part in (rng.normal(0, 2, (4, 5)), rng.random((4, 5)) * 3))
    Y = rng.random((4, 5)) < 0.4
    column, positive = rng.random(5) + 0.5, rng.random(5) + 0.5

    def loss(m, v, y):
        values = np.maximum(1 - y * (m + np.sqrt(v) * NODES), 0) ** 2
        return (values * WEIGHTS).sum()

    NODES = np.linspace(-9, 9, 200_001)
    WEIGHTS = norm.pdf(NODES) * (NODES[1] - NODES[0])
    likelihood = SquaredHinge(0.7)
    expected = sum(
        -0.7 * loss(float(mean[b, k]), float(var[b, k]), 1 if Y[b, k] else -1) for b in range(4) for k in range(5)
    )
    np.testing.assert_allclose(log_prob(likelihood, mean, var, Y).item(), expected, rtol=1e-8)
    # A label that holds is one that the step looks at for its own sake, and so has the column weight 1.
    column[Y.any(0)] = 1
    weighted = sum(
        -0.7 * loss(float(mean[b, k]), float(var[b, k]), 1 if Y[b, k] else -1) * (positive[k] if Y[b, k] else column[k])
        for b in range(4)
        for k in range(5)
    )
    weights = {"column_weight": torch.from_numpy(column), "positive_weight": torch.from_numpy(positive)}
    np.testing.assert_allclose(log_prob(likelihood, mean, var, Y, **weights).item(), weighted, rtol=1e-8)


def test_closed_form_gradients():
    rng = np.random.default_rng(2)
    mean = torch.from_numpy(rng.normal(0, 2, (3, 4))).requires_grad_()
    var = torch.from_numpy(rng.random((3, 4)) + 0.1).requires_grad_()
    Y, weight = rng.random((3, 4)) < 0.5, torch.from_numpy(rng.random(4))
    likelihood = SquaredHinge(1.3)
    assert torch.autograd.gradcheck(lambda m, v: log_prob(likelihood, m, v, Y, positive_weight=weight), (mean, var))


@pytest.mark.parametrize("likelihood", [SquaredHinge(2.0), Bernoulli(20)], ids=["hinge", "bernoulli"])
def test_margins_have_the_derivatives_that_newton_takes(likelihood):
    t = torch.linspace(-5, 5, 40, dtype=torch.float64).requires_grad_()
    value, slope, curvature = likelihood.at_margin(t)
    (by_t,) = torch.autograd.grad(value.sum(), t, create_graph=True)
    torch.testing.assert_close(by_t, slope)
    torch.testing.assert_close(-torch.autograd.grad(by_t.sum(), t)[0], curvature)


def test_sampled_labels_are_unbiased():
    rng = np.random.default_rng(3)
    mean, var = (torch.from_numpy(part) for part in (rng.normal(-1, 1, (6, 40)), rng.random((6, 40))))
    Y = as_csr(rng.random((6, 40)) < 0.03)
    likelihood, generator, column = SquaredHinge(), torch.Generator().manual_seed(0), Y.col_indices().long()
    exact = likelihood.expected_log_prob(mean, var, Y, column).item()
    found = []
    for _ in range(2000):
        labels, weight, place = choose_labels(column, 5, 40, generator)
        some = mean[:, labels], var[:, labels]
        found.append(likelihood.expected_log_prob(*some, Y, place, weight.double()).item())
    assert np.std(found) > 0
    assert abs(np.mean(found) - exact) < 4 * np.std(found) / np.sqrt(len(found))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_values_are_finite_and_right(dtype):
    means = torch.tensor([-1e4, -30.0, -1.0, 0.0, 1.0, 30.0, 1e4], dtype=dtype)
    for v in (0.0, 1e-30, 1e-12, 1.0, 1e8):
        u = (1 + means).requires_grad_()
        var = torch.full_like(means, v).requires_grad_()
        parts = hinge_moments(u, var)
        assert all(bool(torch.isfinite(part).all()) and bool((part >= 0).all()) for part in parts)
        mean = means[None].clone().requires_grad_()
        own_var = torch.full_like(mean, v).requires_grad_()
        Y = torch.ones(1, 7, dtype=dtype).to_sparse_csr()
        total = SquaredHinge().expected_log_prob(mean, own_var, Y, Y.col_indices().long())
        total.backward()
        assert all(bool(torch.isfinite(part).all()) for part in (total, mean.grad, own_var.grad))
        p = SquaredHinge().predict_proba(means[None], torch.full_like(mean, v))
        assert bool(((p >= 0) & (p <= 1)).all())
    value, by_u, _ = hinge_moments(1 + means, torch.zeros_like(means))
    torch.testing.assert_close(value, (1 + means).clamp_min(0) ** 2, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(by_u, 2 * (1 + means).clamp_min(0), rtol=1e-6, atol=2e-6)


def test_chunks_do_not_change_anything(monkeypatch):
    mean, var, ones = torch.randn(50, 7), torch.rand(50, 7) + 0.1, torch.ones(7)
    whole = SquaredHinge().absent(mean, var, ones)
    monkeypatch.setitem(CHUNK, "cpu", 10)
    torch.testing.assert_close(SquaredHinge().absent(mean, var, ones), whole)


class TestNoVariance:
    """Without shared processes a label is a linear machine: w minimises ½‖w‖² + C Σ_i (1 - y_i (wᵀx_i - 1))₊²."""

    N, D, COST = 60, 8, 0.8

    @pytest.fixture
    def rows(self):
        rng = np.random.default_rng(4)
        X = rng.normal(size=(self.N, self.D)) * (rng.random((self.N, self.D)) < 0.7)
        y = np.where(X @ rng.normal(size=self.D) + 0.8 * rng.normal(size=self.N) > 0.5, 1.0, -1.0)
        return X, y

    @pytest.fixture
    def optimum(self, rows):
        """The weights by L-BFGS on the primal problem, as the textbook writes it."""
        X, y = rows

        def loss(w):
            inside = np.maximum(1 - y * (X @ w - 1), 0)
            return 0.5 * w @ w + self.COST * inside @ inside, w - 2 * self.COST * X.T @ (y * inside)

        options = {"maxiter": 10_000, "ftol": 1e-16, "gtol": 1e-11}
        found = minimize(loss, np.zeros(self.D), jac=True, method="L-BFGS-B", options=options)
        assert np.abs(found.jac).max() < 1e-7
        return found.x

    def test_it_is_the_machine_of_liblinear(self, rows, optimum):
        """LinearSVC has no fixed intercept, but sample weights.

        Of a row that has the label, (1 - (wᵀx - 1))₊² = 4 (1 - wᵀx/2)₊²: half the row, weighted 4. Of any other row
        (1 + (wᵀx - 1))₊² = (wᵀx)₊² is the limit of (1/t + wᵀx)₊² = (1 + wᵀ(t x))₊² / t²: t rows, weighted 1/t².
        """
        X, y = rows
        t = 1e5
        factor, weight = np.where(y > 0, 0.5, t), np.where(y > 0, 4.0, t**-2)
        machine = LinearSVC(C=self.COST, fit_intercept=False, dual=False, tol=1e-10, max_iter=100_000)
        machine.fit(X * factor[:, None], y, sample_weight=weight)
        assert np.abs(optimum).max() > 0.3
        np.testing.assert_allclose(machine.coef_[0], optimum, atol=1e-3)

    @pytest.fixture
    def model(self):
        linear = {"label_linear": "point", "n_label_linear": self.D, "label_linear_scale": 1.0}
        hinge = {"likelihood": "squared_hinge", "hinge_cost": self.COST}
        model = build(Spec(self.D, 1, n_latent=1, n_inducing=2, **linear, **hinge))
        every = LabelFeatures(np.array([0, self.D]), np.arange(self.D, dtype=np.int32), np.zeros(self.D, np.bool_))
        model.label_linear.fill(every)
        model.inducing.fill(torch.eye(2, self.D), None)
        model = model.double()
        with torch.no_grad():
            model.b.fill_(-1)
            model.b_mean.fill_(-1)
        return model

    def elbo(self, model, rows):
        X, y = rows
        Y = sparse.csr_array((y > 0).astype(np.float32)[:, None])
        batch = Batch.gather(Dataset(sparse.csr_array(X.astype(np.float32)), Y), slice(None))
        return model.elbo(batch.X.double(), batch.Y, self.N)

    def test_the_model_has_the_same_optimum(self, rows, optimum, model):
        """Φ = 0 leaves no variance and b stays at -1: the gradient of the bound by the weights is then zero at w."""
        weights = model.label_linear.weights
        with torch.no_grad():
            weights.copy_(torch.from_numpy(optimum))
        (gradient,) = torch.autograd.grad(self.elbo(model, rows).bound(), weights)
        # Rows come as float32.
        assert gradient.abs().max() < 1e-5
        with torch.no_grad():
            weights.zero_()
        optimiser = torch.optim.LBFGS([weights], max_iter=500, tolerance_grad=1e-10, tolerance_change=0)

        def step():
            model.zero_grad()
            loss = -self.elbo(model, rows).bound()
            loss.backward()
            return loss

        optimiser.step(step)
        np.testing.assert_allclose(weights.detach().numpy(), optimum, atol=1e-6)
