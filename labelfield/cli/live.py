"""The progress bar of a training run."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from labelfield.inference.trainer import Run, Settings

__all__ = ["TrainingBar"]


class TrainingBar:
    """Epoch, bound and speed of a run on stderr, if that is a terminal."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        columns = (
            TextColumn("{task.fields[member]}epoch {task.fields[epoch]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("bound {task.fields[bound]:.2f} nats a row, {task.fields[rate]:.1f} steps/s"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task("training", total=None, member="", epoch=1, bound=float("nan"), rate=0.0)
        self.steps, self.started = 0, time.monotonic()
        self.run: Run | None = None
        self.n_runs = 0

    def __enter__(self) -> TrainingBar:
        if sys.stderr.isatty():
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar.live.is_started:
            self.bar.stop()

    def __call__(self, run: Run, n_steps: int) -> None:
        if run is not self.run:  # the next member of an ensemble
            self.run, self.n_runs = run, self.n_runs + 1
            self.steps, self.started = 0, time.monotonic()
        self.steps += 1
        done = run.epoch * n_steps + run.step
        budget = self.settings.time_budget
        total = self.settings.max_epochs * n_steps
        if budget is not None and run.seconds > 0:
            total = max(done, min(total, int(done * budget / run.seconds)))
        self.bar.update(
            self.task,
            completed=done,
            total=total,
            member=f"member {self.n_runs}, " if self.n_runs > 1 else "",
            epoch=run.epoch + 1,
            bound=run.sum_bound / run.n_good_steps if run.n_good_steps else float("nan"),
            rate=self.steps / max(time.monotonic() - self.started, 1e-9),
        )
