"""EM of the topic model climbs a bound of the log posterior, finds planted topics, and pays for positives alone.

F, of labelfield/topics/em.py, is the bound: the expected log joint density of Y, m, u and the parameters under
q(m) q(u), and the entropy of q. Densities are in the coordinates log v, log λ and log r, and without constants of them.
Arrays are float64 here unless a test is about many rows, so that tolerances are those of rounding.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.special import digamma, gammaln, roots_genlaguerre
from scipy.stats import dirichlet, gamma, norm
from torch.utils._python_dispatch import TorchDispatchMode

from labelfield.linalg.rows import to_tensor
from labelfield.synth import make_topics
from labelfield.topics import em
from labelfield.topics.density import Drawn, label_probabilities
from labelfield.topics.em import EMOptions, EMState, em_step, expected_counts
from labelfield.topics.rows import active_labels, topic_rows
from labelfield.topics.start import start_topics
from labelfield.topics.state import Priors
from labelfield.topics.weights import matrices

FORMS = ["everything observed", "observed ones stored", "missing ones stored"]
FIXED_ETA = EMOptions(learns_eta=False)


def csr(array):
    return sparse.csr_array(np.asarray(array, np.float32))


def masked(Y, is_observed, form):
    """The positives that are seen, and the mask as `topic_rows` takes it."""
    if form == FORMS[0]:
        return csr(Y), None, False
    is_missing = form == FORMS[2]
    return csr(Y * is_observed), csr(~is_observed if is_missing else is_observed), is_missing


def small(form=FORMS[0], n_rows=40, n_features=12, n_labels=12, n_topics=3, *, every_label=True, seed=0):
    """Rows of a planted problem; with a mask, a third of the entries is hidden."""
    dataset = make_topics(n_rows, n_features, n_labels, n_topics, seed=seed)
    is_observed = np.random.default_rng(seed).random((n_rows, n_labels)) < 2 / 3
    Y, mask, is_missing = masked(dataset.Y.toarray(), is_observed, form)
    labels = np.arange(n_labels) if every_label else active_labels(Y, mask)
    return topic_rows(dataset.X.astype(np.float64), Y, labels, mask, is_missing)


def first_topics(data, n_topics, n_labels, *, priors=None, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return start_topics(data, n_topics, n_labels, priors or Priors(), generator, dtype)


def random_topics(data, n_topics, n_labels, seed):
    """Anywhere, far from where EM would be."""
    rng, topics = np.random.default_rng(seed), first_topics(data, n_topics, n_labels)
    V = np.maximum(rng.dirichlet(np.full(n_labels, 0.3), n_topics).T, 1e-9)
    V[len(topics.V) :] = V[-1]
    V /= V.sum(axis=0)
    return replace(
        topics,
        V=torch.from_numpy(V[: len(topics.V)]),
        rest=torch.from_numpy(V[-1]),
        W=torch.from_numpy(rng.normal(0, 1.5, topics.W.shape)),
        r=torch.from_numpy(rng.gamma(2, 0.7, n_topics) + 0.05),
        precision=torch.from_numpy(rng.gamma(2, 0.5, len(topics.precision))),
        eta=float(rng.uniform(0.01, 0.5)),
    )


def run(topics, data, options, n_steps):
    """The last state, and F before each step."""
    state, objectives = EMState(topics), []
    for _ in range(n_steps):
        state, info = em_step(state, data, options)
        objectives.append(info)
    return state, np.array(objectives)


def fitted(X, Y, n_topics, mask=None, is_missing=False, *, n_steps=35, options=FIXED_ETA, seed=0):
    """Topics in float32, of all labels."""
    data = topic_rows(X, Y, np.arange(Y.shape[1]), mask, is_missing)
    state, _ = run(first_topics(data, n_topics, Y.shape[1], seed=seed, dtype=torch.float32), data, options, n_steps)
    return state.topics


def cosines(V, planted):
    """Cosines of topics with the planted ones, matched so that their sum is largest."""
    V, planted = (np.asarray(part) / np.linalg.norm(part, axis=0) for part in (V, planted))
    return (V.T @ planted)[linear_sum_assignment(-V.T @ planted)]


def probabilities(topics, X):
    drawn = Drawn(*(part.unsqueeze(0) for part in (topics.V, topics.rest, topics.W, topics.r)))
    return label_probabilities(to_tensor(X), drawn)[0].numpy()


def assert_same(a, b, tolerance=1e-9):
    for name in ("V", "rest", "W", "r", "precision"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance, msg=name)


# F never falls.


def assert_never_falls(F):
    # What is added up has the size of F; rounding stays far below a part in 10^11 of it.
    assert np.isfinite(F).all()
    assert (np.diff(F) > -1e-11 * np.abs(F).max()).all(), np.diff(F).min()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_gradient_steps", [None, 1, 2, 5])
def test_a_step_on_all_rows_never_lowers_the_bound(n_gradient_steps, form):
    data = small(form)
    options = EMOptions(n_gradient_steps, learns_eta=False)
    _, F = run(first_topics(data, 3, 12), data, options, 40)
    assert_never_falls(F)
    assert F[-1] > F[0] + 10  # it moves


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strength", [0.01, 1.0])
def test_nor_does_it_from_anywhere(form, strength):
    """This includes an r that is far off with a weak prior: its step is right even for counts below 1, which are no
    tables."""
    options = EMOptions(2, Priors(shape_strength=strength), learns_eta=False)
    for seed in range(4):
        data = small(form, 25, 8, 6, 2, seed=seed, every_label=False)
        topics = random_topics(data, 2, 6, seed)
        _, F = run(replace(topics, r=topics.r**4), data, options, 10)
        assert_never_falls(F)


def test_steps_in_single_precision_do_not_lower_it_beyond_rounding():
    dataset = make_topics(400, 60, 20, 4)
    data = topic_rows(dataset.X, dataset.Y, np.arange(20))
    _, F = run(first_topics(data, 4, 20, dtype=torch.float32), data, FIXED_ETA, 40)
    assert (np.diff(F) > -1e-6 * np.abs(F).max()).all()


def test_expected_tables_of_any_count_raise_the_terms_of_r():
    """log Γ(m + r) - log Γ(r) - r S is not lower at r' = T / S, T = r (digamma(m + r) - digamma(r)), for any m ≥ 0.

    As functions of log r the first two are convex for m ≥ 1, which is the usual reason. For m < 1 they are concave. It
    is true for all m because r T(r) rises with r: to r' = d r they gain T (1 - 1/d) at least, which r S costs at most.
    """
    m, r, S = np.meshgrid(np.logspace(-4, 2, 30), np.logspace(-3, 3, 40), np.logspace(-3, 2, 30), indexing="ij")
    tables = r * (digamma(m + r) - digamma(r))
    better = tables / S
    before, after = (gammaln(m + at) - gammaln(at) - at * S for at in (r, better))
    size = sum(np.abs(part) for part in (gammaln(m + r), gammaln(r), gammaln(m + better), gammaln(better), r * S))
    assert (after >= before - 1e-13 * (size + np.abs(better * S))).all()


# F is what it claims to be.


def seen(data):
    """Dense: which labels of rows are positive, and which were observed, for the active labels."""
    Y = np.zeros(data.positives.shape, bool)
    Y[data.positives.row, data.positives.label] = True
    is_observed = np.ones_like(Y)
    if data.mask is not None:
        is_observed[:] = data.is_missing
        is_observed[data.mask.row, data.mask.label] = not data.is_missing
    return Y, is_observed


def others(topics, data):
    """The weight (K,) of observed inactive labels: all are, or none where a mask stores what was observed."""
    is_observed = data.mask is None or data.is_missing
    return is_observed * topics.n_rest * topics.rest.numpy()


def bound_by_definition(state, data):
    """E log p(Y, m, u | V, W, r) - E log q(m) - E log q(u) of two topics, with a sum over all m up to 60 of each topic
    for each positive, and integrals over u on a grid that is dense in log u."""
    topics, rows = state.topics, state.rows
    V, r = topics.V.numpy(), topics.r.numpy()
    Y, is_observed = seen(data)
    shape, psi = rows.shape.numpy(), rows.psi.numpy()
    rest = others(topics, data)
    rate = is_observed.astype(float) @ V + rest + np.exp(-psi)
    x = np.linspace(-80, 15, 8001)  # log u
    total, mean, mean_log = 0.0, np.empty_like(psi), np.empty_like(psi)
    for n, k in np.ndindex(*psi.shape):
        log_q = gamma.logpdf(np.exp(x), shape[n, k], scale=1 / rate[n, k])
        log_p = gamma.logpdf(np.exp(x), r[k], scale=np.exp(psi[n, k]))
        q = np.exp(log_q + x) * (x[1] - x[0])
        assert abs(q.sum() - 1) < 1e-9
        total += q @ (log_p - log_q)
        mean[n, k], mean_log[n, k] = q @ np.exp(x), q @ x
    m = np.stack(np.meshgrid(np.arange(60), np.arange(60), indexing="ij"))
    for n, label in zip(*np.nonzero(is_observed), strict=True):
        v = V[label]
        if not Y[n, label]:
            total -= v @ mean[n]  # m = 0
            continue
        log_rate = np.log(v) + mean_log[n]
        log_q = np.tensordot(log_rate, m, 1) - gammaln(m + 1).sum(axis=0)
        log_q[0, 0] = -np.inf
        log_q -= np.log(np.exp(log_q).sum())
        q = np.exp(log_q)
        log_p = np.tensordot(log_rate, m, 1) - v @ mean[n] - gammaln(m + 1).sum(axis=0)
        total += (q * (log_p - np.where(q > 0, log_q, 0)))[q > 0].sum()
    return total - (mean @ rest).sum()


def log_prior(topics, n_rows, priors=None):
    """In the coordinates log v, log λ and log r, without the constants of the normal and gamma densities."""
    priors = priors or Priors()
    K, W, scale = topics.n_topics, topics.W.numpy(), topics.precision.numpy() ** -0.5
    V = np.concatenate([topics.V.numpy(), np.tile(topics.rest.numpy(), (topics.n_rest, 1))])
    of_labels = sum(dirichlet.logpdf(v / v.sum(), np.full(len(v), topics.eta)) + np.log(v).sum() for v in V.T)
    of_weights = (norm.logpdf(W, 0, scale[:, None]) + 0.5 * np.log(2 * np.pi)).sum()
    learned, rate = topics.precision.numpy()[:-1], K * priors.weight_scale**2 / 2
    of_precision = (gamma.logpdf(learned, 1, scale=1 / rate) - np.log(rate) + np.log(learned)).sum()
    strength, r = priors.shape_strength * n_rows, topics.r.numpy()
    constant = strength * np.log(strength) - gammaln(strength)
    of_shapes = (gamma.logpdf(r, strength, scale=1 / strength) - constant + np.log(r)).sum()
    return of_labels + of_weights + of_precision + of_shapes


def log_likelihood(topics, data, n_points=120):
    """log p(Y | V, W, r) of two topics: u integrated out by quadrature, of the order of each r."""
    Y, is_observed = seen(data)
    psi, V = data.design.times(topics.W).numpy(), topics.V.numpy()
    nodes, weights = zip(*(roots_genlaguerre(n_points, r - 1) for r in topics.r.numpy()), strict=True)
    weights = [w / w.sum() for w in weights]
    total = 0.0
    for n in range(len(Y)):
        u = np.stack(np.meshgrid(*(x * np.exp(p) for x, p in zip(nodes, psi[n], strict=True)), indexing="ij"))
        rate = np.tensordot(V[is_observed[n]], u, 1)
        each = np.where(Y[n, is_observed[n]][:, None, None], -np.expm1(-rate), np.exp(-rate)).prod(axis=0)
        each *= np.exp(-np.tensordot(others(topics, data), u, 1))
        total += np.log(weights[0] @ each @ weights[1])
    return total


def two_topics(form, seed):
    data = small(form, 6, 4, 5, 2, seed=seed, every_label=seed % 2 == 0)
    topics = random_topics(data, 2, 5, seed)
    return data, replace(topics, W=topics.W * 0.5, r=topics.r + 0.3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_objective_is_the_bound_by_its_definition(form, seed):
    data, topics = two_topics(form, seed)
    state = EMState(topics)
    for _ in range(3):
        state, _ = em_step(state, data, FIXED_ETA)
    _, info = em_step(state, data, FIXED_ETA)
    by_definition = bound_by_definition(state, data) + log_prior(state.topics, data.n_rows)
    np.testing.assert_allclose(info, by_definition, rtol=1e-9)  # the grid's error


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_is_below_the_log_posterior(form, seed):
    """The distance is at most one nat per row."""
    data, topics = two_topics(form, seed)
    state, _ = run(topics, data, FIXED_ETA, 3)
    _, info = em_step(state, data, FIXED_ETA)
    exact = log_likelihood(state.topics, data) + log_prior(state.topics, data.n_rows)
    assert exact - data.n_rows < info < exact


@pytest.mark.parametrize("form", FORMS)
def test_without_positives_the_bound_is_the_log_posterior(form):
    """Given m = 0 the gamma is exact."""
    X = sparse.csr_array(np.random.default_rng(0).random((6, 4)))
    Y, mask, is_missing = masked(np.zeros((6, 5)), np.random.default_rng(1).random((6, 5)) < 0.5, form)
    data = topic_rows(X, Y, np.arange(5), mask, is_missing)
    topics = random_topics(data, 2, 5, 0)
    _, F = run(topics, data, FIXED_ETA, 1)
    np.testing.assert_allclose(F[0], log_likelihood(topics, data) + log_prior(topics, 6), rtol=1e-9)


def test_the_constants_of_the_prior_are_left_out_and_nothing_else():
    """Where nothing is known of rows, F is the prior's density."""
    X = sparse.csr_array(np.random.default_rng(0).random((6, 4)))
    data = topic_rows(X, csr(np.zeros((6, 5))), np.arange(5), csr(np.zeros((6, 5))), is_missing=False)
    for seed in range(3):
        topics = random_topics(data, 2, 5, seed)
        _, F = run(topics, data, FIXED_ETA, 1)
        np.testing.assert_allclose(F[0], log_prior(topics, 6), atol=1e-3)  # an unseen row has the weight 1e-6, not 0


