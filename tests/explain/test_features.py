"""The features that matter most over all rows."""

import numpy as np
import pytest

from labelfield import MLGPFClassifier
from labelfield.explain import relevant_features


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
