"""Seeds, interruptions, rows that come in parts, and what a training will cost."""

import pickle
import signal
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from deep_cases import (
    ALONE,
    STAGES,
    WORDS,
    Own,
    arrays,
    assert_same_arrays,
    seeded,
    small,
    tiny,
)
from torch import nn

import labelfield
from labelfield import DataError
from labelfield.inference.fitting import rows_source
from labelfield.inference.signals import Interrupted
from labelfield.inference.training import PartialTraining


class TestSeeds:
    @pytest.mark.parametrize("options", [{}, {"dropout": 0.5, "moments": "sampled"}, {"network": "own"}])
    def test_the_same_seed_gives_the_same_arrays(self, options, few):
        if options.get("network") == "own":
            options = {"network": seeded(Own)}
        a, b, c = (arrays(tiny(random_state=s, **options).fit(few.X, few.Y.indices)) for s in (3, 3, 4))
        assert_same_arrays(a, b)
        assert not np.array_equal(a["processes.family.mean"], c["processes.family.mean"])

    @pytest.mark.parametrize("is_own", [False, True])
    def test_torchs_own_generator_is_left_alone(self, is_own, few):
        network = Own() if is_own else "mlp"
        before = torch.get_rng_state()
        model = tiny(network=network, dropout=0.5).fit(few.X, few.Y.indices)
        model.predict_proba(few.X)
        model.partial_fit(few.X, few.Y.indices)
        assert torch.equal(torch.get_rng_state(), before)

    def test_nor_does_it_matter_where_that_stands(self, few):
        found = []
        for seed in (1, 2):
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                found.append(arrays(tiny(network=seeded(Own)).fit(few.X, few.Y.indices)))
        assert_same_arrays(*found)

    @staticmethod
    def in_stages(is_own):
        network = seeded(Own) if is_own else "mlp"
        return small(network=network, dropout=0.3, network_epochs=2, process_epochs=2, max_epochs=3)

    @pytest.fixture(scope="class")
    @classmethod
    def uninterrupted(cls, rings):
        return {is_own: cls.in_stages(is_own).fit(rings.X, rings.Y.indices) for is_own in (False, True)}

    # Steps an epoch: 3. In each stage, at the end of one, and after rows that were held out have joined.
    @pytest.mark.parametrize(
        ("is_own", "stop_after"),
        [*((False, step) for step in (2, 6, 8, 14, 20)), *((True, step) for step in (5, 11, 16))],
    )
    def test_an_interrupted_run_resumes_to_the_same_arrays(
        self, is_own, stop_after, rings, uninterrupted, tmp_path, interrupt_after
    ):
        X, y, path = rings.X, rings.Y.indices, tmp_path / "checkpoint.safetensors"
        interrupt = interrupt_after(stop_after, signal.SIGINT)
        with pytest.raises(Interrupted, match="SIGINT"):
            self.in_stages(is_own).fit(X, y, checkpoint=path, on_step=interrupt)
        assert interrupt.steps == stop_after
        stages, resumed = [], self.in_stages(is_own)
        resumed.fit(X, y, checkpoint=path, resume=True, on_step=lambda run, _: stages.append(run.stage))
        assert stages == (["network"] * 6 + ["processes"] * 6 + ["joint"] * 9)[stop_after:]
        whole = uninterrupted[is_own]
        assert whole.settings_.held_out == 30
        assert_same_arrays(arrays(whole), arrays(resumed))
        np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
        told = [[(e["stage"], e["bound"]) for e in fit.history_] for fit in (whole, resumed)]
        assert told[0] == told[1]

    def test_a_checkpoint_of_something_else_is_refused(self, few, tmp_path):
        X, y, path = few.X, few.Y.indices, tmp_path / "checkpoint.safetensors"
        tiny().fit(X, y, checkpoint=path)
        for options in ({"kernel": "matern32"}, {"hidden": (9,)}, {"joint_learning_rate": 0.1}, {"dropout": 0.1}):
            with pytest.raises(DataError, match="the checkpoint was made with another"):
                tiny(**options).fit(X, y, checkpoint=path, resume=True)
        with pytest.raises(DataError, match="the checkpoint was made in the stage 'joint'; expected one of network"):
            tiny(**ALONE).fit(X, y, checkpoint=path, resume=True)

    def test_a_resumed_training_may_go_on_longer(self, few, tmp_path):
        def stop(run, _):
            if run.stage == "joint":
                raise Interrupted(2)

        path = tmp_path / "c"
        with pytest.raises(Interrupted):
            tiny(max_epochs=2).fit(few.X, few.Y.indices, checkpoint=path, on_step=stop)
        model = tiny(max_epochs=4, time_budget=100).fit(few.X, few.Y.indices, checkpoint=path, resume=True)
        assert [epoch["stage"] for epoch in model.history_].count("joint") == 4
        with pytest.raises(DataError, match="another"):
            tiny(max_epochs=4, joint_learning_rate=0.1).fit(few.X, few.Y.indices, checkpoint=path, resume=True)

    def test_seconds_are_those_of_all_stages(self, few):
        history = tiny(network_epochs=3, max_epochs=2).fit(few.X, few.Y.indices).history_
        seconds = [epoch["seconds"] for epoch in history]
        assert seconds == sorted(seconds)


