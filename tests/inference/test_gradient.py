"""Gradient steps of a real model: they learn, stop when asked, resume to the same arrays, and recover if possible."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from labelfield import DataError, MLGPFClassifier, synth
from labelfield.inference.checkpoint import read_checkpoint, write_checkpoint
from labelfield.inference.loop import TrainingError
from labelfield.inference.run import Settings
from labelfield.inference.signals import Interrupted
from labelfield.inference.source import DatasetSource
from labelfield.inference.training import train
from labelfield.linalg.cholesky import FactorisationError


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(300, 80, 30, seed=2)


def small(**options):
    return MLGPFClassifier(
        **{"n_latent": 6, "n_inducing": 20, "max_epochs": 6, "batch_size": 50, "n_negatives": 5, "device": "cpu"}
        | options
    )


def arrays(estimator):
    return {name: value.numpy().copy() for name, value in estimator.model_.state_dict().items()}


def assert_same_arrays(a, b):
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture(scope="module")
def uninterrupted(data):
    return arrays(small().fit(data.X, data.Y))


def test_the_same_seed_gives_the_same_arrays(data, uninterrupted):
    same, other = (arrays(small(random_state=seed).fit(data.X, data.Y)) for seed in (0, 4))
    assert_same_arrays(same, uninterrupted)
    assert not np.array_equal(same["Phi"], other["Phi"])


@pytest.mark.parametrize("stop_after", [1, 7, 17])
def test_an_interrupted_run_resumes_to_the_same_arrays(stop_after, data, uninterrupted, tmp_path, interrupt_after):
    interrupt = interrupt_after(stop_after)
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Interrupted, match="SIGTERM"):
        small().fit(data.X, data.Y, checkpoint=path, on_step=interrupt)
    assert interrupt.steps == stop_after
    resumed = small().fit(data.X, data.Y, checkpoint=path, resume=True)
    assert_same_arrays(uninterrupted, arrays(resumed))
    assert len(resumed.history_) == 6


SCRIPT = """
import sys
from labelfield import MLGPFClassifier, synth
data = synth.make_multilabel(300, 80, 30, seed=2)
estimator = MLGPFClassifier(n_latent=6, n_inducing=20, max_epochs=15, batch_size=50, n_negatives=5, device="cpu")
rows = estimator.prepare(data.X, data.Y)
object.__setattr__(estimator.settings_, "checkpoint_every", 0.0)
estimator.train_prepared(rows, checkpoint=sys.argv[1], resume=True, on_step=lambda run, n: print(run.step, flush=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("n_kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_runs_killed_at_any_moment_resume_to_the_same_arrays(n_kills, data, tmp_path):
    """SIGKILL at random moments, with a checkpoint at every step: it is always readable, and the end is the same."""
    checkpoint = tmp_path / "checkpoint.safetensors"
    rng, was_killed = np.random.default_rng(0), False
    for _ in range(n_kills):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, checkpoint], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        process.stdout.readline()  # training has begun
        time.sleep(rng.uniform(0, 0.05))
        was_killed |= process.poll() is None
        process.kill()
        process.wait()
        process.stdout.close()
        read_checkpoint(checkpoint)
    assert was_killed
    options = {"max_epochs": 15, "device": "cpu"}
    resumed = small(**options).fit(data.X, data.Y, checkpoint=checkpoint, resume=True)
    assert_same_arrays(arrays(small(**options).fit(data.X, data.Y)), arrays(resumed))


def test_a_checkpoint_of_something_else_is_refused(data, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Interrupted):
        small().fit(data.X, data.Y, checkpoint=path, on_step=interrupt_after(1, signal.SIGINT))
    with pytest.raises(DataError, match="another learning_rate"):
        small(learning_rate=0.5).fit(data.X, data.Y, checkpoint=path, resume=True)
    for other in (small(n_latent=3), small(kernel="se_ard"), small(n_points=5)):
        with pytest.raises(DataError, match="another model or other training data"):
            other.fit(data.X, data.Y, checkpoint=path, resume=True)
    with pytest.raises(DataError, match="another model or other training data"):
        small().fit(data.X[::-1], data.Y[::-1], checkpoint=path, resume=True)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="damaged"):
        small().fit(data.X, data.Y, checkpoint=path, resume=True)


def test_a_time_budget_or_a_plateau_ends_a_run(data):
    started = time.perf_counter()
    quick = small(max_epochs=100_000, time_budget=0.2).fit(data.X, data.Y)
    assert time.perf_counter() - started < 20
    assert 1 <= quick.n_iter_ < 100_000
    assert quick.history_[-1]["learning_rate"] < 1e-3, "the schedule ends with the budget"
    options = {"schedule": "constant", "learning_rate": 0.3, "calibrate": False}
    stopped = small(max_epochs=500, n_iter_no_change=2, **options).fit(data.X, data.Y)
    assert stopped.n_iter_ < 500


def test_validation_scores_are_kept(data):
    fitted = small(max_epochs=2).fit(data.X, data.Y, validation=(data.X, data.Y))
    assert set(fitted.history_[0]["scores"]) == {"P@1", "P@3", "P@5"}


def test_held_out_rows_join_at_the_end(data):
    """They are left out until finishing begins, whether the schedule, a plateau or the clock ends it; then all join."""
    for options in ({}, {"n_iter_no_change": 1, "schedule": "constant", "learning_rate": 0.3}, {"time_budget": 0.3}):
        model, seen, rates = small(max_epochs=12, **options), [], []

        def watch(run, n_steps, model=model, seen=seen, rates=rates):
            seen.append((run.finishing_epoch is not None, n_steps))
            rates.append(run)

        model.fit(data.X, data.Y, on_step=watch)
        assert model.settings_.held_out == 30
        assert (False, 6) in seen
        if "time_budget" not in options:
            assert seen[-1] == (True, 6)
            assert model.history_[-1]["learning_rate"] == 0
            assert not model.model_.calibration.is_identity()
            n_finishing = sum(is_finishing for is_finishing, _ in seen)
            assert n_finishing == 4 * 6
        assert all(0 <= epoch["learning_rate"] <= model.settings_.learning_rate for epoch in model.history_)


def test_a_run_can_be_made_longer(data, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Interrupted):
        small(max_epochs=6).fit(data.X, data.Y, checkpoint=path, on_step=interrupt_after(33))  # while finishing
    longer = small(max_epochs=9).fit(data.X, data.Y, checkpoint=path, resume=True)
    assert all(0 <= epoch["learning_rate"] <= longer.settings_.learning_rate for epoch in longer.history_)


class _Toy(torch.nn.Module):
    """A quadratic whose objective misbehaves as told."""

    def __init__(self, trouble):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([5.0]))
        self.calls, self.trouble = 0, trouble

    def objective(self, X, Y, n_data, generator):
        self.calls += 1
        weight = self.weight

        class Estimate:
            def bound(inner, kl_weight):  # noqa: N805  # self is the model
                value = -weight.square().sum() * n_data
                return value * float("nan") if self.trouble(self.calls) == "nan" else value

        if self.trouble(self.calls) == "factor":
            raise FactorisationError("K_Z is bad")
        return Estimate()


