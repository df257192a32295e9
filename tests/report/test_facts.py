"""The numbers of the page: identities that they satisfy, and comparisons with other packages."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import roc_auc_score

from labelfield import metrics, synth
from labelfield.errors import DataError
from labelfield.inference.run import Epoch
from labelfield.metrics import judge
from labelfield.report.examples import choose_rows, examples
from labelfield.report.facts import gather
from labelfield.report.identity import drops, identify, learning_curves
from labelfield.report.learned import image_side
from labelfield.report.predictions import Predictions, predict_rows
from labelfield.report.scores import Counts, bands, confusion, errors, places_of, reliabilities, scores


def made_up(seed=0, n=200, k=40, density=0.1):
    """Make up truth, probabilities that know something of it, and training counts to match."""
    rng = np.random.default_rng(seed)
    rate = density * k * rng.dirichlet(np.full(k, 0.5))
    Y = rng.random((n, k)) < np.minimum(rate, 0.9)
    P = np.clip(0.5 * Y + 0.6 * rng.random((n, k)) * (rate > 0.01), 0, 1)
    counts = Counts(np.where(rate < 0.01, 0, rng.poisson(500 * rate)), 500)
    judged = judge(sparse.csr_array(Y.astype(np.float32)), P, 5)
    return Predictions(judged, rng.random(n).round(1), True), counts, P


def made_up_classes(seed=0, n=120, k=6, n_known=None):
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    P = rng.dirichlet(np.ones(n_known or k), n)
    Y = sparse.csr_array((np.ones(n, np.float32), y.astype(np.int32), np.arange(n + 1)), shape=(n, k))
    p = np.where(y < P.shape[1], P[np.arange(n), np.minimum(y, P.shape[1] - 1)], np.nan)
    wide = np.pad(P, ((0, 0), (0, k - P.shape[1])))
    return Predictions(judge(Y, wide, 5), 1 - P.max(1), False, p), Counts(np.bincount(y, minlength=k), n), P, y


class TestScores:
    @given(st.integers(0, 50))
    def test_they_are_those_of_metrics(self, seed):
        predictions, counts, P = made_up(seed)
        expected = metrics.evaluate(predictions.Y, P, inverse=counts.inverse_propensity)
        found = {score.name: score for score in scores(predictions, counts, has_classes=False)}
        assert {"P@1", "P@5", "PSP@3", "ECE@1", "ECE@5"} <= set(found)
        for name, score in found.items():
            assert score.model == pytest.approx(expected[name]), name

    def test_popularity_is_that_of_metrics(self):
        train = synth.make_multilabel(300, 40, 20, seed=1).Y
        predictions, _, _ = made_up(k=20)
        counts = Counts(np.bincount(train.indices, minlength=20), 300)
        expected = metrics.evaluate(predictions.Y, metrics.popularity(train, predictions.Y.shape[0]), train)
        for score in scores(predictions, counts, has_classes=False):
            if not score.name.startswith("ECE"):
                assert score.popularity == pytest.approx(expected[score.name]), score.name

    def test_of_classes(self):
        predictions, counts, P, y = made_up_classes()
        found = {score.name: score for score in scores(predictions, counts, has_classes=True)}
        assert list(found) == ["error rate", "nlpd", "R@3", "R@5", "ECE@1"]
        assert found["error rate"].model == pytest.approx(100 * metrics.error_rate(y, P))
        assert found["error rate"].popularity == pytest.approx(100 * (1 - np.mean(y == np.bincount(y).argmax())))
        assert found["nlpd"].model == pytest.approx(metrics.nlpd(y, P))
        frequency = np.bincount(y) / y.size
        assert found["nlpd"].popularity == pytest.approx(-(frequency * np.log(frequency)).sum())
        assert found["R@3"].model == pytest.approx(100 * metrics.recall_at_k(predictions.Y, P, 3))

    def test_a_class_that_was_not_seen_is_an_error_and_not_in_nlpd(self):
        predictions, _, P, y = made_up_classes(n_known=5)
        counts = Counts(np.ones(5, np.int64), 5)
        found = {score.name: score for score in scores(predictions, counts, has_classes=True)}
        known = y < 5
        wrong = 1 - np.mean(known & (P.argmax(1) == y))
        assert found["error rate"].model == pytest.approx(100 * wrong)
        assert found["nlpd"].model == pytest.approx(metrics.nlpd(y[known], P[known]))

    def test_lists_of_all_labels_are_not_scored(self):
        assert [places_of(n) for n in (2, 3, 5, 6)] == [[1], [1], [1, 3], [1, 3, 5]]


class TestBands:
    @given(st.integers(0, 60), st.sampled_from([4, 13, 40]))
    def test_contributions_sum_to_the_scores(self, seed, k):
        predictions, counts, _ = made_up(seed, k=k)
        found = bands(predictions, counts, [str(i) for i in range(k)], has_classes=False)
        for place in places_of(k):
            assert sum(band.precision[place] for band in found) == pytest.approx(predictions.judged.precision(place))
            psp = predictions.judged.psp(place, counts.inverse_propensity)
            assert sum(band.psp[place] for band in found) == pytest.approx(psp)
            hits = sum(band.found[place] * band.n_true for band in found)
            assert hits == pytest.approx(predictions.judged.hit[:, :place].sum())

    @given(st.integers(0, 60))
    def test_each_label_is_in_one_band_by_its_count(self, seed):
        predictions, counts, _ = made_up(seed)
        found = bands(predictions, counts, [""] * 40, has_classes=False)
        assert sum(band.n_labels for band in found) == 40
        assert sum(band.n_true for band in found) == predictions.Y.nnz
        ends = [(band.least, band.most) for band in found]
        assert ends == sorted(ends)
        assert all(most < least for (_, most), (least, _) in pairwise(ends))
        assert (ends[0] == (0, 0)) == (found[0].name == "none") == bool((counts.of_labels == 0).any())
        assert len(found) <= 6
        for band in found:
            members = (counts.of_labels >= band.least) & (counts.of_labels <= band.most)
            assert band.n_labels == members.sum()
            true = predictions.Y.toarray()[:, members] > 0
            assert band.n_true == true.sum()

    def test_few_labels_are_a_band_each(self):
        predictions, counts, _ = made_up(k=5)
        found = bands(predictions, counts, list("abcde"), has_classes=False)
        order = np.argsort(counts.of_labels, kind="stable")
        assert [band.name for band in found] == [list("abcde")[i] for i in order]
        predictions, counts, P, y = made_up_classes()
        found = bands(predictions, counts, list("abcdef"), has_classes=True)
        assert [band.name for band in found] == list("abcdef")
        recall = [np.mean(P.argmax(1)[y == c] == c) for c in range(6)]
        np.testing.assert_allclose([band.found[1] for band in found], recall)

    def test_confusion(self):
        predictions, _, P, y = made_up_classes()
        table = confusion(predictions)
        assert table.sum() == y.size
        for true, named in np.ndindex(6, 6):
            assert table[true, named] == np.sum((y == true) & (P.argmax(1) == named))
        assert confusion(made_up_classes(k=20)[0]) is None


class TestErrors:
    @given(st.integers(0, 60), st.integers(3, 57))
    def test_tenths_cover_all_rows(self, seed, n):
        predictions, _, _ = made_up(seed, n=n)
        found = errors(predictions)
        sizes = [tenth.n_rows for tenth in found.tenths]
        assert sum(sizes) == n
        assert len(sizes) == min(10, n)
        assert max(sizes) - min(sizes) <= 1
        said = [tenth.uncertainty for tenth in found.tenths]
        np.testing.assert_allclose(said, sorted(said))  # means of equals differ by rounding
        wrong = sum(tenth.n_rows * tenth.error for tenth in found.tenths)
        assert wrong == pytest.approx(predictions.is_wrong.sum())
        assert found.error == pytest.approx(1 - predictions.judged.precision(1))

    def test_auroc_is_that_of_sklearn(self):
        predictions, _, _ = made_up(4)
        found = errors(predictions)
        assert found.auroc == pytest.approx(roc_auc_score(predictions.is_wrong, predictions.uncertainty))
        assert found.auroc_of_p == pytest.approx(roc_auc_score(predictions.is_wrong, 1 - predictions.first))

    def test_where_all_are_right_there_is_no_auroc(self):
        predictions, *_ = made_up_classes(k=3)
        perfect = Predictions(judge(predictions.Y, predictions.Y.toarray(), 3), predictions.uncertainty, False)
        assert np.isnan(errors(perfect).auroc)
        assert errors(perfect).error == 0

    def test_reliability_counts_all_predictions(self):
        predictions, _, P = made_up()
        found = reliabilities(predictions, has_classes=False)
        assert {k: int(curve.count.sum()) for k, curve in found.items()} == {1: 200, 5: 1000}
        assert found[5].ece == pytest.approx(metrics.ece_at_k(predictions.Y, P, 5))
        assert list(reliabilities(made_up_classes()[0], has_classes=True)) == [1]


class TestRows:
    @given(st.integers(0, 40), st.integers(1, 60))
    def test_kinds_are_right(self, seed, n):
        predictions, _, _ = made_up(seed, n=n)
        chosen = choose_rows(predictions)
        rows = [row for row, _ in chosen]
        assert len(rows) == len(set(rows)) == min(10, n)
        for row, kind in chosen:
            assert kind.endswith("wrong") == predictions.is_wrong[row]

    def test_the_surest_and_the_least_sure(self):
        predictions, _, _ = made_up(n=400)
        sure = predictions.uncertainty
        labelled = predictions.judged.n_true > 0
        by_kind = {}
        for row, kind in choose_rows(predictions):
            by_kind.setdefault(kind, []).append(row)
        assert {kind: len(own) for kind, own in by_kind.items()} == {
            "sure and right": 3,
            "sure and wrong": 3,
            "unsure and right": 2,
            "unsure and wrong": 2,
        }
        for kind, own in by_kind.items():
            among = labelled & (predictions.is_wrong == kind.endswith("wrong"))
            end = sure[among].min() if kind.startswith("sure") else sure[among].max()
            assert sure[own[0]] == end
            firsts = predictions.judged.ranked.labels[own, 0]
            assert len(set(firsts)) == len(own)

    def test_guesses_are_those_of_the_model(self, fitted):
        case = fitted("mlgpf")
        predictions = predict_rows(case.estimator, case.X, case.Y)
        low, high = case.estimator.predict_interval(case.X, 0.9)
        P = case.estimator.predict_proba(case.X)
        for example in examples(case.estimator, case.X, predictions):
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


class TestPredictions:
    def test_lists_and_uncertainty_are_those_of_the_model(self, fitted):
        case = fitted("mlgpf")
        predictions = predict_rows(case.estimator, case.X, case.Y)
        expected = judge(case.Y, case.estimator.predict_topk(case.X, 5), 5)
        np.testing.assert_array_equal(predictions.judged.ranked.labels, expected.ranked.labels)
        np.testing.assert_allclose(predictions.uncertainty, case.estimator.predict_uncertainty(case.X), rtol=1e-5)
        assert predictions.p_true is None

    @pytest.mark.parametrize("name", ["svdkl", "robustmax"])
    def test_of_classes(self, name, fitted):
        case = fitted(name)
        Y = case.estimator.encode(case.Y, len(case.Y))
        predictions = predict_rows(case.estimator, case.X, Y)
        P = case.estimator.predict_proba(case.X)
        np.testing.assert_allclose(predictions.p_true, P[np.arange(len(case.Y)), case.Y], rtol=1e-5)
        assert (predictions.baseline is not None) == (name == "svdkl")
        if name == "svdkl":
            plain = case.estimator.predictor_.baseline().proba(case.estimator.rows(case.X))
            assert predictions.baseline.precision(1) == pytest.approx(np.mean(plain.argmax(1) == case.Y))
            np.testing.assert_allclose(predictions.baseline_p_true, plain[np.arange(len(case.Y)), case.Y], rtol=1e-5)

    @pytest.mark.parametrize(("name", "has_novelty"), [("topics", False), ("point", False), ("softmax", True)])
    def test_without_novelty_uncertainty_is_that_of_the_first_probability(self, name, has_novelty, fitted):
        case = fitted(name)
        predictions = predict_rows(case.estimator, case.X, case.estimator.encode(case.Y, case.X.shape[0]))
        assert predictions.has_novelty == has_novelty
        plain = 1 - case.estimator.predict_proba(case.X).max(1)
        assert np.allclose(predictions.uncertainty, plain, rtol=1e-5) == (not has_novelty)


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
        Y = case.estimator.encode(case.Y, len(case.Y))
        learned = gather(case.estimator, sparse.csr_array(case.X), Y).learned
        assert {name for name, _ in learned.pictures} <= {"0", "1", "2"}
        assert len(learned.pictures) > 2
        for _, image in learned.pictures:
            assert image.shape == (8, 8)
            assert image.min() >= 0
            assert image.max() == pytest.approx(1)
        assert learned.relevance_picture.max() == pytest.approx(1)
        assert learned.inputs == []


class TestIdentity:
    def test_an_ensemble_is_counted_as_a_whole(self, fitted):
        estimator = fitted("ensemble").estimator
        found = identify(estimator)
        assert found.facts["ensemble"] == "2 members"
        assert found.facts["parameters"] == f"{sum(own.n_parameters() for own in estimator.members()):,}"
        assert found.facts["inducing inputs"] == "8 (free)"
        assert found.sentence.endswith("the mean of the probabilities of 2 different ones.")
        assert len(learning_curves(estimator)) == 2

    def test_processes_of_a_deep_kernel_are_named_once(self, fitted):
        facts = identify(fitted("svdkl labels").estimator).facts
        assert facts["processes"] == "4"
        assert "shared processes" not in facts

    @pytest.mark.parametrize(
        ("end", "stage", "expected"),
        [
            ((-4.1, -4.0), "", False),
            ((-5.0, -4.5), "", True),
            ((-4.25, -4.2), "", False),
            ((-5.0, -4.5), "joint", False),
        ],
    )
    def test_a_curve_drops_where_rows_join(self, end, stage, expected):
        bounds = [-9.0, -7.0, -6.0, -5.0, -4.5, -4.2, *end]
        curve = [Epoch(i, bound, 0.1, float(i), stage=stage if i > 5 else "") for i, bound in enumerate(bounds)]
        assert drops(curve) == expected

    def test_curves_are_the_epochs_of_the_history(self, fitted):
        (curve,) = learning_curves(fitted("svdkl").estimator)
        assert list(dict.fromkeys(epoch.stage for epoch in curve)) == ["network", "processes", "joint"]
        assert [epoch.bound for epoch in curve] == [epoch["bound"] for epoch in fitted("svdkl").estimator.history_]


def test_nothing_to_compare_with_is_refused(fitted):
    case = fitted("mlgpf")
    with pytest.raises(DataError, match="no test row has a label"):
        gather(case.estimator, case.X, sparse.csr_array(case.Y.shape, dtype=np.float32))
    with pytest.raises(DataError, match="no test rows"):
        gather(case.estimator, case.X[:0], case.Y[:0])
