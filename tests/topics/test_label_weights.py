"""V is where its part of the bound is highest on the simplex, η where counts are most probable with V integrated out.

All in float64, in which the functions compute.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln, log_softmax
from scipy.stats import dirichlet

from labelfield.topics import label_weights
from labelfield.topics.label_weights import best_eta, dirichlet_log_density, normalised
from labelfield.topics.state import Topics


def draw(n_labels, n_topics, seed):
    """Counts, many of them 0 or small, and exposures, some of them 0."""
    rng = np.random.default_rng(seed)
    counts = rng.gamma(0.3, 5, (n_labels, n_topics)) * (rng.random((n_labels, n_topics)) < 0.6)
    exposure = rng.gamma(1, 20, (n_labels, n_topics)) * (rng.random((n_labels, n_topics)) < 0.9)
    return torch.from_numpy(counts), torch.from_numpy(exposure), torch.from_numpy(rng.gamma(1, 20, n_topics))


def assert_sums_to_one(V, rest, n_rest):
    torch.testing.assert_close(V.sum(0) + n_rest * rest, torch.ones_like(rest), rtol=1e-12, atol=0)
    assert (V > 0).all()
    assert (rest > 0).all()


@given(st.integers(0, 8), st.integers(1, 3), st.integers(0, 4), st.integers(0, 1000))
@settings(max_examples=20)
def test_without_exposures_weights_are_proportional_to_counts(n_labels, n_topics, n_rest, seed):
    """(η + m) / Σ (η + m), with η for each label that has no place."""
    if n_labels + n_rest == 0:
        return
    counts, _, _ = draw(n_labels, n_topics, seed)
    V, rest = normalised(counts, None, None, n_rest, 0.02)
    assert_sums_to_one(V, rest, n_rest)
    above = np.concatenate([counts.numpy() + 0.02, np.full((n_rest, n_topics), 0.02)])
    np.testing.assert_allclose(V, (above / above.sum(axis=0))[:n_labels], rtol=1e-13)
    np.testing.assert_allclose(rest, 0.02 / above.sum(axis=0), rtol=1e-13)


@given(
    st.integers(0, 8), st.integers(1, 3), st.integers(0, 4), st.integers(0, 1000), st.sampled_from([1e-4, 0.01, 1.0])
)
@settings(max_examples=30)
def test_with_exposures_weights_are_stationary_on_the_simplex(n_labels, n_topics, n_rest, seed, eta):
    """(η + m) / v - e is the same for all labels of a topic, those without a place as well."""
    if n_labels + n_rest == 0:
        return
    counts, exposure, of_rest = draw(n_labels, n_topics, seed)
    V, rest = normalised(counts, exposure, of_rest, n_rest, eta)
    assert_sums_to_one(V, rest, n_rest)
    every = torch.cat([V, rest.expand(n_rest, n_topics)])
    e = torch.cat([exposure, of_rest.expand(n_rest, n_topics)])
    above = torch.cat([counts, torch.zeros(n_rest, n_topics, dtype=torch.float64)]) + eta
    gradient = above / every - e
    size = (above / every + e).max(0).values
    assert ((gradient - gradient[0]).abs() <= 1e-9 * size).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_rest", [0, 2])
def test_no_other_weights_on_the_simplex_are_better(seed, n_rest):
    """Σ (η + m) log v - Σ e v, against a general optimiser in unbounded coordinates."""
    counts, exposure, of_rest = draw(4, 1, seed)
    V, rest = normalised(counts, exposure, of_rest, n_rest, 0.05)
    above = np.append(counts.numpy() + 0.05, np.full(n_rest, 0.05))
    e = np.append(exposure.numpy(), np.full(n_rest, of_rest.item()))

    def loss(x):
        logs = log_softmax(x)
        return -above @ logs + e @ np.exp(logs)

    found = minimize(loss, np.zeros(len(above)), tol=1e-12, options={"maxiter": 10_000})
    ours = np.append(V.numpy(), np.full(n_rest, rest.item()))
    assert loss(np.log(ours)) <= found.fun + 1e-9 * abs(found.fun)
    np.testing.assert_allclose(ours, np.exp(log_softmax(found.x)), atol=1e-4)


@pytest.mark.parametrize("n_rest", [0, 3])
def test_the_same_exposure_for_all_labels_changes_nothing(n_rest):
    counts, _, of_rest = draw(6, 3, 0)
    plain, other = (
        normalised(counts, *exposure, n_rest, 0.01)
        for exposure in ((None, None), (of_rest.expand(6, 3) * 1e3, of_rest * 1e3))
    )
    torch.testing.assert_close(plain, other, rtol=1e-9, atol=0)


def test_labels_that_were_seen_less_weigh_more():
    """Seen half as often, with as many counts; unseen ones by η alone, whatever the size of exposures."""
    counts = torch.tensor([[5.0], [5.0], [0.0]], dtype=torch.float64)
    exposure = torch.tensor([[1e6], [5e5], [0.0]], dtype=torch.float64)
    V, _ = normalised(counts, exposure, torch.zeros(1, dtype=torch.float64), 0, 1e-3)
    np.testing.assert_allclose(V[1] / V[0], 2, rtol=1e-2)
    assert V[2] > 0.99  # nothing speaks against it


def test_single_precision_counts_are_normalised_in_double():
    V, rest = normalised(torch.ones(3, 2), torch.ones(3, 2), torch.ones(2), 1, 0.1)
    assert V.dtype == rest.dtype == torch.float64


def test_the_density_of_topics_is_that_of_scipy():
    """In the coordinates log v: times Π v."""
    rng = np.random.default_rng(0)
    V = rng.dirichlet(np.ones(7), 3).T
    V[4:] = V[4:].mean(axis=0)
    arrays = (torch.from_numpy(V[:4]), torch.from_numpy(V[4]))
    for eta in (0.01, 0.5, 2.0):
        topics = Topics(*arrays, 3, torch.zeros(1, 3), torch.ones(3), torch.ones(1), eta)
        expected = sum(dirichlet.logpdf(v, np.full(7, eta)) + np.log(v).sum() for v in V.T)
        np.testing.assert_allclose(dirichlet_log_density(topics), expected, rtol=1e-12)


# η


def log_evidence(counts, n_rest, eta):
    """Σ_k log of the Dirichlet-multinomial density of a topic's counts."""
    counts = np.concatenate([counts.numpy(), np.zeros((n_rest, counts.shape[1]))])
    L, totals = len(counts), counts.sum(axis=0)
    of_labels = (gammaln(counts + eta) - gammaln(eta)).sum()
    return of_labels - (gammaln(totals + L * eta) - gammaln(L * eta)).sum()


