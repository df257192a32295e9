"""One loop for every method that goes in steps `step(state) -> (state, objective)`: it checkpoints, resumes, stops."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from torch import Tensor

from labelfield.errors import DataError
from labelfield.inference.checkpoint import damaged, read_checkpoint, write_checkpoint
from labelfield.inference.trainer import (
    HOW_LONG,
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

    def tensors(self, state: State) -> dict[str, Tensor]:
        """All there is to know to go on."""
        ...

    def restored(self, tensors: dict[str, Tensor]) -> State:
        """What `tensors` were of."""
        ...


class Rounds(Generic[State]):
    """A run of a method. It ends with the epochs or the time, or when an epoch raises the objective by less than
    `tolerance` nats a row."""

    def __init__(
        self,
        method: Method[State],
        settings: Settings,
        *,
        tolerance: float = 0.0,
        checkpoint: Path | None = None,
        identity: str = "",
        on_step: Callback | None = None,
        validate: Callable[[State], dict[str, float]] | None = None,
    ) -> None:
        self.method, self.settings, self.tolerance = method, settings, tolerance
        self.checkpoint, self.identity = checkpoint, identity
        self.on_step, self.validate = on_step, validate
        self.run_state = Run(max_epochs=settings.max_epochs)

    def run(self, state: State, resume: bool = False) -> tuple[State, Run]:
        """From this state, or from the checkpoint."""
        if resume and self.checkpoint is not None and self.checkpoint.exists():
            state = self._restore()
        run, method = self.run_state, self.method
        saved = last = time.monotonic()
        with stop_requests() as requests:
            self._save(state)
            while run.epoch < self.settings.max_epochs and not self._is_over():
                while run.step < method.n_batches:
                    state, objective = method.step(state, run.epoch, run.step)
                    if not np.isfinite(objective):
                        raise TrainingError("the objective is not finite; scale the rows, or lower weight_scale")
                    run.step += 1
                    run.sum_bound += objective / method.n_rows
                    run.n_good_steps += 1
                    now = time.monotonic()
                    run.seconds, last = run.seconds + now - last, now
                    if self.on_step is not None:
                        self.on_step(run, method.n_batches)
                    if requests or now - saved > self.settings.checkpoint_every:
                        self._save(state)
                        saved = time.monotonic()
                    if requests:
                        raise Interrupted(requests[0])
                    if self._is_over():
                        break
                self._end_epoch(state)
                last = time.monotonic()
            self._save(state)
        return state, run

    def _end_epoch(self, state: State) -> None:
        run = self.run_state
        scores = self.validate(state) if self.validate is not None else {}
        bound = run.sum_bound / max(run.n_good_steps, 1)
        before = run.history[-1].bound if run.history else -np.inf
        run.history.append(Epoch(run.epoch, bound, self.method.step_size(state), run.seconds, scores))
        run.epoch += 1
        run.step, run.n_good_steps, run.sum_bound = 0, 0, 0.0
        if self.tolerance and np.isfinite(before) and self.method.is_settled(state):
            run.is_stopped_early = abs(bound - before) <= self.tolerance

    def _is_over(self) -> bool:
        budget = self.settings.time_budget
        return self.run_state.is_stopped_early or (budget is not None and self.run_state.seconds >= budget)

    def _save(self, state: State) -> None:
        if self.checkpoint is None:
            return
        facts = {"settings": asdict(self.settings), "identity": self.identity, "run": asdict(self.run_state)}
        write_checkpoint(self.checkpoint, self.method.tensors(state), facts)

    def _restore(self) -> State:
        assert self.checkpoint is not None
        tensors, facts = read_checkpoint(self.checkpoint)
        try:
            self._require_same(facts)
            run = dict(facts["run"])
            run["history"] = [Epoch(**epoch) for epoch in run["history"]]
            self.run_state = Run(**run | {"max_epochs": self.settings.max_epochs, "is_stopped_early": False})
            return self.method.restored(tensors)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise damaged(self.checkpoint, error) from None

    def _require_same(self, facts: dict[str, Any]) -> None:
        ours, theirs = asdict(self.settings), dict(facts["settings"])
        for name in HOW_LONG:
            ours.pop(name), theirs.pop(name)
        if ours != theirs or facts["identity"] != self.identity:
            raise DataError(
                "the checkpoint was made with other options or other training data",
                path=self.checkpoint,
                expected="the same",
                fix="Resume with the options it was started with, or start anew.",
            )
