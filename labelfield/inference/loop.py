"""The training loop: it drives any algorithm that goes in steps, whether by gradients, EM or sampling.

It knows when to stop, when held-out rows calibrate the model and then join the others, and how to save a run; each
step is up to the algorithm.
"""

import signal
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from labelfield.cluster import ALONE, Cluster
from labelfield.errors import LabelfieldError
from labelfield.inference.checkpoint import Tensors, damaged, save_run
from labelfield.inference.run import Clock, Epoch, Monitor, Run, Settings
from labelfield.inference.signals import Interrupted, stop_requests

State = TypeVar("State")
# Where rows are held out, the first part ends at this many times the tolerance: it only finds where the second starts.
_EARLIER = 5.0
# Saving takes at most the inverse of this share of the time.
_RARER = 20.0


class TrainingError(LabelfieldError):
    """Training cannot continue."""


def breakdown(run: Run, problem: str) -> TrainingError:
    """Return the error for a run that cannot continue; `problem` says why and what to do."""
    return TrainingError(f"training broke down in epoch {run.epoch + 1}: {problem}")


class Info(NamedTuple):
    """A report of steps: the sum of their bounds (nats per row), how many were good, what went wrong in the rest."""

    sum_bound: float = 0.0
    n_good: int = 0
    problem: str = ""


class Algorithm(Protocol[State]):
    """Steps from state to state on a set of rows. Subclasses override the methods below whose default does not fit."""

    n_steps: int
    """Steps per epoch."""

    def step(self, state: State, run: Run) -> tuple[State, Info]:
        """Return the state after step `run.step` of epoch `run.epoch`, and a report of the steps so far."""

    def collect(self, run: Run) -> Info:
        """Return a report of the steps that `step` has not reported yet."""
        return Info()

    def step_size(self, state: State, run: Run) -> float:
        """Return how much the next step counts."""
        return 1.0

    def is_settled(self, state: State) -> bool:
        """Return whether the bounds of this epoch and of the one before can be compared."""
        return False

    def detach(self, state: State) -> State:
        """Return the state without anything that holds on to the rows."""
        return state

    def attach(self, state: State) -> State:
        """Return the state in which to continue on these rows, from a detached state."""
        return state

    def tensors(self, state: State) -> Tensors:
        """Return everything that is needed to continue later."""

    def restore(self, tensors: dict[str, Tensor]) -> State:
        """Return the state from which `tensors` was called."""


