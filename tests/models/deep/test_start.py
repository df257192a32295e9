"""Where a deep kernel model starts, and which features of a network are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from labelfield.models.deep.spec import DeepSpec, build
from labelfield.models.deep.start import FeatureError, require_features, start
from labelfield.networks import NetworkSpec

GOOD = DeepSpec(5, 3, NetworkSpec("mlp", 5, 4, (6,)), 4, ((0,), (1,), (2,), (3,)), 8)


@pytest.mark.parametrize("n_labels", [3, 4])
def test_it_starts_with_an_identity_or_a_drawn_mixing_and_the_log_odds(n_labels):
    spec = replace(GOOD, n_labels=n_labels, likelihood="bernoulli")
    counts = np.array([0, 5, 10, 2][:n_labels])
    models = [build(spec) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        start(model, counts, 10, seed)
    a, b, c = (model.state_dict() for model in models)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["features.network.last.W"], c["features.network.last.W"])
    if n_labels == 4:
        assert torch.equal(a["A"], torch.eye(4))
    else:
        assert not torch.equal(a["A"], c["A"])
        assert 0.2 < a["A"].norm(dim=1).mean() < 2
    odds = (counts + 0.5) / (10 - counts + 0.5)
    torch.testing.assert_close(a["b"], torch.from_numpy(np.log(odds)).float())
    classes = build(replace(spec, likelihood="softmax"))
    start(classes, counts, 10, 1)
    assert not classes.b.any()


def test_features_that_are_not_finite_are_named():
    h = torch.zeros(4, 3)
    require_features(h)
    h[2, 1] = float("inf")
    with pytest.raises(FeatureError, match="not finite for row 12;"):
        require_features(h, 10)
