"""Probabilities of topics are calibrated on rows that then join the training."""

import copy
import pickle
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy import sparse

import labelfield
from labelfield import TopicClassifier, metrics, synth
from labelfield.inference.run import Settings
from labelfield.inference.signals import Interrupted
from labelfield.models import artifact
from labelfield.models.artifact import ModelError

ALGORITHMS = ("em", "online_em", "gibbs")
# The sampler takes its time where it is run anew.
RUN_ANEW = ("em", "online_em", pytest.param("gibbs", marks=pytest.mark.slow))
N_ROWS = 500
HELD_OUT = Settings(held_out=N_ROWS // 10).held_out_rows(N_ROWS)


@pytest.fixture(scope="module")
def data():
    """More features than rows tell apart: estimates of their weights are off."""
    return synth.make_topics(N_ROWS + 500, 200, 12, 4, seed=3).split(0.5)


@pytest.fixture(scope="module")
def many():
    """Of which a tenth says a good deal."""
    return synth.make_topics(2000, 200, 12, 6, seed=4, labels_per_row=5).split(0.4)


def small(**options):
    sizes = {"n_topics": 4, "max_epochs": 12, "batch_size": 150, "n_draws": 3, "weight_scale": 20.0}
    return TopicClassifier(**sizes | {"device": "cpu"} | options)


@pytest.fixture(autouse=True, scope="module")
def brief():
    with patch("labelfield.inference.topics._EM_BEFORE_GIBBS", 3):
        yield


@pytest.fixture(scope="module")
def models(data):
    return {name: small(algorithm=name).fit(data.X, data.Y) for name in ALGORITHMS}


def first_classes(Y):
    return np.array([row[0] if len(row) else 0 for row in np.split(Y.indices, Y.indptr[1:-1])]) % 3


@pytest.fixture(scope="module")
def classes(data):
    return small(n_topics=3).fit(data.X, np.array(["ant", "bee", "cat"])[first_classes(data.Y)])


def arrays(model):
    return {name: value.numpy().copy() for name, value in model.model_.state_dict().items()}


def calibration_arrays(model):
    return {name: value for name, value in arrays(model).items() if name.startswith("calibration.")}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("algorithm", RUN_ANEW)
def test_probabilities_fit_rows_that_were_never_seen(algorithm, many):
    epochs = 40 if algorithm == "em" else 12
    model, test = small(algorithm=algorithm, n_topics=6, max_epochs=epochs).fit(many.X, many.Y), many.test
    errors = [metrics.ece_at_k(test.Y, model.predict_topk(test.X, 1, calibrated=c), k=1) for c in (True, False)]
    assert errors[0] < 0.6 * errors[1]
    losses = [metrics.log_loss(test.Y, model.predict_proba(test.X, calibrated=c)) for c in (True, False)]
    assert losses[0] < losses[1]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_ranking_stays_and_raw_probabilities_are_the_closed_form(algorithm, models, data):
    model, X = models[algorithm], data.test.X
    raw, mapped = (model.predict_proba(X, calibrated=c).astype(np.float64) for c in (False, True))
    exact = np.zeros_like(raw)
    rows = model.rows(X).toarray().astype(np.float64)
    for V, W, r in zip(model.model_.V, model.model_.W, model.model_.r, strict=True):
        odds = np.exp(rows @ W[:-1].double().numpy() + W[-1].double().numpy())
        each = np.log1p(odds[:, None, :] * V.double().numpy()[None]) @ r.double().numpy()
        exact[:, model.model_.labels.numpy()] -= np.expm1(-each) / len(model.model_.r)
    np.testing.assert_allclose(raw, exact, rtol=2e-4, atol=1e-6)
    assert np.abs(raw - mapped).max() > 0.02
    order = np.argsort(-raw, axis=1, kind="stable")
    assert (np.diff(np.take_along_axis(mapped, order, 1), axis=1) <= 1e-6).all()
    best = (model.predict_topk(X, 3, calibrated=c).indices.reshape(-1, 3) for c in (False, True))
    assert np.mean(np.equal(*map(np.sort, best))) > 0.999  # but for ties


def test_classes_sum_to_one_and_keep_their_order(classes, data):
    raw, mapped = (classes.predict_proba(data.test.X, calibrated=c) for c in (False, True))
    assert classes.spec_.is_exclusive
    assert float(classes.model_.calibration.power) < 0.95  # they were too sure
    np.testing.assert_allclose(mapped.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(raw.argmax(1), mapped.argmax(1))
    truth = first_classes(data.test.Y)
    losses = [-np.log(np.maximum(P[np.arange(len(truth)), truth], 1e-30)).mean() for P in (raw, mapped)]
    assert losses[1] < losses[0]


def test_when_nothing_is_calibrated(data):
    few = data.take(slice(0, 299))
    for model in (
        small(calibrate=False).fit(data.X, data.Y),
        small().fit(few.X, few.Y),
        small(max_epochs=2).fit(data.X, data.Y),
        small().partial_fit(data.X, data.Y),
    ):
        assert model.model_.calibration.is_identity()
        np.testing.assert_array_equal(model.predict_proba(few.X), model.predict_proba(few.X, calibrated=False))


@pytest.mark.parametrize("algorithm", RUN_ANEW)
def test_rows_are_held_out_until_they_calibrate_and_then_join(algorithm, data):
    """What held-out rows say does not show in the first part, and does in the last."""
    Y = np.c_[data.Y.toarray(), np.zeros(N_ROWS)]
    Y[HELD_OUT, -1] = 1  # a label of these rows alone
    other = Y.copy()
    other[HELD_OUT, 0] = 1 - other[HELD_OUT, 0]
    one, two = (small(algorithm=algorithm, tol=0.0).fit(data.X, labels) for labels in (Y, other))
    n_last = {"em": 4, "online_em": 4, "gibbs": 6}[algorithm]
    assert one.settings_.finishing_epochs == n_last
    bounds, others = (np.array([epoch["bound"] for epoch in model.history_]) for model in (one, two))
    assert len(bounds) == 12
    np.testing.assert_array_equal(bounds[:-n_last], others[:-n_last])
    assert (bounds[-n_last:] != others[-n_last:]).all()
    # As often as the label holds, so much weight it has.
    weight = (one.model_.V.mean(0) * one.model_.share).sum(1).numpy()
    assert weight[-1] > 0.3 * len(HELD_OUT) / Y.sum()


def test_the_bound_of_each_part_rises(data):
    model = small(learn_hyper=False, tol=0.0).fit(data.X, data.Y)
    bounds = np.array([epoch["bound"] for epoch in model.history_])
    for part in (bounds[:8], bounds[8:]):
        assert (np.diff(part) > -1e-6 * np.abs(part[1:])).all()


class TestMissing:
    @pytest.fixture(scope="class")
    @classmethod
    def hidden(cls, data):
        return np.random.default_rng(1).random(data.Y.shape) < 0.4

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_what_was_not_observed_calibrates_nothing(self, algorithm, data, hidden):
        found = []
        for value in (0, 1):
            Y = np.where(hidden, value, data.Y.toarray())
            found.append(small(algorithm=algorithm, max_epochs=4).fit(data.X, Y, missing=hidden))
        a, b = found
        assert_same(arrays(a), arrays(b))
        assert not a.model_.calibration.is_identity()

    def test_a_positive_that_is_missing_is_no_negative(self, data):
        """Where half of the entries are hidden and said to be, probabilities stay as high as they were."""
        Y = data.Y.toarray()
        hidden = np.random.default_rng(2).random(Y.shape) < 0.5
        told, untold = small().fit(data.X, Y, missing=hidden), small().fit(data.X, np.where(hidden, 0, Y))
        means = [model.predict_topk(data.test.X, 5).data.mean() for model in (told, untold)]
        assert means[0] > 1.5 * means[1]

    def test_rows_of_which_nothing_was_observed(self, data):
        observed = np.ones(data.Y.shape, bool)
        observed[HELD_OUT] = False
        model = small().fit(data.X, data.Y, observed=observed)
        assert model.model_.calibration.is_identity()
        y = data.Y.toarray()
        rows = np.flatnonzero(y.sum(1) > 0)
        held = Settings(held_out=len(rows) // 10).held_out_rows(len(rows))
        single = np.zeros((len(rows), 3))
        single[np.arange(len(rows)), first_classes(data.Y[rows])] = 1
        seen = np.ones(single.shape, bool)
        seen[held] = False
        assert small(n_topics=3).fit(data.X[rows], single, observed=seen).model_.calibration.is_identity()


class TestSaving:
    def test_a_saved_model_answers_the_same(self, models, classes, data, tmp_path):
        for name, model in (models | {"classes": classes}).items():
            model.save(tmp_path / name)
            again = labelfield.load(tmp_path / name, device="cpu")
            assert_same(arrays(model), arrays(again))
            np.testing.assert_array_equal(again.predict_proba(data.X), model.predict_proba(data.X))
            assert pickle.loads(pickle.dumps(model)).predict_topk(data.X, 2).data.sum() == pytest.approx(
                model.predict_topk(data.X, 2).data.sum()
            )

    @pytest.mark.parametrize("kind", ["several", "one"])
    def test_a_folder_from_before_there_was_a_map(self, kind, models, classes, data, tmp_path):
        model = models["gibbs"] if kind == "several" else classes
        model.save(tmp_path / "m")
        config, tensors, names = artifact.load_artifact(tmp_path / "m")
        config = copy.deepcopy(config) | {"version": 4}
        del config["options"]["calibrate"], config["spec"]["is_exclusive"]
        older = {name: value for name, value in tensors.items() if not name.startswith("calibration.")}
        assert len(older) < len(tensors)
        with patch("labelfield.estimators.persistence.load_artifact", lambda path: (config, older, names)):
            again = labelfield.load("older", device="cpu")
        raw = model.predict_proba(data.X, calibrated=False)
        np.testing.assert_allclose(again.predict_proba(data.X), raw, rtol=1e-5)
        again.save(tmp_path / "again")
        again = labelfield.load(tmp_path / "again")
        np.testing.assert_allclose(again.predict_proba(data.X), raw, rtol=1e-5)

    def test_damaged_maps(self, models, classes, tmp_path):
        made = models["em"]
        for model, name in ((made, "slopes"), (made, "offsets"), (made, "lead"), (classes, "power")):
            model.save(tmp_path / name)
            config, tensors, names = artifact.load_artifact(tmp_path / name)
            key = f"calibration.{name}"
            wrong = -tensors[key].abs() - 1 if name != "offsets" else tensors[key].flip(0)
            for changed in (wrong, tensors[key][:0], tensors[key] * float("nan"), tensors[key].double()):
                broken = (config, tensors | {key: changed}, names)
                with (
                    patch("labelfield.estimators.persistence.load_artifact", lambda path, broken=broken: broken),
                    pytest.raises(ModelError),
                ):
                    labelfield.load("model")


@pytest.mark.parametrize("algorithm", RUN_ANEW)
def test_a_run_can_be_interrupted_in_either_part(algorithm, data, tmp_path, interrupt_after):
    def make(**options):
        return small(algorithm=algorithm, max_epochs=6, tol=0.0, **options)

    counts = []
    whole = make().fit(data.X, data.Y, on_step=lambda run, n_steps: counts.append((run.epoch, run.is_calibrated)))
    joined = [is_calibrated for _, is_calibrated in counts].index(True)
    for after in (joined - 1, joined, joined + 1):
        path = tmp_path / f"{after}"
        with pytest.raises(Interrupted):
            make().fit(data.X, data.Y, checkpoint=path, on_step=interrupt_after(after))
        resumed = make().fit(data.X, data.Y, checkpoint=path, resume=True)
        assert_same(arrays(resumed), arrays(whole))
        assert resumed.n_iter_ == 6
    with pytest.raises(labelfield.DataError, match="another held_out"):
        make(calibrate=False).fit(data.X, data.Y, checkpoint=path, resume=True)


def test_a_time_budget_that_ends_in_the_first_part_still_calibrates(data):
    model = small(time_budget=1e-6).fit(data.X, data.Y)
    assert model.n_iter_ == 1
    assert calibration_arrays(model).keys() == {
        f"calibration.{name}" for name in ("knots", "slopes", "offsets", "lead")
    }
    assert not model.model_.calibration.is_identity()


def test_partial_fit_keeps_the_map(models, data):
    for fitted in models.values():
        model, before = pickle.loads(pickle.dumps(fitted)), calibration_arrays(fitted)
        model.partial_fit(data.test.X, data.test.Y)
        assert_same(calibration_arrays(model), before)
        again = pickle.loads(pickle.dumps(model)).partial_fit(data.X, data.Y)
        assert_same(calibration_arrays(again), before)


def test_rows_beyond_what_calibrating_may_take_are_left_out(data, monkeypatch):
    wide = sparse.csr_array((data.Y.data, data.Y.indices, data.Y.indptr), shape=(N_ROWS, 1000))
    monkeypatch.setattr("labelfield.inference.topics._CALIBRATED_ENTRIES", 20_000)
    seen = []

    def fit(self, p, is_true, is_known=None):
        seen.append(p.shape)

    with patch("labelfield.models.calibration.Calibration.fit", fit):
        small(max_epochs=3).fit(data.X, wide)
    assert seen[0] == (20, 20)
    assert max(shape[0] for shape in seen) == 20
    assert min(shape[0] for shape in seen) < 20  # in turns, for evidence
    assert torch.is_grad_enabled()
