"""Training in stages, each with its objective, its rows, its parameters and a schedule of its own.

One checkpoint serves all: it says which stage it is of, and the stages before it are in its arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from labelfield.errors import DataError
from labelfield.inference.checkpoint import damaged, read_checkpoint
from labelfield.inference.source import Source
from labelfield.inference.stepper import Objective
from labelfield.inference.trainer import Calibrate, Callback, Run, Settings, Training, Validate, stop_requests

__all__ = ["Stage", "train_stages"]


@dataclass(frozen=True)
class Stage:
    """A part of a training. `begin` is called when it starts, not when it is resumed; `source` and `rates`, of the
    parameters that it trains, when the model is as it was left by then."""

    name: str
    settings: Settings
    objective: Objective
    source: Callable[[], Source]
    rates: Callable[[], Mapping[nn.Parameter, float]]
    begin: Callable[[], None] = lambda: None
    calibrate: Calibrate | None = None
    is_capturable: bool = False


def train_stages(
    model: nn.Module,
    stages: Sequence[Stage],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    identity: str = "",
    on_step: Callback | None = None,
    validate: Validate | None = None,
) -> Run:
    """Train through all stages, as `train` does through one; interrupted in any of them, it goes on from there."""
    is_resumed = resume and checkpoint is not None and checkpoint.exists()
    first = _stage_of(checkpoint, stages) if is_resumed and checkpoint is not None else 0
    run = Run()
    with stop_requests():
        for number, stage in enumerate(stages[first:], first):
            if not (is_resumed and number == first):
                stage.begin()
            training = Training(
                model,
                stage.settings,
                checkpoint=checkpoint,
                identity=identity,
                on_step=on_step,
                validate=validate,
                calibrate=stage.calibrate,
                is_capturable=stage.is_capturable,
                rates=stage.rates(),
                stage=stage.name,
                history=run.history,
            )
            if is_resumed and number == first:
                training.restore()
            run = training.run(stage.objective, stage.source(), stage.settings.max_epochs)
    return run


def _stage_of(checkpoint: Path, stages: Sequence[Stage]) -> int:
    """The stage that a checkpoint was written in."""
    _, facts = read_checkpoint(checkpoint)
    try:
        name = facts["run"]["stage"]
    except (KeyError, TypeError) as error:
        raise damaged(checkpoint, error) from None
    names = [stage.name for stage in stages]
    if name not in names:
        raise DataError(
            f"the checkpoint was made in the stage {name!r}",
            path=checkpoint,
            expected=f"one of {', '.join(names)}",
            fix="Resume with the options it was started with, or start anew.",
        )
    return names.index(name)
