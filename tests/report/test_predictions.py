"""What the page needs of predictions is what the model predicts."""

import numpy as np
import pytest

from labelfield.metrics import score_ranking
from labelfield.report.predictions import predict_rows


def test_lists_and_uncertainty_are_those_of_the_model(fitted):
    case = fitted("mlgpf")
    predictions = predict_rows(case.estimator, case.X, case.Y)
    expected = score_ranking(case.Y, case.estimator.predict_topk(case.X, 5), 5)
    np.testing.assert_array_equal(predictions.judged.ranked.labels, expected.ranked.labels)
    np.testing.assert_allclose(predictions.uncertainty, case.estimator.predict_uncertainty(case.X), rtol=1e-5)
    assert predictions.p_true is None


@pytest.mark.parametrize("name", ["svdkl", "robustmax"])
def test_of_classes(name, fitted):
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


def test_labels_are_ranked_with_weights(fitted):
    case = fitted("mlgpf")
    weight = np.random.default_rng(0).uniform(1, 20, case.Y.shape[1])
    predictions = predict_rows(case.estimator, case.X, case.Y, weight=weight)
    P = case.estimator.predict_proba(case.X)
    order = np.argsort(-P * weight, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(predictions.judged.ranked.labels, order)
    first = np.take_along_axis(P, order, 1)[:, 0]
    np.testing.assert_allclose(predictions.first, first, rtol=1e-5)
    np.testing.assert_allclose(predictions.uncertainty, 1 - first, atol=1e-6)