class Loop(Generic[State]):
    """A run of an algorithm, until its epochs or its time are over or its bound no longer rises.

    Where rows are held out, that only ends the first part: what `calibrate` returns is kept in the run, and the last
    `finishing_epochs` are on all rows. `algorithm_of` is asked for the algorithm of each part; it knows from the run
    which one it is. `hold` puts a state into the model: before the model is validated or calibrated, and at the end.
    Processes that are `together` take every step at the same time: the first decides when to save and when time is
    over, and what asks one of them to stop stops all.
    """

    def __init__(
        self,
        algorithm_of: Callable[[Run], Algorithm[State]],
        run: Run,
        settings: Settings,
        monitor: Monitor,
        *,
        calibrate: Callable[[], dict[str, Tensor]] | None = None,
        hold: Callable[[State], None] = lambda _: None,
        together: Cluster = ALONE,
    ) -> None:
        self.algorithm_of, self.run, self.settings, self.monitor = algorithm_of, run, settings, monitor
        self.calibrate, self.hold, self.together = calibrate, hold, together
        self.clock, self.problem, self.seconds_of_saving = Clock(run, settings), "", 0.0
        self._begin_part()

    def _begin_part(self) -> None:
        self.algorithm = self.algorithm_of(self.run)
        self.run.n_steps = self.algorithm.n_steps
        if not 0 <= self.run.step <= self.run.n_steps:
            raise damaged(self.monitor.checkpoint, f"step {self.run.step} of {self.run.n_steps}")

    def drive(self, state: State) -> State:
        """Run from this state, and return the state at the end."""
        run, clock = self.run, self.clock
        with stop_requests() as asked:
            requests = asked if self.together.size == 1 else list[int]()  # that all processes know of
            self._save(state)
            saved = time.monotonic()
            while run.step > 0 or (run.epoch < run.max_epochs and not clock.is_over()):
                if run.step == 0 and clock.is_finishing_due():
                    self._calibrate_once(state)
                    state = self.algorithm.detach(state)
                    state = self._begin_finishing(state)
                while not self._is_epoch_over():
                    self._stop_if(requests, state)
                    started = time.perf_counter()
                    state, info = self.algorithm.step(state, run)
                    run.seconds += time.perf_counter() - started
                    run.step += 1
                    self._note(info)
                    if self.monitor.on_step is not None:
                        self.monitor.on_step(run, run.n_steps)
                    pause = max(self.settings.checkpoint_every, _RARER * self.seconds_of_saving)
                    if self._agree(time.monotonic() - saved > pause, asked, requests):
                        self._save(state)
                        saved = time.monotonic()
                self._end_epoch(state)
            self._calibrate_once(state)
            self._save(state)
            self._stop_if(requests, state)
        self.hold(state)
        return state

    def _agree(self, is_saving_due: bool, asked: list[int], requests: list[int]) -> bool:
        """Return whether to save now; let all processes have the clock of the first, and stop if one is asked to."""
        if self.together.size == 1:
            return is_saving_due
        told, is_first = torch.zeros(2 + signal.NSIG, dtype=torch.float64), self.together.is_first
        told[0], told[1] = self.run.seconds * is_first, is_saving_due * is_first
        for number in asked[:1]:
            told[2 + number] = 1
        self.together.sum("a step", told)
        self.run.seconds, by_signal = float(told[0]), told[2:]
        if bool(by_signal.any()) and not requests:
            requests.append(int(by_signal.argmax()))  # what most were sent
        return bool(told[1])

    def _is_epoch_over(self) -> bool:
        run, clock = self.run, self.clock
        return run.step == run.n_steps or (run.step > 0 and (clock.is_over() or clock.is_finishing_due()))

    def _note(self, info: Info) -> None:
        self.run.sum_bound += info.sum_bound
        self.run.n_good_steps += info.n_good
        self.problem = info.problem or self.problem

    def _stop_if(self, requests: list[int], state: State) -> None:
        if requests:
            if self.together.size > 1:
                self.together.while_waiting = lambda: None  # all of them stop, and wait for each other to save
            self._save(state)
            raise Interrupted(requests[0])

    def _begin_finishing(self, state: State) -> State:
        run = self.run
        run.is_stopped_early, run.finishing_epoch, run.finishing_seconds = False, run.epoch, run.seconds
        del self.algorithm  # and its rows, before there are others
        self._begin_part()
        return self.algorithm.attach(state)

    def _calibrate_once(self, state: State) -> None:
        if self.calibrate is not None and not self.run.is_calibrated:
            self.hold(state)
            self.run.memory, self.run.is_calibrated = self.calibrate(), True

    def _end_epoch(self, state: State) -> None:
        self._note(self.algorithm.collect(self.run))
        run = self.run
        if run.n_good_steps < run.step / 2:
            raise breakdown(run, self.problem)
        scores: dict[str, float] = {}
        if self.monitor.validate is not None:
            self.hold(state)
            scores = self.monitor.validate()
        before = max((epoch.seconds for epoch in run.history if epoch.stage != run.stage), default=0.0)
        bound, rate = run.sum_bound / run.n_good_steps, self.algorithm.step_size(state, run)
        run.history.append(Epoch(len(run.history), bound, rate, before + run.seconds, scores, run.stage))
        run.epoch += 1
        run.begin_epoch()
        run.is_stopped_early = self._has_stalled() or (self.algorithm.is_settled(state) and self._has_converged())

    def _has_stalled(self) -> bool:
        """Return whether the best bound is `n_iter_no_change` epochs old. While finishing, every epoch is taken."""
        bounds, patience = self.run.bounds(), self.settings.n_iter_no_change
        if patience is None or len(bounds) <= patience or self.run.is_finishing:
            return False
        return len(bounds) - 1 - bounds.index(max(bounds)) >= patience

    def _has_converged(self) -> bool:
        """Return whether the last epoch changed the bound by at most `tol`."""
        run, settings = self.run, self.settings
        # Bounds of other rows say nothing about these.
        bounds = run.bounds()[run.finishing_epoch or 0 :]
        if not settings.tol or len(bounds) < 2:
            return False
        is_early = settings.finishing_epochs > 0 and not run.is_finishing
        return abs(bounds[-1] - bounds[-2]) <= settings.tol * (_EARLIER if is_early else 1.0)

    def _save(self, state: State) -> None:
        if self.monitor.checkpoint is not None:
            self._note(self.algorithm.collect(self.run))
            started = time.monotonic()
            tensors = self.algorithm.tensors(state)
            if self.together.is_first or self.together.size == 1:
                save_run(self.monitor, self.run, self.settings, tensors)
            self.seconds_of_saving = time.monotonic() - started
