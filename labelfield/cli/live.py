"""The progress bar of a training run."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from labelfield.inference.run import Run, Settings


@dataclass(eq=False)
class _Shown:
    """One line of the bar: a member of an ensemble, a stage, or the whole run."""

    run: Run
    task: TaskID
    n_steps: int = 0
    started: float = field(default_factory=time.monotonic)


class TrainingBar:
    """A progress bar on stderr, if that is a terminal: epoch, bound and speed of a run, or of each ensemble member."""

    def __init__(self, settings: Mapping[str, Settings]) -> None:
        """Take the settings of each stage by name."""
        self.settings = settings
        columns = (
            TextColumn("{task.fields[member]}epoch {task.fields[epoch]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("bound {task.fields[bound]:.2f} nats per row, {task.fields[rate]:.1f} steps/s"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.shown: list[_Shown] = []

    def __enter__(self) -> TrainingBar:
        if sys.stderr.isatty():
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar.live.is_started:
            self.bar.stop()

    def __call__(self, run: Run, n_steps: int) -> None:
        shown = next((shown for shown in self.shown if shown.run is run), None)
        if shown is None:
            shown = _Shown(run, self.bar.add_task("", total=None, member="", epoch=1, bound=float("nan"), rate=0.0))
            self.shown.append(shown)
        shown.n_steps += 1
        member = f"member {self.shown.index(shown) + 1}, " if len(self.shown) > 1 else ""
        done = run.epoch * n_steps + run.step
        budget, total = self.settings[run.stage].time_budget, run.max_epochs * n_steps
        if budget is not None and run.seconds > 0:
            total = max(done, min(total, int(done * budget / run.seconds)))
        self.bar.update(
            shown.task,
            completed=done,
            total=total,
            member=f"{run.stage}, " if run.stage else member,
            epoch=run.epoch + 1,
            bound=run.sum_bound / run.n_good_steps if run.n_good_steps else float("nan"),
            rate=shown.n_steps / max(time.monotonic() - shown.started, 1e-9),
        )
