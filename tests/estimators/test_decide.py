"""Every classifier decides by what it said of rows that it had not seen."""

from pathlib import Path

import numpy as np
import pytest
from method_cases import CASES, TEST, TRAIN, draw_rows, fitted
from scipy import sparse

import labelfield
from labelfield import AutoClassifier, CannotAnswerError, LinearClassifier, MLGPFClassifier
from labelfield.decide import Evidence
from labelfield.inference.calibrating import as_memory, calibrate_mean, evidence_of, fit_stack
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.stack import Stack

FOLDERS = Path(__file__).parent
ROWS = draw_rows(1500, 3)
every = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def linear():
    return LinearClassifier(row_transform="none", cost=1.0).fit(ROWS.X, ROWS.Y)


@every
def test_every_method_has_evidence_of_rows_it_had_not_seen(name, monkeypatch):
    model = fitted(name)
    monkeypatch.setattr("labelfield.decide.evidence.LEAST_ROWS", 1)
    evidence = model.evidence_
    assert evidence is not None
    assert evidence.n_labels == 5
    decision = model.decide(TEST.X, max_tags=1)
    first = model.predict_topk(TEST.X, 1)
    np.testing.assert_array_equal(decision.tags.indices, first.indices)
    np.testing.assert_allclose(decision.tags.data, first.data, rtol=1e-5)
    assert not decision.review.any()
    for aim in ({"review_rate": 0.5}, {"f1": True}):
        decision = model.decide(TEST.X, **aim)
        assert decision.review.shape == (TEST.X.shape[0],)
        np.testing.assert_array_equal(decision.review, np.diff(decision.tags.indptr) == 0)
        if CASES[name].has_classes:
            assert np.diff(decision.tags.indptr).max() <= 1


@every
def test_a_saved_model_decides_the_same(name, tmp_path, monkeypatch):
    monkeypatch.setattr("labelfield.decide.evidence.LEAST_ROWS", 1)
    model = fitted(name)
    model.save(tmp_path / "model")
    again = labelfield.load(tmp_path / "model", device="cpu")
    for one in (model, again):
        decision = one.decide(TEST.X, review_rate=0.4)
        if one is model:
            expected = decision
    np.testing.assert_array_equal(decision.tags.toarray(), expected.tags.toarray())
    assert decision.policy.guarantee == expected.policy.guarantee
    assert decision.policy.reached == expected.policy.reached


def test_a_precision_is_kept_on_new_rows(linear):
    new = draw_rows(3000, 9)
    for precision in (0.9, 0.95):
        decision = linear.decide(new.X, precision=precision)
        hits = decision.tags.astype(bool).multiply(new.Y).sum()
        assert hits / decision.tags.nnz >= precision
        assert 0 < decision.review.mean() < 0.9
        np.testing.assert_array_equal(linear.policy(precision=precision).threshold, decision.policy.threshold)


def test_machines_of_few_rows_know_all_of_them(linear):
    assert linear.evidence_.n_rows == 1500


def test_few_held_out_rows_are_refused():
    with pytest.raises(CannotAnswerError, match="32 rows were held out in training, and a promise needs at least 100"):
        fitted("mlgpf").decide(TEST.X, precision=0.5)


def test_a_model_without_calibration_says_so():
    model = LinearClassifier(row_transform="none", cost=1.0, calibrate=False).fit(TRAIN.X, TRAIN.Y)
    assert model.evidence_ is None
    said = "no promise can be made: the model was trained with calibrate=False, and no rows were held out. Train it"
    for ask in (model.decide, model.policy):
        with pytest.raises(CannotAnswerError, match=said):
            ask(TEST.X) if ask == model.decide else ask()
    auto = AutoClassifier(quality="fast", calibrate=False).fit(TRAIN.X, TRAIN.Y)
    with pytest.raises(CannotAnswerError, match="calibrate=False"):
        auto.decide(TEST.X, precision=0.9)


def test_a_model_of_very_few_rows_says_so():
    model = MLGPFClassifier(n_latent=2, n_inducing=4, max_epochs=3).fit(TEST.X, TEST.Y)
    with pytest.raises(CannotAnswerError, match=r"trained on 30 rows .* and none were held out. Train it on more rows"):
        model.decide(TEST.X)


