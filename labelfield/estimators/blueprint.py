"""The parts that a model gives to its classifier: functions that decide, build, train and predict.

A classifier knows scikit-learn and nothing of any model; a blueprint knows one model and nothing of scikit-learn.
Fitting goes `design → build → start → trainer.train`; loading goes `build → predictor`. Both end in a `Fitted`, which
is all that a model folder holds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import nn

from labelfield.cluster import ALONE, Cluster
from labelfield.data import Dataset
from labelfield.data.mask import Mask
from labelfield.data.transform import RowTransform, choose_transform
from labelfield.decide import Evidence
from labelfield.estimators.inputs import Labels
from labelfield.inference.fitting import GradientTrainer, Trainer
from labelfield.inference.run import Settings
from labelfield.models.calibration import Temperature
from labelfield.models.divided import RowShares
from labelfield.models.index import Index
from labelfield.models.predictor import Predictor, UtilityPredictor
from labelfield.text.parts import TextParts

# A tenth of fewer rows says too little about probabilities.
_LEAST_ROWS_TO_CALIBRATE = 300
# More teach nothing further, and their predictions take memory.
_MOST_HELD_OUT = 50_000


class TrainingRows(NamedTuple):
    """Checked training rows X and labels Y (both CSR), the form of the labels, the device and the seed.

    `mask` says which entries of Y were observed, None for all. Where `names_all_labels`, further rows may have labels
    that these do not show. With a `held_out_seed` and the same number `n_held_out` (None for a tenth), the same rows
    are held out as in other trainings with them. The processes of a `cluster` decide and train together.
    """

    X: sparse.csr_array
    Y: sparse.csr_array
    labels: Labels
    device: torch.device
    seed: int
    mask: Mask | None = None
    names_all_labels: bool = False
    held_out_seed: int | None = None
    n_held_out: int | None = None
    cluster: Cluster = ALONE

    def transformed(
        self, name: str | None = None, choose: Callable[[sparse.csr_array], str] = choose_transform
    ) -> tuple[Dataset, RowTransform]:
        """Return the rows through the transform of this name, or the one that suits them, and that transform."""
        transform = RowTransform.fit(name or choose(self.X), self.X, self.Y)
        return Dataset(transform(self.X), self.Y), transform


@dataclass
class Design:
    """All decisions about a model that need no training: its structure, and how it will be trained.

    `data` are the rows as the model will see them, and `start` fills a model that was built from `spec`.
    """

    data: Dataset
    row_transform: RowTransform
    spec: Any
    settings: Settings
    n_negatives: int | None = None
    start: Callable[[Any], None] = lambda model: None
    # How labels were given, where the design reads them differently.
    labels: Labels | None = None
    # Whether rows are held as one dense tensor while training.
    are_dense: bool = False
    # What was compared on held-out rows to come to these decisions, best first.
    trials: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Fitted:
    """A model with everything that goes into its folder, its trainer and its predictor."""

    spec: Any
    settings: Settings
    model: Any
    row_transform: RowTransform
    labels: Labels
    label_counts: NDArray[np.int64]
    n_rows: int
    n_negatives: int | None = None
    are_dense: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    # Of a member of an ensemble: P@1, 3 and 5 on held-out rows, alone and together with those before it.
    held_out_scores: dict[str, list[float]] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    # The predictions for held-out rows, for decisions; if there are none, why not.
    evidence: Evidence | None = None
    no_evidence: str = ""
    # What searches need that score few labels exactly; None if there is none. Until then, rows to make it of.
    index: Index | None = None
    rows_for_index: sparse.csr_array | None = None
    label_names: list[str] | None = None
    feature_names: list[str] | None = None
    feature_names_digest: str | None = None
    # The parts that turn documents into rows; None for a model of rows.
    text: TextParts | None = None
    # The observed entries of the labels of the next training rows, None for all.
    mask: Mask | None = None
    n_ranks: int = 1  # how many processes train it
    options: Any = None  # as they were when the model was built: those of the estimator may change
    trainer: Any = None  # a Trainer
    predictor: Any = None  # a Predictor

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the trainer and the predictor, which are made again when needed."""
        return self.__dict__ | {"trainer": None, "predictor": None}

    @property
    def n_iter(self) -> int:
        """The number of epochs that the model was trained for."""
        return len(self.history)

    @property
    def n_labels_per_step(self) -> int:
        """About how many labels a step uses: all, or those that hold in a batch and the drawn negatives."""
        n_labels = int(self.spec.n_labels)
        if not self.n_negatives:
            return n_labels
        per_row = self.label_counts.sum() / max(self.n_rows, 1)
        return min(n_labels, int(per_row * self.settings.batch_size) + self.n_negatives)


def _utility_predictor(fitted: Fitted) -> Predictor:
    """Predict from moments and likelihood. Classes exclude each other if the calibration says so, else by division."""
    is_exclusive = isinstance(fitted.model.calibration, Temperature)
    predictor = UtilityPredictor(fitted.model, fitted.spec.n_labels, is_exclusive)
    predictor.normalises = fitted.labels.kind == "classes" and not is_exclusive
    return predictor