def toy_run(trouble, data, **options):
    toy = _Toy(trouble)
    settings = Settings(max_epochs=20, batch_size=50, learning_rate=0.5, **options)
    return toy, train(toy, toy.objective, DatasetSource(data), settings)


@pytest.mark.parametrize("kind", ["nan", "factor"])
def test_a_bad_step_is_skipped_and_said(kind, data):
    with pytest.warns(UserWarning, match="step skipped"):
        toy, run = toy_run(lambda call: kind if call in (3, 10) else None, data)
    assert len(run.history) == 20
    assert abs(toy.weight.item()) < 0.1


@pytest.mark.filterwarnings("ignore:step skipped")
@pytest.mark.parametrize("kind", ["nan", "factor"])
def test_bad_steps_without_end_stop_with_the_cause(kind, data):
    with pytest.raises(
        TrainingError, match="the bound or its gradient is not finite" if kind == "nan" else "K_Z is bad"
    ):
        toy_run(lambda call: kind if call > 5 else None, data)


@pytest.mark.filterwarnings("ignore:step skipped")
def test_a_run_that_mostly_failed_is_no_success(data):
    """However short: what skipped most of its steps has not been trained."""
    with pytest.raises(TrainingError, match="broke down in epoch 1"):
        small(learning_rate=1e10, max_epochs=2).fit(data.X, data.Y)
    with pytest.raises(TrainingError, match="broke down in epoch 1"):
        small(kernel="dot3", row_transform="none", max_epochs=1).fit(data.X * 1e15, data.Y)


@pytest.mark.parametrize("name", ["generator", "model.Phi", "optimiser.0.exp_avg"])
def test_a_checkpoint_without_its_tensors_is_damaged(name, data, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Interrupted):
        small().fit(data.X, data.Y, checkpoint=path, on_step=interrupt_after(1, signal.SIGINT))
    tensors, facts = read_checkpoint(path)
    tensors.pop(name)
    write_checkpoint(path, tensors, facts)
    with pytest.raises(DataError, match="damaged"):
        small().fit(data.X, data.Y, checkpoint=path, resume=True)


def test_the_bound_is_that_of_the_rows_in_use(data):
    toy, sizes = _Toy(lambda call: None), []

    def objective(X, Y, n_data, generator):
        sizes.append(n_data)
        return toy.objective(X, Y, n_data, generator)

    settings = Settings(max_epochs=3, batch_size=100, held_out=30, finishing_epochs=1)
    train(toy, objective, DatasetSource(data), settings)
    assert sizes == [270] * 6 + [300] * 3


def test_gradients_are_clipped(data):
    toy, _ = toy_run(lambda call: None, data, clip_norm=1e-9)
    assert np.isfinite(toy.weight.item())
