"""The description of a training run: its settings, state, progress and history, and its callbacks."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import cos, inf, pi
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from labelfield.cluster import ALONE, Cluster

SCHEDULES = ("one_cycle", "cosine", "linear", "constant")
OPTIMISERS = ("adam", "adagrad", "adadelta", "rmsprop")
_RISE = 0.3  # the share of a one-cycle run in which the rate rises
_START, _END = 1 / 25, 1e-4


@dataclass(frozen=True)
class Settings:
    """How to train.

    `time_budget` and `checkpoint_every` are in seconds. A run ends early after `n_iter_no_change` epochs without a
    better bound, or when an epoch changes the bound by at most `tol` nats per row (of algorithms whose bounds can be
    compared). `held_out` rows are set aside while the schedule runs; then they calibrate the model, and the last
    `finishing_epochs` train on all rows, with a rate that falls from the highest to 0.
    """

    max_epochs: int = 30
    batch_size: int = 500
    learning_rate: float = 0.02
    schedule: str = "one_cycle"
    optimiser: str = "adam"
    kl_weight: float = 1.0
    clip_norm: float | None = None
    n_iter_no_change: int | None = None
    tol: float = 0.0
    time_budget: float | None = None
    held_out: int = 0
    finishing_epochs: int = 0
    seed: int = 0
    held_out_seed: int | None = None  # where other trainings are to hold out the same rows; else the seed
    checkpoint_every: float = 120.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name not in ("schedule", "optimiser") and value is not None and not isinstance(value, int | float):
                raise ValueError(f"{name}={value!r}; expected a number")
        if self.max_epochs < 1 or self.batch_size < 1:
            raise ValueError("max_epochs and batch_size must be at least 1")
        if not 0 <= self.finishing_epochs < self.max_epochs:
            raise ValueError(f"finishing_epochs={self.finishing_epochs}; expected fewer than max_epochs")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate={self.learning_rate}; expected a positive number")
        if not 0 <= self.kl_weight < inf:
            raise ValueError(f"kl_weight={self.kl_weight}; expected 0 or more")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule={self.schedule!r}; expected one of {', '.join(SCHEDULES)}")
        if self.optimiser not in OPTIMISERS:
            raise ValueError(f"optimiser={self.optimiser!r}; expected one of {', '.join(OPTIMISERS)}")

    def n_steps(self, n_rows: int) -> int:
        """Return how many steps all epochs over so many rows have."""
        return self.max_epochs * -(-n_rows // self.batch_size)

    def held_out_rows(self, n_rows: int) -> NDArray[np.int64]:
        """Return which of n_rows are set aside. That depends on the seed alone; at least one row remains."""
        seed = self.seed if self.held_out_seed is None else self.held_out_seed
        order = np.random.default_rng((seed, 1 << 31)).permutation(n_rows)
        return np.sort(order[: min(self.held_out, n_rows - 1)])


@dataclass(frozen=True)
class Epoch:
    """The record of an epoch: the mean of the bounds (nats per row) of its steps, the step size, the time since the
    run began, scores on validation rows, and the stage of the training that it belongs to."""

    epoch: int
    bound: float
    learning_rate: float
    seconds: float
    scores: dict[str, float] = field(default_factory=dict)
    stage: str = ""


@dataclass
class Run:
    """The state of a run. The history includes earlier stages; everything else is about the current one."""

    epoch: int = 0
    step: int = 0
    n_steps: int = 1  # per epoch
    max_epochs: int = 0
    seconds: float = 0.0
    sum_bound: float = 0.0
    n_good_steps: int = 0
    history: list[Epoch] = field(default_factory=list)
    is_stopped_early: bool = False
    is_calibrated: bool = False
    finishing_epoch: int | None = None  # the first epoch on all rows
    finishing_seconds: float = 0.0  # of training, when that epoch began
    memory: dict[str, Tensor] = field(default_factory=dict)  # what calibration wants to keep
    stage: str = ""

    @property
    def is_finishing(self) -> bool:
        """Whether the held-out rows have joined the training."""
        return self.finishing_epoch is not None

    def begin_epoch(self) -> None:
        """Reset what is counted within an epoch."""
        self.step, self.n_good_steps, self.sum_bound = 0, 0, 0.0

    def bounds(self) -> list[float]:
        """Return the bounds of this stage's epochs."""
        return [epoch.bound for epoch in self.history if epoch.stage == self.stage]


