"""Training in one stage, in several, and with rows that come in parts.

Each stage trains its own parameters, and a run that was interrupted anywhere ends in the same arrays.
"""

import signal

import numpy as np
import pytest
import torch

from labelfield import DataError, synth
from labelfield.inference.checkpoint import read_checkpoint, write_checkpoint
from labelfield.inference.run import Monitor, Settings
from labelfield.inference.signals import Interrupted
from labelfield.inference.source import DatasetSource
from labelfield.inference.training import PartialTraining, Stage, train, train_stages

NAMES = ("network", "layer", "joint")
EPOCHS, STEPS = (2, 3, 2), 4
N_STEPS = STEPS * sum(EPOCHS)
RATES = {"network": {"first": 1.0}, "layer": {"second": 1.0}, "joint": {"first": 0.5, "second": 1.0, "scale": 3.0}}


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(80, 20, 6, seed=3)


class Toy(torch.nn.Module):
    """Three parameters, a buffer that a stage sets when it begins, and an objective that draws."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = torch.nn.Parameter(torch.randn(20, 3, generator=generator))
        self.second = torch.nn.Parameter(torch.randn(3, generator=generator))
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("centre", torch.zeros(3))
        self.begun, self.sources, self.seen = [], [], []

    def features(self, X):
        return X.to_dense() @ self.first - self.centre

    def objective(self, name):
        def estimate(X, Y, n_data, generator):
            self.seen.append(name)
            noise = torch.randn(3, generator=generator)
            output = self.features(X) * self.second * self.scale + 0.1 * noise
            fit = -(output.sum(1) - Y.to_dense().sum(1)).square().mean() * n_data
            return Estimate(fit, self.second.square().sum())

        return estimate

    def stages(self, data, **options):
        """The first's parameters leave a mark in a buffer when the second begins."""

        def source(name):
            self.sources.append((name, self.centre.clone()))
            return DatasetSource(data)

        def begin(name):
            self.begun.append(name)
            if name == "layer":
                with torch.no_grad():
                    self.centre.copy_(self.first.mean(0))

        return [
            Stage(
                name,
                Settings(max_epochs=epochs, batch_size=20, learning_rate=0.01, seed=5 + number, **options),
                self.objective(name),
                lambda name=name: source(name),
                lambda name=name: {getattr(self, key): rate for key, rate in RATES[name].items()},
                lambda name=name: begin(name),
            )
            for number, (name, epochs) in enumerate(zip(NAMES, EPOCHS, strict=True))
        ]


class Estimate:
    def __init__(self, fit, kl):
        self.fit, self.kl = fit, kl

    def bound(self, kl_weight):
        return self.fit - kl_weight * self.kl


def arrays(toy):
    return {name: value.numpy().copy() for name, value in toy.state_dict().items()}


