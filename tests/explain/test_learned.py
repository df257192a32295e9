"""What a model has learned as a whole: labels that go together, features that matter."""

from unittest.mock import patch

import numpy as np
import pytest

from labelfield import MLGPFClassifier
from labelfield.explain import label_neighbours, relevant_features


def test_neighbours_are_those_of_the_correlation(small):
    model = small.model("mlgpf")
    correlation = model.label_correlation()
    found = label_neighbours(model, [4, 0, 13], 3)
    assert [one.number for one in found] == [4, 0, 13]
    for one in found:
        own = np.where(np.isin(np.arange(16), (one.number, 14, 15)), -np.inf, correlation[one.number])
        best = np.argsort(-own, kind="stable")[:3]
        assert [name for name, _ in one.neighbours] == [str(label) for label in best]
        assert [value for _, value in one.neighbours] == pytest.approx(own[best].tolist(), abs=1e-5)
        assert one.name == str(one.number)


def test_neighbours_in_blocks(small):
    model = small.model("mlgpf")
    whole = label_neighbours(model, range(16), 4)
    with patch("labelfield.explain.neighbours._BLOCK_ENTRIES", 40):  # two labels at a time
        parts = label_neighbours(model, range(16), 4)
    for one, other in zip(whole, parts, strict=True):
        assert [name for name, _ in one.neighbours] == [name for name, _ in other.neighbours]


@pytest.mark.parametrize("kind", ["mlgpf", "ensemble", "svdkl", "topics", "sampled topics"])
def test_labels_that_never_held_are_similar_to_none(kind, small):
    found = label_neighbours(small.model(kind), range(16), 16)
    assert [len(one.neighbours) for one in found] == [13] * 14 + [0, 0]
    assert all({name for name, _ in one.neighbours} <= {str(label) for label in range(14)} for one in found)
    assert all(-1.001 < value < 1.001 for one in found for _, value in one.neighbours)


def test_neighbours_in_topics(small):
    """Labels of the same topics have similarity 1, whatever their weights; labels of different topics have 0."""
    model = small.model("topics")
    V = model.model_.V.clone()
    V[0, :3] = 0
    V[0, 0, 1], V[0, 1, 1], V[0, 2, 2] = 0.3, 0.1, 0.2
    with patch.object(model.model_, "V", V):
        first = dict(label_neighbours(model, [0], 15)[0].neighbours)
    assert first["1"] == pytest.approx(1)
    assert first["2"] == pytest.approx(0)


def test_neighbours_where_there_are_none(small):
    for kind in ("one_vs_each", "softmax", "point", "ensemble of classes"):
        assert label_neighbours(small.model(kind), [0]) is None
    assert label_neighbours(small.model("mlgpf"), []) == []
    for wrong in ([16], [-1, 2]):
        with pytest.raises(ValueError, match="expected numbers from 0 to 15"):
            label_neighbours(small.model("mlgpf"), wrong)


def test_relevant_features(small):
    for kind in ("mlgpf", "ensemble"):
        model = small.model(kind)
        relevance = model.feature_relevance()
        found = relevant_features(model, 4, feature_names=[f"word {d}" for d in range(60)])
        best = np.argsort(-relevance, kind="stable")[:4]
        assert [name for name, _ in found] == [f"word {d}" for d in best]
        assert [value for _, value in found] == pytest.approx(relevance[best].tolist())
    assert len(relevant_features(small.model("mlgpf"), 1000)) == 60


def test_relevance_in_topics_and_linear_utilities(small):
    model = small.model("topics")
    W, share = model.model_.W[0, :-1].numpy(), model.model_.share.numpy()
    expected = (W**2) @ share
    assert [value for _, value in relevant_features(model, 60)] == pytest.approx(
        sorted(expected, reverse=True), rel=1e-4
    )
    point = small.model("point")
    weights = point.model_.utilities.weights.detach().numpy()
    assert relevant_features(point, 1)[0][1] == pytest.approx((weights**2).mean(0).max(), rel=1e-4)


def test_relevance_where_there_is_none(small):
    data = small.several()
    alike = MLGPFClassifier(n_latent=2, n_inducing=5, kernel="se", **small.options).fit(data.X, data.Y)
    assert relevant_features(alike) is None
    assert relevant_features(small.model("svdkl")) is None
