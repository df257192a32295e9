"""Intervals of probabilities hold what they say they hold as often as they say it."""

import numpy as np
import pytest
from drawn import draw
from scipy import sparse

from labelfield.decide import Evidence
from labelfield.decide.intervals import edges_of, intervals, reliability


@pytest.mark.parametrize("level", [0.9, *(pytest.param(level, marks=pytest.mark.slow) for level in (0.8, 0.95))])
@pytest.mark.parametrize(("n_rows", "bias"), [(200, 0.0), (800, 0.7)])
def test_coverage_is_within_two_points_of_the_level_where_the_truth_is_known(level, n_rows, bias):
    """The share of labels that hold in each group, known from very many rows: labels of a row hold together."""
    truth, covered = draw(60_000, seed=1, bias=bias), []
    for seed in range(100):
        found = reliability(draw(n_rows, seed=10 + seed, bias=bias), level)
        exact = reliability(truth, level, found.edges).share
        covered.append((found.low <= exact) & (exact <= found.high))
    assert abs(np.concatenate(covered).mean() - level) < 0.02


def test_more_rows_make_intervals_narrower():
    widths = []
    for n_rows in (200, 800, 3200):
        edges = edges_of(draw(200, seed=1))
        found = reliability(draw(n_rows, seed=2), 0.9, edges)
        widths.append((found.high - found.low).mean())
    np.testing.assert_allclose(widths[1:], np.array(widths[:-1]) / 2, rtol=0.25)


def test_labels_of_a_row_that_hold_together_count_less():
    edges = np.array([0.3, 0.6], np.float32)
    apart, together = (reliability(draw(2000, seed=3, together=share), 0.9, edges) for share in (0.0, 1.0))
    assert (together.high - together.low)[0] > 1.2 * (apart.high - apart.low)[0]


def test_labels_beyond_the_list_have_an_interval_of_their_own():
    evidence = draw(2000, n_labels=12, n_listed=4, seed=4)
    found = reliability(evidence, 0.9)
    share = (evidence.true_counts.sum() - evidence.hit.sum()) / (2000 * 8)
    assert found.beyond[0] < share < found.beyond[1]
    P = np.random.default_rng(0).uniform(size=(5, 12)).astype(np.float32)
    low, high = intervals(found, P, 4)
    listed = np.argsort(-P, axis=1)[:, :4]
    is_listed = np.zeros(P.shape, bool)
    np.put_along_axis(is_listed, listed, True, 1)
    np.testing.assert_allclose(low[~is_listed], found.beyond[0], rtol=1e-6)
    np.testing.assert_allclose(high[is_listed], found.high[found.group_of(P[is_listed])], rtol=1e-6)


def test_groups_are_those_of_similar_probability():
    evidence = draw(3000, seed=5)
    edges = edges_of(evidence)
    assert (np.diff(edges) > 0).all()
    found = reliability(evidence, 0.9)
    assert found.low.shape == found.high.shape == (edges.size + 1,)
    # Drawn calibrated, the share of a group is its mean probability.
    group = found.group_of(evidence.p)
    mean = np.array([evidence.p[group == one].mean() for one in range(edges.size + 1)])
    assert np.abs(mean - found.share).max() < 0.12


def test_certain_labels_that_hold_and_that_do_not_are_apart():
    """Few rows whose labels are all certain vary too little for two groups that vary enough."""
    n, rng = 100, np.random.default_rng(6)
    p = np.c_[rng.uniform(0.97, 1, n), rng.uniform(0, 0.03, (n, 2))]
    truth = sparse.csr_array(np.tile(np.float32([1, 0, 0]), (n, 1)))
    evidence = Evidence.of(np.tile(np.arange(3), (n, 1)), p, truth)
    low, high = intervals(reliability(evidence, 0.9), np.array([[0.99, 0.01, 0.0]]), 3)
    assert low[0, 0] > 0.95
    assert high[0, 1:].max() < 0.05
    assert edges_of(draw(3000, seed=5)).size > 2
    assert 0.5 not in edges_of(draw(3000, seed=5))


def test_rows_that_say_nothing_leave_everything_open():
    none = Evidence.of(np.zeros((0, 2), np.int64), np.zeros((0, 2)), sparse.csr_array((0, 2), dtype=np.float32))
    found = reliability(none, 0.9)
    assert (found.low[0], found.high[0]) == (0.0, 1.0)
