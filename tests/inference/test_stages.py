"""Training in stages: each trains what is its own, and one that was interrupted anywhere ends in the same arrays."""

import signal

import numpy as np
import pytest
import torch

from labelfield import DataError, synth
from labelfield.inference.adam import RowAdam
from labelfield.inference.checkpoint import read_checkpoint, write_checkpoint
from labelfield.inference.source import DatasetSource
from labelfield.inference.stages import Stage, train_stages
from labelfield.inference.trainer import Interrupted, Settings, train
from labelfield.linalg.rows import take

NAMES = ("network", "layer", "joint")
EPOCHS, STEPS = (2, 3, 2), 4
N_STEPS = STEPS * sum(EPOCHS)
RATES = {"network": {"first": 1.0}, "layer": {"second": 1.0}, "joint": {"first": 0.5, "second": 1.0, "scale": 3.0}}
GOOD = torch.tensor(0.0)


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
        train_stages(first, first.stages(data), checkpoint=path, identity="toy", on_step=interrupt)
    assert interrupt.steps == stop_after, "it stops after the step that it is in"
    stopped = stage_of(stop_after)
    assert first.begun == list(NAMES[: stopped + 1])

    second = Toy()
    run = train_stages(second, second.stages(data), checkpoint=path, resume=True, identity="toy")
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
            train_stages(toy, toy.stages(data), checkpoint=path, resume=True, on_step=stop)
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
        train_stages(toy, [stages[0], loud, stages[2]], checkpoint=path)
    assert set(toy.seen) == {"network"}
    assert read_checkpoint(path)[1]["run"]["stage"] == "layer"
    again = Toy()
    train_stages(again, again.stages(data), checkpoint=path, resume=True)
    assert again.begun == ["joint"]
    assert_same_arrays(arrays(again), whole[0])


def test_a_finished_training_is_not_trained_again(data, whole, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    for resume in (False, True):
        toy = Toy()
        run = train_stages(toy, toy.stages(data), checkpoint=path, resume=resume)
        assert_same_arrays(arrays(toy), whole[0])
        assert len(run.history) == sum(EPOCHS)
    assert toy.begun == []
    assert toy.seen == []


def test_without_a_checkpoint_to_resume_it_starts(data, whole, tmp_path):
    toy = Toy()
    train_stages(toy, toy.stages(data), checkpoint=tmp_path / "new.safetensors", resume=True)
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
        train_stages(toy, toy.stages(data), checkpoint=path, on_step=interrupt_after(10))
    again = Toy()
    train_stages(again, again.stages(data), checkpoint=path, resume=True)
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

    train_stages(toy, toy.stages(data), on_step=watch)
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
    train_stages(toy, [joint], on_step=watch)
    for name, rate in RATES["joint"].items():
        assert moves[name] == pytest.approx(0.01 * rate, rel=1e-3)


def interrupted_checkpoint(data, path, interrupt_after, n_steps=10):
    toy = Toy()
    with pytest.raises(Interrupted):
        train_stages(toy, toy.stages(data), checkpoint=path, identity="toy", on_step=interrupt_after(n_steps))


def test_a_checkpoint_of_an_unknown_stage_is_refused(data, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    interrupted_checkpoint(data, path, interrupt_after)
    toy = Toy()
    before = arrays(toy)
    first, _, last = toy.stages(data)
    with pytest.raises(DataError, match=r"made in the stage 'layer'; expected one of network, joint\. Resume with"):
        train_stages(toy, [first, last], checkpoint=path, resume=True, identity="toy")
    assert_same_arrays(arrays(toy), before)
    assert toy.begun == []
    # A stage is found by its name, wherever it stands.
    train_stages(toy, toy.stages(data)[1:], checkpoint=path, resume=True, identity="toy")
    assert toy.begun == ["joint"]


def test_a_checkpoint_of_something_else_is_refused(data, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    interrupted_checkpoint(data, path, interrupt_after)
    toy = Toy()
    with pytest.raises(DataError, match="another model or other training data"):
        train_stages(toy, toy.stages(data), checkpoint=path, resume=True, identity="another")
    with pytest.raises(DataError, match="another clip_norm"):
        train_stages(toy, toy.stages(data, clip_norm=1.0), checkpoint=path, resume=True, identity="toy")
    assert toy.begun == []


@pytest.mark.parametrize("change", [{"run": {}}, {"run": None}, {"run": {"stage": "layer", "nonsense": 1}}])
def test_a_checkpoint_without_its_facts_is_damaged(change, data, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    interrupted_checkpoint(data, path, interrupt_after)
    tensors, known = read_checkpoint(path)
    write_checkpoint(path, tensors, known | change)
    toy = Toy()
    with pytest.raises(DataError, match="damaged"):
        train_stages(toy, toy.stages(data), checkpoint=path, resume=True, identity="toy")


@pytest.mark.parametrize("is_sparse", [False, True])
def test_scales_are_parameter_groups(is_sparse):
    """RowAdam with a scale for each parameter is torch's Adam with a group for each; with all rows, sparse ones too."""
    generator, scales = torch.Generator().manual_seed(0), (1.0, 0.25, 3.0, 1.0)
    starts = [torch.randn(5, 2, generator=generator) for _ in scales]
    ours, theirs = ([torch.nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    adam = RowAdam(ours, 0.1, scales)
    groups = [{"params": [p], "lr": 0.1 * scale} for p, scale in zip(theirs, scales, strict=True)]
    torchs = torch.optim.Adam(groups)
    for step in range(15):
        if step == 8:  # as a schedule does
            adam.rate = 0.02
            for group, scale in zip(torchs.param_groups, scales, strict=True):
                group["lr"] = 0.02 * scale
        targets = [torch.randn(5, 2, generator=generator) for _ in scales]
        for optimiser, parameters in ((adam, ours), (torchs, theirs)):
            optimiser.zero_grad()
            is_taken = is_sparse and parameters is ours
            rows = [take(p, torch.arange(5)) if is_taken else p for p in parameters]
            sum((row - target).square().sum() for row, target in zip(rows, targets, strict=True)).backward()
        assert all(p.grad.is_sparse == is_sparse for p in ours)
        adam.update(GOOD)
        torchs.step()
    for a, b, start in zip(ours, theirs, starts, strict=True):
        torch.testing.assert_close(a, b)
        assert not torch.equal(a, start)


def test_a_scale_for_each_parameter():
    with pytest.raises(ValueError, match="1 scales for 2 parameters"):
        RowAdam([torch.nn.Parameter(torch.zeros(1)) for _ in range(2)], 0.1, [1.0])


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