def rate_factor(schedule: str, share: float) -> float:
    """Return the factor on the learning rate when `share` (0 to 1) of the run is done."""
    share = min(max(share, 0.0), 1.0)
    if schedule == "one_cycle":
        if share < _RISE:
            return _between(_START, 1.0, share / _RISE)
        return _between(1.0, _END, (share - _RISE) / (1 - _RISE))
    if schedule == "cosine":
        return _between(1.0, _END, share)
    if schedule == "linear":
        return 1.0 + (_END - 1.0) * share
    if schedule == "constant":
        return 1.0
    raise ValueError(f"schedule={schedule!r}; expected one of {', '.join(SCHEDULES)}")


def _between(start: float, end: float, share: float) -> float:
    """Interpolate from start to end along half a cosine."""
    return end + (start - end) * 0.5 * (1 + cos(pi * share))


@dataclass(frozen=True)
class Clock:
    """The progress of a run, by epochs or by the clock, whichever is further; hence its rate, and when it ends.

    The schedule takes the first epochs; in the last `finishing_epochs` all rows take part.
    """

    run: Run
    settings: Settings

    def rate(self) -> float:
        """Return the learning rate of the next step."""
        if self.run.is_finishing:
            return self.settings.learning_rate * (1 - self._share_finished())
        share = min(self._share_done() / self._schedule_share(), 1.0)
        return self.settings.learning_rate * rate_factor(self.settings.schedule, share)

    def is_finishing_due(self) -> bool:
        """Return whether the schedule is over, or was ended early, and finishing is still to come."""
        if self.settings.finishing_epochs == 0 or self.run.is_finishing:
            return False
        return self.run.is_stopped_early or self._share_done() >= self._schedule_share() - 1e-9

    def is_over(self) -> bool:
        """Return whether the run ends here, even if epochs are left."""
        budget = self.settings.time_budget
        if budget is not None and self.run.seconds >= budget:
            return True
        if self.run.is_finishing and self._share_finished() >= 1:
            return True
        return self.run.is_stopped_early and not self.is_finishing_due()

    def _n_epochs(self) -> float:
        return self.run.epoch + self.run.step / self.run.n_steps

    def _share_done(self) -> float:
        done, budget = self._n_epochs() / self.settings.max_epochs, self.settings.time_budget
        return done if budget is None else max(done, self.run.seconds / budget)

    def _schedule_share(self) -> float:
        """Return the share of the run that the schedule takes; the rest is finishing."""
        return 1 - self.settings.finishing_epochs / self.settings.max_epochs

    def _share_finished(self) -> float:
        assert self.run.finishing_epoch is not None
        n_epochs, budget = self._n_epochs() - self.run.finishing_epoch, self.settings.time_budget
        share = n_epochs / max(self.settings.finishing_epochs, 1)
        if budget is not None:
            left = max(budget - self.run.finishing_seconds, 1e-9)
            share = max(share, (self.run.seconds - self.run.finishing_seconds) / left)
        return min(share, 1.0)


Callback = Callable[[Run, int], None]
Validate = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Monitor:
    """The callbacks of a run, and where it is saved.

    With `checkpoint` the state is written there at the start and at the end, every `checkpoint_every` seconds, and when
    SIGINT or SIGTERM asks to stop (`Interrupted` is raised then). With `resume` a run continues from there and, on a
    CPU, ends in the same arrays as one that was never interrupted. `identity` identifies the model and its data; a
    checkpoint of anything else is refused. `on_step` is called with the run and the number of steps per epoch after
    each step; `validate` returns scores after each epoch. The processes of a `cluster` train one
    model together.
    """

    checkpoint: Path | None = None
    resume: bool = False
    identity: str = ""
    on_step: Callback | None = None
    validate: Validate | None = None
    cluster: Cluster = ALONE
