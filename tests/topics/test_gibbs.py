"""The sampler leaves the posterior as it is: joint draws of data and parameters keep the prior's moments, intervals
cover the truth as often as they claim, weights have their mean and covariance, planted topics are found."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from labelfield.topics import gibbs
from labelfield.topics.em import EMOptions, EMState, em_step
from labelfield.topics.gibbs import GibbsOptions, GibbsState, draw_weights, gibbs_step, start_gibbs
from labelfield.topics.rows import active_labels, topic_rows
from labelfield.topics.start import start_topics
from labelfield.topics.state import Priors, Topics
from labelfield.topics.weights import Quadratic

N, L, K, D = 12, 5, 2, 2
# Weights as small as this: with their heavy tails, counts would be beyond all bounds now and then.
PRIORS = Priors(weight_scale=0.25, shape_strength=2 / N)


def csr(array):
    return sparse.csr_array(np.asarray(array, np.float32))


X = csr(np.random.default_rng(0).uniform(-0.4, 0.4, (N, D)))
MASK = np.random.default_rng(1).random((N, L)) < 0.6


def from_prior(rng, n_rest=0):
    """A draw of all that there is, labels that have no place being the last."""
    eta = rng.gamma(1.0)
    precision = np.append(rng.gamma(1, 2 / (K * PRIORS.least_variance()), D), 1.0)
    W = rng.standard_normal((D + 1, K)) / np.sqrt(precision)[:, None]
    strength = PRIORS.shape_strength * N
    r = rng.gamma(strength, 1 / strength, K)
    V = rng.dirichlet(np.full(L, eta), K).T
    V, rest = V[: L - n_rest], V[L - n_rest :].sum(0) / max(n_rest, 1)
    psi = np.column_stack([X.toarray(), np.ones(N)]) @ W
    tensors = [torch.tensor(part, dtype=torch.float32) for part in (V, rest, W, precision, psi)]
    tensors = [part.clamp_min(1e-38) if i < 2 else part for i, part in enumerate(tensors)]
    U = torch.tensor(rng.gamma(r, np.exp(psi)), dtype=torch.float32).clamp_min(1e-38)
    topics = Topics(tensors[0], tensors[1], n_rest, tensors[2], torch.tensor(r), tensors[3], eta)
    return GibbsState(topics, U, tensors[4])


def drawn_data(state, rng, mask=None, is_missing=False):
    """Labels of the rows given topics and u, where they were observed."""
    rates = state.U.double() @ state.topics.V.double().T
    Y = rng.random(rates.shape) < -np.expm1(-rates.numpy())
    if mask is not None:
        Y &= ~mask if is_missing else mask
    return topic_rows(X, csr(Y), np.arange(Y.shape[1]), None if mask is None else csr(mask), is_missing)


def summary(state):
    """Functions that do not depend on the order of topics, and that have no heavy tails."""
    topics = state.topics
    r, W, V = topics.r.numpy(), topics.W.double().numpy(), topics.V.double().numpy()
    rest = topics.n_rest * topics.rest.double().numpy()
    precision, u = topics.precision.double().numpy()[:-1], state.U.double().numpy()
    strengths, by_feature = np.tanh(np.log(u.clip(1e-6)).mean(0)), np.tanh(W)
    return np.array(
        [
            *(r.mean(), np.square(r).mean(), r.prod(), np.log(r).mean()),
            *by_feature.mean(1),
            *np.square(by_feature).mean(1),
            *by_feature.prod(1),
            np.square(np.tanh(3 * W[:-1])).mean(),
            *np.log(precision),
            *np.exp(-precision / 10),
            *V.mean(1),
            *(V * by_feature[-1]).mean(1),
            *(rest.mean(), np.sqrt(rest).mean()),
            *(np.square(V).sum(0).mean(), np.cbrt(V).mean(), (V[:, 0] * V[:, 1]).sum(), V[:2].sum(0).prod()),
            *(np.log(topics.eta), np.exp(-topics.eta)),
            *(strengths.mean(), strengths.prod(), np.exp(-u).mean()),
            *((strengths * by_feature[-1]).mean(), (r * by_feature[-1]).mean()),
        ]
    )


@cache
def prior_summaries(n_rest):
    rng = np.random.default_rng(3)
    return np.stack([summary(from_prior(rng, n_rest)) for _ in range(1000)])


def joint_errors(mask, is_missing, n_rest, options, seed, n_chains, n_steps=8):
    """In standard errors: by how much moments along chains that draw data and parameters in turn, each from a start in
    the prior, are off those of the prior."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n_chains):
        state, summaries = from_prior(rng, n_rest), []
        for _ in range(n_steps):
            state, _ = gibbs_step(state, drawn_data(state, rng, mask, is_missing), options, rng)
            summaries.append(summary(state))
        found.append(np.mean(summaries, axis=0))
    prior = prior_summaries(n_rest)
    variance = np.var(found, axis=0, ddof=1) / n_chains + prior.var(axis=0) / len(prior)
    return (np.mean(found, axis=0) - prior.mean(axis=0)) / np.sqrt(variance + 1e-20)


