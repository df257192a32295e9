"""Stochastic variational deep kernel learning as a scikit-learn classifier."""

from copy import deepcopy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import nn

from labelfield.constraints import Constraint, Flag, Integer, OneOf, Real, Word
from labelfield.csr import column_counts
from labelfield.data.transform import choose_class_transform
from labelfield.errors import CannotAnswerError, DataError
from labelfield.estimators.blueprint import (
    Blueprint,
    Design,
    Fitted,
    TrainingRows,
    resolve,
    spec_options,
    training_settings,
)
from labelfield.estimators.classifier import Classifier
from labelfield.estimators.inputs import Labels, require_classes, require_one_class
from labelfield.estimators.options import count_of
from labelfield.inference.deep import STAGE_TIME, DeepTrainer, follow_features
from labelfield.inference.run import SCHEDULES, Settings
from labelfield.models.deep.cost import training_bytes
from labelfield.models.deep.plan import DeepPlan, plan
from labelfield.models.deep.predict import DeepPredictor, rows_for_network
from labelfield.models.deep.spec import CONSTRAINTS, MOST_DIMENSIONS, DeepSpec, build, checked_subsets
from labelfield.models.deep.start import start
from labelfield.models.predictor import Predictor
from labelfield.networks import NETWORKS, NetworkSpec, count_outputs, square_image_shape

# A dense network is given rows this wide in batches that are made dense; wider ones need one that takes sparse rows.
_MOST_DENSE = 8192


def _design(given: Any, rows: TrainingRows) -> Design:
    X, Y, labels, device, seed = rows.X, rows.Y, rows.labels, rows.device, rows.seed
    own = given.network if isinstance(given.network, nn.Module) else None
    if own is None and given.network is not None and given.network not in NETWORKS:
        raise ValueError(f"network={given.network!r}; expected one of {', '.join(NETWORKS)}, or a torch.nn.Module")
    likelihood = given.likelihood or ("softmax" if labels.kind == "classes" else "bernoulli")
    if likelihood == "softmax":
        require_classes(Y, labels.classes, "Use likelihood='bernoulli'.")
    n_dimensions = given.subset_size if given.subsets is None else len(checked_subsets(given.subsets)[0])
    name = given.network if own is None else "own"
    chosen = plan(X.shape[0], X.shape[1], Y.shape[1], likelihood == "bernoulli", name, n_dimensions, given.grid_size)
    options = resolve(given, chosen)
    choose = {"cnn": lambda X: "range", "own": lambda X: "none"}.get(chosen.network, choose_class_transform)
    data, transform = rows.transformed(given.row_transform, choose)
    stages = _stage_settings(options, data.n_rows, seed, rows.held_out_seed)
    takes_sparse = chosen.network == "bag" if own is None else bool(getattr(own, "takes_sparse", False))
    if not takes_sparse:
        _require_dense(chosen.network, data.X)
    n_outputs = None
    if own is not None:
        n_tried = min(2, next(iter(stages.values())).batch_size)
        n_outputs = count_outputs(own, next(rows_for_network(data.X[:n_tried], takes_sparse, device))[1])
    subsets = _choose_subsets(given, chosen, n_outputs)
    if n_outputs is None:
        n_outputs = 1 + max(max(subset) for subset in subsets)
    has_processes = set(stages) != {"network"}
    spec = DeepSpec(
        **spec_options(DeepSpec, options)
        | {
            "n_features": data.n_features,
            "n_labels": Y.shape[1],
            "network": None if own is not None else _network_spec(options, data.n_features, n_outputs),
            "n_outputs": n_outputs,
            "subsets": subsets,
            "likelihood": likelihood,
            "is_plain": not has_processes,
            "has_baseline": options.keep_baseline and "network" in stages and has_processes,
            "network_class": "" if own is None else f"{type(own).__module__}.{type(own).__qualname__}",
        }
    )
    n_negatives = options.n_negatives or None
    if likelihood == "softmax" and n_negatives:
        raise ValueError("n_negatives is for several labels per row: a softmax needs all classes in each step")
    counts = column_counts(Y)

    def begin(model: Any) -> None:
        start(model, counts, X.shape[0], seed)
        model.to(device)
        follow_features(model, data, seed)

    # What is known about the whole training: the settings of its last stage, and the time that the user gave.
    settings = replace(list(stages.values())[-1], time_budget=given.time_budget)
    # A softmax has one class per row, in whatever form it was given.
    read = Labels("classes" if likelihood == "softmax" else labels.kind, labels.classes)
    # Codes of a dense table become indicators, which are mostly 0: the table is still held as dense.
    are_dense = not takes_sparse and (_is_dense(data.X) or (transform.codes is not None and _is_dense(X)))
    return Design(data, transform, spec, settings, n_negatives, begin, read, are_dense)


