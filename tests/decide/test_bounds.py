"""Tests for means and shares: they reject a true hypothesis as rarely as they say."""

import numpy as np
import pytest
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value
from scipy.special import comb

from labelfield.decide.bounds import betting_p_value, largest, share_bounds, share_p_value

N_DRAWS = 2000


def misses_of(rng, n, n_tags, precision):
    """Hits minus precision × tags of rows whose tags are all right or all wrong: as dependent as can be."""
    counts = rng.integers(0, n_tags + 1, n)
    hits = counts * (rng.uniform(size=n) < precision)
    return hits - precision * counts


@pytest.mark.parametrize("precision", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("n_tags", [2, 5])
@pytest.mark.parametrize("level", [0.05, 0.2])
def test_a_true_hypothesis_is_rejected_as_rarely_as_it_says(precision, n_tags, level):
    rng = np.random.default_rng(3)
    draws = (misses_of(rng, 150, n_tags, precision) for _ in range(N_DRAWS))
    rejected = np.mean([betting_p_value(z, -precision * n_tags, level) <= level for z in draws])
    assert rejected <= level + 2 * np.sqrt(level * (1 - level) / N_DRAWS)


def test_a_false_hypothesis_is_rejected():
    rng = np.random.default_rng(0)
    z = (rng.uniform(size=2000) < 0.97) - 0.93
    assert betting_p_value(z, -0.93, 0.05) < 0.01
    assert betting_p_value(-z, -0.07, 0.05) == 1.0


def test_rows_without_tags_change_nothing_and_no_row_says_nothing():
    z = np.array([0.1, 0.1, -0.9, 0.1] * 20)
    assert betting_p_value(np.zeros(9), -1, 0.05) == betting_p_value(np.zeros(0), -1, 0.05) == 1.0
    assert 0 < betting_p_value(np.r_[z, np.zeros(5)], -0.9, 0.05) <= 1


@pytest.mark.parametrize(("n_hits", "n", "share"), [(0, 7, 0.3), (7, 7, 0.9), (5, 9, 0.5), (98, 100, 0.95)])
def test_the_p_value_of_a_share_is_the_binomial_tail(n_hits, n, share):
    naive = sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n_hits, n + 1))
    assert share_p_value(n_hits, n, share) == pytest.approx(naive)
    # Another package tests the share of misses, and bounds that tail from above.
    theirs = compute_hoeffding_bentkus_p_value(np.array([1 - n_hits / n]), n, 1 - share)
    assert share_p_value(n_hits, n, share) <= float(np.squeeze(theirs)) + 1e-12


def test_without_draws_nothing_is_known_of_a_share():
    assert share_p_value(0, 0, 0.5) == 1.0


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_intervals_of_a_share_cover_as_often_as_they_say_on_average_over_sizes(share):
    rng = np.random.default_rng(1)
    covered = []
    for n in rng.integers(30, 400, N_DRAWS):
        low, high = share_bounds(rng.binomial(n, share), n, 0.9)
        covered.append(low <= share <= high)
    assert abs(np.mean(covered) - 0.9) < 0.02


def test_the_largest_that_is_certain_is_found():
    assert largest(lambda value: value <= 0.6201, 0.005, 0.95, 0.005) == pytest.approx(0.62)
    assert largest(lambda value: False, 0.005, 0.95, 0.005) is None
    assert largest(lambda value: True, 0.1, 0.5, 0.1) == pytest.approx(0.5)