def test_a_model_that_was_trained_further_says_so():
    model = MLGPFClassifier(n_latent=2, n_inducing=4, max_epochs=3).fit(TRAIN.X, TRAIN.Y)
    model.partial_fit(TEST.X, TEST.Y)
    with pytest.raises(
        CannotAnswerError, match=r"trained with partial_fit, which holds out no rows. Train it with fit"
    ):
        model.decide(TEST.X)


@pytest.mark.parametrize("folder", ["folders-4/mlgpf", "folders-4/mlgpf-ensemble", "folders-5/auto"])
def test_a_folder_of_an_earlier_layout_says_that_it_must_be_trained_again(folder, tmp_path):
    model = labelfield.load(FOLDERS / folder, device="cpu")
    model.save(tmp_path / "again")
    for one in (model, labelfield.load(tmp_path / "again", device="cpu")):
        with pytest.raises(CannotAnswerError, match=r"an earlier labelfield wrote it. Train the model again"):
            one.decide(np.zeros((1, one.n_features_in_), np.float32))


def test_a_damaged_folder_is_refused(linear, tmp_path, monkeypatch):
    arrays = linear.evidence_.arrays()
    monkeypatch.setattr(Evidence, "arrays", lambda self: arrays | {"p": arrays["p"] + 1})
    linear.save(tmp_path / "model")
    monkeypatch.undo()
    with pytest.raises(labelfield.LabelfieldError, match="what was said of held-out rows does not fit together"):
        labelfield.load(tmp_path / "model")


def test_classes_get_one_tag():
    model = fitted("softmax")
    with pytest.raises(ValueError, match="with one class per row there is one tag at the most"):
        model.decide(TEST.X, max_tags=2)


def said_of(n_rows, seed):
    """Raw probabilities of ten labels, and labels."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(0.01, 0.99, (n_rows, 10)).astype(np.float32)
    return P, sparse.csr_array((rng.uniform(size=P.shape) < P**2).astype(np.float32))


def remember_rows(P, Y):
    """What a member remembers of all labels."""
    labels = np.argsort(-P, axis=1)
    return as_memory(labels, np.take_along_axis(P, labels, 1), Y)


def without_row(Y, row):
    """Other labels of one row."""
    changed = Y.tolil()
    changed[row] = 1 - Y[[row]].toarray()
    return sparse.csr_array(changed)


@pytest.mark.parametrize("kind", ["mean", "stack"])
def test_what_is_said_of_a_row_does_not_depend_on_its_own_labels(kind):
    """Maps of probabilities are learned on other rows: cross-fitting."""
    P, Y = said_of(200, 0)
    found = []
    for own in (Y, without_row(Y, 7)):
        memories = [remember_rows(P, own), remember_rows(P[:, ::-1].copy(), own)]
        if kind == "mean":
            memory = calibrate_mean(Calibration(), memories, 10)
        else:
            stack = Stack(2, 10)
            stack.count(np.full(10, 50))
            memory = fit_stack(stack, Calibration(), memories, 10)[1]
        found.append(evidence_of(memory, 10))
    # Maps are found to a tolerance, from a start that all rows have a part in.
    np.testing.assert_allclose(found[0].p[7], found[1].p[7], rtol=1e-6)
    np.testing.assert_array_equal(found[0].labels[7], found[1].labels[7])
    assert not np.allclose(found[0].p[8], found[1].p[8], rtol=1e-4)  # of another turn, in which row 7 takes part


def test_classes_are_cross_fitted_too():
    P, _ = said_of(100, 1)
    P /= P.sum(1, keepdims=True)
    classes = np.random.default_rng(2).integers(0, 10, 100)
    found = []
    for own in (classes, np.where(np.arange(100) == 3, 9 - classes, classes)):
        Y = sparse.csr_array(np.eye(10, dtype=np.float32)[own])
        found.append(evidence_of(calibrate_mean(Temperature(), [remember_rows(P, Y)], 10), 10))
    np.testing.assert_array_equal(found[0].p[3], found[1].p[3])
    assert (found[0].p[4] != found[1].p[4]).any()
