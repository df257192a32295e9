"""A fitted classifier is calibrated on rows it held out, and every method gives the same probability."""

import numpy as np
import pytest

from labelfield import MLGPFClassifier, metrics, synth


@pytest.fixture(scope="module")
def fitted():
    data = synth.make_multilabel(900, 200, 40, seed=4).split(0.3)
    model = MLGPFClassifier(n_latent=10, n_inducing=60, max_epochs=30, learning_rate=0.05, batch_size=60)
    return data, model.fit(data.X, data.Y)


def test_a_model_is_calibrated_without_rows_of_the_users(fitted):
    data, model = fitted
    assert model.settings_.held_out == 63
    assert model.settings_.finishing_epochs == 10
    raw, calibrated = (model.predict_topk(data.test.X, 5, calibrated=c) for c in (False, True))
    np.testing.assert_array_equal(raw.indices, calibrated.indices)
    order = [np.argsort(-part.data.reshape(-1, 5), axis=1, kind="stable") for part in (raw, calibrated)]
    np.testing.assert_array_equal(*order)
    ece = [metrics.ece_at_k(data.test.Y, part, 5) for part in (raw, calibrated)]
    assert ece[1] < 0.9 * ece[0]


def test_every_door_shows_the_same_probability(fitted):
    data, model = fitted
    X = data.test.X
    P, ranked = model.predict_proba(X), model.predict_topk(X, 7)
    rows = np.repeat(np.arange(X.shape[0]), 7)
    np.testing.assert_allclose(P[rows, ranked.indices], ranked.data, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(X).toarray(), P >= 0.5)
    raw = model.predict_proba(X, calibrated=False)
    np.testing.assert_array_equal(np.argsort(-raw, 1, kind="stable")[:, :10], np.argsort(-P, 1, kind="stable")[:, :10])
    low, high = model.predict_interval(X, 0.99)
    assert ((low <= P) & (high >= P)).mean() > 0.8  # those of calibrated probabilities mostly hold them


def test_it_can_be_turned_off(fitted):
    data, _ = fitted
    model = MLGPFClassifier(n_latent=3, n_inducing=20, max_epochs=2, calibrate=False).fit(data.X, data.Y)
    assert model.settings_.held_out == 0
    assert model.model_.calibration.is_identity()
