"""Ranking by probability times inverse propensity: the best order for PSP@k, and never mistaken for a probability."""

import numpy as np
import pytest
from scipy import sparse

from labelfield import DataError, metrics
from labelfield.metrics.propensity import rank_power, rank_weight


@pytest.fixture(scope="module")
def truth():
    """True probabilities of frequent and of rare labels, which are likely in few rows, and inverse propensities."""
    rng = np.random.default_rng(0)
    frequency = np.geomspace(0.4, 0.001, 40)
    P = np.clip(frequency * rng.gamma(0.1, 10.0, (400, 40)), 1e-6, 0.95)
    return P, metrics.propensity.inverse_propensity_of(np.round(frequency * 20_000).astype(np.int64), 20_000)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_no_order_has_a_higher_expected_psp(truth, k):
    """A listed label is expected to add p times its inverse propensity, and power 1 lists the largest of these.

    Drawn from the true probabilities, labels give a mean PSP@k that tells it from orders that are far from it; all
    orders are scored on the same draws.
    """
    P, inverse = truth
    rng = np.random.default_rng(1)
    orders = {power: P * inverse**power for power in (0.0, 0.5, 0.9, 1.0, 1.1, 1.5, 3.0)}
    orders |= {"weights alone": inverse + 0 * P, "chance": rng.random(P.shape)}
    expected = {}
    for name, scores in orders.items():
        listed = metrics.top_k(scores, k).labels
        expected[name] = (np.take_along_axis(P, listed, 1) * inverse[listed]).sum()
    assert max(expected.values()) == expected[1.0]
    assert sum(value < 0.999 * expected[1.0] for value in expected.values()) >= 4
    gained = {name: [] for name in (0.0, 1.0, 3.0, "weights alone", "chance")}
    for _ in range(100):
        Y = sparse.csr_array((rng.random(P.shape) < P).astype(np.float32))
        for name, found in gained.items():
            found.append(metrics.psp_at_k(Y, orders[name], inverse, k))
    best = np.array(gained.pop(1.0))
    for other in gained.values():
        ahead = best - np.array(other)
        assert ahead.mean() > 2 * ahead.std() / np.sqrt(ahead.size)


def test_evaluate_ranks_by_the_weight_and_keeps_probabilities(truth):
    P, inverse = truth
    Y = sparse.csr_array((np.random.default_rng(2).random(P.shape) < P).astype(np.float32))
    for power in (0.5, "propensity"):
        weight = inverse if power == "propensity" else inverse**power
        found = metrics.evaluate(Y, P, inverse=inverse, rank_by=power)
        by_score = metrics.evaluate(Y, P * weight / 1e6, inverse=inverse)  # what the order is, in place of p
        for name in ("P@1", "P@5", "PSP@1", "PSP@3", "nDCG@5", "R@3", "PSnDCG@5"):
            assert found[name] == pytest.approx(by_score[name])
        # ECE by its definition, of the probabilities of the labels that are listed.
        listed = np.argsort(-P * weight, axis=1)[:, :3]
        p, held = (np.take_along_axis(part, listed, 1).ravel() for part in (P, Y.toarray()))
        bins = np.minimum((np.ceil(p * 15) - 1).clip(0), 14)
        gaps = [abs(p[bins == b].mean() - held[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
        assert found["ECE@3"] == pytest.approx(100 * sum(gaps))
        plain = metrics.evaluate(Y, P, inverse=inverse)
        assert found["log_loss"] == plain["log_loss"]
        assert found["microF1"] == plain["microF1"]
        assert found["PSP@3"] > plain["PSP@3"]


def test_lists_are_ranked_as_dense_scores_are(truth):
    P, inverse = truth
    every = np.arange(P.size)
    lists = sparse.csr_array((P.ravel(), every % 40, np.arange(0, P.size + 1, 40)), shape=P.shape)
    dense, listed = metrics.top_k(P, 6, inverse), metrics.top_k(lists, 6, inverse)
    np.testing.assert_array_equal(dense.labels, np.argsort(-P * inverse, axis=1, kind="stable")[:, :6])
    np.testing.assert_array_equal(dense.labels, listed.labels)
    np.testing.assert_array_equal(dense.scores, np.take_along_axis(P, dense.labels, 1))
    np.testing.assert_array_equal(dense.scores, listed.scores)


def test_what_labels_are_ranked_by():
    assert [rank_power(word) for word in ("probability", "propensity", 0, 0.5, np.float32(2))] == [0, 1, 0, 0.5, 2]
    for wrong in ("rare", -0.5, np.inf, np.nan, True, None, [1]):
        with pytest.raises(ValueError, match="rank_by="):
            rank_power(wrong)
    assert rank_weight("probability", lambda: pytest.fail("nobody needs them")) is None
    # Under the formula propensities of two rows exceed 1; a weight is never below 1.
    assert rank_weight(0.5, lambda: np.array([-0.3, 4.0])).tolist() == [1.0, 2.0]


def test_bad_weights(truth):
    P, inverse = truth
    Y = sparse.csr_array(P.shape, dtype=np.float32)
    with pytest.raises(DataError, match="needs propensities"):
        metrics.evaluate(Y, P, rank_by="propensity")
    for wrong in (inverse[:3], -inverse, inverse * np.nan):
        with pytest.raises(DataError, match="weights of shape"):
            metrics.top_k(P, 3, wrong)
