"""AutoClassifier: its members by quality, the rows they share, and that a mix is as good as the better of them."""

from functools import cache

import method_cases
import numpy as np
import pytest
import torch
from method_cases import MIXES, TEST, TRAIN
from scipy.special import expit
from sklearn.base import clone

import labelfield
from labelfield import AutoClassifier, CannotAnswerError, metrics
from labelfield.estimators.classifier import training_bytes
from labelfield.explain import explain_row
from labelfield.inference import audition
from labelfield.inference.signals import Interrupted
from labelfield.models.mlgpf.plan import companion, plan
from labelfield.models.stack import log_odds_of
from labelfield.report import make_page

OTHERS = {"auto, classes": AutoClassifier(), "auto, best": AutoClassifier(quality="best")}
every = pytest.mark.parametrize("name", [*MIXES, *OTHERS])


@cache
def fitted(name):
    if name not in OTHERS:
        return method_cases.fitted(name)
    return clone(OTHERS[name]).fit(TRAIN.X, TRAIN.y if "classes" in name else TRAIN.Y)


@pytest.mark.parametrize(
    ("name", "methods"),
    [("auto", ["linear", "mlgpf"]), ("auto, fast", ["linear"]), ("auto, best", ["linear", "mlgpf", "mlgpf"])],
)
def test_members_by_quality(name, methods):
    model = fitted(name)
    assert [member.method for member in model.members()] == methods
    assert [epoch["stage"] for epoch in model.history_] == [
        member.method for member in model.members() for _ in member.history_
    ]
    assert np.all(np.diff([epoch["seconds"] for epoch in model.history_]) >= 0)
    chosen, *others = model.trials_
    assert others == sorted(others, key=lambda trial: -trial["score"])
    assert (model.members()[0].row_transform_.name == chosen["row_transform"]) or name == "auto, best"
    assert all(method in model.summary() for method in methods)


@pytest.mark.parametrize(("quality", "methods"), [("good", ["linear"]), ("best", ["linear", "mlgpf", "mlgpf"])])
def test_very_many_labels_get_machines_alone_unless_the_best_is_asked_for(quality, methods, monkeypatch):
    monkeypatch.setattr("labelfield.estimators.auto.ALL_LABELS", TRAIN.Y.shape[1] - 1)
    model = AutoClassifier(quality=quality)
    model.prepare(TRAIN.X, TRAIN.Y)
    assert [member.method for member in model.members()] == methods


def test_a_factor_model_that_adds_nothing_is_left_out_halfway(monkeypatch, tmp_path):
    monkeypatch.setattr(audition, "_LARGE", 1)
    monkeypatch.setattr(audition, "_LEAST_GAIN", 100.0)
    alone = AutoClassifier().fit(TRAIN.X, TRAIN.Y)
    monkeypatch.setattr(audition, "_LEAST_GAIN", -100.0)
    kept = AutoClassifier().fit(TRAIN.X, TRAIN.Y)
    assert [member.method for member in kept.members()] == ["linear", "mlgpf"]
    # To be asked changes nothing about what is learned.
    np.testing.assert_array_equal(kept.predict_proba(TEST.X), fitted("auto").predict_proba(TEST.X))
    assert [member.method for member in alone.members()] == ["linear"]
    assert alone.spec_.n_members == 1
    assert set(alone.members()[0].held_out_scores_) == {"alone", "together"}
    np.testing.assert_array_equal(alone.predict_proba(TEST.X), fitted("auto, fast").predict_proba(TEST.X))
    alone.save(tmp_path / "alone")
    loaded = labelfield.load(tmp_path / "alone")
    np.testing.assert_array_equal(loaded.predict_proba(TEST.X), alone.predict_proba(TEST.X))
    assert loaded.members()[0].held_out_scores_ == alone.members()[0].held_out_scores_
    # Intervals are those that held-out rows support, of any members.
    low, high = alone.predict_interval(TEST.X)
    assert (low <= high).all()


def test_a_factor_model_sees_rows_as_the_machines_do():
    data = labelfield.synth.make_multilabel(320, 1100, 6, seed=0)
    model = AutoClassifier()
    model.prepare(data.X, data.Y)
    assert len({member.row_transform_.name for member in model.members()}) == 1


