"""The algorithms of topic models: what they save is all they need, and what they leave holds on to no rows."""

import numpy as np
import pytest
import torch

from labelfield.inference.loop import TrainingError
from labelfield.inference.run import Monitor, Run, Settings
from labelfield.inference.signals import Interrupted
from labelfield.inference.topics import TopicOptions, TopicTrainer
from labelfield.synth import make_topics
from labelfield.topics.model import TopicModel
from labelfield.topics.spec import TopicSpec
from labelfield.topics.state import tensors_of

DATA = make_topics(60, 10, 8, 3, seed=0)
SETTINGS = Settings(max_epochs=6, finishing_epochs=2, held_out=6, batch_size=20)


def trainer_of(name):
    spec = TopicSpec(10, 8, 8, 3, n_draws=2 if name == "gibbs" else 1)
    trainer = TopicTrainer(
        TopicModel(spec), spec, SETTINGS, TopicOptions(name, 2, 0.6, 2.0, 2.0, 1.0, True), lambda x: x
    )
    trainer.start(DATA, np.arange(8))
    return trainer


def make(name, is_finishing=False):
    trainer = trainer_of(name)
    return trainer.algorithm(trainer._rows(DATA), Run(finishing_epoch=4 if is_finishing else None))


def topics():
    return trainer_of("em").model.topics()


def fit(name, monitor=Monitor()):
    """Return what was held in turn, and the run; probabilities are not calibrated, but something is kept."""
    trainer, held = trainer_of(name), []
    trainer._hold, trainer._calibrate = held.append, lambda rows, held_out: {"map": torch.ones(2)}
    return held, trainer.train(DATA, monitor)


def assert_same(a, b):
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        for name, value in tensors_of(one).items():
            assert torch.equal(value, tensors_of(other)[name]), name


ALGORITHMS = ("em", "online_em", "gibbs")


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("n_steps", [0, 1, 4])
def test_what_is_saved_is_all_that_a_step_needs(name, n_steps):
    algorithm, run = make(name), Run()
    with torch.no_grad():
        state = algorithm.start(topics())
        for run.epoch in range(n_steps):
            state, _ = algorithm.step(state, run)
        restored = algorithm.restore({key: value.clone() for key, value in algorithm.tensors(state).items()})
        run.epoch = n_steps
        (a, info), (b, other) = (algorithm.step(one, run) for one in (state, restored))
    assert info == other
    ours, theirs = algorithm.tensors(a), algorithm.tensors(b)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("stop_after", [1, 4, 5])
def test_an_interrupted_fit_ends_in_the_same_topics(name, stop_after, tmp_path, interrupt_after):
    held, whole = fit(name)
    assert len(held) == 2, "before it is calibrated, and at the end"
    assert len(held[0]) == (2 if name == "gibbs" else 1), "a sampler keeps draws"
    with pytest.raises(Interrupted):
        fit(name, Monitor(tmp_path / "c", on_step=interrupt_after(stop_after)))
    again, run = fit(name, Monitor(tmp_path / "c", resume=True))
    assert_same(again[-1], held[-1])
    assert [epoch.bound for epoch in run.history] == [epoch.bound for epoch in whole.history]
    assert torch.equal(run.memory["map"], torch.ones(2))


def test_a_state_that_is_detached_holds_on_to_no_rows():
    algorithm = make("em")
    with torch.no_grad():
        state, _ = algorithm.step(algorithm.start(topics()), Run())
    assert state.rows_of is algorithm.data
    left = algorithm.detach(state)
    assert left.rows is left.rows_of is left.sums is None
    assert (left.topics, left.n_steps) == (state.topics, 1)


def test_a_sampler_starts_again_on_other_rows():
    first, second = make("gibbs"), make("gibbs", is_finishing=True)
    with torch.no_grad():
        state = first.start(topics())
        for epoch in range(4):
            state, _ = first.step(state, Run(epoch=epoch))
        assert len(state.draws) == 2
        attached = second.attach(first.detach(state))
    assert (attached.draws, len(attached.sampler.U)) == ((), 60)
    assert attached.sampler.topics is state.sampler.topics


@pytest.mark.parametrize("name", ALGORITHMS)
def test_scores_are_of_the_topics_of_the_epoch(name):
    held, run = fit(name, Monitor(validate=lambda: {"P@1": 1.0}))
    assert len(held) == 6 + 2
    assert [epoch.scores for epoch in run.history] == [{"P@1": 1.0}] * 6


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_objective_that_is_not_finite_ends_the_fit(name, monkeypatch):
    step = "gibbs_step" if name == "gibbs" else "em_step"
    true = getattr(__import__("labelfield.inference.topics", fromlist=[step]), step)

    def broken(state, *arguments, **options):
        return true(state, *arguments, **options)[0], float("nan")

    monkeypatch.setattr(f"labelfield.inference.topics.{step}", broken)
    with pytest.raises(TrainingError, match=r"epoch 1: the objective is not finite\. Scale the rows"):
        fit(name)