def _is_dense(X: sparse.csr_array) -> bool:
    """Return whether at least an eighth of the numbers are not 0, in whatever form rows came."""
    return bool(8 * X.nnz >= X.shape[0] * X.shape[1])


def _require_dense(network: str, X: sparse.csr_array) -> None:
    """Refuse wide sparse rows for a network that would make them dense."""
    n_features = X.shape[1]
    if n_features > _MOST_DENSE and not _is_dense(X):
        whose = "your network takes" if network == "own" else f"network={network!r} takes"
        fix = "set takes_sparse = True on one that takes sparse CSR tensors, or " if network == "own" else ""
        raise DataError(
            f"sparse rows of {n_features} features, and {whose} dense rows",
            expected=f"at most {_MOST_DENSE} for a network of dense rows",
            fix=f"For sparse rows {fix}use network='bag'.",
        )


def _stage_settings(options: Any, n_rows: int, seed: int, held_out_seed: int | None) -> dict[str, Settings]:
    """Return how to train in each stage. The last one calibrates and then takes in the rows that were held out."""
    counts = (options.network_epochs, options.process_epochs, options.max_epochs)
    epochs = {name: count for name, count in zip(STAGE_TIME, counts, strict=True) if count}
    if not epochs:
        raise ValueError("network_epochs, process_epochs and max_epochs are all 0; at least one must be positive")
    rates, last = _rates(options), list(epochs)[-1]
    final = SimpleNamespace(**vars(options) | {"max_epochs": epochs[last], "learning_rate": rates[last]})
    whole = training_settings(final, n_rows, seed, held_out_seed)
    weight = {name: count * STAGE_TIME[name] for name, count in epochs.items()}
    stages = {}
    for name, count in epochs.items():
        own = whole
        if name != last:
            own = replace(own, max_epochs=count, finishing_epochs=0, learning_rate=rates[name])
        if options.time_budget is not None:
            own = replace(own, time_budget=options.time_budget * weight[name] / sum(weight.values()))
        stages[name] = own
    return stages


def _rates(options: Any) -> dict[str, float]:
    """Return the learning rate of each stage."""
    rates = (options.learning_rate, options.process_learning_rate, options.joint_learning_rate)
    return dict(zip(STAGE_TIME, rates, strict=True))