@pytest.mark.parametrize(("n_rows", "n_held_out"), [(320, 64), (6000, 1000), (11_000, 1100)])
def test_a_thousand_rows_are_held_out_unless_they_are_more_than_a_fifth(n_rows, n_held_out):
    data = labelfield.synth.make_multilabel(n_rows, 30, 4, seed=0)
    model = AutoClassifier(quality="fast")
    model.prepare(data.X, data.Y)
    assert {member.settings_.held_out for member in model.members()} == {n_held_out}


def test_best_sees_words_in_several_ways():
    data = labelfield.synth.make_multilabel(320, 1100, 6, seed=0)
    model = AutoClassifier(quality="best")
    model.prepare(data.X, data.Y)
    first, *factors = model.members()
    assert len(first.row_transform_.views) > 1
    assert len({member.row_transform_.name for member in factors}) == 2
    measured = fitted("auto, best")  # whose transforms cannot all be joined
    assert measured.members()[0].row_transform_.name == measured.trials_[0]["row_transform"]


@every
def test_all_members_hold_out_the_same_rows_and_transform_rows_themselves(name):
    model = fitted(name)
    held_out = [member.settings_.held_out_rows(320) for member in model.members()]
    assert all(np.array_equal(rows, held_out[0]) for rows in held_out)
    assert model.row_transform_.name == "none"
    assert {member.n_features_in_ for member in model.members()} == {model.n_features_in_}


@every
def test_probabilities_are_what_the_stack_makes_of_those_of_members(name):
    model = fitted(name)
    found = [
        torch.from_numpy(member.predictor_.separate_proba(member.rows(TEST.X), False)) for member in model.members()
    ]
    expected = model.model_.stack([log_odds_of(P) for P in found]).sigmoid().numpy()
    np.testing.assert_array_equal(model.predictor_.separate_proba(model.rows(TEST.X), False), expected)


def test_a_mix_is_as_good_as_the_better_member():
    data = labelfield.synth.make_multilabel(900, 120, 30, seed=0).split(1 / 3)
    model = AutoClassifier().fit(data.X, data.Y)

    def score(one):
        return metrics.evaluate(data.test.Y, one.predict_topk(data.test.X, 5))

    whole, alone = score(model), [score(member) for member in model.members()]
    assert whole["nDCG@5"] > max(one["nDCG@5"] for one in alone) - 1.5
    assert metrics.ece_at_k(data.test.Y, model.predict_topk(data.test.X, 5), 5) < 0.08


def test_few_rows_are_mixed_in_equal_parts():
    """Nothing is held out, and so nothing is known about who is right."""
    model = AutoClassifier().fit(TEST.X, TEST.Y)
    assert (model.model_.stack.slopes == 0.5).all()
    assert [member.held_out_scores_ for member in model.members()] == [{}, {}]
    odds = [logits(member, TEST.X) for member in model.members()]
    np.testing.assert_allclose(model.predict_proba(TEST.X), expit(np.mean(odds, axis=0)), atol=1e-4)


def logits(member, X):
    return log_odds_of(torch.from_numpy(member.predict_proba(X, calibrated=False))).numpy()


class TestAnswers:
    @every
    def test_no_utilities_and_no_bound(self, name):
        model = fitted(name)
        with pytest.raises(CannotAnswerError, match=r"members\(\)"):
            model.predict_latent(TEST.X)
        with pytest.raises(CannotAnswerError, match=r"members\(\)"):
            model.bound(TEST.X, TEST.y if "classes" in name else TEST.Y)
        with pytest.raises(CannotAnswerError, match="cannot be fitted in parts"):
            model.partial_fit(TEST.X, TEST.Y)

    @pytest.mark.parametrize("name", ["auto", "auto, classes", "linear", "linear, classes"])
    def test_explanations_and_pages(self, name, monkeypatch):
        monkeypatch.setattr("labelfield.report.plots.to_svg", lambda figure, name, label: f"<svg>{name}</svg>")
        model = fitted(name)
        found = explain_row(model, TEST.X[:1], k=2, n_features=3)
        assert len(found.labels) == 2
        P = model.predictor_.separate_proba(model.rows(TEST.X[:1]))[0]
        assert [label.probability for label in found.labels] == pytest.approx(np.sort(P)[:-3:-1].tolist(), rel=1e-4)
        assert all(label.features for label in found.labels)
        labels = model.encode(TEST.y, TEST.X.shape[0]) if "classes" in name else TEST.Y
        page = make_page(model, TEST.X, labels, title="a page")
        assert "a page" in page