# Ways to step.


@pytest.mark.parametrize("form", FORMS)
def test_conjugate_gradients_that_converge_are_the_solution(form):
    data = small(form)
    state, _ = run(first_topics(data, 3, 12), data, FIXED_ETA, 5)
    exact, other = (em_step(state, data, EMOptions(n, learns_eta=False))[0] for n in (None, 60))
    assert_same(exact.topics, other.topics, 1e-8)
    torch.testing.assert_close(exact.rows, other.rows, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_mask_that_hides_nothing_is_none(is_missing):
    dataset = make_topics(50, 12, 9, 3)
    X, mask = dataset.X.astype(np.float64), csr(np.full((50, 9), not is_missing))
    plain, other = (topic_rows(X, dataset.Y, np.arange(9), *more) for more in ((), (mask, is_missing)))
    one, F = run(first_topics(plain, 3, 9), plain, FIXED_ETA, 10)
    two, G = run(first_topics(other, 3, 9), other, FIXED_ETA, 10)
    np.testing.assert_allclose(F, G, rtol=1e-11)
    assert_same(one.topics, two.topics, 1e-8)


def test_what_is_stored_of_a_mask_does_not_matter():
    """Observed entries or missing ones."""
    one, two = small(FORMS[1]), small(FORMS[2])
    a, F = run(first_topics(one, 3, 12), one, FIXED_ETA, 10)
    b, G = run(first_topics(two, 3, 12), two, FIXED_ETA, 10)
    np.testing.assert_allclose(F, G, rtol=1e-11)
    assert_same(a.topics, b.topics, 1e-8)


@pytest.mark.parametrize("form", [FORMS[0], FORMS[2]])
def test_a_label_without_a_place_is_one_that_never_holds(form):
    dataset = make_topics(50, 12, 9, 3)
    Y = dataset.Y.toarray()
    Y[:, [2, 5]] = 0
    is_observed = np.random.default_rng(0).random(Y.shape) < 0.7
    is_observed[:, [2, 5]] = True
    Y, mask, is_missing = masked(Y, is_observed, form)
    few = active_labels(Y, mask)
    assert 2 not in few
    assert 5 not in few
    X, results = dataset.X.astype(np.float64), []
    for labels in (np.arange(9), few):
        data = topic_rows(X, Y, labels, mask, is_missing)
        topics = first_topics(data, 3, 9)
        start = first_topics(topic_rows(X, Y, np.arange(9), mask, is_missing), 3, 9)
        assert topics.n_rest == 9 - len(labels)
        V = start.V.clone()
        V[5] = V[2]  # else noise tells them apart at the start
        topics = replace(topics, V=V[labels], rest=V[2])
        results.append(run(topics, data, FIXED_ETA, 8))
    (every, F), (placed, G) = results
    np.testing.assert_allclose(F, G, rtol=1e-11)
    torch.testing.assert_close(every.topics.V[few], placed.topics.V)
    torch.testing.assert_close(every.topics.V[2], placed.topics.rest)
    torch.testing.assert_close(every.topics.W, placed.topics.W)


def test_eta_is_learned_now_and_then_and_topics_stay_distributions():
    data = small(n_labels=12)
    state = EMState(first_topics(data, 3, 12))
    for step in range(em._WHEN_ETA[-1] + 2):
        before = state.topics.eta
        state, _ = em_step(state, data, EMOptions())
        assert (state.topics.eta != before) <= (step in em._WHEN_ETA)
    assert state.topics.eta != first_topics(data, 3, 12).eta
    torch.testing.assert_close(state.topics.V.sum(0), torch.ones(3, dtype=torch.float64))


# Rows without observed labels.


@pytest.mark.parametrize("form", FORMS[1:])
def test_a_row_of_which_nothing_was_observed_changes_nothing(form):
    """Neither F, wherever the parameters are, nor the steps of V and r. Only r's prior counts rows; it is made equal.
    (A step of W is shorter, since the quadratic that bounds F is curved where F is not; it ends at the same point.)"""
    n, more = 30, 10
    dataset = make_topics(n + more, 8, 6, 2)
    is_observed = np.random.default_rng(0).random((n + more, 6)) < 0.6
    is_observed[n:] = False
    Y, mask, is_missing = masked(dataset.Y.toarray(), is_observed, form)
    X = dataset.X.astype(np.float64)
    some = topic_rows(X[:n], Y[:n], np.arange(6), mask[:n], is_missing)
    every = topic_rows(X, Y, np.arange(6), mask, is_missing)
    as_zeros = topic_rows(X, Y, np.arange(6))
    weaker = Priors(shape_strength=n / (n + more))
    for seed in range(3):
        topics = random_topics(some, 2, 6, seed)
        one, info = em_step(EMState(topics), some, EMOptions(0, learns_eta=False))
        two, other = em_step(EMState(topics), every, EMOptions(0, weaker, learns_eta=False))
        three, zeros = em_step(EMState(topics), as_zeros, EMOptions(0, weaker, learns_eta=False))
        # A row with nothing observed has the weight 1e-6 in place of 0: -r log(1 + 1e-6 e^ψ) is left of it.
        left = float((every.design.times(topics.W)[n:].exp() * 1e-6 * topics.r).sum())
        assert -1e-9 <= info - other <= left + 1e-9
        torch.testing.assert_close(one.topics.V, two.topics.V, rtol=1e-4, atol=left)
        torch.testing.assert_close(one.topics.r, two.topics.r, rtol=1e-9, atol=left)
        torch.testing.assert_close(one.topics.W, two.topics.W)
        assert info - zeros > 1  # it is not the same as to see no label there
        assert ((one.topics.r - three.topics.r).abs() > 1e-3).all()


# Degenerate problems.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_topics", [1, 4])
def test_rows_and_labels_without_positives(form, n_topics):
    dataset = make_topics(40, 10, 8, 3)
    Y = dataset.Y.toarray()
    Y[::3] = 0
    Y[:, ::2] = 0
    is_observed = np.random.default_rng(0).random(Y.shape) < 0.7
    is_observed[:, 7] = False  # a label that was never observed
    Y, mask, is_missing = masked(Y, is_observed, form)
    for labels in (np.arange(8), active_labels(Y, mask)):
        data = topic_rows(dataset.X.astype(np.float64), Y, labels, mask, is_missing)
        state, F = run(first_topics(data, n_topics, 8), data, FIXED_ETA, 20)
        assert_never_falls(F)
        for part in (state.topics.V, state.topics.W, state.topics.r, state.rows.shape):
            assert part.isfinite().all()
        total = state.topics.V.sum(0) + state.topics.n_rest * state.topics.rest
        torch.testing.assert_close(total, torch.ones(n_topics, dtype=torch.float64))


@pytest.mark.parametrize("form", FORMS)
def test_no_positives_at_all(form):
    X = sparse.csr_array(np.random.default_rng(0).random((7, 3)))
    Y, mask, is_missing = masked(np.zeros((7, 4)), np.zeros((7, 4), bool), form)
    for labels in (np.arange(4), active_labels(Y, mask)):
        data = topic_rows(X, Y, labels, mask, is_missing)
        state, F = run(first_topics(data, 2, 4), data, FIXED_ETA, 5)
        assert_never_falls(F)
        assert state.topics.n_labels == 4
        for weights in (state.topics.V, state.topics.rest):
            torch.testing.assert_close(weights, torch.full_like(weights, 0.25))


def test_expected_counts_are_those_of_truncated_poissons():
    """E m_lkn of positives, split among topics as v_lk u_kn, summed over labels and over rows; also a few at a time."""
    data, rng = small(n_rows=20), np.random.default_rng(0)
    U, V = rng.gamma(1, 1, (20, 3)), rng.dirichlet(np.ones(12), 3).T
    Y, _ = seen(data)
    rate = U @ V.T
    each = np.where(Y, 1 / -np.expm1(-rate), 0)[:, :, None] * U[:, None] * V
    fit = np.log(np.expm1(rate))[Y].sum()
    arrays = torch.from_numpy(U), torch.from_numpy(V)
    for chunk in (em._CHUNK, 7):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(em, "_CHUNK", chunk)
            ours, of_rows, of_labels = expected_counts(*arrays, data.positives)
        np.testing.assert_allclose(ours, fit, rtol=1e-12)
        np.testing.assert_allclose(of_rows, each.sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(of_labels, each.sum(axis=0), rtol=1e-12)


def test_rates_that_vanish_are_counted_once():
    """E m = 1 where the rate is nothing, whatever the precision; a topic without weight has no share in it."""
    data = topic_rows(csr(np.ones((1, 1))), csr([[1, 0]]), np.arange(2))
    U, V = torch.tensor([[1e-30, 0.0]]), torch.tensor([[1e-5, 0.5], [1.0, 0.5]])
    fit, of_rows, _ = expected_counts(U, V, data.positives)
    np.testing.assert_allclose(of_rows, [[1, 0]], rtol=1e-5)
    np.testing.assert_allclose(fit, np.log(1e-35), rtol=1e-6)


# Planted topics are found.


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_topics_are_recovered(seed):
    """From the best of two starts, as F tells."""
    dataset, truth = make_topics(1500, 100, 40, 5, seed=seed, return_truth=True)
    data = topic_rows(dataset.X, dataset.Y, np.arange(40))
    runs = [run(first_topics(data, 5, 40, seed=start, dtype=torch.float32), data, FIXED_ETA, 35) for start in range(2)]
    best, _ = max(runs, key=lambda result: result[1][-1])
    assert cosines(best.topics.V, truth.V).min() > 0.95


def test_hidden_labels_leave_topics_and_probabilities_as_they_are():
    """With 80 % of the entries hidden at random. Taken for zeros they make all labels five times as rare.

    EM underestimates probabilities by some percent even if everything is seen, as its bound prefers too little spread.
    """
    n, L = 2500, 16
    dataset, truth = make_topics(n, 60, L, 3, labels_per_row=3, return_truth=True)
    is_observed = np.random.default_rng(1).random((n, L)) < 0.2
    expected = truth.probabilities(dataset.X).mean()
    means = {}
    for form in FORMS[1:]:
        Y, mask, is_missing = masked(dataset.Y.toarray(), is_observed, form)
        topics = fitted(dataset.X, Y, 3, mask, is_missing)
        assert cosines(topics.V, truth.V).min() > 0.9
        means[form] = probabilities(topics, dataset.X).mean() / expected
    means["all seen"] = probabilities(fitted(dataset.X, dataset.Y, 3), dataset.X).mean() / expected
    means["zeros"] = probabilities(fitted(dataset.X, Y, 3), dataset.X).mean() / expected
    assert 0.9 < means["all seen"] < 1.02, means
    for form in FORMS[1:]:
        assert abs(means[form] - means["all seen"]) < 0.05, means
    assert means["zeros"] < 0.25, means


# Online EM.


def test_online_steps_on_all_rows_with_the_rate_one_are_em():
    data = small()
    state = other = almost = EMState(first_topics(data, 3, 12))
    for _ in range(6):
        state, info = em_step(state, data, FIXED_ETA)
        other, same = em_step(other, data, FIXED_ETA, rate=1.0, n_data=40)
        almost, _ = em_step(almost, data, FIXED_ETA, rate=1 - 1e-12)
        assert info == same
    assert_same(state.topics, other.topics, 0)
    assert_same(state.topics, almost.topics, 1e-9)  # no jump from there


@pytest.mark.parametrize("form", FORMS)
def test_a_step_goes_as_far_as_its_rate(form):
    """From W and the sums that were known towards those of a whole step; V and r follow from the sums."""
    data = small(form)
    state, _ = run(first_topics(data, 3, 12), data, FIXED_ETA, 2)
    (whole, _), (part, _) = (em_step(state, data, FIXED_ETA, rate=rate) for rate in (1.0, 0.3))
    torch.testing.assert_close(part.topics.W, torch.lerp(state.topics.W, whole.topics.W, 0.3))
    torch.testing.assert_close(part.rows.psi, data.design.times(part.topics.W))
    torch.testing.assert_close(part.sums.counts, torch.lerp(state.sums.counts, whole.sums.counts, 0.3))
    torch.testing.assert_close(part.sums.tables, torch.lerp(state.sums.tables, whole.sums.tables, 0.3))
    expected = (40 + part.sums.tables) / (40 + part.sums.softplus)
    torch.testing.assert_close(part.topics.r, expected)
    if form == FORMS[0]:
        above = part.sums.counts + part.topics.eta
        torch.testing.assert_close(part.topics.V, above / above.sum(0))


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_stand_for_all_count_so_often(form):
    """A step on rows that stand for twice as many is one on the rows and a copy of them."""
    dataset = make_topics(40, 10, 8, 3)
    is_observed = np.random.default_rng(0).random((40, 8)) < 0.7
    Y, mask, is_missing = masked(dataset.Y.toarray(), is_observed, form)
    X = dataset.X.astype(np.float64)
    once = topic_rows(X, Y, np.arange(8), mask, is_missing)
    X, Y, mask = (part if part is None else sparse.vstack([part, part]).tocsr() for part in (X, Y, mask))
    twice = topic_rows(X, Y, np.arange(8), mask, is_missing)
    topics = first_topics(once, 3, 8)
    for n_gradient_steps in (None, 2):
        options = EMOptions(n_gradient_steps, learns_eta=False)
        one, two = em_step(EMState(topics), once, options, n_data=80), em_step(EMState(topics), twice, options)
        assert_same(one[0].topics, two[0].topics, 1e-10)


@pytest.mark.parametrize("form", FORMS[:2])
def test_online_em_comes_near_to_em(form):
    n, L, K = 800, 20, 4
    dataset, truth = make_topics(n, 40, L, K, return_truth=True)
    is_observed = np.random.default_rng(0).random((n, L)) < 0.7
    Y, mask, is_missing = masked(dataset.Y.toarray(), is_observed, form)

    def rows(chosen):
        return topic_rows(
            dataset.X[chosen], Y[chosen], np.arange(L), mask if mask is None else mask[chosen], is_missing
        )

    data = rows(slice(None))
    start = first_topics(data, K, L, dtype=torch.float32)
    whole, _ = run(start, data, FIXED_ETA, 60)
    state = EMState(start)
    batches = [rows(part) for part in np.random.default_rng(0).permutation(n).reshape(5, -1)]
    for _ in range(15):
        for batch in batches:
            state, _ = em_step(state, batch, FIXED_ETA, rate=(state.n_steps + 2) ** -0.6, n_data=n)
    first, online, last = (
        em_step(EMState(topics), data, FIXED_ETA)[1] for topics in (start, state.topics, whole.topics)
    )
    assert online > last - 0.05 * (last - first)
    assert cosines(state.topics.V, whole.topics.V).min() > 0.98
    assert cosines(state.topics.V, truth.V).min() > 0.95


# What it costs.


class Numbers(TorchDispatchMode):
    """Counts the numbers in all tensors that operations read or make, and keeps the size of the largest one."""

    def __init__(self):
        super().__init__()
        self.total = self.largest = 0

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # or a second goes by until the compiler is imported

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for part in torch.utils._pytree.tree_leaves((args, kwargs, result)):
            if isinstance(part, torch.Tensor):
                size = part.values().numel() if part.layout == torch.sparse_csr else part.numel()
                self.total += size
                self.largest = max(self.largest, size)
        return result


def cost(Y, n_topics=3, n_labels=None):
    n = Y.shape[0]
    X = sparse.csr_array(np.random.default_rng(0).random((n, 5), np.float32))
    data = topic_rows(X, Y, active_labels(Y, None))
    topics = first_topics(data, n_topics, n_labels or Y.shape[1], dtype=torch.float32)
    state, _ = em_step(EMState(topics), data, FIXED_ETA)
    with Numbers() as numbers:
        em_step(state, data, FIXED_ETA)
    return numbers


def test_zeros_that_were_observed_cost_nothing():
    """The same numbers are read and made for fifty labels and for a million, of which the same hold."""
    n, few, many = 40, 50, 1_000_000
    rng = np.random.default_rng(0)
    Y = csr(rng.random((n, few)) < 0.1)
    wide = sparse.csr_array((Y.data, rng.permutation(many)[:few][Y.indices], Y.indptr), shape=(n, many))
    wide.sort_indices()
    one, two = cost(Y), cost(wide)
    assert (one.total, one.largest) == (two.total, two.largest)
    assert one.largest <= 3 * max(Y.nnz, n, few)


def test_the_cost_is_linear_in_the_positives():
    n, L = 40, 60
    order = np.random.default_rng(0).permutation(n * L)
    totals = []
    for share in (1, 2, 3):
        Y = np.zeros(n * L)
        Y[order[: share * 500]] = 1
        Y = csr(Y.reshape(n, L))
        assert len(active_labels(Y, None)) == L
        numbers = cost(Y)
        totals.append(numbers.total)
        assert numbers.largest <= 3 * Y.nnz
    assert totals[2] - totals[1] == totals[1] - totals[0] > 0


@pytest.mark.parametrize("form", FORMS[1:])
def test_f_never_falls_where_r_is_hardly_held_and_labels_are_missing(form):
    """r, then q(u), then V: in another order V's step would not know of the new r."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        dataset = make_topics(30, 8, 7, 2)
        Y = (rng.random(dataset.Y.shape) < 0.3).astype(np.float32)
        Y, mask, is_missing = masked(Y, rng.random(Y.shape) < 0.5, form)
        data = topic_rows(dataset.X.astype(np.float64), Y, active_labels(Y, mask), mask, is_missing)
        options = replace(FIXED_ETA, priors=Priors(shape_strength=1e-3), n_gradient_steps=5)
        _, F = run(first_topics(data, 2, 7), data, options, 25)
        assert (np.diff(F) >= -1e-9 * np.abs(F[1:])).all()


# Variants of the paper.


def dense_statistics(topics, data, state_rows):
    """S_k and d_k of these rows for the counts that the E-step finds, by dense formulas."""
    X = torch.cat([data.design.X.to_dense(), torch.ones(data.n_rows, 1, dtype=torch.float64)], 1)
    _, counts, _ = expected_counts(em._intensities(state_rows, None), topics.V, data.positives)
    omega = em.omega_of(counts + topics.r, X @ topics.W)
    S = torch.stack([X.T @ (omega[:, k : k + 1] * X) for k in range(len(topics.r))])
    return S, X.T @ (0.5 * (counts - topics.r))


def test_online_weights_solve_the_decayed_system():
    """w_k = (S_k + Λ)⁻¹ d_k with S and d of two batches, the second with the weight of its rate, each for all rows."""
    options = EMOptions(None, learns_eta=False, learns_precision=False, online_weights="statistics")
    batches, n_data, rate = [small(seed=seed) for seed in (0, 1)], 80, 0.3
    state, expected = EMState(first_topics(batches[0], 3, 12)), None
    for batch, share in zip(batches, (1.0, rate), strict=True):
        psi = batch.design.times(state.topics.W)
        rows = em.RowState(em.first_counts(state.topics, batch, psi) + state.topics.r, psi)
        now = [n_data / batch.n_rows * part for part in dense_statistics(state.topics, batch, rows)]
        expected = now if expected is None else [torch.lerp(a, b, share) for a, b in zip(expected, now, strict=True)]
        state, _ = em_step(state, batch, options, rate=share, n_data=n_data)
        S, d = expected
        W = torch.stack([torch.linalg.solve(S[k] + state.topics.precision.diag(), d[:, k]) for k in range(3)], 1)
        torch.testing.assert_close(state.topics.W, W, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(state.sums.curvature, S)


def test_on_all_rows_statistics_are_those_of_em():
    data = small()
    plain, other = (
        run(first_topics(data, 3, 12), data, EMOptions(None, learns_eta=False, online_weights=how), 5)[0].topics
        for how in em.ONLINE_WEIGHTS
    )
    assert_same(plain, other)


def test_precisions_by_evidence_are_where_the_evidence_is_highest():
    """Σ_k log ∫ exp(-½ wᵀAw + wᵀd) N(w; 0, Λ⁻¹) dw = ½ Σ_k (log|Λ| - log|A_k + Λ| + d_kᵀ(A_k + Λ)⁻¹ d_k) + const."""
    data = small(n_rows=60, n_features=5)
    options = EMOptions(None, learns_eta=False, learns_shapes=False, precision_by="evidence")
    state, _ = run(first_topics(data, 3, 12), data, options, 300)
    S, d = dense_statistics(state.topics, data, state.rows)

    def evidence(log_precision):
        ridge = torch.cat([log_precision.exp(), state.topics.precision[-1:]])
        A = S + ridge.diag()
        explained = sum(d[:, k] @ torch.linalg.solve(A[k], d[:, k]) for k in range(3))
        return 0.5 * (3 * ridge.log().sum() - torch.linalg.slogdet(A).logabsdet.sum() + explained)

    best = state.topics.precision[:-1].log().requires_grad_()
    gradient = torch.autograd.grad(evidence(best), best)[0]
    # Precisions of features that say nothing go to infinity, ever more slowly.
    assert (gradient.abs() < 1e-2).all()
    mode = run(first_topics(data, 3, 12), data, replace(options, precision_by="mode"), 100)[0].topics.precision
    assert evidence(best) > evidence(mode[:-1].log()) + 0.1


def test_variances_without_a_solve_are_those_given_all_other_weights():
    data = small(n_features=6)
    topics = first_topics(data, 3, 12)
    omega = torch.rand(data.n_rows, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    problem = em.Quadratic(data.design, omega, omega, topics.precision, 1.7)
    given_others = torch.stack([matrix.diagonal().reciprocal() for matrix in matrices(problem)], 1)
    torch.testing.assert_close(em.inverse_diagonals(problem, is_exact=False), given_others)
    exact = torch.stack([torch.linalg.inv(matrix).diagonal() for matrix in matrices(problem)], 1)
    torch.testing.assert_close(em.inverse_diagonals(problem, is_exact=True), exact)
    assert (exact >= given_others - 1e-12).all()