class TestRows:
    """Dense rows are one tensor while there is room; others come batch by batch."""

    @pytest.fixture
    def as_batches(self):
        with patch("labelfield.inference.deep.rows_source", wraps=rows_source) as source:
            yield source

    def test_dense_rows_that_do_not_fit_come_sparse(self, few, as_batches, monkeypatch):
        dense = arrays(tiny().fit(few.X, few.Y.indices))
        as_batches.assert_not_called()
        monkeypatch.setattr("labelfield.inference.deep.free_bytes", lambda device: 1)
        assert_same_arrays(dense, arrays(tiny().fit(few.X, few.Y.indices)))
        as_batches.assert_called()

    def test_sparse_rows_are_not_made_dense_at_once(self, as_batches):
        X = np.zeros((400, 300), np.float32)
        X[np.arange(400), np.arange(400) % 300] = 1
        tiny(network="mlp", **ALONE).fit(X, np.arange(400) % 3)
        as_batches.assert_called()


class TestPartialFit:
    def test_classes_that_come_later_can_be_announced(self, few):
        y = WORDS[few.Y.indices]
        model = tiny()
        for part in (slice(0, 40), slice(40, 120)):
            model.partial_fit(few.X[part], y[part], classes=["cat", "dog", "eel", "fox"])
        assert model.classes_.tolist() == ["cat", "dog", "eel", "fox"]
        assert (model.n_rows_, model.n_iter_) == (120, 2)
        model.partial_fit(few.X[:2], ["fox", "fox"])
        assert model.label_counts_.tolist() == [40, 40, 40, 2]
        with pytest.raises(DataError, match="the label 'gnu'"):
            model.partial_fit(few.X[:1], ["gnu"])
        with pytest.raises(DataError, match="classes differ"):
            model.partial_fit(few.X, y, classes=["cat", "dog"])

    @pytest.mark.parametrize("options", [{}, ALONE, {"network": "own"}])
    def test_it_goes_on_learning(self, options, few):
        options = {"network": seeded(Own)} if options.get("network") == "own" else options
        model = tiny(joint_learning_rate=0.02, **options)
        bounds = []
        for _ in range(8):
            model.partial_fit(few.X, few.Y.indices)
            bounds.append(model.bound(few.X, few.Y.indices)["bound"])
        assert bounds[-1] > bounds[0]
        copy = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(copy.predict_proba(few.X), model.predict_proba(few.X))

    def test_it_has_trained_no_baseline(self, few, tmp_path):
        model = tiny().partial_fit(few.X, few.Y.indices)
        model.save(tmp_path / "m")
        for found in (model, labelfield.load(tmp_path / "m", device="cpu")):
            with pytest.raises(ValueError, match="there is no baseline"):
                found.baseline_proba(few.X)

    @pytest.mark.parametrize("options", [{"max_epochs": 0}, {}], ids=str)
    def test_it_goes_on_at_the_rates_of_the_joint_stage(self, options, few, tmp_path):
        rates = {"joint_learning_rate": 1e-3, "process_learning_rate": 2e-2}
        model = tiny(batch_size=None, **options, **rates).fit(few.X[:60], few.Y.indices[:60])
        model.save(tmp_path / "m")
        for one in (model, labelfield.load(tmp_path / "m", device="cpu"), pickle.loads(pickle.dumps(model))):
            with patch("labelfield.inference.deep.PartialTraining", wraps=PartialTraining) as training:
                one.partial_fit(few.X, few.Y.indices)
            (_, settings, _), rates = training.call_args.args, training.call_args.kwargs["rates"]
            assert settings == replace(model.settings_, learning_rate=1e-3)
            assert {rates[parameter] for parameter in one.model_.features.parameters()} == {1.0}
            assert {rates[parameter] for parameter in one.model_.processes.parameters()} == {20.0}

    def test_rates_may_change_after_fit(self, few):
        model = tiny().fit(few.X, few.Y.indices).set_params(joint_learning_rate=1e-4)
        assert model.partial_fit(few.X, few.Y.indices).history_[-1]["learning_rate"] == 1e-4

    def test_after_fit_the_baseline_stays(self, few):
        model = tiny().fit(few.X, few.Y.indices)
        P, plain = model.predict_proba(few.X), model.baseline_proba(few.X)
        model.partial_fit(few.X, few.Y.indices)
        np.testing.assert_array_equal(model.baseline_proba(few.X), plain)
        assert not np.array_equal(model.predict_proba(few.X), P)


def test_what_training_will_cost_changes_nothing(few):
    """`labelfield train` tries a step before it begins; BatchNorm must not remember it."""
    told, untold = tiny(network=seeded(Own)), tiny(network=seeded(Own))
    prepared = told.prepare(few.X, few.Y.indices)
    cost = told.training_cost(prepared)
    assert cost.seconds > 0
    assert cost.n_bytes > 0
    assert list(cost.stages) == list(STAGES)
    n_steps, trainer = -(-few.n_rows // told.settings_.batch_size), told.trainer_
    with patch("labelfield.inference.deep.seconds_per_step", return_value=3.0):
        assert trainer.expected_seconds(prepared) == pytest.approx(3 * 2.1 * n_steps)
    told.train_prepared(prepared)
    assert_same_arrays(arrays(told), arrays(untold.fit(few.X, few.Y.indices)))


@pytest.mark.parametrize(
    ("options", "summary"),
    [
        ({}, "3 labels; network mlp 8, 3 processes on 1 features each, kernel se, grid of 8, softmax"),
        (ALONE, "3 labels; only the network mlp 8"),
        ({"hidden": (), **ALONE}, "3 labels; only the network mlp"),
        ({"network": nn.Linear(2, 4), "subset_size": 2}, "network torch.nn.modules.linear.Linear, 2 processes on 2"),
    ],
)
def test_a_model_in_a_line(options, summary, few):
    assert summary in tiny(**options).fit(few.X, few.Y.indices).summary()
