"""Trainers, which train a model, first on all its rows and later on further ones.

A classifier is given a `Trainer`. `GradientTrainer` serves every model with a bound; deep kernels train in stages
(`labelfield.inference.deep`), topics by EM or sampling (`labelfield.inference.topics`).
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelfield.cluster import Cluster
from labelfield.data import Dataset
from labelfield.inference.calibrating import calibrate_predictor
from labelfield.inference.gradient import Batches
from labelfield.inference.parallel import at_most_threads
from labelfield.inference.run import Epoch, Monitor, Run, Settings
from labelfield.inference.source import DatasetSource, ResidentSource, Source
from labelfield.inference.stepper import Objective
from labelfield.inference.team import NO_TEAM, Team
from labelfield.inference.training import PartialTraining, train
from labelfield.linalg.rows import device_of
from labelfield.memory import free_bytes
from labelfield.models.predictor import Predictor


class Past(NamedTuple):
    """The training of a model so far: how many rows, how often each label held in them, and the epochs."""

    n_rows: int
    label_counts: NDArray[np.int64]
    history: list[dict[str, Any]]

    def epochs(self) -> list[Epoch]:
        """Return the records of the epochs."""
        return [Epoch(**epoch) for epoch in self.history]


class Trainer(Protocol):
    """The interface of objects that train a model."""

    def train(self, data: Dataset, monitor: Monitor) -> Run:
        """Train on these rows from the start, or continue from a checkpoint."""

    def train_more(self, data: Dataset, past: Past) -> Run:
        """Train for one more epoch, on these rows."""

    def stage_settings(self) -> dict[str, Settings]:
        """Return the settings of each stage, by name; a training in one stage has the empty name."""

    def expected_seconds(self, data: Dataset) -> float:
        """Estimate how long training on these rows takes, by trying a step; the model stays as it is."""

    def fingerprint(self) -> tuple[Any, ...]:
        """Return what the result depends on besides the spec, the settings and the rows."""


class GradientTrainer:
    """Trains all parameters of a model in one stage by gradients of `objective`, and calibrates its predictor.

    `source` gives batches of a data set, `batches` decides which rows form one, `calibrate` is given the held-out rows,
    `begin_more` is called before the first `train_more` and where held-out rows join, and `finish` after `train`, where
    the model is whole. `divide` leaves each process of a cluster its part of the model. Steps that are too small for
    several threads say so by `n_threads`.
    """

    def __init__(
        self,
        model: Any,
        settings: Settings,
        objective: Objective,
        predictor: Callable[[], Predictor],
        *,
        source: Callable[[Dataset], Source] | None = None,
        batches: Callable[[Dataset], Batches | None] = lambda data: None,
        calibrate: Callable[[Dataset], dict[str, Tensor]] | None = None,
        begin_more: Callable[[], None] = lambda: None,
        finish: Callable[[], None] = lambda: None,
        divide: Callable[[Cluster], Team] = lambda cluster: NO_TEAM,
        is_capturable: bool = False,
        n_threads: int | None = None,
        fingerprint: tuple[Any, ...] = (),
    ) -> None:
        self.n_threads = n_threads
        self.model, self.settings, self.objective, self.predictor = model, settings, objective, predictor
        self.source = source or (lambda data: rows_source(data, device_of(model)))
        self.batches, self.calibrate = batches, calibrate or self._calibrate
        self.begin_more, self.finish, self.divide = begin_more, finish, divide
        self.is_capturable, self._fingerprint = is_capturable, fingerprint
        self._more: PartialTraining | None = None

    def _calibrate(self, held_out: Dataset) -> dict[str, Tensor]:
        return calibrate_predictor(self.predictor(), held_out.X, held_out.Y)

    def train(self, data: Dataset, monitor: Monitor) -> Run:
        team = self.divide(monitor.cluster)
        team.keep_beside(monitor.checkpoint)

        def calibrate(rows: NDArray[np.int64]) -> dict[str, Tensor]:
            memory: dict[str, Tensor] = {}
            with team.as_one("the calibration") as has_model:
                if has_model:
                    memory = self.calibrate(data.take(rows))
            if team.cluster.size > 1:
                found = team.from_first("the calibration", self.model.calibration.state_dict)
                self.model.calibration.load_state_dict(found)
            self.begin_more()
            return memory

        def validate() -> dict[str, float]:
            scores: dict[str, float] = {}
            with team.as_one("the scoring of validation rows") as has_model:
                if has_model and monitor.validate is not None:
                    scores = monitor.validate()
            return scores

        with at_most_threads(self.n_threads):
            run = train(
                self.model,
                self.objective,
                self.source(data),
                self.settings,
                monitor=replace(monitor, validate=None if monitor.validate is None else validate),
                calibrate=calibrate,
                batches=self.batches(data),
                is_capturable=self.is_capturable,
                team=team,
            )
        self._more = None
        team.join()
        if team.cluster.is_first:
            self.finish()
        return run

    def train_more(self, data: Dataset, past: Past) -> Run:
        if self._more is None:
            self.begin_more()
            self._more = PartialTraining(self.model, self.settings, past.epochs())
        with at_most_threads(self.n_threads):
            return self._more.fit(self.objective, self.source(data), self.batches(data))

    def stage_settings(self) -> dict[str, Settings]:
        return {"": self.settings}

    def expected_seconds(self, data: Dataset) -> float:
        some = self.source(data.take(slice(self.settings.batch_size)))
        with at_most_threads(self.n_threads):
            step = seconds_per_step(self.model, self.objective, some, data.n_rows)
        return within_budget(self.settings.n_steps(data.n_rows) * step, [self.settings])

    def fingerprint(self) -> tuple[Any, ...]:
        return self._fingerprint


def rows_source(data: Dataset, device: torch.device) -> Source:
    """Return rows that stay on the GPU if they take at most a quarter of its free memory, else batch by batch."""
    free = free_bytes(device) if device.type == "cuda" else None
    parts = [part for array in (data.X, data.Y) for part in (array.data, array.indices, array.indptr)]
    is_small = free is not None and 4 * sum(part.nbytes for part in parts) < free
    return ResidentSource(data, device) if is_small else DatasetSource(data)


def within_budget(seconds: float, stages: Iterable[Settings]) -> float:
    """Return how long a training of so many seconds takes if time budgets of its stages end it earlier."""
    budgets = [stage.time_budget for stage in stages if stage.time_budget is not None]
    return min(seconds, sum(budgets)) if budgets else seconds


def seconds_per_step(model: Any, objective: Objective, source: Source, n_data: int) -> float:
    """Return how long a step on all rows of the source takes, by trying; the model stays as it is."""
    state = {name: value.clone() for name, value in model.named_buffers()}
    times = []
    for _ in range(2):  # the first also warms up
        started = time.perf_counter()
        X, Y = source.batch(np.arange(source.n_rows), device_of(model))
        estimate: Any = objective(X, Y, n_data, torch.Generator(device_of(model)))
        (-estimate.bound()).backward()
        model.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - started)
    for name, value in model.named_buffers():
        value.copy_(state[name])
    return min(times)
