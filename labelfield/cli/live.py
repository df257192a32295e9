"""The progress bar of a training run."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from labelfield.inference.run import Run, Settings

# The least progress that is worth a line.
_SHOWN = 0.01


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
        self.runs: list[tuple[Run, TaskID]] = []

    def __enter__(self) -> TrainingBar:
        if sys.stderr.isatty():
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar.live.is_started:
            self.bar.stop()

    def __call__(self, run: Run, n_steps: int) -> None:
        number = next((number for known, number in self.runs if known is run), None)
        if number is None:
            number = self.bar.add_task("", total=None, member="", epoch=1, bound=float("nan"), rate=0.0, n_calls=0)
            self.runs.append((run, number))
        task, member = self.bar.tasks[number], f"member {number + 1}, " if len(self.runs) > 1 else ""
        n_calls = task.fields["n_calls"] + 1
        done, total = _progress(self.settings[run.stage], run, n_steps)
        self.bar.update(
            number,
            completed=done,
            total=total,
            member=f"{run.stage}, " if run.stage else member,
            epoch=run.epoch + 1,
            bound=run.sum_bound / run.n_good_steps if run.n_good_steps else float("nan"),
            rate=n_calls / max(task.elapsed or 0.0, 1e-9),
            n_calls=n_calls,
        )


def _progress(settings: Settings, run: Run, n_steps: int) -> tuple[int, int]:
    """Return how many steps a run has taken, and how many it will take, by its time budget if there is one."""
    done, total = run.epoch * n_steps + run.step, run.max_epochs * n_steps
    if settings.time_budget is not None and run.seconds > 0:
        total = max(done, min(total, int(done * settings.time_budget / run.seconds)))
    return done, total


class ProgressLines:
    """Lines `progress 0.42` on stderr, for programs that watch a training; never falls."""

    def __init__(self, settings: Mapping[str, Settings]) -> None:
        """Take the settings of each stage by name."""
        self.settings, self.runs, self.share, self.told = settings, list[Run](), 0.0, -1.0

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the last line is up to the command."""

    def __call__(self, run: Run, n_steps: int) -> None:
        if not any(known is run for known in self.runs):
            self.runs.append(run)
        done, total = _progress(self.settings[run.stage], run, n_steps)
        n_runs = max(len(self.settings), len(self.runs))
        self.share = max(self.share, min(0.99, (len(self.runs) - 1 + done / max(total, 1)) / n_runs))
        if self.share - self.told >= _SHOWN:
            self.told = self.share
            print(f"progress {self.share:.3f}", file=sys.stderr, flush=True)
