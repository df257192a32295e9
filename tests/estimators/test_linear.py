"""LinearClassifier: what it chooses, how good and how calibrated it is, and that every run can go on."""

import numpy as np
import pytest
import torch
from method_cases import CASES, TEST, TRAIN, fitted
from scipy import sparse
from sklearn.base import clone
from sklearn.svm import LinearSVC

import labelfield
from labelfield import CannotAnswerError, LinearClassifier, metrics, synth
from labelfield.data.transform import RowTransform, candidate_transforms
from labelfield.inference.signals import Interrupted
from labelfield.inference.trials import choose_machine
from labelfield.models.linear.plan import COSTS


@pytest.fixture(scope="module")
def words():
    """Rows as wide as words are many, with labels that a few words decide."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(sparse.random(1600, 1200, 0.03, format="csr", rng=0, dtype=np.float32))
    W = sparse.random(1200, 40, 0.05, format="csr", rng=1)
    scores = (X @ W).toarray() + 0.15 * rng.normal(size=(1600, 40))
    Y = sparse.csr_array((scores > np.quantile(scores, 0.95, axis=0)).astype(np.float32))
    return labelfield.Dataset(X, Y).split(0.25)


@pytest.fixture(scope="module")
def model(words):
    return LinearClassifier().fit(words.X, words.Y)


class TestChoices:
    def test_they_are_those_of_a_comparison_on_held_out_rows(self, words, model):
        rows = model.settings_.held_out_rows(words.n_rows)
        names = candidate_transforms(words.X)
        expected = choose_machine(words.X, words.Y, names, COSTS, rows, 0, torch.device("cpu"))
        found = [(trial["row_transform"], trial["cost"], trial["score"]) for trial in model.trials_]
        assert found == [(trial.row_transform, trial.cost, pytest.approx(trial.score)) for trial in expected]
        assert {trial.row_transform for trial in expected if trial.cost == COSTS[0]} == set(names)
        assert (model.row_transform_.name, model.spec_.cost) == found[0][:2]

    def test_what_is_given_is_not_tried(self, words):
        given = LinearClassifier(row_transform="log", cost=0.5)
        given.prepare(words.X, words.Y)
        assert (given.trials_, given.row_transform_.name, given.spec_.cost) == ([], "log", 0.5)
        half = LinearClassifier(row_transform="log")
        half.prepare(words.X, words.Y)
        assert {trial["row_transform"] for trial in half.trials_} == {"log"}
        assert {1.0, 0.3, 3.0} <= {trial["cost"] for trial in half.trials_} <= set(COSTS)

    def test_trials_are_part_of_a_time_budget(self, words):
        """One candidate is tried whatever the budget, and what is left of it is for the machines."""
        hasty, calm = LinearClassifier(time_budget=1e-6), LinearClassifier(time_budget=1000.0)
        for one in (hasty, calm):
            one.prepare(words.X, words.Y)
        assert len(hasty.trials_) == 1
        assert len(calm.trials_) > 3
        assert 990 < calm.settings_.time_budget < 1000 - 0.9 * sum(trial["seconds"] for trial in calm.trials_)

    def test_few_rows_or_no_calibration_try_nothing(self):
        for options, rows in (({"calibrate": False}, TRAIN), ({}, TEST)):
            one = LinearClassifier(**options).fit(rows.X, rows.Y)
            assert one.trials_ == []
            assert (one.settings_.held_out == 0) == (not one.calibrate)
            assert one.model_.calibration.is_identity() == (not one.calibrate)

    def test_few_rows_are_enough_for_probabilities(self):
        rows = synth.make_multilabel(460, 30, 8, seed=1)
        few, others = rows.take(slice(60)), rows.take(slice(60, None))
        loss = {}
        for calibrate in (False, True):
            P = LinearClassifier(calibrate=calibrate, device="cpu").fit(few.X, few.Y).predict_proba(others.X)
            loss[calibrate] = metrics.log_loss(others.Y, P)
        assert loss[True] < 0.8 * loss[False]
        # The loss of frequencies alone: a few rows tell more than that.
        popular = np.broadcast_to(few.Y.toarray().mean(0), others.Y.shape)
        assert loss[True] < metrics.log_loss(others.Y, np.clip(popular, 0.02, 0.98))


class TestQuality:
    def test_rankings_are_as_good_as_those_of_scikit_learn(self, words, model):
        """Against one L2-loss machine per label with an intercept, at the same cost and on the same rows."""
        transform = RowTransform.fit(model.row_transform_.name, words.X)
        X, Z, Y = transform(words.X), transform(words.test.X), words.Y.toarray()
        machines = [LinearSVC(C=model.spec_.cost, dual=True).fit(X, y) for y in Y.T if y.any()]
        scores = np.stack([machine.decision_function(Z) for machine in machines], 1)
        theirs = metrics.evaluate(words.test.Y[:, Y.any(0)], scores - scores.min() + 1)
        ours = metrics.evaluate(words.test.Y, model.predict_topk(words.test.X, 5))
        assert ours["P@1"] > theirs["P@1"] - 2
        assert ours["P@5"] > theirs["P@5"] - 1
        assert (
            ours["P@1"] > metrics.evaluate(words.test.Y, metrics.popularity(words.Y, words.test.n_rows, 5))["P@1"] + 30
        )

    def test_probabilities_are_calibrated(self, words, model):
        for calibrated in (True, False):  # the log-odds are learned too
            assert metrics.ece_at_k(words.test.Y, model.predict_topk(words.test.X, 5, calibrated=calibrated), 5) < 0.05
        P = model.predict_proba(words.test.X)
        assert P.sum() == pytest.approx(words.test.Y.sum(), rel=0.15)

    def test_the_plain_solver_says_the_same(self, words, model, monkeypatch):
        monkeypatch.setattr("labelfield.inference.margin.has_numba", lambda: False)
        monkeypatch.setattr("labelfield.models.linear.scores.has_numba", lambda: False)
        chosen = LinearClassifier(row_transform=model.row_transform_.name, cost=model.spec_.cost, n_passes=40, tol=1e-3)
        plain = clone(chosen).fit(words.X, words.Y).predict_proba(words.test.X)
        monkeypatch.undo()
        compiled = clone(chosen).fit(words.X, words.Y).predict_proba(words.test.X)
        assert np.abs(plain - compiled).mean() < 2e-3
        assert (plain.argmax(1) == compiled.argmax(1)).mean() > 0.97

    def test_relevance_is_of_all_features(self, words):
        X = words.X.tolil()
        X[:, -3:] = 0  # features that occur nowhere, the last ones too
        found = LinearClassifier(cost=1.0, row_transform="unit+sqrt").fit(sparse.csr_array(X), words.Y)
        relevance = found.feature_relevance()
        assert relevance.shape == (1200,)
        assert not relevance[-3:].any()
        assert relevance.sum() > 0


class TestRuns:
    def test_threads_do_not_change_bits(self, words, model):
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(3 if before == 1 else 1)
            again = LinearClassifier().fit(words.X, words.Y)
        finally:
            torch.set_num_threads(before)
        np.testing.assert_array_equal(again.predict_proba(words.test.X), model.predict_proba(words.test.X))

    @pytest.mark.parametrize("stop_after", [1, 3, 5])
    def test_an_interrupted_run_ends_in_the_same_bits(self, stop_after, tmp_path, interrupt_after, monkeypatch):
        monkeypatch.setattr("labelfield.inference.margin._BLOCK_LABELS", 1)
        monkeypatch.setattr("labelfield.inference.linear._BLOCKS_PER_THREAD", 1)
        monkeypatch.setattr("torch.get_num_threads", lambda: 1)
        whole = LinearClassifier().fit(TRAIN.X, TRAIN.Y)
        path, interrupt = tmp_path / "checkpoint.safetensors", interrupt_after(stop_after)
        with pytest.raises(Interrupted):
            LinearClassifier().fit(TRAIN.X, TRAIN.Y, checkpoint=path, on_step=interrupt)
        seen = interrupt_after(99)
        monkeypatch.setattr("torch.get_num_threads", lambda: 3)  # which changes nothing
        resumed = LinearClassifier().fit(TRAIN.X, TRAIN.Y, checkpoint=path, resume=True, on_step=seen)
        assert seen.steps == max(1, -(-(5 - stop_after) // 3))  # nothing is solved twice
        np.testing.assert_array_equal(resumed.predict_proba(TEST.X), whole.predict_proba(TEST.X))
        assert resumed.history_[-1]["bound"] == pytest.approx(whole.history_[-1]["bound"])
        for other in ({"cost": 0.2}, {"n_passes": 3}, {"row_transform": "log"}):
            with pytest.raises(labelfield.LabelfieldError, match="another model or other training data"):
                LinearClassifier(**other).fit(TRAIN.X, TRAIN.Y, checkpoint=path, resume=True)

    def test_a_time_budget_leaves_no_label_out(self, words):
        short = LinearClassifier(row_transform="unit", cost=1.0, n_passes=200, tol=0, time_budget=1e-3)
        short.fit(words.X, words.Y)
        assert (short.model_.pointers.diff() > 0).all()
        assert metrics.evaluate(words.test.Y, short.predict_topk(words.test.X, 5))["P@1"] > 30

    def test_more_passes_come_closer_to_the_optimum(self, words):
        bounds = []
        for n_passes in (1, 3, 30):
            one = LinearClassifier(row_transform="unit", cost=1.0, n_passes=n_passes, tol=0).fit(words.X, words.Y)
            bounds.append(one.history_[-1]["bound"])
        assert bounds[0] > bounds[1] > bounds[2]  # the dual rises, and minus it bounds the log posterior from above


def test_what_machines_cannot_answer():
    for name in ("linear", "linear, classes"):
        model, labels = fitted(name), CASES[name].labels(TEST)
        for ask in (model.predict_latent, lambda rows, m=model, y=labels: m.bound(rows, y)):
            with pytest.raises(CannotAnswerError):
                ask(TEST.X)


def test_one_class_per_row():
    data = synth.make_rings(300, 3, noise=0.05, seed=1)
    X = np.c_[data.X.toarray(), (data.X.toarray() ** 2).sum(1)]  # radii tell rings apart
    y = np.array(["in", "mid", "out"])[data.Y.indices]
    model = LinearClassifier().fit(X[:200], y[:200])
    assert model.classes_.tolist() == ["in", "mid", "out"]
    assert model.score(X[200:], y[200:]) > 0.5
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1, rtol=1e-5)
