"""Lists ranked by probability times inverse propensity are those of all labels, for every classifier."""

import numpy as np
import pytest
from method_cases import CASES, N_LABELS, TEST, TRAIN, fitted

from labelfield import metrics
from labelfield.metrics.propensity import inverse_propensity_of


@pytest.mark.parametrize("rank_by", ["propensity", 0.5, 4.0])
@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_lists_are_those_of_all_labels(name, calibrated, rank_by):
    model = fitted(name)
    inverse = inverse_propensity_of(model.label_counts_, model.n_rows_)
    weight = inverse ** (1.0 if rank_by == "propensity" else rank_by)
    P = model.predictor_.separate_proba(model.rows(TEST.X), calibrated)
    for k in (1, 3, N_LABELS):
        lists = model.predict_topk(TEST.X, k, calibrated=calibrated, rank_by=rank_by)
        found = metrics.top_k(lists, k, weight)
        expected = metrics.top_k(P, k, weight)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=2e-3, atol=1e-5)
        at_labels = np.take_along_axis(P, found.labels, 1)
        np.testing.assert_allclose(found.scores, at_labels, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["mlgpf", "ensemble of mlgpf", "topics"])
def test_power_0_is_probability_and_words_are_checked(name):
    model = fitted(name)
    plain = model.predict_topk(TEST.X, 3)
    for rank_by in ("probability", 0, 0.0):
        assert (model.predict_topk(TEST.X, 3, rank_by=rank_by) != plain).nnz == 0
    for wrong in ("rare", -1, None):
        with pytest.raises(ValueError, match="rank_by="):
            model.predict_topk(TEST.X, 3, rank_by=wrong)


def test_rare_labels_come_first_with_a_high_power():
    model = fitted("mlgpf")
    lists = model.predict_topk(TEST.X, 1, rank_by=500.0)
    counts = np.bincount(TRAIN.Y.indices, minlength=N_LABELS)
    assert (counts[lists.indices] == counts.min()).all()
