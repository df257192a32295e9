"""What explain_row says about a row is what the model does."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import logit

from labelfield.errors import CannotAnswerError, DataError
from labelfield.explain import explain_row, intervals
from labelfield.explain.occlusion import feature_effects
from labelfield.models.predictor import Block, Predictor


def log_odds(model, X):
    """Return the log-odds of all labels, from raw probabilities."""
    P = model.predictor_.separate_proba(model.rows(X), calibrated=False).astype(np.float64)
    found = logit(np.clip(P, np.finfo(np.float32).tiny, 1 - np.finfo(np.float32).epsneg))
    # Two classes under a model of separate labels speak against each other.
    return found - found[:, ::-1] if model.predictor_.normalises and found.shape[1] == 2 else found


def without(model, x, feature):
    """Return the row without a feature: at 0, or at the mean that the model subtracts."""
    dense = x.toarray()
    shifts = model.members()[0].row_transform_.shifts
    dense[0, feature] = 0 if shifts is None else shifts[feature]
    return sparse.csr_array(dense)


def test_an_effect_is_the_difference_of_two_calls(model, small):
    x = small.row(model)
    every = explain_row(model, x, k=3, n_features=1000)
    names = [f"feature {d}" for d in range(x.shape[1])]
    assert every.n_features == len(every.labels[0].features) > 1
    for label in every.labels:
        for name, value, effect in label.features[:3]:
            d = names.index(name)
            assert value == x[0, d]
            expected = log_odds(model, x)[0, label.number] - log_odds(model, without(model, x, d))[0, label.number]
            assert effect == pytest.approx(expected, rel=1e-3, abs=2e-4)
        sizes = [abs(effect) for _, _, effect in label.features]
        assert sizes == sorted(sizes, reverse=True)


def test_labels_are_the_most_probable(model, small):
    x = small.row(model, 1)
    found = explain_row(model, x, k=2)
    best = model.predict_topk(x, 2)
    expected = sorted(zip(best.data.tolist(), best.indices.tolist(), strict=True), reverse=True)
    assert [(label.probability, label.number) for label in found.labels] == expected
    assert [label.name for label in found.labels] == [str(number) for _, number in expected]


def test_labels_can_be_named(model, small):
    x = small.row(model, 1)
    best = explain_row(model, x, k=3)
    again = explain_row(model, x, labels=[label.number for label in best.labels][::-1])
    for found, expected in zip(again.labels, best.labels[::-1], strict=True):
        assert (found.number, found.name) == (expected.number, expected.name)
        assert found.probability == pytest.approx(expected.probability, rel=1e-5)
        assert [name for name, _, _ in found.features] == [name for name, _, _ in expected.features]


def test_intervals(model, small):
    x = small.row(model)
    wide, narrow = (explain_row(model, x, k=2, level=level).labels for level in (0.9, 0.5))
    if intervals(model, x) is None:
        with pytest.raises(CannotAnswerError):
            model.predict_interval(x)
        assert all(label.interval is None for label in wide)
        return
    for outer, inner in zip(wide, narrow, strict=True):
        assert 0 <= outer.interval[0] <= inner.interval[0] < inner.interval[1] <= outer.interval[1] <= 1


def test_blocks_change_nothing(small):
    model = small.model("mlgpf")
    x, labels = small.row(model), np.array([3, 1])
    whole = feature_effects(model, x, labels)
    with patch("labelfield.explain.occlusion._BLOCK_ENTRIES", 3 * max(x.nnz, model.spec_.n_labels)):
        parts = feature_effects(model, x, labels)
    assert whole.features.size > 6
    np.testing.assert_array_equal(parts.features, whole.features)
    np.testing.assert_allclose(parts.effects, whole.effects, atol=1e-5)


def test_two_classes_mirror_each_other(small):
    for kind in ("two classes", "mlgpf of two classes"):
        model = small.model(kind)
        effects = feature_effects(model, small.row(model), np.array([0, 1])).effects
        np.testing.assert_allclose(effects[:, 0], -effects[:, 1], atol=1e-5)
        assert np.abs(effects).max() > 0.01


def test_log_odds_of_classes_are_finite_where_probabilities_are_certain():
    class Certain(Predictor):
        n_labels, is_exclusive = 3, True

        def probabilities(self, rows, calibrated=True):
            yield Block(slice(0, 1), slice(0, 3), torch.tensor([[1.0, 1e-38, 0.0]]))

    found = Certain().log_odds(sparse.csr_array((1, 2)))
    assert np.isfinite(found).all()
    assert found[0, 0] > 16


def test_measurements_are_taken_out_by_their_mean(small):
    """A feature that is far from 0 in all rows is set to its mean, and does nothing where it lies there already."""
    model = small.model("one_vs_each")
    shifts = model.row_transform_.shifts
    assert shifts[0] > 40
    assert not shifts[1:].any()
    x = sparse.csr_array(np.array([[shifts[0], 1.0, 0.0, 2.0]], np.float32))
    assert {name for name, _, _ in explain_row(model, x).labels[0].features} == {"feature 1", "feature 3"}
    # Where it is 0, that is a value like any other.
    zero = sparse.csr_array(np.array([[0.0, 1.0, 0.0, 0.0]], np.float32))
    found = {name: value for name, value, _ in explain_row(model, zero).labels[0].features}
    assert found == {"feature 0": 0.0, "feature 1": 1.0}


def test_a_row_without_features(small):
    for kind in ("mlgpf", "topics", "svdkl"):
        model = small.model(kind)
        found = explain_row(model, sparse.csr_array((1, model.n_features_in_), dtype=np.float32))
        assert found.n_features == 0
        assert all(label.features == [] for label in found.labels)


def test_a_row_in_any_form(small):
    model, X = small.model("one_vs_each"), small.classes()[0]
    expected = explain_row(model, X[:1])
    assert explain_row(model, X[0]) == expected
    assert explain_row(model, X[0].tolist()) == expected
    assert explain_row(model, sparse.csr_matrix(X[:1])) == expected
    with pytest.raises(DataError, match="2 rows; expected one row"):
        explain_row(model, X[:2])
    with pytest.raises(ValueError, match="level=2"):
        explain_row(model, X[0], level=2)
    with pytest.raises(ValueError, match="expecting 4 features"):
        explain_row(model, X[0, :3])


def test_names(small):
    model = small.model("one_vs_each")
    x, names = small.row(model), ["height", "width", "depth", "age"]
    assert {name for name, _, _ in explain_row(model, x, feature_names=names).labels[0].features} <= set(names)
    with pytest.raises(ValueError, match="3 feature names; expected 4"):
        explain_row(model, x, feature_names=names[:3])
    own = [name.upper() for name in names]
    with patch.object(model.fitted_, "feature_names", own):  # the names that the model knows come first
        assert {name for name, _, _ in explain_row(model, x, feature_names=names).labels[0].features} <= set(own)


class TestTopics:
    @pytest.mark.parametrize("kind", ["topics", "sampled topics"])
    def test_shares_sum_to_one(self, kind, small):
        model = small.model(kind)
        labels = np.array([15, 0, 7])  # the first has no place
        shares = model.predictor_.topic_shares(model.rows(small.row(model)), labels)
        assert shares.shape == (3, 4)
        np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-12)
        assert (shares >= 0).all()

    def test_shares_are_those_of_the_rate(self, small):
        model = small.model("topics")
        x, labels = small.row(model), np.array([2, 5])
        assert model.model_.labels[:6].tolist() == [0, 1, 2, 3, 4, 5]
        X = model.rows(x).toarray()[0]
        W, r, V = (part[0].numpy().astype(np.float64) for part in (model.model_.W, model.model_.r, model.model_.V))
        rate = V[labels] * r * np.exp(X @ W[:-1] + W[-1])
        expected = rate / rate.sum(1, keepdims=True)
        np.testing.assert_allclose(model.predictor_.topic_shares(model.rows(x), labels), expected, rtol=1e-4)
        for label in explain_row(model, x, n_inducing=2).labels:
            assert len(label.topics) == 2
            assert label.topics[0].share >= label.topics[1].share
            whole = {topic.number: [name for name, _ in topic.labels] for topic in model.topics(3)}
            assert all(topic.labels == whole[topic.number] for topic in label.topics)
            assert label.inducing == []
            assert label.utility is None