def assert_same_arrays(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture(scope="module")
def whole(data):
    """A training that nobody interrupts."""
    toy = Toy()
    run = train_stages(toy, toy.stages(data))
    assert toy.begun == list(NAMES)
    return arrays(toy), run


def stage_of(step):
    """The stage whose checkpoint a signal in the step-th step leaves: of its last step, its own."""
    ends = np.cumsum(EPOCHS) * STEPS
    return int(np.searchsorted(ends, step))


# In the first step of each stage, within each, at the end of each.
@pytest.mark.parametrize("stop_after", [1, 5, 8, 9, 13, 20, 21, 26, 28])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_training_resumes_to_the_same_arrays(stop_after, number, data, whole, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    first, interrupt = Toy(), interrupt_after(stop_after, number)
    with pytest.raises(Interrupted, match=signal.Signals(number).name):
        train_stages(first, first.stages(data), Monitor(checkpoint=path, identity="toy", on_step=interrupt))
    assert interrupt.steps == stop_after, "it stops after the step that it is in"
    stopped = stage_of(stop_after)
    assert first.begun == list(NAMES[: stopped + 1])

    second = Toy()
    run = train_stages(second, second.stages(data), Monitor(checkpoint=path, resume=True, identity="toy"))
    assert_same_arrays(arrays(second), whole[0])
    assert second.begun == list(NAMES[stopped + 1 :]), "a stage that is resumed does not begin again"
    assert len(second.seen) == N_STEPS - stop_after
    assert [facts(epoch) for epoch in run.history] == [facts(epoch) for epoch in whole[1].history]


def facts(epoch):
    """All but the time."""
    return epoch.epoch, epoch.stage, epoch.bound, epoch.learning_rate


def test_interrupted_again_and_again(data, whole, tmp_path, interrupt_after):
    path, n_runs = tmp_path / "checkpoint.safetensors", 0
    while True:
        toy, n_runs = Toy(), n_runs + 1
        try:
            stop = interrupt_after(5)
            train_stages(toy, toy.stages(data), Monitor(checkpoint=path, resume=True, on_step=stop))
            break
        except Interrupted:
            continue
    assert n_runs == -(-N_STEPS // 5)
    assert_same_arrays(arrays(toy), whole[0])


def test_a_signal_while_a_stage_begins_is_not_lost(data, whole, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    toy = Toy()
    stages = toy.stages(data)

    def begin():
        stages[1].begin()
        signal.raise_signal(signal.SIGTERM)

    loud = Stage(**{**vars(stages[1]), "begin": begin})
    with pytest.raises(Interrupted):
        train_stages(toy, [stages[0], loud, stages[2]], Monitor(checkpoint=path))
    assert set(toy.seen) == {"network"}
    assert read_checkpoint(path)[1]["run"]["stage"] == "layer"
    again = Toy()
    train_stages(again, again.stages(data), Monitor(checkpoint=path, resume=True))
    assert again.begun == ["joint"]
    assert_same_arrays(arrays(again), whole[0])


def test_a_finished_training_is_not_trained_again(data, whole, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    for resume in (False, True):
        toy = Toy()
        run = train_stages(toy, toy.stages(data), Monitor(checkpoint=path, resume=resume))
        assert_same_arrays(arrays(toy), whole[0])
        assert len(run.history) == sum(EPOCHS)
    assert toy.begun == []
    assert toy.seen == []


def test_without_a_checkpoint_to_resume_it_starts(data, whole, tmp_path):
    toy = Toy()
    train_stages(toy, toy.stages(data), Monitor(checkpoint=tmp_path / "new.safetensors", resume=True))
    assert toy.begun == list(NAMES)
    assert_same_arrays(arrays(toy), whole[0])


def test_history_says_its_stages(whole):
    history = whole[1].history
    expected = [name for name, epochs in zip(NAMES, EPOCHS, strict=True) for _ in range(epochs)]
    assert [epoch.stage for epoch in history] == expected
    assert [epoch.epoch for epoch in history] == list(range(sum(EPOCHS)))
    assert whole[1].epoch == EPOCHS[-1], "a run's own counts are of its stage"


def test_sources_are_asked_for_when_the_model_is_ready(data, whole, tmp_path, interrupt_after):
    """After the stage has begun, or after the arrays have been read."""
    path, toy = tmp_path / "checkpoint.safetensors", Toy()
    with pytest.raises(Interrupted):
        train_stages(toy, toy.stages(data), Monitor(checkpoint=path, on_step=interrupt_after(10)))
    again = Toy()
    train_stages(again, again.stages(data), Monitor(checkpoint=path, resume=True))
    assert [name for name, _ in again.sources] == ["layer", "joint"]
    for _, centre in again.sources:
        np.testing.assert_array_equal(centre.numpy(), whole[0]["centre"])
        assert centre.any()


def test_only_the_parameters_of_a_stage_change(data):
    toy = Toy()
    before, changed = arrays(toy), {name: set() for name in NAMES}

    def watch(run, n_steps):
        now = arrays(toy)
        changed[run.stage] |= {name for name, _ in toy.named_parameters() if (now[name] != before[name]).any()}
        before.update(now)

    train_stages(toy, toy.stages(data), Monitor(on_step=watch))
    assert changed == {name: set(rates) for name, rates in RATES.items()}


def test_one_stage_is_a_training(data):
    """With all parameters at the common rate."""
    options = {"max_epochs": 3, "batch_size": 20, "learning_rate": 0.01}
    staged, plain = Toy(), Toy()
    stage = Stage(
        "only",
        Settings(**options),
        staged.objective("only"),
        lambda: DatasetSource(data),
        lambda: dict.fromkeys(staged.parameters(), 1.0),
    )
    train_stages(staged, [stage])
    train(plain, plain.objective("only"), DatasetSource(data), Settings(**options))
    assert_same_arrays(arrays(staged), arrays(plain))


def test_rates_scale_the_steps(data):
    """The first step of Adam is as long as its rate."""
    toy, moves = Toy(), {}
    before = {name: parameter.detach().clone() for name, parameter in toy.named_parameters()}

    def watch(run, n_steps):
        if not moves:
            moves.update(
                {name: float((value.detach() - before[name]).abs().max()) for name, value in toy.named_parameters()}
            )

    joint = toy.stages(data, schedule="constant")[2]
    train_stages(toy, [joint], Monitor(on_step=watch))
    for name, rate in RATES["joint"].items():
        assert moves[name] == pytest.approx(0.01 * rate, rel=1e-3)


def interrupted_checkpoint(data, path, interrupt_after, n_steps=10):
    toy = Toy()
    with pytest.raises(Interrupted):
        train_stages(toy, toy.stages(data), Monitor(checkpoint=path, identity="toy", on_step=interrupt_after(n_steps)))


def test_a_checkpoint_of_an_unknown_stage_is_refused(data, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    interrupted_checkpoint(data, path, interrupt_after)
    toy = Toy()
    before = arrays(toy)
    first, _, last = toy.stages(data)
    with pytest.raises(DataError, match=r"made in the stage 'layer'; expected one of network, joint\. Resume with"):
        train_stages(toy, [first, last], Monitor(checkpoint=path, resume=True, identity="toy"))
    assert_same_arrays(arrays(toy), before)
    assert toy.begun == []
    # A stage is found by its name, wherever it stands.
    train_stages(toy, toy.stages(data)[1:], Monitor(checkpoint=path, resume=True, identity="toy"))
    assert toy.begun == ["joint"]


def test_a_checkpoint_of_something_else_is_refused(data, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    interrupted_checkpoint(data, path, interrupt_after)
    toy = Toy()
    with pytest.raises(DataError, match="another model or other training data"):
        train_stages(toy, toy.stages(data), Monitor(checkpoint=path, resume=True, identity="another"))
    with pytest.raises(DataError, match="another clip_norm"):
        train_stages(toy, toy.stages(data, clip_norm=1.0), Monitor(checkpoint=path, resume=True, identity="toy"))
    assert toy.begun == []


@pytest.mark.parametrize("change", [{"run": {}}, {"run": None}, {"run": {"stage": "layer", "nonsense": 1}}])
def test_a_checkpoint_without_its_facts_is_damaged(change, data, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    interrupted_checkpoint(data, path, interrupt_after)
    tensors, known = read_checkpoint(path)
    write_checkpoint(path, tensors, known | change)
    toy = Toy()
    with pytest.raises(DataError, match="damaged"):
        train_stages(toy, toy.stages(data), Monitor(checkpoint=path, resume=True, identity="toy"))


def test_no_stage_draws_what_another_drew(data):
    """With one seed for all: the same masks for the same rows a second time would regularise nothing."""
    model, drawn, rows = Toy(), [], []

    def objective(X, Y, n_data, generator):
        drawn.append(torch.randn(3, generator=generator))
        rows.append(X.to_dense().sum())
        return Estimate(-model.first.square().sum(), model.second.sum())

    settings = Settings(max_epochs=2, batch_size=20, seed=5)
    train_stages(
        model,
        [Stage(name, settings, objective, lambda: DatasetSource(data), lambda: {model.first: 1.0}) for name in NAMES],
    )
    assert len(drawn) == 2 * 3 * STEPS
    assert len(torch.unique(torch.stack(drawn), dim=0)) == len(drawn)
    assert len(torch.unique(torch.stack(rows))) > len(rows) // 2


class TestPartialTraining:
    settings = Settings(max_epochs=5, batch_size=20, learning_rate=0.01, held_out=8, finishing_epochs=2, seed=5)

    def test_it_goes_on_with_other_rows_and_the_same_optimiser(self, data):
        toys = [Toy() for _ in range(2)]
        kept = [PartialTraining(toy, self.settings) for toy in toys]
        for number, part in enumerate((slice(0, 40), slice(40, 80), slice(0, 20))):
            source = DatasetSource(data.take(part))
            kept[0].fit(toys[0].objective("part"), source)
            if number == 1:
                kept[1] = PartialTraining(toys[1], self.settings, kept[1].run.history)
            run = kept[1].fit(toys[1].objective("part"), source)
            assert run.epoch == len(run.history) == number + 1
            is_same = all(torch.equal(a, b) for a, b in zip(toys[0].parameters(), toys[1].parameters(), strict=True))
            assert is_same == (number == 0), "a fresh optimiser takes other steps"
        assert [epoch.learning_rate for epoch in run.history] == [0.01] * 3
        assert not hasattr(kept[0].gradient, "source"), "the rows belong to the caller"

    def test_steps_that_are_read_late_count_the_same(self, data):
        """As on a GPU, which is asked only now and then."""
        found = []
        for steps_ahead in (1, 3, 64):
            toy = Toy()
            training = PartialTraining(toy, self.settings)
            training.gradient.steps_ahead = steps_ahead
            run = training.fit(toy.objective("part"), DatasetSource(data))
            found.append((arrays(toy), run.history[0].bound))
        for other, bound in found[1:]:
            assert_same_arrays(other, found[0][0])
            assert bound == pytest.approx(found[0][1], rel=1e-12)

    def test_neither_rows_are_held_out_nor_does_anything_end_it(self, data):
        toy = Toy()
        settings = Settings(**vars(self.settings) | {"n_iter_no_change": 1, "time_budget": 1e-9})
        training = PartialTraining(toy, settings, rates={toy.first: 1.0})
        before = arrays(toy)
        for _ in range(8):
            training.fit(toy.objective("part"), DatasetSource(data))
        assert len(toy.seen) == 8 * STEPS
        assert {name for name, value in arrays(toy).items() if (value != before[name]).any()} == {"first"}

    def test_an_interrupted_call_leaves_nothing_to_the_next(self, data):
        toy = Toy()
        training = PartialTraining(toy, self.settings)

        def objective(X, Y, n_data, generator):
            if len(toy.seen) == 2:
                signal.raise_signal(signal.SIGTERM)
            return toy.objective("part")(X, Y, n_data, generator)

        with pytest.raises(Interrupted):
            training.fit(objective, DatasetSource(data))
        assert training.run.step == 3
        training.fit(toy.objective("part"), DatasetSource(data))
        assert len(toy.seen) == 3 + STEPS
        assert training.run.n_good_steps == 0


def test_without_rows_nothing_can_be_trained(data):
    toy = Toy()
    with pytest.raises(DataError, match="no training rows"):
        train(toy, toy.objective("none"), DatasetSource(data.take(slice(0))), Settings())
