"""The loop, driving an algorithm that only counts: when it stops, what it saves, and that a resumed run is the same."""

import signal

import pytest
import torch

from labelfield import DataError
from labelfield.inference.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from labelfield.inference.loop import Algorithm, Info, Loop, TrainingError
from labelfield.inference.run import Monitor, Run, Settings
from labelfield.inference.signals import Interrupted


class Counting(Algorithm[int]):
    """A state that counts steps; `bound` says what the step-th one reports, or None for a step that failed."""

    def __init__(self, bound=float, n_steps=2, is_settled=False, is_late=False):
        self.bound, self.n_steps, self.settled, self.is_late = bound, n_steps, is_settled, is_late
        self.waiting, self.attached = Info(), []

    def step(self, state, run):
        assert state == sum_of_steps(run, self.n_steps)
        bound = self.bound(state)
        info = Info(bound, 1) if bound is not None else Info(problem="it failed")
        if self.is_late:  # reported only when it is asked
            self.waiting = Info(self.waiting.sum_bound + info.sum_bound, self.waiting.n_good + info.n_good)
            info = Info()
        return state + 1, info

    def collect(self, run):
        info, self.waiting = self.waiting, Info()
        return info

    def is_settled(self, state):
        return self.settled

    def attach(self, state):
        self.attached.append(state)
        return state

    def tensors(self, state):
        return {"state": torch.tensor(state)}

    def restore(self, tensors):
        return int(tensors["state"])


def sum_of_steps(run, n_steps):
    """How many steps a run has behind it, if all its epochs were whole."""
    return run.epoch * n_steps + run.step


def drive(algorithm, settings, monitor=Monitor(), calibrate=None):
    """Return the state at the end, and the run. `calibrate` is given the state that is held."""
    held = []
    saved = Checkpoint.of(monitor)
    run = Run() if saved is None else saved.run(settings)
    run.max_epochs = settings.max_epochs
    start = 0 if saved is None else saved.restore(algorithm.restore)
    kept = None if calibrate is None else lambda: calibrate(held[-1])
    loop = Loop(lambda run: algorithm, run, settings, monitor, calibrate=kept, hold=held.append)
    end = loop.drive(start)
    assert held[-1] == end
    return end, run


