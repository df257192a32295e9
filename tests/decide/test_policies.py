"""Policies keep what they promise on rows whose truth is known, as naive twins and another package find them."""

from itertools import combinations

import numpy as np
import pytest
from drawn import draw
from mapie.risk_control.fwer_control import control_fwer
from mapie.risk_control.methods import find_best_predict_param, get_r_hat_plus
from scipy import sparse

from labelfield.csr import from_counts
from labelfield.decide import Evidence, fit_policy
from labelfield.decide.policies import missed, reached_by
from labelfield.decide.searches import Search, searches_for
from labelfield.errors import CannotAnswerError

N_SPLITS = 200
EVIDENCE = draw(600, seed=1)
TRUTH = draw(10_000, seed=2)
AIMS = (
    {"precision": 0.9},
    {"precision": 0.85, "max_tags": 1},
    {"precision": 0.8, "max_tags": 8, "confidence": 0.8},
    {"recall": 0.7},
    {"recall": 0.5, "max_tags": 3, "confidence": 0.8},
    {"review_rate": 0.4},
    {"max_tags": 2},
)
QUICK = [AIMS[0], AIMS[3], AIMS[5]]  # one of each kind; the others take longer


def kept(policy, truth):
    """Whether everything that a policy promises holds on all other rows."""
    found = reached_by(truth, policy)
    found["review_rate"] = 1 - found["automatic"]
    return all(
        found[name] <= value if name == "review_rate" else not found[name] < value
        for name, value in policy.promised.items()
    )


@pytest.mark.parametrize(
    "aim", [aim if aim in QUICK else pytest.param(aim, marks=pytest.mark.slow) for aim in AIMS], ids=str
)
@pytest.mark.parametrize("bias", [0.0, 1.0], ids=["calibrated", "too sure"])
def test_a_promise_is_broken_as_rarely_as_it_says(aim, bias):
    truth = draw(10_000, seed=2, bias=bias)
    outside = 1 - aim.get("confidence", 0.95)
    broken = []
    for seed in range(N_SPLITS):
        try:
            broken.append(not kept(fit_policy(draw(300, seed=100 + seed, bias=bias), **aim), truth))
        except CannotAnswerError:
            broken.append(False)
    assert np.mean(broken) <= outside + 2 * np.sqrt(outside * (1 - outside) / N_SPLITS)


