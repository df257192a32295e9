"""Stochastic variational deep kernel learning as a scikit-learn classifier."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from labelfield.data import Dataset
from labelfield.data.transform import RowTransform, choose_class_transform
from labelfield.errors import DataError
from labelfield.estimators.deep_prediction import DeepPredictions
from labelfield.estimators.inputs import as_rows, encode_labels
from labelfield.estimators.options import (
    Number,
    Rule,
    advising_on_memory,
    check_options,
    choose_device,
    choose_seed,
    given,
)
from labelfield.estimators.restoring import restore_model
from labelfield.inference.schedule import SCHEDULES
from labelfield.inference.source import Source, TensorSource
from labelfield.inference.stages import Stage, train_stages
from labelfield.inference.trainer import Run, Settings, stop_requests
from labelfield.kernels.names import LAG_KERNELS
from labelfield.linalg.rows import Rows
from labelfield.models.artifact import ModelError
from labelfield.models.build_deep import (
    DEEP_LIKELIHOODS,
    DEEP_MOMENTS,
    GRID_POSTERIORS,
    MOST_DIMENSIONS,
    DeepSpec,
    build_deep,
    start_deep,
)
from labelfield.models.cost import deep_bytes, free_bytes
from labelfield.models.deep_kernel import DeepKernel
from labelfield.models.defaults import DeepPlan, plan_deep
from labelfield.models.mlgpf import Elbo
from labelfield.networks import NETWORKS, NetworkSpec, square_image_shape

__all__ = ["DeepKernelClassifier"]

# Rows whose features say where the grid is to be.
_SEEN_ROWS = 20_000
# A dense network is given rows this wide in batches that are made dense; wider ones need one that takes sparse rows.
_MOST_DENSE = 8192
# What an epoch of each stage takes of the time, as a share of one of the whole.
_TIME = {"network": 1.0, "processes": 0.1, "joint": 1.0}
_RULES: dict[str, Rule] = {
    **{name: Number(1, is_integer=True) for name in ("n_processes", "n_mixtures", "batch_size")},
    **{name: Number(0, is_integer=True) for name in ("network_epochs", "process_epochs", "max_epochs", "n_negatives")},
    **{name: Number(1e-12) for name in ("learning_rate", "clip_norm", "time_budget")},
    **{name: Number(1e-12) for name in ("process_learning_rate", "joint_learning_rate")},
    "kl_weight": Number(0),
    "jitter": Number(0, highest=0.5),
    "n_samples": Number(1, is_integer=True, highest=10_000),
    "n_samples_predict": Number(1, is_integer=True, highest=100_000),
    "subset_size": Number(1, is_integer=True, highest=MOST_DIMENSIONS),
    "grid_size": Number(5, is_integer=True, highest=100_000),
    "dropout": Number(0, highest=0.99),
    "patience": Number(1, is_integer=True),
    "threshold": Number(0, highest=1),
    "kernel": LAG_KERNELS,
    "own_kernel": bool,
    "posterior": tuple(GRID_POSTERIORS),
    "likelihood": DEEP_LIKELIHOODS,
    "moments": DEEP_MOMENTS,
    "schedule": SCHEDULES,
    "row_transform": str,
    "calibrated": bool,
    "keep_baseline": bool,
    "mixed_precision": bool,
}


class DeepKernelClassifier(DeepPredictions):
    """h = network(x), f_j ~ GP(0, k_j) on some features of h, and a softmax or Bernoulli likelihood of A f + b.

    `network` is "mlp", "bag" (for sparse rows), "cnn" (for images), or a torch module of your own that gives (B, Q)
    features of rows (B, D); a module with `takes_sparse = True` is given sparse CSR tensors, others dense ones. Left at
    None, it and all sizes and rates follow the rule of `labelfield.models.defaults`.

    Each of `n_processes` processes is on `subset_size` features of its own, or on those that `subsets` lists for it.
    One class a row has a softmax and, unless told otherwise, a process for each class, as in the paper; several labels
    a row have a Bernoulli likelihood each. In training `moments="sampled"` draws u, as the paper does, and "exact" f at
    each row from its exact moments, `n_samples` times.

    Training has three stages, each of which may be left out (0 epochs): `network_epochs` of the plain network, which is
    kept as the baseline; `process_epochs` of the processes on its features; `max_epochs` of everything jointly.
    """

    _rules = _RULES
    _lower = "batch_size, hidden or grid_size"
    _spec_type = DeepSpec

    def __init__(
        self,
        *,
        network: str | nn.Module | None = None,
        hidden: Any = None,
        channels: Any = (32, 64),
        image_shape: Any = None,
        dropout: float | None = None,
        n_processes: int | None = None,
        subset_size: int = 1,
        subsets: Any = None,
        grid_size: int | None = None,
        kernel: str = "se",
        n_mixtures: int = 4,
        own_kernel: bool | None = None,
        posterior: str | None = None,
        likelihood: str | None = None,
        moments: str = "exact",
        n_samples: int = 1,
        n_samples_predict: int = 128,
        row_transform: str | None = None,
        n_negatives: int | None = None,
        network_epochs: int | None = None,
        process_epochs: int | None = None,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        process_learning_rate: float | None = None,
        joint_learning_rate: float | None = None,
        schedule: str = "one_cycle",
        kl_weight: float = 1.0,
        clip_norm: float | None = None,
        patience: int | None = None,
        time_budget: float | None = None,
        jitter: float = 1e-4,
        calibrated: bool = True,
        keep_baseline: bool = True,
        mixed_precision: bool = True,
        threshold: float = 0.5,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.network = network
        self.hidden = hidden
        self.channels = channels
        self.image_shape = image_shape
        self.dropout = dropout
        self.n_processes = n_processes
        self.subset_size = subset_size
        self.subsets = subsets
        self.grid_size = grid_size
        self.kernel = kernel
        self.n_mixtures = n_mixtures
        self.own_kernel = own_kernel
        self.posterior = posterior
        self.likelihood = likelihood
        self.moments = moments
        self.n_samples = n_samples
        self.n_samples_predict = n_samples_predict
        self.row_transform = row_transform
        self.n_negatives = n_negatives
        self.network_epochs = network_epochs
        self.process_epochs = process_epochs
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.process_learning_rate = process_learning_rate
        self.joint_learning_rate = joint_learning_rate
        self.schedule = schedule
        self.kl_weight = kl_weight
        self.clip_norm = clip_norm
        self.patience = patience
        self.time_budget = time_budget
        self.jitter = jitter
        self.calibrated = calibrated
        self.keep_baseline = keep_baseline
        self.mixed_precision = mixed_precision
        self.threshold = threshold
        self.device = device
        self.random_state = random_state

    # Fitting

    def prepare(self, X: Any, Y: Any, classes: Any = None) -> Dataset:
        """Decide everything that does not need training and build the model; returns the rows as it will see them."""
        self._forget()
        check_options(self, self._rules)
        option = SimpleNamespace(**{name: given(value, None) for name, value in self._plain_params().items()})
        device, seed = choose_device(self.device), choose_seed(self.random_state)
        X = as_rows(self, X, reset=True)
        Y, labels = encode_labels(Y, X.shape[0], classes)
        likelihood = given(option.likelihood, "softmax" if labels.kind == "classes" else "bernoulli")
        # A softmax has one class a row, in whatever form it was given.
        self.label_kind_ = "classes" if likelihood == "softmax" else labels.kind
        self.classes_ = labels.classes
        _require_labels(Y, likelihood)
        own = self.network if isinstance(self.network, nn.Module) else None
        chosen = plan_deep(
            X.shape[0],
            X.shape[1],
            Y.shape[1],
            likelihood == "bernoulli",
            option.network,
            _n_dimensions(option),
            option.grid_size,
        )
        self.row_transform_ = self._choose_rows(option, X, chosen.network)
        data = Dataset(self.row_transform_(X), Y)
        self._stage_epochs = _stage_epochs(option, chosen)
        self._decide_settings(option, chosen, data.n_rows, seed)
        network = None if own is None else deepcopy(own)
        if network is None:
            require_dense(chosen.network, data.n_features)
        n_outputs = self._count_outputs(network, data, device, chosen, option)
        subsets = _choose_subsets(option, chosen, n_outputs, is_own=own is not None)
        stages = self._stage_epochs
        self.spec_ = DeepSpec(
            n_features=data.n_features,
            n_labels=Y.shape[1],
            network=None if network is not None else self._network_spec(option, chosen, data.n_features, subsets),
            n_outputs=n_outputs if network is not None else 1 + max(max(subset) for subset in subsets),
            subsets=subsets,
            grid_size=given(option.grid_size, chosen.grid_size),
            kernel=option.kernel,
            n_mixtures=option.n_mixtures,
            own_kernel=given(option.own_kernel, chosen.own_kernel),
            posterior=given(option.posterior, chosen.posterior),
            likelihood=likelihood,
            moments=option.moments,
            n_samples=option.n_samples,
            n_samples_predict=option.n_samples_predict,
            jitter=option.jitter,
            is_plain=not (stages["processes"] or stages["joint"]),
            has_baseline=bool(option.keep_baseline and stages["network"] and (stages["processes"] or stages["joint"])),
            network_class="" if own is None else f"{type(own).__module__}.{type(own).__qualname__}",
        )
        self.label_counts_ = np.bincount(Y.indices, minlength=Y.shape[1])
        self.n_rows_ = X.shape[0]
        self.history_ = []
        self.n_negatives_ = given(option.n_negatives, chosen.n_negatives) or None
        if likelihood == "softmax" and self.n_negatives_:
            raise ValueError("n_negatives is for several labels a row: a softmax needs all classes in each step")
        self._n_weights = _n_weights(self.spec_, network)
        self._require_memory(device)
        with advising_on_memory(self._lower):
            model = build_deep(self.spec_, network, is_mixed=option.mixed_precision)
            start_deep(model, self.label_counts_, self.n_rows_, seed)
            model.to(device)
            self._follow_features(model, data, seed)
        self.model_ = model
        self._training = None
        return data

    def _plain_params(self) -> dict[str, Any]:
        """The options, without a network of the user's own, and with lists where the user has arrays."""
        options: dict[str, Any] = self.get_params(deep=False)
        options |= {name: value.tolist() for name, value in options.items() if isinstance(value, np.ndarray)}
        if isinstance(options["network"], nn.Module):
            options["network"] = "own"
        elif options["network"] is not None and options["network"] not in NETWORKS:
            raise ValueError(
                f"network={options['network']!r}; expected one of {', '.join(NETWORKS)}, or a torch.nn.Module"
            )
        return options

    def _choose_rows(self, option: Any, X: sparse.csr_array, network: str) -> RowTransform:
        """What is done to rows: as the user says, or by what they look like; for a network of their own, nothing."""
        name = option.row_transform
        if name is None and network == "cnn":
            name = "range"
        elif name is None and network == "own":
            name = "none"
        elif name is None:
            name = choose_class_transform(X)
        return RowTransform.fit(name, X)

    def _decide_settings(self, option: Any, chosen: DeepPlan, n_rows: int, seed: int) -> None:
        """How to train in each stage. The last one calibrates and then takes in the rows that were held out."""
        epochs = {name: count for name, count in self._stage_epochs.items() if count}
        rates = {
            "network": given(option.learning_rate, chosen.learning_rate),
            "processes": given(option.process_learning_rate, chosen.process_learning_rate),
            "joint": given(option.joint_learning_rate, chosen.joint_learning_rate),
        }
        self._process_scale = rates["processes"] / rates["joint"]
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
        self.settings_ = self._stage_settings[last]

    def _count_outputs(
        self, network: nn.Module | None, data: Dataset, device: torch.device, chosen: DeepPlan, option: Any
    ) -> int:
        """How many features a network gives: of the user's own by asking it."""
        if network is None:
            return 0
        if not getattr(network, "takes_sparse", False):
            require_dense("own", data.n_features)
        some = Dataset(data.X[:2], data.Y[:2])
        X = next(iter(self._dense_or_sparse(some, bool(getattr(network, "takes_sparse", False)), device)))[1]
        network.to(device).eval()
        try:
            with torch.no_grad():
                h = network(X)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ValueError(
                f"the network {type(network).__name__} cannot take rows of shape {tuple(X.shape)}: "
                f"{str(error).splitlines()[0]}"
            ) from None
        if not isinstance(h, Tensor) or h.dim() != 2 or h.shape[0] != X.shape[0] or not h.is_floating_point():
            found = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
            raise ValueError(f"the network gives {found} for {X.shape[0]} rows; expected a tensor ({X.shape[0]}, Q)")
        if h.dtype != X.dtype:
            raise ValueError(f"the network gives features of {h.dtype}; expected {X.dtype}, as rows are")
        return int(h.shape[1])

    def _network_spec(
        self, option: Any, chosen: DeepPlan, n_features: int, subsets: tuple[tuple[int, ...], ...]
    ) -> NetworkSpec:
        shape = option.image_shape
        if chosen.network == "cnn" and shape is None:
            shape = square_image_shape(n_features)
            if shape is None:
                raise ValueError(
                    f"{n_features} features are no square image; pass image_shape=(channels, height, width)"
                )
        return NetworkSpec(
            chosen.network,
            n_features,
            1 + max(max(subset) for subset in subsets),
            given(option.hidden, chosen.hidden),
            channels=option.channels,
            image_shape=shape,
            dropout=given(option.dropout, chosen.dropout),
        )

    def summary(self) -> str:
        """What the model is made of, in a line."""
        spec = self.spec_
        network = spec.network_class
        if spec.network is not None:
            network = " ".join([spec.network.name, "-".join(map(str, spec.network.hidden))]).strip()
        if spec.is_plain:
            return f"{spec.n_labels} labels; network {network} alone"
        return (
            f"{spec.n_labels} labels; network {network}, {spec.n_processes} processes on {spec.n_dimensions} features "
            f"each, kernel {spec.kernel}, grid of {spec.grid_size}, {spec.likelihood}"
        )

    def training_bytes(self) -> int:
        """About how much memory a step of training takes, beside the rows, according to the sizes that were decided."""
        n_labels = self.spec_.n_labels
        if self.n_negatives_:
            per_row = self.label_counts_.sum() / max(self.n_rows_, 1)
            n_labels = min(n_labels, int(per_row * self.settings_.batch_size) + self.n_negatives_)
        return deep_bytes(self.spec_, self._n_weights, self.settings_.batch_size, n_labels)

    def stage_settings(self) -> dict[str, Settings]:
        return self._stage_settings

    def n_whole_epochs(self) -> float:
        return sum(settings.max_epochs * _TIME[name] for name, settings in self._stage_settings.items())

    def _facts(self) -> tuple[Any, ...]:
        return self.n_negatives_, self.mixed_precision, self._stage_settings

    def _objective(self) -> Any:
        return self._plain_objective() if self.spec_.is_plain else self._joint_objective()

    def _joint_objective(self) -> Any:
        model = self.model_

        def bound(X: Rows, Y: Tensor, n_data: int, generator: torch.Generator | None = None) -> Elbo:
            assert isinstance(X, Tensor)
            h = model.features.train()(X, generator)
            return model.elbo(h, Y, n_data, n_negatives=self.n_negatives_, generator=generator)

        return bound

    def _plain_objective(self) -> Any:
        model = self.model_

        def log_prob(X: Rows, Y: Tensor, n_data: int, generator: torch.Generator | None = None) -> Elbo:
            assert isinstance(X, Tensor)
            h = model.features.train()(X, generator)
            return model.plain_log_prob(h, Y, n_data, n_negatives=self.n_negatives_, generator=generator)

        return log_prob

    def _process_objective(self) -> Any:
        """Of features that are known: the network does not change."""
        model = self.model_

        def bound(h: Rows, Y: Tensor, n_data: int, generator: torch.Generator | None = None) -> Elbo:
            assert isinstance(h, Tensor)
            return model.elbo(h, Y, n_data, n_negatives=self.n_negatives_, generator=generator)

        return bound

    def _stages(self, data: Dataset) -> list[Stage]:
        model, settings = self.model_, self._stage_settings
        is_square = model.A.shape[0] == model.A.shape[1]
        head = [model.b] if is_square else [model.A, model.b]

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
                    self._plain_objective(),
                    lambda: source_of("network"),
                    lambda: dict.fromkeys([*model.features.parameters(), *head], 1.0),
                    calibrate=calibrate if self.spec_.is_plain else calibrate_plain,
                )
            )
        if "processes" in settings:
            stages.append(
                Stage(
                    "processes",
                    settings["processes"],
                    self._process_objective(),
                    lambda: source_of("processes"),
                    lambda: dict.fromkeys([*model.processes.parameters(), model.A, model.b], 1.0),
                    begin_processes,
                    calibrate=calibrate,
                )
            )
        if "joint" in settings:
            stages.append(
                Stage(
                    "joint",
                    settings["joint"],
                    self._joint_objective(),
                    lambda: source_of("joint"),
                    lambda: {
                        **dict.fromkeys([*model.features.parameters(), model.A, model.b], 1.0),
                        **dict.fromkeys(model.processes.parameters(), self._process_scale),
                    },
                    begin_processes if "processes" not in settings else lambda: None,
                    calibrate=calibrate,
                )
            )
        return stages

    def _train(self, data: Dataset, checkpoint: Path | None, resume: bool, validate: Any, on_step: Any) -> Run:
        try:
            with stop_requests(), advising_on_memory(self._lower):
                run = train_stages(
                    self.model_,
                    self._stages(data),
                    checkpoint=checkpoint,
                    resume=resume,
                    identity="" if checkpoint is None else self._identity(data),
                    on_step=on_step,
                    validate=validate,
                )
        finally:
            self.model_.is_plain = self.spec_.is_plain
        self._remember(run)
        return run

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Go on training everything jointly with these rows, by one epoch over them; the first call prepares the model.

        The network is not trained by itself first: fit does that, and keeps it as the baseline. `classes` names all
        labels there will be.
        """
        is_new = not hasattr(self, "model_")
        super().partial_fit(X, Y, classes)
        if is_new and self.spec_.has_baseline:
            self.model_.baseline, self.spec_ = None, replace(self.spec_, has_baseline=False)
        return self

    # Rows as the network takes them

    def _source(self, data: Dataset) -> Source:
        """Of a dense network dense rows, where the model is if they take no more than a quarter of what is free."""
        features = self.model_.features
        if features.takes_sparse:
            return self._source_of_rows(data)
        device = self.model_.b.device
        free = free_bytes(device)
        if free is not None and 16 * data.n_rows * data.n_features > free:
            return self._source_of_rows(data)
        X = torch.empty(data.n_rows, data.n_features)
        for first in range(0, data.n_rows, 4096):
            X[first : first + 4096] = torch.from_numpy(data.X[first : first + 4096].toarray())
        return TensorSource(X.to(device), data)

    def _feature_source(self, data: Dataset) -> Source:
        """The features of all rows: the network does not change while the processes are fitted."""
        parts = [h for _, h in self._features(data.X)]
        return TensorSource(torch.cat(parts), data)

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
                "them. Lower learning_rate, or check the network and the rows"
            )
        model.processes.start(h)

    # Loading

    _build = staticmethod(build_deep)

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Tensor], names: list[str] | None) -> Self:
        """From what `save` wrote. A network of the user's own is given by the user; its weights are loaded."""
        own, network = config["spec"]["network_class"], config["options"].get("network")
        if own and not isinstance(network, nn.Module):
            raise ModelError(
                f"the model has a network of your own, {own}, which is not in its folder; build it as it was and pass "
                "it: labelfield.load(folder, network=…)"
            )
        if isinstance(network, nn.Module) and not own:
            raise ModelError("the model has a network of its own; load it without network=")
        if bool(own) == bool(config["spec"]["network"]):
            raise ValueError("the network is described twice or not at all")
        self = super()._restore(config, arrays, names)
        if self.label_kind_ != "classes" and self.spec_.likelihood == "softmax":
            raise ValueError(f"label_kind is {self.label_kind_!r} for a softmax")
        return self

    def _restore_model(self, arrays: dict[str, Tensor]) -> tuple[Any, NDArray[np.int64]]:
        if not isinstance(self.network, nn.Module):
            return super()._restore_model(arrays)
        network = deepcopy(self.network)
        return restore_model(
            self.spec_,
            lambda spec: build_deep(spec, network, is_mixed=self.mixed_precision),
            arrays,
            ("features.network.", "baseline.features.network."),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _require_labels(Y: sparse.csr_array, likelihood: str) -> None:
    if Y.shape[1] == 0:
        raise DataError("Y has no labels", expected="at least one")
    if likelihood != "softmax":
        return
    counts = np.diff(Y.indptr)
    if (counts != 1).any():
        row = int(np.flatnonzero(counts != 1)[0])
        raise DataError(
            f"row {row} has {counts[row]} labels", expected="one class a row", fix="Use likelihood='bernoulli'."
        )
    if Y.shape[1] < 2:
        raise DataError("y has one class", expected="at least two classes", fix="Check the labels.")


def require_dense(network: str, n_features: int) -> None:
    """Rows this wide are sparse, and a network of dense rows would make them dense."""
    if network != "bag" and n_features > _MOST_DENSE:
        whose = "your network takes" if network == "own" else f"network={network!r} takes"
        fix = "set takes_sparse = True on one that takes sparse CSR tensors, or " if network == "own" else ""
        raise DataError(
            f"{n_features} features, and {whose} dense rows",
            expected=f"at most {_MOST_DENSE} for a network of dense rows",
            fix=f"For sparse rows {fix}use network='bag'.",
        )


def _stage_epochs(option: Any, chosen: DeepPlan) -> dict[str, int]:
    epochs = {
        "network": given(option.network_epochs, chosen.network_epochs),
        "processes": given(option.process_epochs, chosen.process_epochs),
        "joint": given(option.max_epochs, chosen.max_epochs),
    }
    if not any(epochs.values()):
        raise ValueError("network_epochs, process_epochs and max_epochs are all 0; expected something to train")
    return epochs


def _n_dimensions(option: Any) -> int:
    """How many features a process is on, as far as that can be told; what is wrong with subsets is said later."""
    try:
        return min(max(len(option.subsets[0]), 1), MOST_DIMENSIONS)
    except (TypeError, IndexError, KeyError):
        return int(option.subset_size)


def _choose_subsets(option: Any, chosen: DeepPlan, n_outputs: int, is_own: bool) -> tuple[tuple[int, ...], ...]:
    """Which features each process is on: as the user says, or one after the other."""
    size = option.subset_size
    if option.subsets is not None:
        subsets = option.subsets
        if not _are_subsets(subsets):
            raise ValueError(f"subsets={subsets!r}; expected a list for each process of the numbers of its features")
        if option.n_processes is not None and option.n_processes != len(subsets):
            raise ValueError(f"n_processes={option.n_processes} with {len(subsets)} subsets; expected as many")
        return tuple(tuple(subset) for subset in subsets)
    n_processes = given(option.n_processes, n_outputs // size if is_own and n_outputs >= size else chosen.n_processes)
    if is_own and n_processes * size != n_outputs:
        raise ValueError(
            f"the network gives {n_outputs} features; {n_processes} processes on {size} each need "
            f"{n_processes * size}. Change n_processes, subset_size or the network's last layer"
        )
    return tuple(tuple(range(j * size, (j + 1) * size)) for j in range(n_processes))


def _are_subsets(subsets: Any) -> bool:
    """Whether they are lists of numbers from 0 on; what else is wrong with them, the spec says."""
    if not isinstance(subsets, list | tuple) or not subsets:
        return False
    if not all(isinstance(subset, list | tuple) and subset for subset in subsets):
        return False
    return all(type(feature) is int and feature >= 0 for subset in subsets for feature in subset)


def _n_weights(spec: DeepSpec, network: nn.Module | None) -> int:
    if spec.network is not None:
        return spec.network.n_weights
    assert network is not None
    return sum(weight.numel() for weight in network.parameters())
