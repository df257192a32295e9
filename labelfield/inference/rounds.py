"""One loop for every method that goes in steps `step(state) -> (state, objective)`: it checkpoints, resumes, stops."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
from torch import Tensor

from labelfield.errors import DataError
from labelfield.inference.checkpoint import damaged, read_checkpoint, require_same, under, write_checkpoint
from labelfield.inference.trainer import (
    Callback,
    Epoch,
    Interrupted,
    Run,
    Settings,
    TrainingError,
    stop_requests,
)

__all__ = ["Method", "Rounds"]

State = TypeVar("State")
# Where rows are held out, the first part ends at so many times the tolerance: what it has found is only where the
# second one starts.
_EARLIER = 5.0


class Method(Protocol[State]):
    """What the loop drives."""

    n_rows: int
    n_batches: int

    def step(self, state: State, epoch: int, number: int) -> tuple[State, float]:
        """The state after a step on the number-th batch of an epoch, and the objective in nats."""
        ...

    def step_size(self, state: State) -> float:
        """How much the next step counts."""
        ...

    def is_settled(self, state: State) -> bool:
        """Whether the objective may be compared with the one before."""
        ...

    def left(self, state: State) -> State:
        """A state without what holds on to the rows."""
        ...

    def taken_up(self, state: State) -> State:
        """Of a state that steps on other rows have led to, and `left`: where to go on with these."""
        ...

    def tensors(self, state: State) -> dict[str, Tensor]:
        """All there is to know to go on."""
        ...

    def restored(self, tensors: dict[str, Tensor]) -> State:
        """What `tensors` were of."""
        ...


class Rounds(Generic[State]):
    """A run of a method. It ends with the epochs or the time, or when an epoch raises the objective by less than
    `tolerance` nats a row.

    Where rows are held out, that only ends its first part, a little earlier: then `calibrate` is given the state, and
    what it answers is kept in the run; the last `finishing_epochs` are on all rows. `method_of` is asked for the method
    of each part; it knows from the run which one it is.
    """

    def __init__(
        self,
        method_of: Callable[[Run], Method[State]],
        settings: Settings,
        *,
        tolerance: float = 0.0,
        checkpoint: Path | None = None,
        identity: str = "",
        on_step: Callback | None = None,
        validate: Callable[[State], dict[str, float]] | None = None,
        calibrate: Callable[[State], dict[str, Tensor]] | None = None,
    ) -> None:
        self.method_of, self.settings, self.tolerance = method_of, settings, tolerance
        self.calibrate = calibrate
        self.checkpoint, self.identity = checkpoint, identity
        self.on_step, self.validate = on_step, validate
        self.run_state = Run(max_epochs=settings.max_epochs)

    def run(self, start: Callable[[Method[State]], State], resume: bool = False) -> tuple[State, Run]:
        """From where `start` says that the method begins, or from the checkpoint."""
        if resume and self.checkpoint is not None and self.checkpoint.exists():
            state = self._restore()
        else:
            self.method = self.method_of(self.run_state)
            state = start(self.method)
        run = self.run_state
        saved = last = time.monotonic()
        with stop_requests() as requests:
            self._save(state)
            while run.epoch < self.settings.max_epochs and not self._is_over():
                if run.step == 0 and self._is_finishing_due():
                    self._calibrate_once(state)
                    state = self.method.left(state)
                    state = self._begin_finishing(state)
                while run.step < self.method.n_batches:
                    state, objective = self.method.step(state, run.epoch, run.step)
                    if not np.isfinite(objective):
                        raise TrainingError("the objective is not finite; scale the rows, or lower weight_scale")
                    run.step += 1
                    run.sum_bound += objective / self.method.n_rows
                    run.n_good_steps += 1
                    now = time.monotonic()
                    run.seconds, last = run.seconds + now - last, now
                    if self.on_step is not None:
                        self.on_step(run, self.method.n_batches)
                    if requests or now - saved > self.settings.checkpoint_every:
                        self._save(state)
                        saved = time.monotonic()
                    if requests:
                        raise Interrupted(requests[0])
                    if self._is_over() or self._is_finishing_due():
                        break
                self._end_epoch(state)
                last = time.monotonic()
            self._calibrate_once(state)
            self._save(state)
        return state, run

    def _end_epoch(self, state: State) -> None:
        run = self.run_state
        scores = self.validate(state) if self.validate is not None else {}
        bound = run.sum_bound / max(run.n_good_steps, 1)
        # Bounds of other rows say nothing of these.
        is_first = run.epoch == (0 if run.finishing_epoch is None else run.finishing_epoch)
        before = -np.inf if is_first else run.history[-1].bound
        run.history.append(Epoch(run.epoch, bound, self.method.step_size(state), run.seconds, scores))
        run.epoch += 1
        run.step, run.n_good_steps, run.sum_bound = 0, 0, 0.0
        if self.tolerance and np.isfinite(before) and self.method.is_settled(state):
            is_early = self.settings.finishing_epochs > 0 and run.finishing_epoch is None
            run.is_stopped_early = abs(bound - before) <= self.tolerance * (_EARLIER if is_early else 1.0)

    def _is_over(self) -> bool:
        run, budget = self.run_state, self.settings.time_budget
        if budget is not None and run.seconds >= budget:
            return True
        if run.finishing_epoch is not None and run.epoch >= run.finishing_epoch + self.settings.finishing_epochs:
            return True
        return run.is_stopped_early and not self._is_finishing_due()

    def _is_finishing_due(self) -> bool:
        """Where the first part ends, by epochs or the clock, or because it has come to rest."""
        run, settings = self.run_state, self.settings
        if not settings.finishing_epochs or run.finishing_epoch is not None:
            return False
        first = 1 - settings.finishing_epochs / settings.max_epochs
        is_late = settings.time_budget is not None and run.seconds >= first * settings.time_budget
        return is_late or run.is_stopped_early or run.epoch >= settings.max_epochs - settings.finishing_epochs

    def _begin_finishing(self, state: State) -> State:
        self.run_state.is_stopped_early, self.run_state.finishing_epoch = False, self.run_state.epoch
        del self.method  # and its rows, before there are others
        self.method = self.method_of(self.run_state)
        return self.method.taken_up(state)

    def _calibrate_once(self, state: State) -> None:
        run = self.run_state
        if self.calibrate is not None and not run.is_calibrated:
            run.memory, run.is_calibrated = self.calibrate(state), True

    def _save(self, state: State) -> None:
        if self.checkpoint is None:
            return
        run = asdict(replace(self.run_state, memory={}))
        facts = {"settings": asdict(self.settings), "identity": self.identity, "run": run}
        memory = {f"memory.{name}": value for name, value in self.run_state.memory.items()}
        write_checkpoint(self.checkpoint, self.method.tensors(state) | memory, facts)

    def _restore(self) -> State:
        assert self.checkpoint is not None
        tensors, facts = read_checkpoint(self.checkpoint)
        try:
            require_same(self.checkpoint, facts, asdict(self.settings), self.identity)
            run = dict(facts["run"])
            run["history"] = [Epoch(**epoch) for epoch in run["history"]]
            run["memory"] = under("memory.", tensors)
            self.run_state = Run(**run | {"max_epochs": self.settings.max_epochs, "is_stopped_early": False})
            self.method = self.method_of(self.run_state)
            own = {name: value for name, value in tensors.items() if not name.startswith("memory.")}
            return self.method.restored(own)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise damaged(self.checkpoint, error) from None
