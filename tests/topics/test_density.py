"""Probabilities are those of the model with u and m integrated out, for any features, and over draws their mean."""

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield.linalg.rows import to_tensor
from labelfield.topics import density
from labelfield.topics.density import Drawn, label_probabilities, log_odds, topic_proportions


def draws(n_draws, n_labels, n_topics, n_features, n_rest=2, seed=0, dtype=np.float64):
    """T draws of topics over labels that have a place and n_rest others."""
    rng = np.random.default_rng(seed)
    V = rng.dirichlet(np.full(n_labels + n_rest, 0.5), (n_draws, n_topics)).transpose(0, 2, 1)
    V[:, n_labels:] = V[:, n_labels:].mean(axis=1, keepdims=True)
    W = rng.normal(0, 1, (n_draws, n_features + 1, n_topics))
    arrays = (V[:, :n_labels], V[:, n_labels], W, rng.gamma(2, 0.5, (n_draws, n_topics)))
    return Drawn(*(torch.from_numpy(array.astype(dtype)) for array in arrays))


def features(n_rows, n_features, seed=0):
    return sparse.random_array((n_rows, n_features), density=0.6, format="csr", rng=np.random.default_rng(seed))


def test_the_closed_form_is_what_simulated_labels_do():
    """y = 1(m ≥ 1), m ~ Poisson(Σ_k v_lk u_kn), u ~ Gamma(r, scale e^ψ), within five standard errors."""
    n_simulated, X = 20_000, features(3, 5)
    drawn = draws(1, 4, 2, 5)
    V, rest, W, r = (part[0].numpy() for part in drawn)
    rng = np.random.default_rng(1)
    psi = X @ W[:-1] + W[-1]
    u = rng.gamma(r, np.exp(psi), (n_simulated, 3, 2))
    y = rng.poisson(u @ np.vstack([V, rest]).T) >= 1
    placed, of_rest = label_probabilities(to_tensor(X), drawn)
    p = np.concatenate([placed, of_rest[:, None]], axis=1)
    assert (np.abs(y.mean(axis=0) - p) < 5 * np.sqrt(p * (1 - p) / n_simulated)).all()
    np.testing.assert_allclose(log_odds(to_tensor(X), drawn.W[0]), psi, rtol=1e-12)


def test_over_draws_it_is_the_mean():
    X, drawn = to_tensor(features(6, 5)), draws(3, 4, 2, 5)
    each = [label_probabilities(X, Drawn(*(part[t : t + 1] for part in drawn))) for t in range(3)]
    placed, rest = label_probabilities(X, drawn)
    torch.testing.assert_close(placed, sum(one for one, _ in each) / 3)
    torch.testing.assert_close(rest, sum(other for _, other in each) / 3)
    shares = [topic_proportions(X, Drawn(*(part[t : t + 1] for part in drawn))) for t in range(3)]
    torch.testing.assert_close(topic_proportions(X, drawn), sum(shares) / 3)


def test_a_label_without_a_place_is_as_if_it_had_one():
    X, drawn = to_tensor(features(6, 5)), draws(2, 4, 3, 5)
    V = torch.cat([drawn.V, drawn.rest.unsqueeze(1)], 1)
    placed, rest = label_probabilities(X, drawn)
    every, _ = label_probabilities(X, drawn._replace(V=V))
    torch.testing.assert_close(every, torch.cat([placed, rest.unsqueeze(1)], 1))


def test_no_label_has_a_place():
    placed, rest = label_probabilities(to_tensor(features(6, 5)), draws(2, 0, 3, 5))
    assert placed.shape == (6, 0)
    assert rest.shape == (6,)


def test_rows_may_be_sparse_or_dense_and_come_a_few_at_a_time(monkeypatch):
    X, drawn = features(20, 5), draws(2, 4, 3, 5)
    whole = label_probabilities(to_tensor(X), drawn)
    torch.testing.assert_close(label_probabilities(torch.from_numpy(X.toarray()), drawn), whole)
    for chunk in (1, 40):
        monkeypatch.setattr(density, "_CHUNK", chunk)
        torch.testing.assert_close(label_probabilities(to_tensor(X), drawn), whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_odds_of_any_size_give_probabilities(dtype):
    """Within [0, 1] and finite, up to where e^ψ is not; tiny ones are r v e^ψ, with all their digits."""
    psi = np.array([-500.0, -80, -30, 0, 30, 80, 500, 1e30])
    X = sparse.csr_array(psi[:, None].astype(dtype))
    V = torch.from_numpy(np.array([[[0.5, 1e-9], [0.0, 0.3]]], dtype))
    W = torch.from_numpy(np.array([[[1.0, 1.0], [0.0, 0.0]]], dtype))
    r = torch.from_numpy(np.array([[0.7, 2.0]], dtype))
    drawn = Drawn(V, torch.from_numpy(np.array([[1e-30, 0.0]], dtype)), W, r)
    placed, rest = label_probabilities(to_tensor(X), drawn)
    for p in (placed, rest):
        assert p.dtype == V.dtype
        assert p.isfinite().all()
        assert (p >= 0).all()
        assert (p <= 1).all()
        assert (p.diff(dim=0) >= 0).all()
    for row in (1, 2):
        expected = np.exp(psi[row]) * (V[0].numpy() @ r[0].numpy())
        np.testing.assert_allclose(placed[row], expected, rtol=1e-5 if dtype is np.float32 else 1e-12)
    assert (placed[-2:] > 0.999).all()
    shares = topic_proportions(to_tensor(X), drawn)
    assert shares.isfinite().all()
    torch.testing.assert_close(shares.sum(1), torch.ones(8, dtype=V.dtype))


def test_topic_proportions_are_shares_of_expected_counts():
    """E Σ_l m_lkn = r_k e^{ψ_kn}; rows sum to one."""
    X, drawn = features(7, 5), draws(1, 4, 3, 5)
    ours = topic_proportions(to_tensor(X), drawn)
    expected = drawn.r[0].numpy() * np.exp(X @ drawn.W[0, :-1].numpy() + drawn.W[0, -1].numpy())
    np.testing.assert_allclose(ours, expected / expected.sum(axis=1, keepdims=True), rtol=1e-12)
    torch.testing.assert_close(ours.sum(1), torch.ones(7, dtype=torch.float64))


def test_an_estimate_in_single_precision_may_have_shapes_in_double():
    """As EM keeps r."""
    drawn = draws(1, 4, 2, 5, dtype=np.float32)
    placed, rest = label_probabilities(to_tensor(features(3, 5).astype(np.float32)), drawn._replace(r=drawn.r.double()))
    assert placed.dtype == rest.dtype == torch.float32