CASES = {
    "all": (None, False, 0),
    "missing": (~MASK, True, 0),
    "observed, two labels without a place": (MASK[:, :3], False, 2),
}


@pytest.mark.parametrize("n_chains", [16, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_joint_draws_keep_the_prior(case, n_chains):
    mask, is_missing, n_rest = CASES[case]
    options = GibbsOptions(PRIORS, exact_below=32 if case == "all" else 0)
    error = joint_errors(mask, is_missing, n_rest, options, 2, n_chains)
    assert np.abs(error).max() < 4.5, error.round(1)


# Weights.


@pytest.mark.parametrize("exact_below", [0, 100])
def test_weights_have_their_mean_and_covariance(exact_below):
    # Topics that are all alike: one call gives as many draws of the same law.
    rng, n, n_draws, tolerance = np.random.default_rng(4), 30, 4000 if exact_below == 0 else 600, 5
    rows = sparse.random_array((n, 6), density=0.5, rng=rng, dtype=np.float32).tocsr()
    data = topic_rows(rows, csr(np.ones((n, 1))), np.arange(1))
    omega, target, precision = rng.gamma(1.0, size=n), rng.standard_normal(n), rng.gamma(1.0, size=7)

    def wide(column):
        return torch.tensor(column, dtype=torch.float32).unsqueeze(1).repeat(1, n_draws)

    problem = Quadratic(data.design, wide(omega), wide(target), torch.tensor(precision, dtype=torch.float32))
    start = torch.tensor(rng.standard_normal((7, n_draws)), dtype=torch.float32)
    options = GibbsOptions(exact_below=exact_below)
    W, psi = draw_weights(problem, start, data.design.times(start), options, rng)
    torch.testing.assert_close(psi, data.design.times(W))

    dense = np.column_stack([rows.toarray(), np.ones(n)]).astype(float)
    covariance = np.linalg.inv(dense.T @ (omega[:, None] * dense) + np.diag(precision))
    mean, drawn = covariance @ dense.T @ target, W.double().numpy()
    variances = np.diag(covariance)
    error = (drawn.mean(1) - mean) / np.sqrt(variances / n_draws)
    assert np.abs(error).max() < tolerance
    found = (drawn - mean[:, None]) @ (drawn - mean[:, None]).T / n_draws
    error = (found - covariance) / np.sqrt((np.outer(variances, variances) + covariance**2) / n_draws)
    assert np.abs(error).max() < tolerance


# What is learned.


def test_planted_topics_are_found():
    rng, n, n_labels, n_topics = np.random.default_rng(5), 300, 20, 4
    groups = np.arange(n_labels) % n_topics
    V = rng.gamma(3.0, size=(n_labels, n_topics)) * (groups[:, None] == np.arange(n_topics))
    V = (V + 1e-3) / (V + 1e-3).sum(0)
    rows = rng.standard_normal((n, 5)).astype(np.float32)
    log_odds = 1.5 * rows[:, :n_topics] + 0.5
    U = rng.gamma(1.0, np.exp(log_odds))
    Y = csr(rng.poisson(U @ V.T) > 0)
    data = topic_rows(csr(rows), Y, active_labels(Y, None))
    start = start_topics(data, n_topics, n_labels, Priors(), torch.Generator().manual_seed(0))
    fitted = EMState(start)
    for _ in range(40):
        fitted, _ = em_step(fitted, data, EMOptions())
    state, options = start_gibbs(fitted.topics, data, rng), GibbsOptions()
    mean_V, mean_W, objectives = 0.0, 0.0, []
    for sweep in range(60):
        state, info = gibbs_step(state, data, options, rng)
        objectives.append(info)
        if sweep >= 20:
            mean_V, mean_W = mean_V + state.topics.V.double().numpy() / 40, mean_W + state.topics.W.numpy() / 40
    cosine = V.T @ mean_V / np.outer(np.linalg.norm(V, axis=0), np.linalg.norm(mean_V, axis=0))
    mine, found = linear_sum_assignment(-cosine)
    assert cosine[mine, found].min() > 0.95, cosine
    # The feature that makes a topic likely is the one that was planted.
    assert (mean_W[:n_topics, found].argmax(0) == mine).all()
    assert np.isfinite(objectives).all()


def test_objective_is_the_log_likelihood_of_what_was_observed():
    rng = np.random.default_rng(6)
    state = from_prior(rng)
    data = drawn_data(state, rng, ~MASK, True)
    _, info = gibbs_step(state, data, GibbsOptions(PRIORS), rng)
    rates = (state.U.double() @ state.topics.V.double().T).numpy()
    holds = np.zeros((N, L), bool)
    holds[data.positives.row, data.positives.label] = True
    each = np.where(holds, np.log(-np.expm1(-rates)), -rates)
    np.testing.assert_allclose(info, each[MASK].sum(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("n_sets", "distance"), [(40, 3), pytest.param(150, 5, marks=pytest.mark.slow)])
def test_intervals_cover_the_truth(n_sets, distance):
    """Of the strength Σ_k v_lk r_k e^{ψ_kn} of a label in a row, on data that come from the prior: among nine draws of
    the posterior, far enough apart, the truth has one of ten ranks, all as likely."""
    rng, options, ranks = np.random.default_rng(8), GibbsOptions(PRIORS, exact_below=0), []
    rows, labels = [0, 3, 7], [0, 2, 4]

    def strengths(state):
        of_topics = state.psi[rows].double().exp() * state.topics.r
        return (state.topics.V[labels].double() * of_topics).sum(1).numpy()

    for _ in range(n_sets):
        truth = from_prior(rng)
        data = drawn_data(truth, rng, ~MASK, True)
        # From anywhere but the truth.
        state, found = replace(from_prior(rng), U=torch.ones(N, K)), []
        for _ in range(10 * distance):
            state, _ = gibbs_step(state, data, options, rng)
            found.append(strengths(state))
        ranks.append((np.stack(found[2 * distance - 1 :: distance]) < strengths(truth)).sum(0))
    rank = np.stack(ranks)
    # As if the three of a set were one: they are not independent.
    for share, nominal in (((rank >= 1) & (rank < 9), 0.8), (rank < 5, 0.5)):
        assert abs(share.mean() - nominal) < 3 * np.sqrt(nominal * (1 - nominal) / n_sets), share.mean()


# Masks and places.


def test_nothing_missing_is_no_mask():
    state = from_prior(np.random.default_rng(9))
    plain = drawn_data(state, np.random.default_rng(10))
    nowhere = drawn_data(state, np.random.default_rng(10), np.zeros((N, L), bool), True)
    everywhere = drawn_data(state, np.random.default_rng(10), np.ones((N, L), bool), False)
    found = []
    for data in (plain, nowhere, everywhere):
        drawn, rng = state, np.random.default_rng(11)
        for _ in range(3):
            drawn, _ = gibbs_step(drawn, data, GibbsOptions(PRIORS), rng)
        found.append(drawn)
    for other in found[1:]:
        torch.testing.assert_close(other.U, found[0].U, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(other.topics.V, found[0].topics.V, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(other.topics.W, found[0].topics.W, rtol=1e-3, atol=1e-5)


def test_labels_without_a_place_have_the_law_of_labels_with_one():
    counts, n = np.array([[3, 0], [0, 40]]), 4000
    rng, none = np.random.default_rng(12), np.zeros(2, np.int64)
    wide = np.concatenate([counts, np.zeros((3, 2), np.int64)])
    placed = np.stack([gibbs.draw_labels(wide, none, 0, 0.3, rng)[0] for _ in range(n)])
    drawn = [gibbs.draw_labels(counts, none, 3, 0.3, rng) for _ in range(n)]
    V, rest = np.stack([each[0] for each in drawn]), np.stack([each[1] for each in drawn])
    assert np.allclose(V.sum(1) + 3 * rest, 1)
    assert np.allclose(placed.sum(1), 1)
    for mine, theirs in ((V, placed[:, :2]), (3 * rest, placed[:, 2:].sum(1))):
        for power in (0.5, 1, 2):
            a, b = mine**power, theirs**power
            assert (np.abs(a.mean(0) - b.mean(0)) < 5 * np.sqrt((a.var(0) + b.var(0)) / n)).all()


def test_eta_follows_its_law():
    """Against p(η | counts), V integrated out, on a grid; labels without a place are one."""
    counts, rest, n_rest = np.array([[5, 0], [0, 1], [2, 0]]), np.array([0, 4]), 4
    grid = np.linspace(1e-4, 15, 40_000)[:, None]
    logs = -grid[:, 0] + (gammaln(7 * grid) - gammaln(7 * grid + counts.sum(0) + rest)).sum(1)
    logs += (gammaln(grid[..., None] + counts) - gammaln(grid[..., None])).sum((1, 2))
    logs += (gammaln(n_rest * grid + rest) - gammaln(n_rest * grid)).sum(1)
    p = np.exp(logs - logs.max())
    p /= p.sum()
    rng, eta, found = np.random.default_rng(13), 1.0, []
    for _ in range(4000):
        eta = gibbs.draw_eta(counts, rest, n_rest, eta, rng)
        found.append(eta)
    for function in (np.log, np.tanh, np.sqrt):
        values = function(np.array(found)).reshape(40, -1).mean(1)  # blocks, longer than what they remember
        error = values.mean() - p @ function(grid[:, 0])
        assert abs(error) < 4.5 * values.std() / np.sqrt(len(values))


def test_rows_without_positives_one_topic_and_kept_parameters():
    rng = np.random.default_rng(14)
    Y = np.zeros((N, L), bool)
    Y[:3, 0] = True
    data = topic_rows(X, csr(Y), np.array([0]))
    topics = start_topics(data, 1, L, PRIORS, torch.Generator().manual_seed(0))
    state = start_gibbs(topics, data, rng)
    options = GibbsOptions(PRIORS, learns_shapes=False, learns_precision=False, learns_eta=False)
    for _ in range(3):
        state, _ = gibbs_step(state, data, options, rng)
    assert state.topics.V.shape == (1, 1)
    torch.testing.assert_close(state.topics.V.sum(0) + (L - 1) * state.topics.rest, torch.ones(1))
    assert torch.equal(state.topics.r, topics.r)
    assert torch.equal(state.topics.precision, topics.precision)
    assert state.topics.eta == topics.eta
    assert bool((state.U > 0).all())
    # The precision of the constant is kept in any case; without a single positive there are draws as well.
    empty = topic_rows(X, csr(np.zeros((N, L))), np.arange(L))
    state, info = gibbs_step(from_prior(rng), empty, GibbsOptions(PRIORS), rng)
    assert state.topics.precision[-1] == 1
    assert np.isfinite(info)


def test_a_seed_gives_the_same_draws():
    first = from_prior(np.random.default_rng(15))
    data = drawn_data(first, np.random.default_rng(16), ~MASK, True)
    one, two = (gibbs_step(first, data, GibbsOptions(PRIORS), np.random.default_rng(17))[0] for _ in range(2))
    assert torch.equal(one.U, two.U)
    assert torch.equal(one.topics.V, two.topics.V)


def test_counts_add_up_in_small_pieces(monkeypatch):
    """Rows and positives in many pieces: counts add up to what they are in one."""
    state = from_prior(np.random.default_rng(18))
    data = drawn_data(state, np.random.default_rng(19))
    monkeypatch.setattr(gibbs, "_CHUNK", 3)
    _, row_counts, counts = gibbs.draw_counts(state.U, state.topics.V, data.positives, np.random.default_rng(20))
    assert (row_counts.sum(0) == counts.sum(0)).all()
    at_rows = np.bincount(data.positives.row, minlength=N)
    assert (row_counts.sum(1) >= at_rows).all()
    assert ((row_counts.sum(1) > 0) == (at_rows > 0)).all()
    after, _ = gibbs_step(state, data, GibbsOptions(PRIORS), np.random.default_rng(20))
    assert bool(torch.isfinite(after.U).all())
