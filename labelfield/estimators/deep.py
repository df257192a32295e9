"""Stochastic variational deep kernel learning as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import TransformerTags
from torch import Tensor, nn

from labelfield.data import Dataset
from labelfield.data.transform import RowTransform, choose_class_transform
from labelfield.estimators.deep_choices import (
    choose_subsets,
    is_dense,
    n_dimensions,
    n_weights,
    require_dense,
    require_labels,
    stage_epochs,
)
from labelfield.estimators.deep_training import DeepTraining
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
from labelfield.kernels.names import LAG_KERNELS
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
from labelfield.models.cost import deep_bytes
from labelfield.models.defaults import DeepPlan, plan_deep
from labelfield.networks import NETWORKS, NetworkSpec, square_image_shape

__all__ = ["DeepKernelClassifier"]

_RULES: dict[str, Rule] = {
    **{name: Number(1, is_integer=True) for name in ("n_processes", "batch_size")},
    **{name: Number(0, is_integer=True) for name in ("network_epochs", "process_epochs", "max_epochs", "n_negatives")},
    **{name: Number(1e-12) for name in ("learning_rate", "clip_norm", "time_budget")},
    **{name: Number(1e-12) for name in ("process_learning_rate", "joint_learning_rate")},
    "kl_weight": Number(0),
    "jitter": Number(0, highest=0.5),
    "n_samples": Number(1, is_integer=True, highest=10_000),
    "n_mixtures": Number(1, is_integer=True, highest=1000),
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


class DeepKernelClassifier(DeepTraining):
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
        require_labels(Y, likelihood)
        own = self.network if isinstance(self.network, nn.Module) else None
        chosen = plan_deep(
            X.shape[0],
            X.shape[1],
            Y.shape[1],
            likelihood == "bernoulli",
            option.network,
            n_dimensions(option),
            option.grid_size,
        )
        self.row_transform_ = self._choose_rows(option, X, chosen.network)
        data = Dataset(self.row_transform_(X), Y)
        self._stage_epochs = stage_epochs(option, chosen)
        self._decide_settings(option, chosen, data.n_rows, seed)
        network = None if own is None else deepcopy(own)
        takes_sparse = chosen.network == "bag" if network is None else bool(getattr(network, "takes_sparse", False))
        if not takes_sparse:
            require_dense(chosen.network, data.X)
        self._is_dense = not takes_sparse and is_dense(data.X)
        n_outputs = self._count_outputs(network, data, device, chosen, option)
        subsets = choose_subsets(option, chosen, n_outputs, is_own=own is not None)
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
        self._n_weights = n_weights(self.spec_, network)
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

    def _count_outputs(
        self, network: nn.Module | None, data: Dataset, device: torch.device, chosen: DeepPlan, option: Any
    ) -> int:
        """How many features a network gives: of the user's own by asking it."""
        if network is None:
            return 0
        n_tried = min(2, self.settings_.batch_size)
        some = Dataset(data.X[:n_tried], data.Y[:n_tried])
        X = next(iter(self._dense_or_sparse(some, bool(getattr(network, "takes_sparse", False)), device)))[1]
        network.to(device)
        h = _try(network.eval(), X)
        if not isinstance(h, Tensor) or h.dim() != 2 or h.shape[0] != X.shape[0] or not h.is_floating_point():
            found = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
            raise ValueError(f"the network gives {found} for {X.shape[0]} rows; expected a tensor ({X.shape[0]}, Q)")
        if h.dtype != X.dtype:
            raise ValueError(f"the network gives features of {h.dtype}; expected {X.dtype}, as rows are")
        # As in training, on a copy: what a network learns of its rows by itself is not to be touched.
        copy = _try(deepcopy(network).train(), X)
        if isinstance(copy, Tensor) and not copy.requires_grad and any(p.requires_grad for p in network.parameters()):
            warnings.warn(
                f"no gradient reaches the parameters of the network {type(network).__name__}: they will not be trained",
                UserWarning,
                stacklevel=4,
            )
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
        # Rows that are dense are held so, beside what they came in.
        dense = 4 * self.n_rows_ * self.spec_.n_features if self._is_dense else 0
        return dense + deep_bytes(self.spec_, self._n_weights, self.settings_.batch_size, self._n_labels_of_step())

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

    # Loading

    _build = staticmethod(build_deep)

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Tensor], names: list[str] | None) -> Self:
        """From what `save` wrote. A network of the user's own is given by the user; its weights are loaded."""
        own, network = config["spec"]["network_class"], config["options"].get("network")
        if not isinstance(network, str | nn.Module | None):
            raise ValueError(f"network is {network!r}, not a name")
        if own and not isinstance(network, nn.Module):
            raise ModelError(
                f"the model has a network of your own, {own}, which is not in its folder; build it as it was and pass "
                "it: labelfield.load(folder, network=…)"
            )
        if isinstance(network, nn.Module) and not own:
            raise ModelError("the model has a network of its own; load it without network=")
        sizes = ("grid_size", "n_mixtures", "n_samples", "n_samples_predict", "jitter")
        check_options(cls(**{name: config["spec"][name] for name in sizes}), cls._rules)
        if bool(own) == bool(config["spec"]["network"]):
            raise ValueError("the network is described twice or not at all")
        self = super()._restore(config, arrays, names)
        self._check_answers()
        if self.label_kind_ != "classes" and self.spec_.likelihood == "softmax":
            raise ValueError(f"label_kind is {self.label_kind_!r} for a softmax")
        return self

    def _restore_model(self, arrays: dict[str, Tensor]) -> tuple[Any, NDArray[np.int64]]:
        if not isinstance(self.network, nn.Module):
            return super()._restore_model(arrays)
        network = deepcopy(self.network)
        own = ("features.network.", "baseline.features.network.")
        known = {f"{prefix}{name}": value.dtype for prefix in own for name, value in network.state_dict().items()}
        for name, array in arrays.items():
            if name in known and array.dtype != known[name]:
                raise ModelError(f"{name} is of {array.dtype} and the network has {known[name]}; build it as it was")
        try:
            return restore_model(
                self.spec_, lambda spec: build_deep(spec, network, is_mixed=self.mixed_precision), arrays, own
            )
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines()]
            raise ModelError(f"the network does not fit its weights: {lines[-1][:200]}. Build it as it was") from None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.transformer_tags = TransformerTags(preserves_dtype=["float32"])  # it can give features to another model
        return tags


def _try(network: nn.Module, X: Tensor) -> Any:
    """What a network of the user's own makes of some rows; whatever it raises becomes one error."""
    try:
        # Whatever it draws, torch's generators are then as they were.
        with torch.random.fork_rng(devices=[X.device] if X.device.type == "cuda" else []):
            return network(X)
    except Exception as error:  # it may raise anything
        mode = ", in training," if network.training else ""
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"the network {type(network).__name__} cannot take{mode} rows of shape {tuple(X.shape)}: "
            f"{type(error).__name__}: {reason}"
        ) from None
