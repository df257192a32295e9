"""The stochastic trainer: minibatches, Adam, a schedule; it checkpoints, resumes, recovers and can be interrupted."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelfield.errors import DataError, LabelfieldError
from labelfield.inference.adam import RowAdam
from labelfield.inference.checkpoint import damaged, read_checkpoint, require_same, under, write_checkpoint
from labelfield.inference.schedule import SCHEDULES, rate_factor
from labelfield.inference.source import Source
from labelfield.inference.stepper import Objective, Stepper, all_finite
from labelfield.linalg.cholesky import FactorisationError

__all__ = [
    "Batches",
    "Epoch",
    "Interrupted",
    "Run",
    "Settings",
    "Training",
    "TrainingError",
    "held_out_rows",
    "stop_requests",
    "train",
]

_MOST_BAD_STEPS = 20
# Steps that a GPU is given before it is asked how they went.
_STEPS_AHEAD = 64


class TrainingError(LabelfieldError):
    """Training cannot go on."""


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop; a checkpoint, if one was asked for, has been written."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


@dataclass(frozen=True)
class Settings:
    """How to train: `time_budget` and `checkpoint_every` in seconds, `patience` in epochs without a better bound.

    With `held_out` rows, these are kept aside while the schedule runs; then they calibrate the model, and the last
    `finishing_epochs` train on all rows, with a rate that falls from the highest to 0.
    """

    max_epochs: int = 30
    batch_size: int = 500
    learning_rate: float = 0.02
    schedule: str = "one_cycle"
    kl_weight: float = 1.0
    clip_norm: float | None = None
    patience: int | None = None
    time_budget: float | None = None
    held_out: int = 0
    finishing_epochs: int = 0
    seed: int = 0
    checkpoint_every: float = 120.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "schedule" and value is not None and not isinstance(value, int | float):
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


@dataclass(frozen=True)
class Epoch:
    """What an epoch was like: the mean over its steps of the estimated bound (nats a row), the rate, the time.

    `stage` names the part of a training that goes in parts (labelfield.inference.stages).
    """

    epoch: int
    bound: float
    learning_rate: float
    seconds: float
    scores: dict[str, float] = field(default_factory=dict)
    stage: str = ""


@dataclass
class Run:
    """Where a run stands. Its history has the epochs of earlier stages too, its counts are of this one."""

    epoch: int = 0
    step: int = 0
    max_epochs: int = 0
    seconds: float = 0.0
    sum_bound: float = 0.0
    n_good_steps: int = 0
    n_bad_steps: int = 0
    history: list[Epoch] = field(default_factory=list)
    is_stopped_early: bool = False
    is_calibrated: bool = False
    finishing_epoch: int | None = None  # the first of those that finish
    finishing_seconds: float = 0.0  # of training, when finishing began
    memory: dict[str, Tensor] = field(default_factory=dict)  # what calibrating found worth keeping
    stage: str = ""


Callback = Callable[[Run, int], None]
# The batches, from the rows of an epoch in random order, the size of a batch, how many there are, what to draw from.
Batches = Callable[[NDArray[np.int64], int, int, np.random.Generator], list[NDArray[np.int64]]]
Validate = Callable[[], dict[str, float]]
Calibrate = Callable[[NDArray[np.int64]], dict[str, Tensor]]


def train(
    model: nn.Module,
    objective: Objective,
    source: Source,
    settings: Settings,
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    identity: str = "",
    on_step: Callback | None = None,
    validate: Validate | None = None,
    calibrate: Calibrate | None = None,
    batches: Batches | None = None,
    is_capturable: bool = False,
) -> Run:
    """Maximise the bound that `objective(X, Y, n_data, generator)` estimates, over the parameters of `model`.

    With `checkpoint` the state is written there at both ends, every few minutes, and when SIGINT or SIGTERM asks to
    stop (Interrupted is raised then); with `resume` a run goes on from there and, on a CPU, ends in the same arrays as
    one that was never interrupted. `identity` says what is trained on what; a checkpoint of anything else is refused.
    `on_step` is called with the run and the steps of an epoch; `validate` gives scores after each epoch; `calibrate`
    is given the rows that were held out; `batches` makes batches of rows, which are else cut from their random order.
    An objective whose shapes depend on the sizes of the batch alone `is_capturable` on a GPU.
    """
    training = Training(
        model,
        settings,
        checkpoint=checkpoint,
        identity=identity,
        on_step=on_step,
        validate=validate,
        calibrate=calibrate,
        batches=batches,
        is_capturable=is_capturable,
    )
    if resume and checkpoint is not None and checkpoint.exists():
        training.restore()
    return training.run(objective, source, settings.max_epochs)


def held_out_rows(n_rows: int, n_held_out: int, seed: int) -> NDArray[np.int64]:
    """The rows that are kept aside, which depend on the seed alone."""
    return np.sort(np.random.default_rng((seed, 1 << 31)).permutation(n_rows)[:n_held_out])


class Training:
    """A training under way: the optimiser, the random numbers and how far it is. It can go on with other rows."""

    def __init__(
        self,
        model: nn.Module,
        settings: Settings,
        *,
        checkpoint: Path | None = None,
        identity: str = "",
        on_step: Callback | None = None,
        validate: Validate | None = None,
        calibrate: Calibrate | None = None,
        batches: Batches | None = None,
        is_capturable: bool = False,
        rates: Mapping[nn.Parameter, float] | None = None,
        stage: str = "",
        history: Iterable[Epoch] = (),
    ) -> None:
        """All parameters of the model are trained, or those of `rates`, each at so many times the rate of the settings;
        `history` is of the stages before this one."""
        self.batches = batches
        self.model, self.settings = model, settings
        self.checkpoint, self.identity = checkpoint, identity
        self.on_step, self.validate, self.calibrate = on_step, validate, calibrate
        self.is_capturable = is_capturable
        if rates is None:
            rates = dict.fromkeys(model.parameters(), 1.0)
        self.parameters = [parameter for parameter in rates if parameter.requires_grad]
        self.device = self.parameters[0].device
        self.optimiser = RowAdam(
            self.parameters, settings.learning_rate, [rates[parameter] for parameter in self.parameters]
        )
        self.state = Run(stage=stage, history=list(history))
        self.generator = torch.Generator().manual_seed(_seed_of(settings.seed, len(self.state.history)))
        self.problem = ""

    def run(self, objective: Objective, source: Source, max_epochs: int) -> Run:
        """Train until so many epochs are done, counted from the very start."""
        if source.n_rows == 0:
            raise DataError("no training rows", expected="at least one", fix="Check the training data.")
        self.source = source
        self.state.max_epochs = max_epochs
        self.stepper = Stepper(
            objective,
            source,
            self.optimiser,
            self.generator,
            kl_weight=self.settings.kl_weight,
            clip_norm=self.settings.clip_norm,
            is_capturable=self.is_capturable,
        )
        try:
            self._run(max_epochs)
        finally:
            del self.source, self.stepper  # the rows are the caller's
        return self.state

    def _run(self, max_epochs: int) -> None:
        with stop_requests() as caught, _no_denormals():
            self.save()
            last_written = time.monotonic()
            while self.state.epoch < max_epochs and not self.is_over():
                self._begin_finishing_if_due()
                for rows in self.remaining_batches():
                    self._stop_if(caught)
                    started = time.perf_counter()
                    self.step(rows)
                    self.state.seconds += time.perf_counter() - started
                    if self.on_step is not None:
                        self.on_step(self.state, self.n_steps)
                    if time.monotonic() - last_written > self.settings.checkpoint_every:
                        self.save()
                        last_written = time.monotonic()
                    if self.is_over() or self._is_finishing_due():
                        break
                self.end_epoch()
            self._calibrate_once()
            self.save()
            self._stop_if(caught)

    def _stop_if(self, caught: list[int]) -> None:
        if caught:
            self.save()
            raise Interrupted(caught[0])

    @property
    def n_rows(self) -> int:
        """The rows that this epoch trains on."""
        return self.source.n_rows - (0 if self.is_finishing() else self._n_held_out())

    @property
    def n_steps(self) -> int:
        """The steps of this epoch."""
        return -(-self.n_rows // self.settings.batch_size)

    def _n_held_out(self) -> int:
        return min(self.settings.held_out, self.source.n_rows - 1)

    def held_out_rows(self) -> NDArray[np.int64]:
        return held_out_rows(self.source.n_rows, self._n_held_out(), self.settings.seed)

    def remaining_batches(self) -> list[NDArray[np.int64]]:
        """The batches of this epoch that are still to come. The order depends on the seed and the epoch alone, which is
        counted through all stages."""
        rng = np.random.default_rng((self.settings.seed, len(self.state.history)))
        order = rng.permutation(self.source.n_rows)
        if self._n_held_out() and not self.is_finishing():
            is_held = np.zeros(self.source.n_rows, np.bool_)
            is_held[self.held_out_rows()] = True
            order = order[~is_held[order]]
        # All of one size, which a GPU needs; the few rows that are left over come in other epochs.
        size = self.n_rows // self.n_steps
        if self.batches is not None:
            return self.batches(order, size, self.n_steps, rng)[self.state.step :]
        return list(order[: size * self.n_steps].reshape(self.n_steps, size)[self.state.step :])

    def share_done(self) -> float:
        done = (self.state.epoch + self.state.step / self.n_steps) / self.settings.max_epochs
        budget = self.settings.time_budget
        return done if budget is None else max(done, self.state.seconds / budget)

    def _schedule_share(self) -> float:
        """Which share of the run the schedule takes; the rest is finishing."""
        return 1 - self.settings.finishing_epochs / self.settings.max_epochs

    def is_finishing(self) -> bool:
        return self.state.finishing_epoch is not None

    def _is_finishing_due(self) -> bool:
        """Where the schedule ends, or a plateau ended it before."""
        if self.settings.finishing_epochs == 0 or self.is_finishing():
            return False
        return self.state.is_stopped_early or self.share_done() >= self._schedule_share() - 1e-9

    def _begin_finishing_if_due(self) -> None:
        if self.state.step == 0 and self._is_finishing_due():
            self._calibrate_once()
            self.state.is_stopped_early = False
            self.state.finishing_epoch, self.state.finishing_seconds = self.state.epoch, self.state.seconds

    def _share_finished(self) -> float:
        """How much of finishing is done, by epochs or by the clock."""
        assert self.state.finishing_epoch is not None
        epochs = self.state.epoch + self.state.step / self.n_steps - self.state.finishing_epoch
        share, budget = epochs / max(self.settings.finishing_epochs, 1), self.settings.time_budget
        if budget is not None:
            left = max(budget - self.state.finishing_seconds, 1e-9)
            share = max(share, (self.state.seconds - self.state.finishing_seconds) / left)
        return min(share, 1.0)

    def _calibrate_once(self) -> None:
        if self.calibrate is not None and self._n_held_out() and not self.state.is_calibrated:
            self.state.memory = self.calibrate(self.held_out_rows())
            self.state.is_calibrated = True

    def is_over(self) -> bool:
        budget = self.settings.time_budget
        if budget is not None and self.state.seconds >= budget:
            return True
        if self.is_finishing():
            return self._share_finished() >= 1
        return self.state.is_stopped_early and not self._is_finishing_due()

    def rate(self) -> float:
        if self.is_finishing():
            return self.settings.learning_rate * (1 - self._share_finished())
        share = min(self.share_done() / self._schedule_share(), 1.0)
        return self.settings.learning_rate * rate_factor(self.settings.schedule, share)

    def step(self, rows: NDArray[np.int64]) -> None:
        self.optimiser.rate = self.rate()
        try:
            self.stepper.step(rows, self.n_rows)
        except FactorisationError as error:
            self.skip(str(error), 1)
        self.state.step += 1
        if self.device.type == "cpu" or self.state.step % _STEPS_AHEAD == 0 or self.state.step == self.n_steps:
            self.catch_up()

    def catch_up(self) -> None:
        """Find out what the last steps were like."""
        tally, state = self.stepper.read(), self.state
        state.sum_bound += tally.sum_bound
        state.n_good_steps += tally.n_good
        if tally.n_good:
            state.n_bad_steps = tally.n_bad_at_end - tally.n_bad
        if tally.n_bad:
            self.skip("the bound or its gradient is not finite", tally.n_bad)

    def skip(self, problem: str, n_steps: int) -> None:
        """Leave steps out: their rows come again in the next epoch. Too many in a row are no accident."""
        self.problem = problem
        self.state.n_bad_steps += n_steps
        if self.state.n_bad_steps > _MOST_BAD_STEPS or not all_finite(self.parameters):
            raise self._breakdown(problem)
        for _ in range(n_steps):
            warnings.warn(f"step skipped: {problem}", UserWarning, stacklevel=4)

    def _breakdown(self, problem: str) -> TrainingError:
        return TrainingError(
            f"training broke down in epoch {self.state.epoch + 1}: {problem}. "
            f"Lower learning_rate (now {self.settings.learning_rate:g}), set clip_norm, or scale the rows"
        )

    def end_epoch(self) -> None:
        self.catch_up()
        state = self.state
        if state.n_good_steps < state.step / 2:
            raise self._breakdown(self.problem)
        scores = self.validate() if self.validate is not None else {}
        before = max((epoch.seconds for epoch in state.history if epoch.stage != state.stage), default=0.0)
        state.history.append(
            Epoch(
                epoch=len(state.history),
                bound=state.sum_bound / state.n_good_steps,
                learning_rate=self.rate(),
                seconds=before + state.seconds,
                scores=scores,
                stage=state.stage,
            )
        )
        state.epoch += 1
        state.step, state.n_good_steps, state.sum_bound = 0, 0, 0.0
        patience = self.settings.patience
        bounds = [epoch.bound for epoch in state.history if epoch.stage == state.stage]
        if patience is not None and len(bounds) > patience and not self.is_finishing():
            state.is_stopped_early = len(bounds) - 1 - bounds.index(max(bounds)) >= patience

    def save(self) -> None:
        if self.checkpoint is None:
            return
        self.catch_up()
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"optimiser.{name}": value for name, value in self.optimiser.tensors().items()}
        tensors["generator"] = self.generator.get_state()
        tensors |= {f"memory.{name}": value for name, value in self.state.memory.items()}
        run = asdict(replace(self.state, memory={}))
        facts = {"settings": asdict(self.settings), "identity": self.identity, "run": run}
        write_checkpoint(self.checkpoint, tensors, facts)

    def restore(self) -> None:
        assert self.checkpoint is not None
        tensors, facts = read_checkpoint(self.checkpoint)
        try:
            require_same(self.checkpoint, facts, asdict(self.settings), self.identity)
            self.model.load_state_dict(under("model.", tensors))
            self.optimiser.restore(under("optimiser.", tensors))
            self.generator.set_state(tensors["generator"])
            run = dict(facts["run"])
            run["history"] = [Epoch(**epoch) for epoch in run["history"]]
            run["memory"] = under("memory.", tensors)
            self.state = replace(Run(), **run)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise damaged(self.checkpoint, error) from None


def _seed_of(seed: int, n_epochs_before: int) -> int:
    """What a stage draws from. Drawn as in the stage before, dropout would be the same for the same rows once more, and
    regularise nothing."""
    if n_epochs_before == 0:
        return seed
    return int(np.random.SeedSequence((seed, n_epochs_before)).generate_state(1, np.uint64)[0])


_listening: list[list[int]] = []


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying of them; where signals cannot be set (threads), do nothing.

    Within another such block, the list is the outer one's: what asked to stop before training began is not lost.
    """
    if _listening:
        yield _listening[-1]
        return
    caught: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once
        caught.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread
        yield caught
        return
    _listening.append(caught)
    try:
        yield caught
    finally:
        _listening.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _no_denormals() -> Iterator[None]:
    """Numbers below 1e-38 count as 0: means that shrink towards 0 would else make a CPU step several times slower."""
    changed = torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if changed:
            torch.set_flush_denormal(False)
