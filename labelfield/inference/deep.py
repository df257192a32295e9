"""Training a deep kernel model in stages: the network alone, the processes on its features, everything jointly."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelfield.data import Dataset
from labelfield.errors import DataError
from labelfield.inference.calibrating import calibrate_predictor
from labelfield.inference.checkpoint import HOW_LONG
from labelfield.inference.fitting import Past, rows_source, seconds_per_step, within_budget
from labelfield.inference.run import Monitor, Run, Settings
from labelfield.inference.source import ResidentSource, Source, TensorSource
from labelfield.inference.stepper import Objective
from labelfield.inference.training import PartialTraining, Stage, train_stages
from labelfield.linalg.rows import Rows, device_of
from labelfield.memory import free_bytes
from labelfield.models.deep.model import Baseline, DeepKernel
from labelfield.models.deep.predict import BLOCK_ENTRIES, BaselinePredictor, DeepPredictor, features_of
from labelfield.models.deep.spec import DeepSpec
from labelfield.models.elbo import Elbo
from labelfield.networks import Network

# What an epoch of each stage takes, as a share of an epoch of the whole.
STAGE_TIME = {"network": 1.0, "processes": 0.1, "joint": 1.0}
# Rows whose features decide where the grid lies.
_SEEN_ROWS = 5_000


class DeepTrainer:
    """Trains a deep kernel model through its stages, each with its own settings.

    `settings` are those of the whole training, and `rates` the learning rates of the processes and of all else in the
    joint stage. Rows that `are_dense` are held as one dense tensor while there is room.
    """

    def __init__(
        self,
        model: DeepKernel,
        spec: DeepSpec,
        settings: Settings,
        stages: dict[str, Settings],
        rates: Mapping[str, float],
        *,
        n_negatives: int | None,
        are_dense: bool,
        is_mixed: bool,
    ) -> None:
        self.model, self.spec, self.settings, self.stages, self.rates = model, spec, settings, stages, rates
        self.n_negatives, self.are_dense, self.is_mixed = n_negatives, are_dense, is_mixed
        # The stage in which everything is trained: where there are no processes, it is the network's.
        self.whole = "network" if spec.is_plain else "joint"
        self._more: PartialTraining | None = None

    def train(self, data: Dataset, monitor: Monitor) -> Run:
        try:
            return train_stages(self.model, [self._stage(name, data) for name in self.stages], monitor)
        finally:
            self.model.is_plain = self.spec.is_plain
            self._more = None

    def train_more(self, data: Dataset, past: Past) -> Run:
        """Train everything jointly for one epoch, or the network where there are no processes."""
        if self._more is None:
            rate = self.settings.learning_rate if self.spec.is_plain else self.rates["joint"]
            settings = replace(self.settings, learning_rate=rate)
            self._more = PartialTraining(self.model, settings, past.epochs(), rates=self._scales(self.whole))
        return self._more.fit(self.objective(self.whole), self.source(data))

    def stage_settings(self) -> dict[str, Settings]:
        return self.stages

    def expected_seconds(self, data: Dataset) -> float:
        some = self.source(data.take(slice(self.settings.batch_size)))
        step = seconds_per_step(self.model, self.objective(self.whole), some, data.n_rows)
        n_steps = sum(stage.n_steps(data.n_rows) * STAGE_TIME[name] for name, stage in self.stages.items())
        return within_budget(n_steps * step, self.stages.values())

    def fingerprint(self) -> tuple[Any, ...]:
        # The remaining length may change when a training is resumed; what has been done may not.
        done = {
            name: {key: value for key, value in asdict(settings).items() if key not in HOW_LONG}
            for name, settings in self.stages.items()
        }
        return self.n_negatives, self.is_mixed, self.rates["processes"], done

    def objective(self, stage: str) -> Objective:
        """Return the objective of a stage. While processes are fitted, rows are features and the network is frozen."""
        model = self.model
        estimate = model.plain_log_prob if stage == "network" else model.elbo

        def bound(X: Rows, Y: Tensor, n_data: int, generator: torch.Generator | None = None) -> Elbo:
            assert isinstance(X, Tensor)
            h = X if stage == "processes" else model.features.train()(X, generator)
            return estimate(h, Y, n_data, n_negatives=self.n_negatives, generator=generator)

        return bound

    def source(self, data: Dataset) -> Source:
        """Return dense rows as one tensor if they take at most a quarter of the free memory, else in batches."""
        device = device_of(self.model)
        free = free_bytes(device) if self.are_dense else None
        if not self.are_dense or (free is not None and 16 * data.n_rows * data.n_features > free):
            return rows_source(data, device)
        X = torch.empty(data.n_rows, data.n_features)
        for first in range(0, data.n_rows, 4096):
            X[first : first + 4096] = torch.from_numpy(data.X[first : first + 4096].toarray())
        return _dense_source(X.to(device), data)

    # Stages

    def _stage(self, name: str, data: Dataset) -> Stage:
        # A step through the network can be replayed, unless it is one of the user's own, which may do anything.
        has_network, network = name != "processes", self.model.features.network
        can_replay = not has_network or (isinstance(network, Network) and network.is_capturable)
        begins_processes = [name] == [stage for stage in self.stages if stage != "network"][:1]
        return Stage(
            name,
            self.stages[name],
            self.objective(name),
            source=lambda: self.source(data) if has_network else self._feature_source(data),
            rates=lambda: self._scales(name),
            begin=lambda: self._begin_processes(data) if begins_processes else None,
            # Scores after an epoch of the network are its own: the processes do not know its features yet.
            enter=lambda: setattr(self.model, "is_plain", name == "network"),
            calibrate=lambda rows: self._calibrate(data.take(rows), name),
            is_capturable=not self.n_negatives and can_replay,
        )

    def _begin_processes(self, data: Dataset) -> None:
        if self.spec.has_baseline:
            self.model.keep_baseline()
        follow_features(self.model, data, self.settings.seed)

    def _calibrate(self, held_out: Dataset, stage: str) -> dict[str, Tensor]:
        """Calibrate the model, or the plain network before the processes are added."""
        some = held_out.take(slice(min(held_out.n_rows, max(1, 8 * BLOCK_ENTRIES // self.spec.n_labels))))
        if stage == "network" and not self.spec.is_plain:
            plain = BaselinePredictor(Baseline(self.model), self.model)
            plain.calibration = self.model.calibration
            calibrate_predictor(plain, some.X, some.Y)
            return {}
        return calibrate_predictor(DeepPredictor(self.model), some.X, some.Y)

    def _scales(self, stage: str) -> dict[nn.Parameter, float]:
        """Return the parameters that a stage trains, each with its multiple of the learning rate."""
        model = self.model
        network, processes = list(model.features.parameters()), list(model.processes.parameters())
        if stage == "network":
            # A square mixing stays the identity until the processes are added.
            head = [model.b] if model.A.shape[0] == model.A.shape[1] else [model.A, model.b]
            return dict.fromkeys([*network, *head], 1.0)
        if stage == "processes":
            return dict.fromkeys([*processes, model.A, model.b], 1.0)
        scale = self.rates["processes"] / self.rates["joint"]
        return dict.fromkeys([*network, model.A, model.b], 1.0) | dict.fromkeys(processes, scale)

    def _feature_source(self, data: Dataset) -> Source:
        """Return the features of all rows: the network is frozen while the processes are fitted."""
        parts = [h for _, h in features_of(self.model.features, data.X, device_of(self.model))]
        return _dense_source(torch.cat(parts), data)


def follow_features(model: DeepKernel, data: Dataset, seed: int) -> None:
    """Place the grid over the features of some rows, and start the processes there."""
    rows: NDArray[np.int64] = np.random.default_rng(seed).permutation(data.n_rows)[:_SEEN_ROWS]
    device = device_of(model)
    try:
        h = torch.cat([h for _, h in features_of(model.features, data.take(np.sort(rows)).X, device)])
    except DataError:
        # It names a row by its number among these; the user knows it by its number among all.
        for _ in features_of(model.features, data.X, device):
            pass
        raise
    if len(h) > 1 and bool((h == h[0]).all()):
        raise ValueError(
            f"the network gives the same features for all rows, such as {h[0, 0]:.4g}; nothing can be learned from "
            "them. Check the rows and the network; if they come from training, lower learning_rate"
        )
    model.processes.start(h)


def _dense_source(X: Tensor, data: Dataset) -> Source:
    """Return dense rows in place of those of a data set, on a GPU or on the CPU."""
    return ResidentSource(data, X.device, X) if X.device.type == "cuda" else TensorSource(X, data)