def _gradient_trainer(options: Any, fitted: Fitted) -> Trainer:
    return GradientTrainer(fitted.model, fitted.settings, fitted.model.elbo, lambda: _utility_predictor(fitted))


@dataclass(frozen=True)
class Blueprint:
    """The parts of a classifier. `options` are the estimator's parameters with plain values.

    A model with `elbo(X, Y, n_data, generator=...)`, `moments(X)`, `likelihood` and `calibration` needs a spec
    (with n_features and n_labels), `build` and `design`, and nothing else (docs/how-to-add-a-model.md).
    """

    spec: type[Any]
    # build(spec, options) → a model, not yet filled
    build: Callable[[Any, Any], nn.Module]
    # design(options, rows) → what the model will be
    design: Callable[[Any, TrainingRows], Design]
    # predictor(fitted) → the predictor, made again whenever the model has changed
    predictor: Callable[[Fitted], Predictor] = _utility_predictor
    # trainer(options, fitted) → the trainer, for the first training and later ones
    trainer: Callable[[Any, Fitted], Trainer] = _gradient_trainer
    # spread(fitted, cluster) → the predictor in one of several processes, by default for a share of the rows
    spread: Callable[[Fitted, Cluster], Predictor] = lambda fitted, cluster: RowShares(fitted.predictor, cluster)
    # training_bytes(options, fitted) → memory of a training step, besides the rows
    training_bytes: Callable[[Any, Fitted], int] = lambda options, fitted: 0
    # summary(options, fitted) → a one-line description of the model
    summary: Callable[[Any, Fitted], str] = lambda options, fitted: f"{fitted.spec.n_labels} labels"
    # facts(options, fitted) → the most important sizes and choices, by name
    facts: Callable[[Any, Fitted], dict[str, str]] = lambda options, fitted: {}
    # check_labels(fitted, Y): raise if labels given later do not suit the model
    check_labels: Callable[[Fitted, sparse.csr_array], None] = lambda fitted, Y: None
    # check(options, fitted): raise if a model from a folder contradicts itself
    check: Callable[[Any, Fitted], None] = lambda options, fitted: None
    # variants(fitted, n) → options of further ensemble members, most useful first
    variants: Callable[[Fitted, int], list[dict[str, Any]]] = lambda fitted, n: [
        {"random_state": fitted.settings.seed + number} for number in range(1, n)
    ]
    # trains_alone(options, rows) → why several processes cannot train it together, and what to do; "" if they can
    trains_alone: Callable[[Any, TrainingRows], str] = lambda options, rows: (
        "this method trains in one process: start it without torchrun, or choose the method linear"
    )
    # options to lower when memory is short, and what else would help
    to_lower: tuple[str, ...] = ("batch_size",)
    memory_advice: str = ""
    # arrays of the model that serve training alone, by how their names begin; they are not saved
    training_only: tuple[str, ...] = ()
    # with_training_arrays(spec, arrays) → the arrays with those of `training_only` filled in
    with_training_arrays: Callable[[Any, dict[str, torch.Tensor]], dict[str, torch.Tensor]] = lambda spec, arrays: (
        arrays
    )
    # arrays that may be of any type, by how their names begin: those of a network of the user's own
    foreign_arrays: tuple[str, ...] = ()
    can_be_multi_label: bool = True

    @property
    def memory_hint(self) -> str:
        """Which options to lower when memory is short, in words."""
        *others, last = self.to_lower
        return f"{', '.join(others)}{' or ' if others else ''}{last}{self.memory_advice}"


def resolve(options: Any, chosen: Any) -> Any:
    """Return the options, with the plan's choice where the user left one open."""
    left_open = {name: value for name, value in vars(chosen).items() if getattr(options, name, None) is None}
    return SimpleNamespace(**vars(options) | left_open)


def spec_options(spec: type[Any], options: Any) -> dict[str, Any]:
    """Return those options that a spec has under the same name."""
    return {name: getattr(options, name) for name in spec.__dataclass_fields__ if hasattr(options, name)}


def training_settings(
    options: Any, n_rows: int, seed: int, held_out_seed: int | None = None, n_held_out: int | None = None
) -> Settings:
    """Return the training settings for resolved options. Given enough rows, hold out some.

    By default that is a tenth, at most 50,000.
    """
    can_calibrate = options.calibrate and n_rows >= _LEAST_ROWS_TO_CALIBRATE and options.max_epochs >= 3
    held_out = (n_held_out or min(n_rows // 10, _MOST_HELD_OUT)) if can_calibrate else 0
    return Settings(
        **spec_options(Settings, options)
        | {
            "batch_size": min(options.batch_size, n_rows),
            "held_out": held_out,
            "finishing_epochs": options.max_epochs // 3 if held_out else 0,
            "seed": seed,
            "held_out_seed": held_out_seed,
        }
    )
