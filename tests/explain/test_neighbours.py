"""Labels that go together, according to a model."""

from unittest.mock import patch

import numpy as np
import pytest

from labelfield.explain import label_neighbours


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