def dirichlet_counts(eta, n_labels, n_topics, per_topic, seed):
    """Counts of planted topics; about a half of each is fractional, as expected counts are."""
    rng = np.random.default_rng(seed)
    V = rng.dirichlet(np.full(n_labels, eta), n_topics)
    counts = rng.poisson(per_topic * V).T
    return torch.from_numpy(counts * rng.uniform(0.3, 1, counts.shape))


@pytest.fixture
def free_eta(monkeypatch):
    """Bounds of η that are no bounds."""
    monkeypatch.setattr(label_weights, "_LEAST_ETA", 1e-8)
    monkeypatch.setattr(label_weights, "_LARGEST_ETA", 1e8)


@pytest.mark.usefixtures("free_eta")
@pytest.mark.parametrize("n_rest", [0, 500])
@pytest.mark.parametrize("eta", [0.01, 0.3])
def test_eta_is_where_counts_are_most_probable(eta, n_rest):
    counts = dirichlet_counts(eta, 100, 6, 300, 0)
    best = minimize_scalar(lambda x: -log_evidence(counts, n_rest, np.exp(x)), bounds=(-12, 3), method="bounded")
    for start in (0.003, 0.01, 1.0):
        found = start
        for _ in range(3):  # as it is learned three times
            found = best_eta(counts, n_rest, found)
        np.testing.assert_allclose(found, np.exp(best.x), rtol=0.02)


@pytest.mark.usefixtures("free_eta")
def test_learning_eta_never_lowers_the_evidence(monkeypatch):
    """Step by step, also of counts below 1, for which Minka's bound does not hold but his steps do."""
    monkeypatch.setattr(label_weights, "_N_MINKA", 1)
    for seed in range(6):
        counts = dirichlet_counts(0.1, 30, 3, 60, seed) * 10.0 ** -(seed % 3)
        for n_rest in (0, 100):
            eta = 10.0 ** (seed - 4)
            for _ in range(15):
                better = best_eta(counts, n_rest, eta)
                before, after = (log_evidence(counts, n_rest, x) for x in (eta, better))
                assert after >= before - 1e-12 * (abs(before) + 100)
                eta = better


def test_eta_stays_within_bounds():
    flat, nothing = torch.full((50, 2), 100.0), torch.zeros(50, 2)
    one = nothing.clone()
    one[0] = 100.0
    assert best_eta(flat, 0, 0.01) == label_weights._LARGEST_ETA
    assert best_eta(nothing, 0, 0.01) == 0.01  # of nothing nothing is learned
    assert 1 / 100_050 <= best_eta(one, 100_000, 0.01) < 1e-3  # one count in all at least
