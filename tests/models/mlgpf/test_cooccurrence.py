"""The features that occur with a label, counted in blocks of any size."""

import numpy as np
import pytest
from scipy import sparse

from labelfield import synth
from labelfield.models.mlgpf.cooccurrence import occurring_features


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(120, 60, 40, seed=1)


def test_the_pattern_is_what_occurs_together(data):
    pointers, features, waiting = occurring_features(data.X, data.Y, 10**6)

    together = sparse.csr_array(data.Y.T @ (data.X != 0).astype(np.float32))
    together.sort_indices()
    np.testing.assert_array_equal(pointers, together.indptr)
    np.testing.assert_array_equal(features, together.indices)
    assert not waiting.any()
    pointers, features, _ = occurring_features(data.X, data.Y, 3)
    assert np.diff(pointers).max() == 3
    counts = together.toarray()
    for k in range(40):
        kept = counts[k, features[pointers[k] : pointers[k + 1]]]
        assert np.sort(counts[k])[::-1][: kept.size].sum() == kept.sum()


def test_blocks_of_the_pattern_change_nothing(data, monkeypatch):
    whole = occurring_features(data.X, data.Y, 10**6)
    for limit, value in (("_BLOCK_ENTRIES", 50), ("_BLOCK_PAIRS", 130)):
        monkeypatch.setattr(f"labelfield.models.mlgpf.cooccurrence.{limit}", value)
        for a, b in zip(whole, occurring_features(data.X, data.Y, 10**6), strict=True):
            np.testing.assert_array_equal(a, b)