def _choose_subsets(options: Any, chosen: DeepPlan, n_outputs: int | None) -> tuple[tuple[int, ...], ...]:
    """Return the features of each process: as the user says, or in order; for a user's network, all of them."""
    size, n_processes = options.subset_size, options.n_processes
    if options.subsets is not None:
        if n_processes not in (None, len(options.subsets)):
            raise ValueError(
                f"n_processes={n_processes} with {len(options.subsets)} subsets; expected one subset per process"
            )
        return checked_subsets(options.subsets)
    n_processes = n_processes or (chosen.n_processes if n_outputs is None else max(1, n_outputs // size))
    if n_outputs not in (None, n_processes * size):
        raise ValueError(
            f"the network gives {n_outputs} features; {n_processes} processes on {size} each need "
            f"{n_processes * size}. Change n_processes, subset_size or the network's last layer"
        )
    return tuple(tuple(range(j * size, (j + 1) * size)) for j in range(n_processes))


def _network_spec(options: Any, n_features: int, n_outputs: int) -> NetworkSpec:
    shape = options.image_shape
    if options.network == "cnn" and shape is None:
        shape = square_image_shape(n_features)
        if shape is None:
            raise ValueError(
                f"{n_features} features do not form a square image; pass image_shape=(channels, height, width)"
            )
    parts = {"channels": options.channels, "image_shape": shape, "dropout": options.dropout}
    return NetworkSpec(options.network, n_features, n_outputs, options.hidden, **parts)


def _build(spec: DeepSpec, options: Any) -> nn.Module:
    """Build the model, around a copy of the user's own network where there is one."""
    own = deepcopy(options.network) if isinstance(options.network, nn.Module) else None
    return build(spec, own, is_mixed=options.mixed_precision)


def _trainer(given: Any, fitted: Fitted) -> DeepTrainer:
    spec, settings = fitted.spec, fitted.settings
    network = "own" if spec.network is None else spec.network.name
    sizes = fitted.n_rows, spec.n_features, spec.n_labels
    options = resolve(given, plan(*sizes, spec.likelihood == "bernoulli", network, spec.n_dimensions, spec.grid_size))
    return DeepTrainer(
        fitted.model,
        spec,
        settings,
        _stage_settings(options, fitted.n_rows, settings.seed, settings.held_out_seed),
        _rates(options),
        n_negatives=fitted.n_negatives,
        are_dense=fitted.are_dense,
        is_mixed=options.mixed_precision,
    )


def _training_bytes(options: Any, fitted: Fitted) -> int:
    spec = fitted.spec
    # Dense rows are held as such, beside the form in which they came.
    dense = 4 * fitted.n_rows * spec.n_features if fitted.are_dense else 0
    own = options.network if isinstance(options.network, nn.Module) else None
    n_weights = sum(weight.numel() for weight in own.parameters()) if own is not None else spec.network.n_weights
    return dense + training_bytes(spec, n_weights, fitted.settings.batch_size, fitted.n_labels_per_step)


def _network_words(spec: DeepSpec) -> str:
    if spec.network is None:
        return spec.network_class
    return f"{spec.network.name} {'-'.join(map(str, spec.network.hidden))}".strip()


def _facts(options: Any, fitted: Fitted) -> dict[str, str]:
    spec, network = fitted.spec, _network_words(fitted.spec)
    if spec.is_plain:
        return {"network": network}
    sizes = {"processes": f"{spec.n_processes:,}", "grid points per dimension": f"{spec.grid_size:,}"}
    return sizes | {"network": network, "kernel": spec.kernel, "posterior": spec.posterior}


def _summary(options: Any, fitted: Fitted) -> str:
    spec, network = fitted.spec, _network_words(fitted.spec)
    if spec.is_plain:
        return f"{spec.n_labels} labels; only the network {network}"
    return (
        f"{spec.n_labels} labels; network {network}, {spec.n_processes} processes on {spec.n_dimensions} features "
        f"each, kernel {spec.kernel}, grid of {spec.grid_size}, {spec.likelihood}"
    )


def _check_labels(fitted: Fitted, Y: sparse.csr_array) -> None:
    if fitted.spec.likelihood == "softmax":
        require_one_class(Y, "Check the labels.")


def _check(options: Any, fitted: Fitted) -> None:
    if fitted.labels.kind != "classes" and fitted.spec.likelihood == "softmax":
        raise ValueError(f"label_kind is {fitted.labels.kind!r} for a softmax")
    DeepPredictor(fitted.model).check()


@dataclass(kw_only=True, eq=False, repr=False)
class DeepKernelClassifier(Classifier):
    """Deep kernel learning: h = network(x), f_j ~ GP(0, k_j) on some features of h, and a likelihood of A f + b.

    Training has three stages, each of which may be left out (0 epochs): the plain network, which is kept as the
    baseline; the processes on its features; everything jointly. Options left at None are chosen from the size of the
    data (`labelfield.models.deep.plan`).

    Parameters
    ----------
    network : str, torch.nn.Module or None
        mlp, bag for sparse rows, cnn for images, or a module of your own that maps rows (B, D) to features (B, Q). A
        module with `takes_sparse = True` is given sparse CSR tensors. From a config file only the names can be used.
    hidden : sequence of int or None
        Widths of the hidden layers, such as [256, 128].
    channels : sequence of int
        Channels of the convolutions of a cnn.
    image_shape : sequence of int or None
        Channels, height and width of images for a cnn; inferred for square images.
    dropout : float or None
        Share of hidden numbers that a step leaves out.
    n_processes : int or None
        Number of processes J; as many as classes if not given, at most 512 for several labels per row.
    subset_size : int
        Features per process: 1, 2 or 3.
    subsets : sequence of sequences of int or None
        The features of each process, such as [[0, 1], [1, 2]], instead of one after the other.
    grid_size : int or None
        Grid points per dimension.
    kernel : str
        Kernel of the processes: se, matern12, matern32 or matern52.
    kernel_per_process : bool or None
        Whether each process has a kernel of its own.
    posterior : str or None
        whitened_kronecker, or kronecker as in the paper, which suits more than 1,000 points per dimension.
    likelihood : str or None
        softmax for one class per row, bernoulli for several labels; decided by the data if not given.
    moments : str
        How training draws: "exact" from the exact moments of f at each row, "sampled" from u as in the paper.
    n_samples : int
        Draws per training step T.
    n_samples_predict : int
        Draws in prediction, for one class per row.
    row_transform : str or None
        What is done to rows first: scaled, coded, range, deskew, unit, sqrt, log, tfidf, some of the last four joined
        by +, or none. By default features whose numbers are codes of categories are coded, others scaled.
    n_negatives : int or None
        Labels drawn per batch beside those that hold in it; 0 for all labels.
    network_epochs : int or None
        Passes over the rows that train only the network, the baseline.
    process_epochs : int or None
        Passes that train only the processes.
    max_epochs : int or None
        Passes that train everything jointly.
    batch_size : int or None
        Rows per step B.
    learning_rate : float or None
        Highest learning rate of Adam for the network by itself.
    process_learning_rate : float or None
        Learning rate of the processes.
    joint_learning_rate : float or None
        Learning rate of the network in the joint stage.
    schedule : str
        How the learning rate changes: one_cycle, cosine, linear or constant.
    kl_weight : float
        Weight of the divergence; 1 is the true bound.
    clip_norm : float or None
        Largest norm of a gradient; larger gradients are scaled down to it.
    n_iter_no_change : int or None
        Epochs without a better bound before a stage stops.
    time_budget : float or None
        Seconds of training.
    jitter : float
        Added to the diagonal of the grid's covariance, relative to its mean.
    calibrate : bool
        Whether to calibrate probabilities on a tenth of the rows, which then join the training.
    keep_baseline : bool
        Whether to keep the plain network beside the model.
    mixed_precision : bool
        Whether the network is trained in bfloat16 on a GPU.
    threshold : float
        Least probability at which `predict` assigns a label.
    device : str
        auto, cpu or cuda.
    random_state : int, RandomState or None
        Seed; the same seed gives the same model on the same machine.
    """

    network: Any = None
    hidden: Any = None
    channels: Any = (32, 64)
    image_shape: Any = None
    dropout: float | None = None
    n_processes: int | None = None
    subset_size: int = 1
    subsets: Any = None
    grid_size: int | None = None
    kernel: str = "se"
    kernel_per_process: bool | None = None
    posterior: str | None = None
    likelihood: str | None = None
    moments: str = "exact"
    n_samples: int = 1
    n_samples_predict: int = 128
    row_transform: str | None = None
    n_negatives: int | None = None
    network_epochs: int | None = None
    process_epochs: int | None = None
    max_epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    process_learning_rate: float | None = None
    joint_learning_rate: float | None = None
    schedule: str = "one_cycle"
    kl_weight: float = 1.0
    clip_norm: float | None = None
    n_iter_no_change: int | None = None
    time_budget: float | None = None
    jitter: float = 1e-4
    calibrate: bool = True
    keep_baseline: bool = True
    mixed_precision: bool = True
    threshold: float = 0.5
    device: str = "auto"
    random_state: Any = 0

    constraints: ClassVar[dict[str, Constraint]] = {
        **CONSTRAINTS,
        **dict.fromkeys(("n_processes", "batch_size", "n_iter_no_change"), Integer(1)),
        **dict.fromkeys(("network_epochs", "process_epochs", "max_epochs", "n_negatives"), Integer(0)),
        **dict.fromkeys(("learning_rate", "process_learning_rate", "joint_learning_rate"), Real(1e-12)),
        **dict.fromkeys(("clip_norm", "time_budget"), Real(1e-12)),
        "kl_weight": Real(0),
        "subset_size": Integer(1, MOST_DIMENSIONS),
        "dropout": Real(0, 0.99),
        "threshold": Real(0, 1),
        "schedule": OneOf(SCHEDULES),
        "row_transform": Word(),
        **dict.fromkeys(("calibrate", "keep_baseline", "mixed_precision"), Flag()),
    }
    method: ClassVar[str] = "svdkl"
    blueprint: ClassVar[Blueprint] = Blueprint(
        spec=DeepSpec,
        build=_build,
        design=_design,
        predictor=lambda fitted: DeepPredictor(fitted.model),
        trainer=_trainer,
        training_bytes=_training_bytes,
        summary=_summary,
        facts=_facts,
        check_labels=_check_labels,
        check=_check,
        to_lower=("batch_size", "hidden", "grid_size"),
        foreign_arrays=("features.network.", "baseline.features.network."),
    )

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Train everything jointly for one more epoch, on these rows; the first call also builds the model.

        The network is not trained by itself first, as `fit` does, and there is no baseline. `classes` names all labels
        there will be.
        """
        is_new = not hasattr(self, "fitted_")
        try:
            return super().partial_fit(X, Y, classes)
        finally:  # even after an interrupted call
            if is_new and hasattr(self, "fitted_") and self.spec_.has_baseline:
                self.model_.baseline, self.fitted_.spec = None, replace(self.spec_, has_baseline=False)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features h of rows (N, Q)."""
        rows, predictor = self.rows(X), DeepPredictor(self.model_)
        found = np.empty((rows.shape[0], self.spec_.n_outputs), np.float32)
        for block, h in predictor.features(rows):
            found[block] = h.cpu().numpy()
        return found

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> NDArray[np.float32]:
        """Fit, and return the features h of the same rows."""
        return self.fit(X, y, **options).transform(X)

    def baseline_proba(self, X: Any, *, calibrated: bool = True) -> NDArray[np.float32]:
        """Return the probability of each label (N, K) under the plain network, before the processes were added."""
        return self._baseline().proba(self.rows(X), calibrated)

    def baseline_topk(self, X: Any, k: int = 5, *, calibrated: bool = True) -> sparse.csr_array:
        """Return the k most probable labels of each row under the plain network, as CSR (N, K)."""
        return self._baseline().top_k(self.rows(X), count_of(k), calibrated)

    def _baseline(self) -> Predictor:
        found = self.predictor_.baseline()
        if found is None:
            raise CannotAnswerError(
                "there is no baseline; fit with keep_baseline=True, network_epochs above 0 and a later stage"
            )
        return found
