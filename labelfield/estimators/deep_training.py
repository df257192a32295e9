"""How a deep kernel model is trained: its stages, their settings and objectives, and where rows come from."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelfield.data import Dataset
from labelfield.errors import DataError
from labelfield.estimators.deep_prediction import DeepPredictions
from labelfield.estimators.options import (
    advising_on_memory,
    given,
)
from labelfield.inference.checkpoint import HOW_LONG
from labelfield.inference.run import Run, Settings
from labelfield.inference.signals import stop_requests
from labelfield.inference.source import ResidentSource, Source, TensorSource
from labelfield.inference.training import Stage, train_stages
from labelfield.linalg.rows import Rows
from labelfield.models.cost import free_bytes
from labelfield.models.deep_kernel import DeepKernel
from labelfield.models.defaults import DeepPlan, plan_deep
from labelfield.models.mlgpf import Elbo
from labelfield.networks import Network

__all__ = ["DeepTraining"]

# Rows whose features say where the grid is to be.
_SEEN_ROWS = 5_000
# What an epoch of each stage takes of the time, as a share of one of the whole.
_TIME = {"network": 1.0, "processes": 0.1, "joint": 1.0}


class DeepTraining(DeepPredictions):
    """The training half of a classifier with a network: the network alone, the processes, everything jointly."""

    _stage_epochs: dict[str, int]
    _stage_settings: dict[str, Settings]
    # Of a loaded model nothing is known of the rows to come.
    _is_dense: bool = False
    mixed_precision: bool
    process_learning_rate: float | None
    joint_learning_rate: float | None

    def _decide_settings(self, option: Any, chosen: DeepPlan, n_rows: int, seed: int) -> None:
        """How to train in each stage. The last one calibrates and then takes in the rows that were held out."""
        epochs = {name: count for name, count in self._stage_epochs.items() if count}
        rates = {
            "network": given(option.learning_rate, chosen.learning_rate),
            "processes": given(option.process_learning_rate, chosen.process_learning_rate),
            "joint": given(option.joint_learning_rate, chosen.joint_learning_rate),
        }
        last = list(epochs)[-1]
        final = SimpleNamespace(**vars(option) | {"max_epochs": epochs[last], "learning_rate": rates[last]})
        self.settings_ = self._decide(final, chosen, n_rows, seed, kl_weight=option.kl_weight)
        weight = {name: count * _TIME[name] for name, count in epochs.items()}
        self._stage_settings: dict[str, Settings] = {}
        for name, count in epochs.items():
            settings = self.settings_
            if name != last:
                settings = replace(settings, max_epochs=count, finishing_epochs=0, learning_rate=rates[name])
            if option.time_budget is not None:
                settings = replace(settings, time_budget=option.time_budget * weight[name] / sum(weight.values()))
            self._stage_settings[name] = settings
        # What is said of the whole is the user's.
        self.settings_ = replace(self._stage_settings[last], time_budget=option.time_budget)

    def stage_settings(self) -> dict[str, Settings]:
        return self._stage_settings

    def n_whole_epochs(self) -> float:
        return sum(settings.max_epochs * _TIME[name] for name, settings in self._stage_settings.items())

    def _facts(self) -> tuple[Any, ...]:
        # How long to go on may change when a training is resumed; what has been done may not.
        rates = {
            name: {key: value for key, value in asdict(settings).items() if key not in HOW_LONG}
            for name, settings in self._stage_settings.items()
        }
        return self.n_negatives_, self.mixed_precision, self.process_learning_rate, rates

    def _objective(self) -> Any:
        return self._objective_of("network" if self.spec_.is_plain else "joint")

    def _objective_of(self, stage: str) -> Any:
        """What a stage maximises. While processes are fitted, rows come as features: the network does not change."""
        model = self.model_
        estimate = model.plain_log_prob if stage == "network" else model.elbo

        def bound(X: Rows, Y: Tensor, n_data: int, generator: torch.Generator | None = None) -> Elbo:
            assert isinstance(X, Tensor)
            h = X if stage == "processes" else model.features.train()(X, generator)
            return estimate(h, Y, n_data, n_negatives=self.n_negatives_, generator=generator)

        return bound

    def _rate(self) -> float:
        if self.spec_.is_plain:
            return self.settings_.learning_rate
        return float(given(self.joint_learning_rate, self._plan().joint_learning_rate))

    def _rates(self) -> dict[nn.Parameter, float]:
        model = self.model_
        if self.spec_.is_plain:
            return dict.fromkeys([*model.features.parameters(), *self._head()], 1.0)
        rate = given(self.process_learning_rate, self._plan().process_learning_rate)
        return {
            **dict.fromkeys([*model.features.parameters(), model.A, model.b], 1.0),
            **dict.fromkeys(model.processes.parameters(), rate / self._rate()),
        }

    def _head(self) -> list[nn.Parameter]:
        """What the plain network has beside its features. A square mixing is the identity until the processes come."""
        model = self.model_
        return [model.b] if model.A.shape[0] == model.A.shape[1] else [model.A, model.b]

    def _plan(self) -> DeepPlan:
        """What the rule says for this model, fitted or loaded."""
        spec = self.spec_
        network = "own" if spec.network is None else spec.network.name
        is_multilabel = spec.likelihood == "bernoulli"
        sizes = (self.n_rows_, spec.n_features, spec.n_labels)
        return plan_deep(*sizes, is_multilabel, network, spec.n_dimensions, spec.grid_size)

    def _is_capturable(self) -> bool:
        """A network of the user's may do whatever it likes in a step."""
        network = self.model_.features.network
        return not self.n_negatives_ and isinstance(network, Network) and network.is_capturable

    def _stages(self, data: Dataset) -> list[Stage]:
        model, settings, is_capturable = self.model_, self._stage_settings, self._is_capturable()

        def begin_processes() -> None:
            if self.spec_.has_baseline:
                model.keep_baseline()
            self._follow_features(model, data, self.settings_.seed)

        def source_of(stage: str) -> Source:
            # Scores after an epoch of the network alone are its own: the processes do not know its features yet.
            model.is_plain = stage == "network"
            return self._feature_source(data) if stage == "processes" else self._source(data)

        def calibrate_plain(rows: NDArray[np.int64]) -> dict[str, Tensor]:
            self._calibrate_plain(data.take(rows))
            return {}

        def calibrate(rows: NDArray[np.int64]) -> dict[str, Tensor]:
            return self._calibrate(data.take(rows))

        stages = []
        if "network" in settings:
            stages.append(
                Stage(
                    "network",
                    settings["network"],
                    self._objective_of("network"),
                    lambda: source_of("network"),
                    lambda: dict.fromkeys([*model.features.parameters(), *self._head()], 1.0),
                    calibrate=calibrate if self.spec_.is_plain else calibrate_plain,
                    is_capturable=is_capturable,
                )
            )
        if "processes" in settings:
            stages.append(
                Stage(
                    "processes",
                    settings["processes"],
                    self._objective_of("processes"),
                    lambda: source_of("processes"),
                    lambda: dict.fromkeys([*model.processes.parameters(), model.A, model.b], 1.0),
                    begin_processes,
                    calibrate=calibrate,
                    is_capturable=not self.n_negatives_,
                )
            )
        if "joint" in settings:
            stages.append(
                Stage(
                    "joint",
                    settings["joint"],
                    self._objective_of("joint"),
                    lambda: source_of("joint"),
                    self._rates,
                    begin_processes if "processes" not in settings else lambda: None,
                    calibrate=calibrate,
                    is_capturable=is_capturable,
                )
            )
        return stages

    def _train(self, data: Dataset, checkpoint: Path | None, resume: bool, validate: Any, on_step: Any) -> Run:
        try:
            with stop_requests(), advising_on_memory(self._lower):
                run = train_stages(
                    self.model_,
                    self._stages(data),
                    self._monitor(data, checkpoint, resume, validate, on_step),
                )
        finally:
            self.model_.is_plain = self.spec_.is_plain
        self._remember(run)
        return run

    # Rows as the network takes them

    def _source(self, data: Dataset) -> Source:
        """Of a dense network and rows that are dense, these once and for all, where the model is, if they take no more
        than a quarter of what is free; else some at a time."""
        if not self._is_dense:
            return self._source_of_rows(data)
        device = self.model_.b.device
        free = free_bytes(device)
        if free is not None and 16 * data.n_rows * data.n_features > free:
            return self._source_of_rows(data)
        X = torch.empty(data.n_rows, data.n_features)
        for first in range(0, data.n_rows, 4096):
            X[first : first + 4096] = torch.from_numpy(data.X[first : first + 4096].toarray())
        return _dense_source(X.to(device), data)

    def _feature_source(self, data: Dataset) -> Source:
        """The features of all rows: the network does not change while the processes are fitted."""
        parts = [h for _, h in self._features(data.X)]
        return _dense_source(torch.cat(parts), data)

    def _follow_features(self, model: DeepKernel, data: Dataset, seed: int) -> None:
        """Put the grid where the features of some rows lie, and start the processes there."""
        rows = np.random.default_rng(seed).permutation(data.n_rows)[:_SEEN_ROWS]
        some = data.take(np.sort(rows))
        try:
            h = torch.cat([h for _, h in self._features(some.X, model)])
        except DataError:
            # It names a row by its number among these; the user knows it by that among all.
            for _ in self._features(data.X, model):
                pass
            raise
        if len(h) > 1 and bool((h == h[0]).all()):
            raise ValueError(
                f"the network gives the same features for all rows, such as {h[0, 0]:.4g}; nothing can be learned from "
                "them. Check the rows and the network; if they come from training, lower learning_rate"
            )
        model.processes.start(h)


def _dense_source(X: Tensor, data: Dataset) -> Source:
    """Dense rows that stand for those of a data set, on a GPU or here."""
    return ResidentSource(data, X.device, X) if X.device.type == "cuda" else TensorSource(X, data)
