"""Train a model by gradients: in one stage, in several, or with rows that come in parts.

Each stage has its own objective, rows, parameters and schedule. One checkpoint serves all of them: it names its stage,
and its arrays hold what the stages before it have learned.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelfield.inference.checkpoint import Checkpoint
from labelfield.inference.gradient import Batches, Gradient, Rates
from labelfield.inference.loop import Loop
from labelfield.inference.run import Epoch, Monitor, Run, Settings
from labelfield.inference.signals import stop_requests
from labelfield.inference.source import Source
from labelfield.inference.stepper import Objective
from labelfield.inference.team import NO_TEAM, Team

# From the numbers of the rows that were held out: what to keep of them.
Calibrate = Callable[[NDArray[np.int64]], dict[str, Tensor]]


@dataclass(frozen=True)
class Stage:
    """A part of a training.

    `begin` is called when the stage starts, but not when it is resumed; then, in both cases, `enter`; then `rates`
    (None for all parameters at 1) and, once the model is as the stage takes it up, `source`. `calibrate` is given the
    rows that were held out. `batches` makes batches of rows; by default these are cut from their random order. An
    objective whose shapes depend on nothing but the sizes of the batch `is_capturable` on a GPU. The processes of a
    `team` take the same steps together.
    """

    name: str
    settings: Settings
    objective: Objective
    source: Callable[[], Source]
    rates: Callable[[], Rates | None] = lambda: None
    begin: Callable[[], None] = lambda: None
    enter: Callable[[], None] = lambda: None
    calibrate: Calibrate | None = None
    batches: Batches | None = None
    is_capturable: bool = False
    team: Team = NO_TEAM


def train(
    model: nn.Module,
    objective: Objective,
    source: Source,
    settings: Settings,
    *,
    monitor: Monitor = Monitor(),
    **options: Any,
) -> Run:
    """Maximise the bound that `objective(X, Y, n_data, generator)` estimates over all parameters of the model.

    `options` are further fields of `Stage`.
    """
    return train_stages(model, [Stage("", settings, objective, lambda: source, **options)], monitor)


def train_stages(model: nn.Module, stages: Sequence[Stage], monitor: Monitor = Monitor()) -> Run:
    """Train a model through all stages; an interrupted run continues in the stage where it stopped."""
    saved = None if stages[0].team.cluster.size > 1 else Checkpoint.of(monitor)
    first = 0 if saved is None else saved.place([stage.name for stage in stages])
    run = Run()
    with stop_requests():
        for stage in stages[first:]:
            if saved is None:
                stage.begin()
            stage.enter()
            run = Run(stage=stage.name, history=list(run.history))
            seed = _seed(stage.settings, len(run.history))
            gradient = Gradient(model, stage.settings, seed, stage.rates(), stage.team)
            if stage.team.cluster.size > 1:
                saved = Checkpoint.of_team(monitor, gradient.own_rows)
            if saved is not None:
                run = saved.run(stage.settings)
                saved.restore(gradient.restore)
                saved = None  # the stages after this one begin
            run.max_epochs = stage.settings.max_epochs
            gradient.open(stage.objective, stage.source(), stage.batches, stage.is_capturable)
            _drive(gradient, run, stage.settings, monitor, stage.calibrate)
    return run


def _seed(settings: Settings, n_epochs_before: int) -> int:
    """Return the seed of a stage. If two stages drew the same numbers, dropout would hide the same units of the same
    rows once more and regularise nothing."""
    if n_epochs_before == 0:
        return settings.seed
    return int(np.random.SeedSequence((settings.seed, n_epochs_before)).generate_state(1, np.uint64)[0])


class PartialTraining:
    """Training that continues with other rows: one epoch per call, at a constant rate, with the same optimiser."""

    def __init__(
        self, model: nn.Module, settings: Settings, history: Iterable[Epoch] = (), rates: Rates | None = None
    ) -> None:
        self.settings = replace(
            settings, schedule="constant", n_iter_no_change=None, time_budget=None, held_out=0, finishing_epochs=0
        )
        self.gradient = Gradient(model, self.settings, settings.seed, rates)
        self.run = Run(history=list(history))
        self.run.epoch = len(self.run.history)

    def fit(self, objective: Objective, source: Source, batches: Batches | None = None) -> Run:
        """Train for an epoch on these rows."""
        # A call that was interrupted leaves nothing to the next one, whose rows are others.
        self.run.begin_epoch()
        self.run.max_epochs = self.run.epoch + 1
        self.gradient.open(objective, source, batches, is_capturable=False)
        _drive(self.gradient, self.run, self.settings, Monitor(), None)
        return self.run


def _drive(gradient: Gradient, run: Run, settings: Settings, monitor: Monitor, calibrate: Calibrate | None) -> None:
    """Run the loop on the rows that were opened, and close them."""
    held_out = gradient.held_out
    kept = None if calibrate is None or not len(held_out) else lambda: calibrate(held_out)
    try:
        with _no_denormals():
            Loop(gradient.part, run, settings, monitor, calibrate=kept, together=gradient.team.cluster).drive(
                gradient.model
            )
    finally:
        gradient.close()


@contextmanager
def _no_denormals() -> Iterator[None]:
    """Count numbers below 1e-38 as 0: means that shrink towards 0 would make a CPU step several times slower."""
    changed = torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if changed:
            torch.set_flush_denormal(False)
