"""Scores, bands of labels and errors: identities that they satisfy, and comparisons with other packages."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from labelfield import metrics, synth
from labelfield.metrics import score_ranking
from labelfield.report.predictions import Predictions
from labelfield.report.scores import Counts, bands, confusion, errors, places_of, reliabilities, scores


class TestScores:
    @given(st.integers(0, 50))
    def test_they_are_those_of_metrics(self, made_up, seed):
        predictions, counts, P = made_up.labels(seed)
        expected = metrics.evaluate(predictions.Y, P, inverse=counts.inverse_propensity)
        found = {score.name: score for score in scores(predictions, counts, has_classes=False)}
        assert {"P@1", "P@5", "PSP@3", "ECE@1", "ECE@5"} <= set(found)
        for name, score in found.items():
            assert score.model == pytest.approx(expected[name]), name

    def test_popularity_is_that_of_metrics(self, made_up):
        train = synth.make_multilabel(300, 40, 20, seed=1).Y
        predictions, _, _ = made_up.labels(k=20)
        counts = Counts(np.bincount(train.indices, minlength=20), 300)
        expected = metrics.evaluate(predictions.Y, metrics.popularity(train, predictions.Y.shape[0]), train)
        for score in scores(predictions, counts, has_classes=False):
            if not score.name.startswith("ECE"):
                assert score.popularity == pytest.approx(expected[score.name]), score.name

    def test_of_classes(self, made_up):
        predictions, counts, P, y = made_up.classes()
        found = {score.name: score for score in scores(predictions, counts, has_classes=True)}
        assert list(found) == ["error rate", "nlpd", "R@3", "R@5", "ECE@1"]
        assert found["error rate"].model == pytest.approx(100 * metrics.error_rate(y, P))
        assert found["error rate"].popularity == pytest.approx(100 * (1 - np.mean(y == np.bincount(y).argmax())))
        assert found["nlpd"].model == pytest.approx(metrics.nlpd(y, P))
        frequency = np.bincount(y) / y.size
        assert found["nlpd"].popularity == pytest.approx(-(frequency * np.log(frequency)).sum())
        assert found["R@3"].model == pytest.approx(100 * metrics.recall_at_k(predictions.Y, P, 3))

    def test_a_class_that_was_not_seen_is_an_error_and_not_in_nlpd(self, made_up):
        predictions, _, P, y = made_up.classes(n_known=5)
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
    def test_contributions_sum_to_the_scores(self, made_up, seed, k):
        predictions, counts, _ = made_up.labels(seed, k=k)
        found = bands(predictions, counts, [str(i) for i in range(k)], has_classes=False)
        for place in places_of(k):
            assert sum(band.precision[place] for band in found) == pytest.approx(predictions.judged.precision(place))
            psp = predictions.judged.psp(place, counts.inverse_propensity)
            assert sum(band.psp[place] for band in found) == pytest.approx(psp)
            hits = sum(band.found[place] * band.n_true for band in found)
            assert hits == pytest.approx(predictions.judged.hit[:, :place].sum())

    @given(st.integers(0, 60))
    def test_each_label_is_in_one_band_by_its_count(self, made_up, seed):
        predictions, counts, _ = made_up.labels(seed)
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

    def test_few_labels_are_a_band_each(self, made_up):
        predictions, counts, _ = made_up.labels(k=5)
        found = bands(predictions, counts, list("abcde"), has_classes=False)
        order = np.argsort(counts.of_labels, kind="stable")
        assert [band.name for band in found] == [list("abcde")[i] for i in order]
        predictions, counts, P, y = made_up.classes()
        found = bands(predictions, counts, list("abcdef"), has_classes=True)
        assert [band.name for band in found] == list("abcdef")
        recall = [np.mean(P.argmax(1)[y == c] == c) for c in range(6)]
        np.testing.assert_allclose([band.found[1] for band in found], recall)

    def test_confusion(self, made_up):
        predictions, _, P, y = made_up.classes()
        table = confusion(predictions)
        assert table.sum() == y.size
        for true, named in np.ndindex(6, 6):
            assert table[true, named] == np.sum((y == true) & (P.argmax(1) == named))
        assert confusion(made_up.classes(k=20)[0]) is None


class TestErrors:
    @given(st.integers(0, 60), st.integers(3, 57))
    def test_tenths_cover_all_rows(self, made_up, seed, n):
        predictions, _, _ = made_up.labels(seed, n=n)
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

    def test_auroc_is_that_of_sklearn(self, made_up):
        predictions, _, _ = made_up.labels(4)
        found = errors(predictions)
        assert found.auroc == pytest.approx(roc_auc_score(predictions.is_wrong, predictions.uncertainty))

    def test_where_all_are_right_there_is_no_auroc(self, made_up):
        predictions, *_ = made_up.classes(k=3)
        perfect = Predictions(score_ranking(predictions.Y, predictions.Y.toarray(), 3))
        assert np.isnan(errors(perfect).auroc)
        assert errors(perfect).error == 0

    def test_reliability_counts_all_predictions(self, made_up):
        predictions, _, P = made_up.labels()
        found = reliabilities(predictions, has_classes=False)
        assert {k: int(curve.count.sum()) for k, curve in found.items()} == {1: 200, 5: 1000}
        assert found[5].ece == pytest.approx(metrics.ece_at_k(predictions.Y, P, 5))
        assert list(reliabilities(made_up.classes()[0], has_classes=True)) == [1]
