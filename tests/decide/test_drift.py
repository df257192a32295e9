"""New rows are compared with held-out ones: few false alarms, and true ones where rows change."""

import re

import numpy as np
import pytest
from drawn import draw
from scipy import sparse
from scipy.stats import ks_2samp
from sklearn.neighbors import NearestNeighbors

from labelfield.decide import Evidence, distance, fit_policy
from labelfield.decide import drift as drift_module
from labelfield.decide.drift import ALARM, Drift, _distances, compare, judge_promises
from labelfield.errors import DataError

EVIDENCE = draw(1000, seed=1)


def drift(evidence, new, **aim):
    policies = [fit_policy(evidence, **aim)] if aim else []
    return Drift(compare(evidence, new.labels, new.p), judge_promises(new, policies), evidence.n_rows, new.n_rows)


@pytest.mark.parametrize("n_new", [500, *(pytest.param(n, marks=pytest.mark.slow) for n in (30, 5000))])
def test_rows_of_the_same_kind_seldom_raise_an_alarm(n_new):
    n = 30 if n_new == 500 else 300
    found = [drift(draw(1000, seed=seed), draw(n_new, seed=1000 + seed)).is_new_kind for seed in range(n)]
    assert np.mean(found) <= ALARM + 2 * np.sqrt(ALARM / n)


def test_rows_of_another_kind_raise_an_alarm():
    other = draw(400, seed=3)
    weaker = other.p**2  # less sure of everything
    found = Drift(compare(EVIDENCE, other.labels, weaker), [], 1000, 400)
    assert found.is_new_kind
    assert "These rows are not like the training rows" in found.said
    assert found.comparisons[0].distance > 0.2
    assert found.comparisons[1].distance < 0.02
    same = drift(EVIDENCE, other)
    assert not same.is_new_kind
    assert "nothing speaks against believing promises" in same.said


def test_broken_promises_are_seen_with_labels_alone():
    """Scores look the same, and the labels have become others."""
    wrong = draw(2000, seed=4, bias=1.5)
    for aim in ({"precision": 0.8}, {"recall": 0.6}):
        found = drift(EVIDENCE, wrong, **aim)
        assert not found.is_new_kind
        assert found.is_broken == ("precision" in aim)
    said = drift(EVIDENCE, wrong, precision=0.8).said
    assert re.match(r"Promises do not hold on these rows \(precision 0\.[0-7]\d\d instead of 0\.800\)", said)


def test_only_broken_promises_are_said_to_be_broken():
    wrong = draw(2000, seed=4, bias=1.5)
    policies = [fit_policy(EVIDENCE, precision=0.8), fit_policy(EVIDENCE, recall=0.6)]
    found = Drift([], judge_promises(wrong, policies), 1000, 2000)
    assert found.is_broken
    assert "recall" not in found.said


def test_the_precision_that_goes_with_another_aim_is_judged_too():
    wrong = draw(2000, seed=4, bias=1.5)
    for aim in ({"max_tags": 2}, {"review_rate": 0.2}):
        policy = fit_policy(EVIDENCE, **aim)
        (own,) = judge_promises(wrong, [policy])
        assert (own.name, own.promised) == ("precision", policy.promised["precision"])
        assert own.p_value < ALARM


def test_kept_promises_are_seldom_said_to_be_broken():
    policies = [fit_policy(EVIDENCE, precision=0.8)]
    every = [judge_promises(draw(500, seed=50 + seed), policies) for seed in range(40)]
    assert np.mean([Drift([], promises, 1000, 500).is_broken for promises in every]) <= ALARM + 2 * np.sqrt(ALARM / 40)


def test_labels_that_were_not_observed_are_no_reason_to_warn():
    known = np.random.default_rng(6).uniform(size=EVIDENCE.p.shape) < 0.3
    some = Evidence.of(EVIDENCE.labels, EVIDENCE.p, EVIDENCE.truth, known)
    assert not drift(some, draw(500, seed=7)).is_new_kind


def test_few_rows_are_refused():
    with pytest.raises(DataError, match=r"19 rows; expected at least 20 to compare. Check more rows at once"):
        compare(EVIDENCE, draw(19).labels, draw(19).p)


def test_distances_are_those_of_another_package():
    before, after = (np.random.default_rng(seed).normal(seed / 10, 1, 50 + seed) for seed in (0, 3))
    for ours, alternative in zip(_distances(before, after), ("less", "greater"), strict=True):
        assert ours == pytest.approx(ks_2samp(before, after, alternative=alternative).statistic)


def test_no_distance_is_shown_as_less_than_none():
    ones = np.ones(30)
    assert [f"{one:.4f}" for one in (*_distances(ones, ones), *_distances(ones, ones / 2))] == [
        "0.0000",
        "0.0000",
        "1.0000",
        "0.0000",
    ]


def test_other_labels_with_the_same_probabilities_raise_an_alarm():
    """As in a new season: the model is as sure as ever, of other labels."""
    other = draw(400, seed=3)
    shifted = np.where(other.labels < 3, other.labels, 3)  # nine labels have become one
    lower, higher, labels = compare(EVIDENCE, shifted, other.p)
    assert lower.distance < lower.most
    assert higher.distance < higher.most
    assert labels.distance > 2 * labels.most
    same = compare(EVIDENCE, other.labels, other.p)[2]
    assert same.distance < same.most


def test_distances_between_labels_are_those_of_a_loop():
    new, n_first = draw(300, seed=5), drift_module._N_FIRST
    means = []
    for part in (EVIDENCE, new):
        total = np.zeros(part.n_labels)
        for labels, p in zip(part.labels, part.p, strict=True):
            total[labels[:n_first]] += p[:n_first]
        means.append(total / part.n_rows)
    found = compare(EVIDENCE, new.labels, new.p)[2]
    assert found.distance == pytest.approx(np.square(means[0] - means[1]).sum(), rel=1e-3)
    usual = np.argsort(-means[0])[:10]
    assert (found.held_out, found.new) == pytest.approx([mean[usual].sum() for mean in means], rel=1e-4)


def test_being_a_little_surer_is_usual_and_being_less_sure_is_not():
    new, large = draw(20_000, seed=8), draw(20_000, seed=9)
    odds = np.log(new.p / (1 - new.p))
    for factor, is_new in ((1.02, False), (0.9, True)):
        p = 1 / (1 + np.exp(-factor * odds - (factor - 1) * 1.5))
        assert Drift(compare(large, new.labels, p), [], 1, 1).is_new_kind == is_new


def test_the_distance_to_known_rows_is_that_of_another_package(monkeypatch):
    X, known = (sparse.random_array((n, 40), density=0.2, format="csr", rng=np.random.default_rng(n)) for n in (30, 70))
    theirs = NearestNeighbors(n_neighbors=1, metric="cosine").fit(known).kneighbors(X)[0].ravel()
    np.testing.assert_allclose(distance(X, known), theirs, atol=1e-7)
    monkeypatch.setattr(drift_module, "_AT_ONCE", 140)  # two rows at a time
    np.testing.assert_allclose(distance(X, known), theirs, atol=1e-7)
    assert distance(known, known) == pytest.approx(np.zeros(70), abs=1e-7)
    assert distance(sparse.csr_array((2, 40)), known).tolist() == [1, 1]
    assert distance(X[:0], known).shape == (0,)


@pytest.mark.parametrize("shape", [(0, 40), (3, 39)])
def test_distances_need_known_rows_of_the_same_features(shape):
    with pytest.raises(DataError, match="at least one known row of 40 features"):
        distance(sparse.csr_array((2, 40)), sparse.csr_array(shape))