class TestRuns:
    @pytest.mark.parametrize("stop_after", [1, 4])
    def test_an_interrupted_mix_ends_in_the_same_bits(self, stop_after, tmp_path, interrupt_after):
        path = tmp_path / "checkpoint.safetensors"
        with pytest.raises(Interrupted):
            AutoClassifier().fit(TRAIN.X, TRAIN.Y, checkpoint=path, on_step=interrupt_after(stop_after))
        resumed = AutoClassifier().fit(TRAIN.X, TRAIN.Y, checkpoint=path, resume=True)
        np.testing.assert_array_equal(resumed.predict_proba(TEST.X), fitted("auto").predict_proba(TEST.X))
        assert resumed.model_.stack.slopes.tolist() == fitted("auto").model_.stack.slopes.tolist()

    def test_time_is_shared_and_kept_to(self):
        model = AutoClassifier(time_budget=2.0)
        model.prepare(TRAIN.X, TRAIN.Y)
        left = sum(member.settings_.time_budget for member in model.members())
        spent = sum(trial["seconds"] for trial in model.trials_)
        assert 0 < left <= max(2.0 - 0.9 * spent, 1.3)  # a first trial is made in any case
        whole, tiny = (AutoClassifier(time_budget=budget) for budget in (None, 1e-6))
        expected = [one.training_cost(one.prepare(TRAIN.X, TRAIN.Y)).seconds for one in (tiny, whole)]
        assert 0 < expected[0] < expected[1]  # every label gets two passes in any case
        short = AutoClassifier(time_budget=1e-3).fit(TRAIN.X, TRAIN.Y)
        assert len(short.members()[1].history_) < len(fitted("auto").members()[1].history_)
        assert (short.members()[0].model_.pointers.diff() > 0).all()

    def test_memory_is_that_of_the_largest_member(self):
        model = AutoClassifier()
        model.prepare(TRAIN.X, TRAIN.Y)
        machines, factor = model.members()
        assert training_bytes(model) == training_bytes(factor) > training_bytes(machines)
        machines.fitted_.n_rows = 10**6
        assert training_bytes(model) == training_bytes(machines) > training_bytes(factor)

    def test_a_folder_knows_the_time_of_the_whole(self, tmp_path):
        model = AutoClassifier(time_budget=1.0, quality="fast").fit(TRAIN.X, TRAIN.Y)
        model.save(tmp_path / "m")
        assert labelfield.load(tmp_path / "m", device="cpu").settings_ == model.settings_
        assert model.settings_.time_budget == 1.0

    def test_options_reach_the_members(self):
        model = clone(AutoClassifier(random_state=7, calibrate=False, threshold=0.2)).fit(TRAIN.X, TRAIN.Y)
        for member in model.members():
            assert (member.settings_.seed, member.settings_.held_out) == (7, 0)
        P = model.predict_proba(TEST.X)
        np.testing.assert_array_equal(model.predict(TEST.X).toarray(), P >= 0.2)


@pytest.mark.parametrize(
    "size", [(15449, 5000, 3956), (4880, 1836, 159), (391, 72, 6), (1, 1, 1), (800_000, 40_000, 103)]
)
def test_a_companion_is_no_larger_than_the_full_model(size):
    full, beside = plan(*size), companion(*size)
    if size[1] < 1000:
        assert beside == {}  # with few features it is the full model
        return
    assert beside["max_epochs"] <= max(full.max_epochs, 3)
    assert beside["learning_rate"] > 0
    assert beside["n_latent"] <= full.n_latent
    assert beside["n_inducing"] <= full.n_inducing
    assert beside["batch_size"] <= max(size[0], 1)


def test_columns_of_measurements_are_scaled_and_processes_start_at_typical_lengths():
    """A column of large numbers that say nothing must not hide small ones that tell the label."""
    rng = np.random.default_rng(0)
    X = np.c_[1000 * rng.random((240, 3)), rng.normal(size=(240, 2))].astype(np.float32)
    Y = np.c_[X[:, 3] > 0, X[:, 4] > 0, X[:, 3] < 0].astype(int)
    mix = AutoClassifier(random_state=0).fit(X[:160], Y[:160])
    assert mix.members()[0].row_transform_.name == "scaled"
    best = np.asarray(mix.predict_proba(X[160:])).argmax(1)
    assert np.mean(Y[160:][np.arange(80), best]) > 0.8