@pytest.mark.parametrize(
    ("bounds", "options", "is_settled", "n_epochs"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], {}, False, 8),
        ([0, 9, 8, 7, 6, 5, 4, 3], {"n_iter_no_change": 3}, False, 5),
        ([0, 9, 8, 7, 9.5, 5, 4, 3], {"n_iter_no_change": 3}, False, 8),
        ([0, 5, 9, 9.05, 10, 11, 12, 13], {"tol": 0.1}, True, 4),
        ([0, 5, 9, 8.95, 10, 11, 12, 13], {"tol": 0.1}, True, 4),
        ([0, 5, 9, 9.05, 10, 11, 12, 13], {"tol": 0.1}, False, 8),
        ([0, 5, 9, 9, 9, 9, 9, 9], {"tol": 0.0}, True, 8),
        # Held-out rows: the first part ends at five times the tolerance, then two more epochs finish the run.
        ([0, 5, 9, 9.4, 20, 30, 40, 50], {"tol": 0.1, "finishing_epochs": 2}, True, 6),
        # In which only bounds of the same rows are compared.
        ([0, 5, 9, 9.4, 9.4, 9.45, 40, 50], {"tol": 0.1, "finishing_epochs": 3}, True, 6),
        ([0, 9, 8, 7, 6, 5, 4, 3], {"n_iter_no_change": 2, "finishing_epochs": 3}, False, 7),
    ],
)
def test_when_a_run_ends(bounds, options, is_settled, n_epochs):
    algorithm = Counting(lambda step: bounds[step // 2], is_settled=is_settled)
    steps, run = drive(algorithm, Settings(max_epochs=8, **options))
    assert [epoch.bound for epoch in run.history] == bounds[:n_epochs]
    assert steps == 2 * n_epochs
    assert run.epoch == n_epochs


def test_calibration_comes_once_and_before_all_rows_take_part():
    asked = []

    def calibrate(state):
        asked.append(state)
        return {"kept": torch.tensor(3)}

    algorithm = Counting()
    _, run = drive(algorithm, Settings(max_epochs=6, finishing_epochs=2), calibrate=calibrate)
    assert (asked, algorithm.attached, run.finishing_epoch) == ([8], [8], 4)
    assert run.memory == {"kept": torch.tensor(3)}
    asked.clear()
    drive(Counting(), Settings(max_epochs=6), calibrate=calibrate)
    assert asked == [12], "without finishing, at the end"


def test_the_algorithm_of_each_part_is_made_when_the_part_begins():
    made = []

    def algorithm_of(run):
        made.append(run.finishing_epoch)
        return Counting()

    Loop(algorithm_of, Run(max_epochs=6), Settings(max_epochs=6, finishing_epochs=2), Monitor()).drive(0)
    assert made == [None, 4]


def test_scores_are_kept_with_the_epochs():
    scores, held = iter([{"P@1": 1.0}, {"P@1": 2.0}, {"P@1": 3.0}]), []
    monitor, run = Monitor(validate=lambda: next(scores)), Run(max_epochs=3)
    Loop(lambda run: Counting(), run, Settings(max_epochs=3), monitor, hold=held.append).drive(0)
    assert [epoch.scores["P@1"] for epoch in run.history] == [1.0, 2.0, 3.0]
    assert held == [2, 4, 6, 6], "the state of each is in the model"


def test_what_a_device_reports_late_is_counted_in_its_epoch():
    histories = [drive(Counting(is_late=late), Settings(max_epochs=3))[1].history for late in (False, True)]
    assert [epoch.bound for epoch in histories[0]] == [epoch.bound for epoch in histories[1]] == [0.5, 2.5, 4.5]


@pytest.mark.parametrize(("n_failed", "fails"), [(2, False), (3, True)])
def test_an_epoch_that_mostly_failed_ends_the_run(n_failed, fails):
    algorithm = Counting(lambda step: None if 4 <= step < 4 + n_failed else 1.0, n_steps=4)
    if not fails:
        assert [epoch.bound for epoch in drive(algorithm, Settings(max_epochs=3))[1].history] == [1.0] * 3
        return
    with pytest.raises(TrainingError, match="training broke down in epoch 2: it failed"):
        drive(algorithm, Settings(max_epochs=3))


OPTIONS = {"max_epochs": 6, "finishing_epochs": 2}


# Within an epoch, at its end, where finishing begins, at the end of the run.
@pytest.mark.parametrize("stop_after", [1, 2, 7, 8, 9, 12])
@pytest.mark.parametrize("is_late", [False, True])
def test_an_interrupted_run_resumes(stop_after, is_late, tmp_path, interrupt_after):
    settings, asked = Settings(**OPTIONS), []

    def calibrate(state):
        asked.append(state)
        return {"kept": torch.tensor(state)}

    whole, expected = drive(Counting(is_late=is_late), settings, calibrate=calibrate)
    monitor = Monitor(tmp_path / "c", resume=True, on_step=(interrupt := interrupt_after(stop_after, signal.SIGINT)))
    with pytest.raises(Interrupted, match="SIGINT"):
        drive(Counting(is_late=is_late), settings, monitor, calibrate=calibrate)
    assert interrupt.steps == stop_after, "it stops after the step that it is in"
    again, run = drive(Counting(is_late=is_late), settings, monitor, calibrate=calibrate)
    assert again == whole
    assert [epoch.bound for epoch in run.history] == [epoch.bound for epoch in expected.history]
    assert run.memory == expected.memory
    assert asked == [8, 8], "once in each run"


def test_a_checkpoint_after_every_step_is_one_to_go_on_from(tmp_path):
    """However the process ends; also after the last step of an epoch, before the epoch is recorded."""
    settings, path, copies = Settings(**OPTIONS, checkpoint_every=0.0, n_iter_no_change=1), tmp_path / "c", []

    def keep(run, n_steps):
        copies.append(path.read_bytes())

    _, expected = drive(Counting(), settings, Monitor(path, on_step=keep))
    for copy in copies:
        path.write_bytes(copy)
        steps, run = drive(Counting(), settings, Monitor(path, resume=True))
        assert steps == 12
        assert [epoch.bound for epoch in run.history] == [epoch.bound for epoch in expected.history]


@pytest.mark.parametrize(
    "longer", [{"max_epochs": 9}, {"time_budget": 100.0}, {"checkpoint_every": 1.0}, {"tol": 1.0}], ids=str
)
def test_how_long_may_change(longer, tmp_path):
    drive(Counting(), Settings(max_epochs=3), Monitor(tmp_path / "c"))
    steps, _ = drive(Counting(), Settings(**{"max_epochs": 6} | longer), Monitor(tmp_path / "c", resume=True))
    assert steps == 2 * longer.get("max_epochs", 6)


@pytest.mark.parametrize(
    ("options", "identity", "message"),
    [
        ({"seed": 1}, "ours", "another seed; expected the same options and data"),
        ({"batch_size": 7}, "ours", "another batch_size"),
        ({}, "theirs", "another model or other training data"),
    ],
)
def test_what_was_done_may_not(options, identity, message, tmp_path):
    drive(Counting(), Settings(max_epochs=3), Monitor(tmp_path / "c", identity="ours"))
    with pytest.raises(DataError, match=message):
        drive(Counting(), Settings(max_epochs=3, **options), Monitor(tmp_path / "c", True, identity))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "the checkpoint is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4] + b"some"), "damaged .its checksum does not match"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"checkpoint 3", b"checkpoint 2")), "another version"),
        (lambda path: rewrite(path, run={}), "damaged"),
        (lambda path: rewrite(path, run=None), "damaged"),
        (lambda path: rewrite(path, settings=None), "damaged"),
        (lambda path: rewrite(path, run={"history": [], "nonsense": 1}), "damaged"),
        (lambda path: rewrite(path, run={"history": [{"bound": 1.0}]}), "damaged"),
        (lambda path: at_step(path, 3), "damaged .step 3 of 2"),
        (lambda path: at_step(path, -1), "damaged .step -1 of 2"),
    ],
)
def test_an_unusable_checkpoint_is_one_error(change, message, tmp_path):
    path = tmp_path / "c"
    drive(Counting(), Settings(max_epochs=3), Monitor(path))
    change(path)
    with pytest.raises(DataError, match=message):
        drive(Counting(), Settings(max_epochs=3), Monitor(path, resume=True))


def at_step(path, step):
    rewrite(path, run=read_checkpoint(path)[1]["run"] | {"step": step})


def rewrite(path, **facts):
    tensors, known = read_checkpoint(path)
    write_checkpoint(path, tensors, known | facts)


def test_there_is_no_checkpoint(tmp_path):
    assert Checkpoint.of(Monitor(tmp_path / "c", resume=True)) is None
    assert Checkpoint.of(Monitor(resume=True)) is None
    with pytest.raises(DataError, match="there is no checkpoint"):
        read_checkpoint(tmp_path / "c")
