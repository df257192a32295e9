"""Evidence: what is kept of held-out rows, and that arrays from anyone are checked."""

import numpy as np
import pytest
from drawn import draw
from scipy import sparse

from labelfield.decide import Evidence
from labelfield.decide.evidence import MOST_ROWS, folds

EVIDENCE = draw(150, seed=1)


def test_arrays_make_the_same_evidence():
    again = Evidence.restore(EVIDENCE.arrays(), EVIDENCE.n_labels)
    for name, array in EVIDENCE.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array)
    np.testing.assert_array_equal(again.hit, EVIDENCE.hit)


def test_folders_that_do_not_say_what_is_known_are_read():
    """Labels that were not observed came last there, with -1 for a probability."""
    arrays = EVIDENCE.arrays()
    del arrays["is_known"]
    assert Evidence.restore(arrays, EVIDENCE.n_labels).is_known.all()
    arrays["p"] = arrays["p"].copy()
    arrays["p"][:, -2:] = -1
    again = Evidence.restore(arrays, EVIDENCE.n_labels)
    np.testing.assert_array_equal(again.is_known, arrays["p"] >= 0)
    np.testing.assert_array_equal(again.hit[:, :-2], EVIDENCE.hit[:, :-2])
    assert again.outcome(0.0, 8).n_tags.max() == 6


def test_hits_are_those_of_a_loop():
    dense = EVIDENCE.truth.toarray()
    for row in range(EVIDENCE.n_rows):
        np.testing.assert_array_equal(EVIDENCE.hit[row], dense[row, EVIDENCE.labels[row]] > 0)
    for threshold, max_tags in ((0.0, 3), (0.5, 8), (0.9, 1)):
        outcome = EVIDENCE.outcome(threshold, max_tags)
        for row in range(EVIDENCE.n_rows):
            chosen = np.flatnonzero(EVIDENCE.p[row] >= np.float32(threshold))[:max_tags]
            assert outcome.n_tags[row] == chosen.size
            assert outcome.n_hits[row] == EVIDENCE.hit[row, chosen].sum()


def test_predictions_in_csr_are_evidence_too():
    rng = np.random.default_rng(2)
    P = rng.uniform(size=(120, 6)).astype(np.float32)
    Y = sparse.csr_array((rng.uniform(size=P.shape) < P).astype(np.float32))
    found = Evidence.of_scores(sparse.csr_array(P), Y)
    np.testing.assert_array_equal(found.p, -np.sort(-P, axis=1))
    np.testing.assert_array_equal(found.truth.toarray(), Y.toarray())


def test_very_many_rows_are_thinned_evenly():
    n = MOST_ROWS + 500
    labels, p = np.zeros((n, 1), np.int64), np.linspace(0, 1, n)[:, None]
    found = Evidence.of(labels, p, sparse.csr_array((n, 3), dtype=np.float32))
    assert found.n_rows == MOST_ROWS
    assert np.quantile(found.p, 0.3) == pytest.approx(0.3, abs=0.001)


def test_rows_can_be_taken():
    some = EVIDENCE.take(np.arange(40, 70))
    np.testing.assert_array_equal(some.hit, EVIDENCE.hit[40:70])
    assert some.held_out_positives().sum() == EVIDENCE.true_counts[40:70].sum()


def test_every_row_is_in_one_fold():
    for n_rows, n_folds in ((0, 0), (1, 1), (3, 3), (23, 5), (1000, 2)):
        found = list(folds(n_rows))
        assert len(found) == n_folds
        assert (sum(found, np.zeros(n_rows, np.int64)) == 1).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", EVIDENCE.labels + 12),
        ("labels", EVIDENCE.labels[:, :3]),
        ("labels", EVIDENCE.labels.astype(np.float32)),
        ("p", EVIDENCE.p + 1),
        ("is_known", EVIDENCE.is_known[:, 1:]),
        ("is_known", EVIDENCE.is_known.astype(np.int64)),
        ("p", EVIDENCE.p[:, ::-1].copy()),
        ("p", np.where(EVIDENCE.p > 2, EVIDENCE.p, np.nan)),
        ("true_counts", EVIDENCE.true_counts + 1),
        ("true_counts", EVIDENCE.true_counts[:-1]),
        ("true_labels", EVIDENCE.true_labels - 30),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(name, value):
    with pytest.raises(ValueError, match="what was said of held-out rows does not fit together"):
        Evidence.restore(EVIDENCE.arrays() | {name: value}, EVIDENCE.n_labels)


def test_rows_of_a_file_with_fewer_labels_than_the_model():
    scores = sparse.csr_array(np.array([[0.5, 0.1, 0.3, 0.2], [0.9, 0.05, 0.1, 0.02]], np.float32))
    wide, narrow = np.eye(2, 4), np.eye(2)
    for Y in (wide, narrow):
        found = Evidence.of_scores(scores, sparse.csr_array(Y))
        assert found.hit.sum(1).tolist() == [1, 1]
        assert found.labels[found.hit].tolist() == [0, 1]