@pytest.mark.parametrize("max_tags", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_where_all_tags_are_just_not_precise_enough_promises_are_rare(max_tags):
    """Whatever a search looks at, and however often: every promise here would be false."""
    n_made, outside = 0, 0.05
    for seed in range(N_SPLITS):
        rng = np.random.default_rng(seed)
        p = np.sort(rng.uniform(size=(400, 3)), axis=1)[:, ::-1]
        Y = sparse.csr_array((rng.uniform(size=(400, 3)) < 0.6).astype(np.float32))
        try:
            fit_policy(Evidence.of(np.tile(np.arange(3), (400, 1)), p, Y), precision=0.6, max_tags=max_tags)
        except CannotAnswerError:
            continue
        n_made += 1
    assert n_made / N_SPLITS <= outside + 2 * np.sqrt(outside * (1 - outside) / N_SPLITS)


def test_a_recall_without_confidence_holds_on_average():
    found = [
        reached_by(TRUTH, fit_policy(draw(200, seed=500 + seed), recall=0.7, confidence=None))["recall"]
        for seed in range(N_SPLITS)
    ]
    assert np.mean(found) >= 0.7 - 2 * np.std(found) / np.sqrt(N_SPLITS)
    assert np.mean(found) < 0.72


def test_recall_is_controlled_as_another_package_does():
    """Conformal risk control, on the same thresholds."""
    policy = fit_policy(EVIDENCE, recall=0.7, confidence=None)
    thresholds = np.linspace(0.001, 0.999, 400)
    risks = np.stack([missed(EVIDENCE, t, EVIDENCE.n_listed) for t in thresholds], 1)
    _, upper = get_r_hat_plus(risks, thresholds, "crc", None, None, None)
    theirs = float(np.squeeze(find_best_predict_param(thresholds, upper, np.array([0.3]))))
    assert policy.threshold == pytest.approx(theirs, abs=0.02)
    assert (risks.sum(0)[thresholds <= policy.threshold].max() + 1) / (len(risks) + 1) <= 0.3


@pytest.mark.parametrize("max_tags", [1, 3])
def test_thresholds_are_tested_one_after_another_as_another_package_does(max_tags):
    """A search with two starts rejects at least what another package rejects from each start alone."""
    evidence, lowest = draw(3000, seed=4), []
    for search in searches_for(3000, 0.8, max_tags, 0.95):
        assert len(search.starts) == 2
        for starts in (search.starts[:1], search.starts):
            thresholds, own = zip(*search._replace(starts=starts).tests(evidence), strict=True)
            p_values = np.array([search.p_value(evidence, threshold) for threshold in thresholds])
            ours = search._replace(starts=starts).rejected(evidence)
            for start in np.flatnonzero(own):
                theirs = control_fwer(p_values[start:], own[start], "fixed_sequence")
                assert {thresholds[start + place] for place in theirs} <= set(ours)
                assert theirs.size
            if len(starts) == 1:
                assert len(ours) == theirs.size
        lowest.append((search.max_tags, ours[-1]))
    policy = fit_policy(evidence, precision=0.8, max_tags=max_tags)
    assert (policy.max_tags, policy.threshold) in lowest


@pytest.mark.parametrize("seed", range(20))
def test_levels_that_are_handed_on_are_a_closed_test(seed, monkeypatch):
    """A hypothesis is rejected only if every set of hypotheses that it is in is: by one whose p-value is at most the
    sum of levels from the one before it in the set, which is a weighted Bonferroni test of the set."""
    rng = np.random.default_rng(seed)
    own, p_values = rng.choice([0.0, 0.0, 0.02, 0.03], 6), rng.choice([0.001, 0.015, 0.025, 0.045, 0.2], 6)
    search = Search(1, own.sum(), (1,), 0.9)
    monkeypatch.setattr(Search, "tests", lambda self, evidence: [(-float(i), own[i]) for i in range(6)])
    monkeypatch.setattr(Search, "p_value", lambda self, evidence, threshold: p_values[int(-threshold)])
    reached = np.r_[0, np.cumsum(own)]

    def is_rejected(hypotheses):
        before = (-1, *hypotheses)
        return any(p_values[i] <= reached[i + 1] - reached[j + 1] for j, i in zip(before, hypotheses, strict=False))

    sets = [each for n in range(1, 7) for each in combinations(range(6), n)]
    for threshold in search.rejected(EVIDENCE):
        assert all(is_rejected(each) for each in sets if int(-threshold) in each)


@pytest.mark.parametrize("max_tags", [1, 5])
def test_all_searches_together_are_as_sure_as_was_asked(max_tags):
    searches = searches_for(1000, 0.9, max_tags, 0.95)
    assert sum(search.level for search in searches) <= 0.05 + 1e-12
    for search in searches:
        thresholds, own = zip(*search.tests(EVIDENCE), strict=True)
        assert list(thresholds) == sorted(set(thresholds), reverse=True)
        assert sum(own) == pytest.approx(search.level)
        assert EVIDENCE.outcome(thresholds[0], 1).n_tags.sum() == search.starts[0]
        assert thresholds[-1] == 0


def test_searches_begin_where_the_test_has_power_whatever_probabilities_mean():
    """Any map that keeps the order of probabilities leaves the start where it was, and nearly so the end."""
    for power in (0.2, 5.0):
        other = Evidence.of(EVIDENCE.labels, EVIDENCE.p**power, EVIDENCE.truth)
        found, expected = (fit_policy(one, precision=0.85, max_tags=1).reached for one in (other, EVIDENCE))
        assert found["automatic"] == pytest.approx(expected["automatic"], abs=0.03)


def test_rows_that_all_look_alike_begin_together():
    """Where the surest rows cannot be told from others, all of them are tested."""
    alike = Evidence.of(EVIDENCE.labels, np.full_like(EVIDENCE.p, 0.7), EVIDENCE.truth)
    assert fit_policy(alike, precision=0.3, max_tags=1).reached["automatic"] == 1


def test_few_rows_promise_one_tag_and_many_promise_several():
    assert fit_policy(draw(400, seed=1), precision=0.9).max_tags == 1
    assert fit_policy(draw(9000, seed=1), precision=0.9).max_tags == 5


def test_a_model_that_is_too_sure_starts_higher():
    found = fit_policy(draw(4000, seed=3, bias=1.2), precision=0.9, max_tags=1)
    assert found.threshold > 0.9


def test_more_precision_means_fewer_tags_and_more_recall_more():
    tags = [fit_policy(EVIDENCE, precision=p).reached["tags_per_row"] for p in (0.6, 0.7, 0.8)]
    assert tags == sorted(tags, reverse=True)
    assert tags[0] > tags[-1]
    tags = [fit_policy(EVIDENCE, recall=r).reached["tags_per_row"] for r in (0.5, 0.6, 0.7)]
    assert tags == sorted(tags)
    assert tags[0] < tags[-1]


def test_labels_that_go_wrong_together_cost_confidence():
    """A test that counted every tag as a draw of its own would promise more than it can keep."""
    apart, together = (draw(400, seed=9, together=share) for share in (0.0, 1.0))
    assert fit_policy(apart, max_tags=8).promised["precision"] > fit_policy(together, max_tags=8).promised["precision"]


@pytest.mark.parametrize("aim", [{"precision": 0.7}, {"recall": 0.5}, {"max_tags": 2}, {"f1": True}], ids=str)
def test_tags_are_those_of_a_loop(aim):
    policy = fit_policy(EVIDENCE, **aim)
    rng = np.random.default_rng(0)
    P = rng.uniform(size=(30, EVIDENCE.n_labels)).astype(np.float32)
    P[3] = 0.001
    k = policy.n_listed
    best = np.argsort(-P, axis=1, kind="stable")[:, :k]
    lists = np.zeros_like(P)
    np.put_along_axis(lists, best, np.take_along_axis(P, best, 1), 1)
    decision = policy.apply(sparse.csr_array(lists))
    thresholds = np.broadcast_to(policy.threshold, EVIDENCE.n_labels)
    for row, p in enumerate(P):
        expected = [label for label in best[row] if p[label] >= np.float32(thresholds[label])][: policy.max_tags]
        assert sorted(expected) == decision.tags[[row]].indices.tolist()
        assert decision.review[row] == (not expected)
    np.testing.assert_allclose(decision.expected_right, decision.tags.toarray().sum(1), rtol=1e-6)


def test_what_was_reached_is_what_the_policy_does_to_the_same_rows():
    for aim in ({"precision": 0.7}, {"f1": True}):
        policy = fit_policy(EVIDENCE, **aim)
        lists = np.zeros((EVIDENCE.n_rows, EVIDENCE.n_labels), np.float32)
        np.put_along_axis(lists, EVIDENCE.labels.astype(np.int64), EVIDENCE.p, 1)
        tags = policy.apply(sparse.csr_array(lists)).tags
        hits = tags.astype(bool).multiply(EVIDENCE.truth).sum()
        assert policy.reached["precision"] == pytest.approx(hits / tags.nnz)
        assert policy.reached["tags_per_row"] == pytest.approx(tags.nnz / EVIDENCE.n_rows)


def test_thresholds_of_labels_have_the_best_f1():
    policy = fit_policy(EVIDENCE, f1=True)
    for label in range(EVIDENCE.n_labels):
        is_own = EVIDENCE.labels == label
        p, hit = EVIDENCE.p[is_own], EVIDENCE.hit[is_own]
        n_true = np.count_nonzero(EVIDENCE.true_labels == label)
        scores = [2 * hit[p >= t].sum() / ((p >= t).sum() + n_true) for t in p]
        own = p >= np.float32(policy.threshold[label])
        assert 2 * hit[own].sum() / (own.sum() + n_true) == pytest.approx(max(scores))


def test_labels_without_held_out_positives_are_named_and_share_a_threshold():
    Y = EVIDENCE.truth.tolil()
    Y[:, [2, 5]] = 0
    bare = Evidence.of(EVIDENCE.labels, EVIDENCE.p, sparse.csr_array(Y))
    for aim in ({"precision": 0.5}, {"f1": True}):
        assert fit_policy(bare, **aim).unknown_labels.tolist() == [2, 5]
    thresholds = fit_policy(bare, f1=True).threshold
    assert thresholds[2] == thresholds[5]
    assert "labels with fewer than 5 rows there (2)" in fit_policy(bare, f1=True).guarantee


@pytest.mark.parametrize(
    ("aim", "said"),
    [
        ({"precision": 0.999}, r"precision=0.999 cannot be promised .* from 600 held-out rows; 0\.\d+ can"),
        ({"recall": 0.99, "max_tags": 1}, r"recall=0.99 cannot be promised with one tag per row .*; 0\.\d+ can"),
        ({"recall": 0.999, "confidence": None}, r"recall=0.999 cannot be promised"),
    ],
)
def test_what_cannot_be_reached_says_what_can(aim, said):
    with pytest.raises(CannotAnswerError, match=said) as error:
        fit_policy(EVIDENCE, **aim)
    reachable = float(str(error.value).split("; ")[1].split(" can")[0])
    name = next(iter(aim))
    fit_policy(EVIDENCE, **aim | {name: reachable})


def test_too_few_rows_are_refused():
    with pytest.raises(CannotAnswerError, match="99 rows were held out in training, and a promise needs at least 100"):
        fit_policy(draw(99), precision=0.5)
    fit_policy(draw(100), max_tags=1)


@pytest.mark.parametrize(
    ("aim", "said"),
    [
        ({"precision": 1.0}, "precision=1.0; expected a number between 0 and 1"),
        ({"precision": 95}, "precision=95; expected a number between 0 and 1"),
        ({"recall": "high"}, "recall='high'; expected"),
        ({"review_rate": 0}, "review_rate=0; expected"),
        ({"precision": 0.9, "confidence": 1.5}, "confidence=1.5; expected"),
        ({"precision": 0.9, "confidence": None}, "confidence=None is for a recall"),
        ({"max_tags": 0}, "max_tags=0; expected a whole number"),
        ({"max_tags": 2.5}, "max_tags=2.5; expected"),
        ({"precision": 0.9, "recall": 0.9}, "precision and recall are different aims"),
        ({"max_tags": 2, "one_each": True}, "one class per row"),
    ],
)
def test_bad_aims_are_refused(aim, said):
    with pytest.raises(ValueError, match=said):
        fit_policy(EVIDENCE, **aim)


def hidden(evidence, share, seed=4):
    """The same rows, of whose labels, listed or not, this share was not observed."""
    is_known = np.random.default_rng(seed).uniform(size=(evidence.n_rows, evidence.n_labels)) > share
    Y = sparse.csr_array(evidence.truth.toarray() * is_known)
    return Evidence.of(evidence.labels, evidence.p, Y, np.take_along_axis(is_known, evidence.labels, 1))


def test_labels_that_were_not_observed_are_neither_right_nor_wrong():
    some = hidden(EVIDENCE, 0.5)
    is_known = some.is_known
    assert 0.4 < is_known.mean() < 0.6
    np.testing.assert_array_equal(some.labels, EVIDENCE.labels)
    assert some.outcome(0.0, 8).n_tags.sum() == is_known.sum()
    assert some.outcome(0.0, 3).n_tags.sum() == is_known[:, :3].sum()
    assert some.outcome(0.0, 3).n_hits.sum() == (EVIDENCE.hit & is_known)[:, :3].sum()
    assert fit_policy(some, precision=0.7, max_tags=1).reached["precision"] >= 0.7


@pytest.mark.parametrize("aim", [{"recall": 0.5}, {"precision": 0.6}, {"review_rate": 0.3}, {}])
def test_promises_hold_for_all_labels_where_half_of_them_were_observed(aim):
    """Labels that nobody looked at take places among `max_tags`, as they do in new rows."""
    population, missed, pairs = draw(20_000, seed=99), 0, []
    for seed in range(60):
        try:
            policy = fit_policy(hidden(draw(600, seed=seed), 0.5, seed), max_tags=3, **aim)
        except CannotAnswerError:
            continue
        reached = reached_by(population, policy)
        pairs.append((policy.reached, reached))
        left = 1 - reached["automatic"]
        missed += left > policy.promised.get("review_rate", 1)
        missed += any(reached[name] < policy.promised.get(name, 0) for name in ("precision", "recall"))
    assert len(pairs) > 40
    assert missed <= 0.05 * 60 + 2 * np.sqrt(0.05 * 60)
    for name in ("precision", "automatic", "tags_per_row"):
        said, true = np.mean([[one[name] for one in pair] for pair in pairs], axis=0)
        assert said == pytest.approx(true, abs=0.02)


def test_nothing_asked_is_a_precision_of_95_percent():
    sure = draw(3000, seed=5)
    assert (
        fit_policy(sure, max_tags=1, precision=0.95).threshold
        == fit_policy(sure, precision=0.95, one_each=True).threshold
    )
    policy = fit_policy(sure)
    assert (policy.kind, policy.target, policy.confidence) == ("precision", 0.95, 0.95)


def predictions_of(evidence):
    """The same lists as CSR."""
    counts = np.full(evidence.n_rows, evidence.n_listed)
    order = np.argsort(evidence.labels, axis=1)
    columns, data = (np.take_along_axis(part, order, 1).ravel() for part in (evidence.labels, evidence.p))
    return from_counts(counts, columns, data, evidence.n_labels)


@pytest.mark.parametrize("together", [0.0, 1.0], ids=["apart", "together"])
@pytest.mark.parametrize("aim", [{"recall": 0.5}, {"f1": True}, {"max_tags": 2}], ids=str)
def test_the_probability_that_tags_are_exactly_right_is_calibrated(aim, together):
    """Also where labels go together, and the product of their probabilities is far from it."""
    policy = fit_policy(draw(1000, n_labels=4, n_listed=4, seed=1, together=together), **aim)
    truth = draw(20_000, n_labels=4, n_listed=4, seed=2, together=together)
    decision = policy.apply(predictions_of(truth))
    tags = decision.tags.toarray() > 0
    is_exact = (tags == (truth.truth.toarray() > 0)).all(1)
    assert is_exact.any()
    assert decision.exact.mean() == pytest.approx(is_exact.mean(), abs=0.03)
    order = np.argsort(decision.exact)
    for part in np.array_split(order, 4):
        assert decision.exact[part].mean() == pytest.approx(is_exact[part].mean(), abs=0.08)


def test_the_expected_number_of_right_tags_is_calibrated():
    truth = draw(20_000, seed=2)
    decision = fit_policy(EVIDENCE, recall=0.6).apply(predictions_of(truth))
    n_right = np.asarray(decision.tags.astype(bool).multiply(truth.truth).sum(1)).ravel()
    for part in np.array_split(np.argsort(decision.expected_right), 4):
        assert decision.expected_right[part].mean() == pytest.approx(n_right[part].mean(), rel=0.05)
