"""The numbers of the page: identities, and other packages."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import roc_auc_score

from labelfield import metrics, synth
from labelfield.errors import DataError
from labelfield.metrics import score_ranking
from labelfield.report.answers import Answers, ask
from labelfield.report.examples import choose_rows, examples
from labelfield.report.facts import gather
from labelfield.report.identity import Curve, identify, learning_curves
from labelfield.report.inside import image_side
from labelfield.report.scores import Counts, bands, confusion, doubt, places_of, reliabilities, scores


def made_up(seed=0, n=200, k=40, density=0.1):
    """Truth, probabilities that know something of it, and training counts that go with it."""
    rng = np.random.default_rng(seed)
    rate = density * k * rng.dirichlet(np.full(k, 0.5))
    Y = rng.random((n, k)) < np.minimum(rate, 0.9)
    P = np.clip(0.5 * Y + 0.6 * rng.random((n, k)) * (rate > 0.01), 0, 1)
    counts = Counts(np.where(rate < 0.01, 0, rng.poisson(500 * rate)), 500)
    judged = score_ranking(sparse.csr_array(Y.astype(np.float32)), P, 5)
    return Answers(judged, rng.random(n).round(1), True), counts, P


def made_up_classes(seed=0, n=120, k=6, n_known=None):
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    P = rng.dirichlet(np.ones(n_known or k), n)
    Y = sparse.csr_array((np.ones(n, np.float32), y.astype(np.int32), np.arange(n + 1)), shape=(n, k))
    p = np.where(y < P.shape[1], P[np.arange(n), np.minimum(y, P.shape[1] - 1)], np.nan)
    wide = np.pad(P, ((0, 0), (0, k - P.shape[1])))
    return Answers(score_ranking(Y, wide, 5), 1 - P.max(1), False, p), Counts(np.bincount(y, minlength=k), n), P, y


class TestScores:
    @given(st.integers(0, 50))
    def test_they_are_those_of_metrics(self, seed):
        answers, counts, P = made_up(seed)
        expected = metrics.evaluate(answers.Y, P, inverse=counts.inverse_propensity)
        found = {score.name: score for score in scores(answers, counts, has_classes=False)}
        assert {"P@1", "P@5", "PSP@3", "ECE@1", "ECE@5"} <= set(found)
        for name, score in found.items():
            assert score.model == pytest.approx(expected[name]), name

    def test_popularity_is_that_of_metrics(self):
        train = synth.make_multilabel(300, 40, 20, seed=1).Y
        answers, _, _ = made_up(k=20)
        counts = Counts(np.bincount(train.indices, minlength=20), 300)
        expected = metrics.evaluate(answers.Y, metrics.popularity(train, answers.Y.shape[0]), train)
        for score in scores(answers, counts, has_classes=False):
            if not score.name.startswith("ECE"):
                assert score.popularity == pytest.approx(expected[score.name]), score.name

    def test_of_classes(self):
        answers, counts, P, y = made_up_classes()
        found = {score.name: score for score in scores(answers, counts, has_classes=True)}
        assert list(found) == ["error rate", "nlpd", "R@3", "R@5", "ECE@1"]
        assert found["error rate"].model == pytest.approx(100 * metrics.error_rate(y, P))
        assert found["error rate"].popularity == pytest.approx(100 * (1 - np.mean(y == np.bincount(y).argmax())))
        assert found["nlpd"].model == pytest.approx(metrics.nlpd(y, P))
        frequency = np.bincount(y) / y.size
        assert found["nlpd"].popularity == pytest.approx(-(frequency * np.log(frequency)).sum())
        assert found["R@3"].model == pytest.approx(100 * metrics.recall_at_k(answers.Y, P, 3))

    def test_a_class_that_was_not_seen_is_an_error_and_not_in_nlpd(self):
        answers, _, P, y = made_up_classes(n_known=5)
        counts = Counts(np.ones(5, np.int64), 5)
        found = {score.name: score for score in scores(answers, counts, has_classes=True)}
        known = y < 5
        wrong = 1 - np.mean(known & (P.argmax(1) == y))
        assert found["error rate"].model == pytest.approx(100 * wrong)
        assert found["nlpd"].model == pytest.approx(metrics.nlpd(y[known], P[known]))

    def test_lists_of_all_labels_are_not_scored(self):
        assert [places_of(n) for n in (2, 3, 5, 6)] == [[1], [1], [1, 3], [1, 3, 5]]


class TestBands:
    @given(st.integers(0, 60), st.sampled_from([4, 13, 40]))
    def test_contributions_sum_to_the_scores(self, seed, k):
        answers, counts, _ = made_up(seed, k=k)
        found = bands(answers, counts, [str(i) for i in range(k)], has_classes=False)
        for place in places_of(k):
            assert sum(band.precision[place] for band in found) == pytest.approx(answers.judged.precision(place))
            psp = answers.judged.psp(place, counts.inverse_propensity)
            assert sum(band.psp[place] for band in found) == pytest.approx(psp)
            hits = sum(band.found[place] * band.n_true for band in found)
            assert hits == pytest.approx(answers.judged.hit[:, :place].sum())

    @given(st.integers(0, 60))
    def test_each_label_is_in_one_band_by_its_count(self, seed):
        answers, counts, _ = made_up(seed)
        found = bands(answers, counts, [""] * 40, has_classes=False)
        assert sum(band.n_labels for band in found) == 40
        assert sum(band.n_true for band in found) == answers.Y.nnz
        ends = [(band.least, band.most) for band in found]
        assert ends == sorted(ends)
        assert all(most < least for (_, most), (least, _) in pairwise(ends))
        assert (ends[0] == (0, 0)) == (found[0].name == "none") == bool((counts.of_labels == 0).any())
        assert len(found) <= 6
        for band in found:
            members = (counts.of_labels >= band.least) & (counts.of_labels <= band.most)
            assert band.n_labels == members.sum()
            true = answers.Y.toarray()[:, members] > 0
            assert band.n_true == true.sum()

    def test_few_labels_are_a_band_each(self):
        answers, counts, _ = made_up(k=5)
        found = bands(answers, counts, list("abcde"), has_classes=False)
        order = np.argsort(counts.of_labels, kind="stable")
        assert [band.name for band in found] == [list("abcde")[i] for i in order]
        answers, counts, P, y = made_up_classes()
        found = bands(answers, counts, list("abcdef"), has_classes=True)
        assert [band.name for band in found] == list("abcdef")
        recall = [np.mean(P.argmax(1)[y == c] == c) for c in range(6)]
        np.testing.assert_allclose([band.found[1] for band in found], recall)

    def test_confusion(self):
        answers, _, P, y = made_up_classes()
        table = confusion(answers)
        assert table.sum() == y.size
        for true, named in np.ndindex(6, 6):
            assert table[true, named] == np.sum((y == true) & (P.argmax(1) == named))
        assert confusion(made_up_classes(k=20)[0]) is None


class TestDoubt:
    @given(st.integers(0, 60), st.integers(3, 57))
    def test_tenths_cover_all_rows(self, seed, n):
        answers, _, _ = made_up(seed, n=n)
        found = doubt(answers)
        sizes = [tenth.n_rows for tenth in found.tenths]
        assert sum(sizes) == n
        assert len(sizes) == min(10, n)
        assert max(sizes) - min(sizes) <= 1
        said = [tenth.uncertainty for tenth in found.tenths]
        np.testing.assert_allclose(said, sorted(said))  # means of equals differ by rounding
        wrong = sum(tenth.n_rows * tenth.error for tenth in found.tenths)
        assert wrong == pytest.approx(answers.is_wrong.sum())
        assert found.error == pytest.approx(1 - answers.judged.precision(1))

    def test_auroc_is_that_of_sklearn(self):
        answers, _, _ = made_up(4)
        found = doubt(answers)
        assert found.auroc == pytest.approx(roc_auc_score(answers.is_wrong, answers.uncertainty))
        assert found.auroc_of_p == pytest.approx(roc_auc_score(answers.is_wrong, 1 - answers.first))

    def test_where_all_are_right_there_is_nothing_to_tell(self):
        answers, *_ = made_up_classes(k=3)
        perfect = Answers(score_ranking(answers.Y, answers.Y.toarray(), 3), answers.uncertainty, False)
        assert np.isnan(doubt(perfect).auroc)
        assert doubt(perfect).error == 0

    def test_reliability_counts_what_was_said(self):
        answers, _, P = made_up()
        found = reliabilities(answers, has_classes=False)
        assert {k: int(curve.count.sum()) for k, curve in found.items()} == {1: 200, 5: 1000}
        assert found[5].ece == pytest.approx(metrics.ece_at_k(answers.Y, P, 5))
        assert list(reliabilities(made_up_classes()[0], has_classes=True)) == [1]


class TestRows:
    @given(st.integers(0, 40), st.integers(1, 60))
    def test_they_are_what_they_are_called(self, seed, n):
        answers, _, _ = made_up(seed, n=n)
        chosen = choose_rows(answers)
        rows = [row for row, _ in chosen]
        assert len(rows) == len(set(rows)) == min(10, n)
        for row, kind in chosen:
            assert kind.endswith("wrong") == answers.is_wrong[row]

    def test_the_surest_and_the_least_sure(self):
        answers, _, _ = made_up(n=400)
        sure = answers.uncertainty
        labelled = answers.judged.n_true > 0
        by_kind = {}
        for row, kind in choose_rows(answers):
            by_kind.setdefault(kind, []).append(row)
        assert {kind: len(own) for kind, own in by_kind.items()} == {
            "sure and right": 3,
            "sure and wrong": 3,
            "unsure and right": 2,
            "unsure and wrong": 2,
        }
        for kind, own in by_kind.items():
            among = labelled & (answers.is_wrong == kind.endswith("wrong"))
            end = sure[among].min() if kind.startswith("sure") else sure[among].max()
            assert sure[own[0]] == end
            firsts = answers.judged.ranked.labels[own, 0]
            assert len(set(firsts)) == len(own)

    def test_what_is_said_of_them(self, fitted):
        case = fitted("mlgpf")
        answers = ask(case.estimator, case.X, case.Y)
        low, high = case.estimator.predict_interval(case.X, 0.9)
        P = case.estimator.predict_proba(case.X)
        for example in examples(case.estimator, case.X, answers):
            true = set(case.Y[[example.row]].indices.tolist())
            named = [guess.label for guess in example.guesses]
            assert len(named) == 5
            assert set(example.missed) == true - set(named)
            for guess in example.guesses:
                assert guess.is_right == (guess.label in true)
                assert guess.p == pytest.approx(float(P[example.row, guess.label]), abs=1e-5)
                np.testing.assert_allclose(
                    guess.interval, (low[example.row, guess.label], high[example.row, guess.label]), atol=1e-5
                )


class TestAnswers:
    def test_lists_and_uncertainty_are_those_of_the_model(self, fitted):
        case = fitted("mlgpf")
        answers = ask(case.estimator, case.X, case.Y)
        expected = score_ranking(case.Y, case.estimator.predict_topk(case.X, 5), 5)
        np.testing.assert_array_equal(answers.judged.ranked.labels, expected.ranked.labels)
        np.testing.assert_allclose(answers.uncertainty, case.estimator.predict_uncertainty(case.X), rtol=1e-5)
        assert answers.p_true is None

    @pytest.mark.parametrize("name", ["svdkl", "robustmax"])
    def test_of_classes(self, name, fitted):
        case = fitted(name)
        Y = case.estimator._encode(case.Y, len(case.Y))
        answers = ask(case.estimator, case.X, Y)
        P = case.estimator.predict_proba(case.X)
        np.testing.assert_allclose(answers.p_true, P[np.arange(len(case.Y)), case.Y], rtol=1e-5)
        assert (answers.plain is not None) == (name == "svdkl")
        if name == "svdkl":
            plain = case.estimator.baseline_proba(case.X)
            assert answers.plain.precision(1) == pytest.approx(np.mean(plain.argmax(1) == case.Y))

    def test_without_novelty_it_is_the_first_probability(self, fitted):
        case = fitted("topics")
        answers = ask(case.estimator, case.X, case.Y)
        assert answers.has_novelty == hasattr(case.estimator, "predict_uncertainty")
        if not answers.has_novelty:
            np.testing.assert_allclose(answers.uncertainty, 1 - case.estimator.predict_proba(case.X).max(1), rtol=1e-5)


class TestImages:
    def test_pixels_are_like_their_neighbours(self, fitted):
        X = fitted("images").X
        assert image_side(sparse.csr_array(X)) == 8
        shuffled = X[:, np.random.default_rng(0).permutation(64)]
        assert image_side(sparse.csr_array(shuffled)) is None
        assert image_side(sparse.csr_array(X[:, :63])) is None
        assert image_side(sparse.csr_array(-X)) is None

    def test_inducing_inputs_are_pictures(self, fitted):
        case = fitted("images")
        Y = case.estimator._encode(case.Y, len(case.Y))
        inside = gather(case.estimator, sparse.csr_array(case.X), Y).inside
        assert {name for name, _ in inside.pictures} <= {"0", "1", "2"}
        assert len(inside.pictures) > 2
        for _, image in inside.pictures:
            assert image.shape == (8, 8)
            assert image.min() >= 0
            assert image.max() == pytest.approx(1)
        assert inside.relevance_picture.max() == pytest.approx(1)
        assert inside.inputs == []


class TestIdentity:
    def test_an_ensemble_is_counted_as_a_whole(self, fitted):
        estimator = fitted("ensemble").estimator
        found = identify(estimator)
        members = [estimator, *estimator.others_]
        assert found.facts["ensemble"] == "2 members"
        assert found.facts["parameters"] == f"{sum(own.n_parameters() for own in members):,}"
        assert len(learning_curves(estimator)) == 2

    def test_processes_of_a_deep_kernel_are_named_once(self, fitted):
        facts = identify(fitted("svdkl labels").estimator).facts
        assert facts["processes"] == "4"
        assert "shared processes" not in facts

    def test_a_curve_falls_where_rows_join(self):
        seconds, one = [float(i) for i in range(8)], [""] * 8
        rising = [-9.0, -7.0, -6.0, -5.0, -4.5, -4.2, -4.1, -4.0]
        assert not Curve(seconds, rising, one).falls
        assert Curve(seconds, [*rising[:6], -5.0, -4.5], one).falls
        assert not Curve(seconds, [*rising[:6], -4.25, -4.2], one).falls
        assert not Curve(seconds, [*rising[:6], -5.0, -4.5], [*one[:6], "joint", "joint"]).falls

    def test_stages_and_scores_are_kept_apart(self, fitted):
        curve = learning_curves(fitted("svdkl").estimator)[0]
        assert list(dict.fromkeys(curve.stage)) == ["network", "processes", "joint"]
        assert curve.seconds == sorted(curve.seconds)


def test_nothing_to_compare_with_is_refused(fitted):
    case = fitted("mlgpf")
    with pytest.raises(DataError, match="no test row has a label"):
        gather(case.estimator, case.X, sparse.csr_array(case.Y.shape, dtype=np.float32))
    with pytest.raises(DataError, match="no test rows"):
        gather(case.estimator, case.X[:0], case.Y[:0])
