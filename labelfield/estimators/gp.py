"""Multi-class Gaussian processes as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.data import Dataset
from labelfield.data.transform import RowTransform, choose_class_transform
from labelfield.errors import DataError
from labelfield.estimators.inputs import as_rows, encode_labels, require_one_class
from labelfield.estimators.options import (
    Number,
    Rule,
    advising_on_memory,
    check_options,
    choose_device,
    choose_seed,
    given,
)
from labelfield.estimators.probabilities import FEWER_ROWS, BlockPredictions
from labelfield.inference.class_batches import ClassBatches
from labelfield.inference.gradient import Batches
from labelfield.inference.schedule import SCHEDULES
from labelfield.linalg.rows import Rows, to_tensor
from labelfield.models.build import MOST_POINTS
from labelfield.models.build_multiclass import (
    CLASS_INDUCING,
    CLASS_POSTERIORS,
    LIKELIHOODS,
    RIVALS,
    ClassSpec,
    build_multiclass,
    make_likelihood,
    start_multiclass,
)
from labelfield.models.cost import multiclass_bytes
from labelfield.models.defaults import SUPPORT, plan_multiclass
from labelfield.models.mlgpf import Elbo
from labelfield.models.multiclass import MultiClassGP
from labelfield.models.processes import Part, SparseUtilities
from labelfield.variational import Moments

__all__ = ["GPClassifier", "Utility"]

_FOR_SEVERAL = "Use MLGPFClassifier (--method mlgpf) for several labels a row."
# Rows times classes whose utilities exist at once, and numbers in the matrices of classes that are looked at together.
_BLOCK_ENTRIES, _PART_ENTRIES = 1 << 22, 1 << 26
_MOST_ROWS = 2000
_RULES: dict[str, Rule] = {
    **{name: Number(1, is_integer=True) for name in ("n_inducing", "max_epochs", "batch_size", "n_samples")},
    **{name: Number(1, is_integer=True, highest=MOST_POINTS) for name in ("n_points", "n_points_predict")},
    **{name: Number(1e-12) for name in ("learning_rate", "clip_norm", "time_budget", "scale")},
    **{name: Number(0) for name in ("kl_weight", "jitter")},
    "epsilon": Number(1e-12, highest=0.5),
    "patience": Number(1, is_integer=True),
    "n_negatives": Number(0, is_integer=True),
    "classes_per_batch": Number(1, is_integer=True),
    "likelihood": LIKELIHOODS,
    "kernel": str,
    "own_kernel": bool,
    "posterior": CLASS_POSTERIORS,
    "inducing": CLASS_INDUCING,
    "rivals": RIVALS,
    "schedule": SCHEDULES,
    "row_transform": str,
    "unit_norm": bool,
    "calibrated": bool,
}


class Utility(NamedTuple):
    """Means and variances of the utilities f (N, K)."""

    f_mean: NDArray[np.float32]
    f_var: NDArray[np.float32]


class GPClassifier(BlockPredictions):
    """f_k = b_k + GP(0, k_k) for each class, and a one-vs-each, robustmax or softmax likelihood.

    Left at None, sizes and rates follow the rule of `labelfield.models.defaults`. `inducing` is "per_class" for
    inducing inputs of each class's own, "free" or "fixed" for shared ones; with `own_kernel` so is the kernel.
    `posterior` is one of those of MLGPFClassifier, or "point" for linear utilities without uncertainty. With many
    classes a step of one-vs-each looks at the classes of its rows and `n_negatives` rivals, drawn with equal chances or
    by how high they scored (`rivals="importance"`); with `classes_per_batch` its rows are of so many classes.
    """

    _rules = _RULES
    _lower = "batch_size or n_inducing"
    _spec_type = ClassSpec
    _build = staticmethod(build_multiclass)
    model_: MultiClassGP
    spec_: ClassSpec
    _class_batches: ClassBatches | None = None

    def __init__(
        self,
        *,
        likelihood: str = "one_vs_each",
        n_inducing: int | None = None,
        kernel: str | None = None,
        own_kernel: bool | None = None,
        posterior: str | None = None,
        inducing: str | None = None,
        unit_norm: bool = True,
        row_transform: str | None = None,
        n_negatives: int | None = None,
        rivals: str = "uniform",
        classes_per_batch: int | None = None,
        epsilon: float = 1e-3,
        scale: float = 1.0,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        schedule: str = "one_cycle",
        kl_weight: float = 1.0,
        clip_norm: float | None = None,
        patience: int | None = None,
        time_budget: float | None = None,
        n_points: int | None = None,
        n_points_predict: int = 20,
        n_samples: int = 256,
        jitter: float = 1e-5,
        calibrated: bool = True,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.likelihood = likelihood
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.own_kernel = own_kernel
        self.posterior = posterior
        self.inducing = inducing
        self.unit_norm = unit_norm
        self.row_transform = row_transform
        self.n_negatives = n_negatives
        self.rivals = rivals
        self.classes_per_batch = classes_per_batch
        self.epsilon = epsilon
        self.scale = scale
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.kl_weight = kl_weight
        self.clip_norm = clip_norm
        self.patience = patience
        self.time_budget = time_budget
        self.n_points = n_points
        self.n_points_predict = n_points_predict
        self.n_samples = n_samples
        self.jitter = jitter
        self.calibrated = calibrated
        self.device = device
        self.random_state = random_state

    # Fitting

    def _method(self) -> str:
        return str(self.spec_.likelihood if hasattr(self, "spec_") else self.likelihood)

    def prepare(self, X: Any, Y: Any, classes: Any = None) -> Dataset:
        """Decide everything that does not need training and build the model; returns the rows as it will see them."""
        self._forget()
        check_options(self, self._rules)
        option = SimpleNamespace(**{name: given(value, None) for name, value in self.get_params().items()})
        device, seed = choose_device(self.device), choose_seed(self.random_state)
        X = as_rows(self, X, reset=True)
        Y, labels = encode_labels(Y, X.shape[0], classes)
        require_one_class(Y, _FOR_SEVERAL)
        _require_two_classes(labels.classes)
        self.label_kind_, self.classes_ = "classes", labels.classes
        self.row_transform_ = RowTransform.fit(
            choose_class_transform(X) if option.row_transform is None else option.row_transform, X
        )
        data = Dataset(self.row_transform_(X), Y)
        chosen = plan_multiclass(X.shape[0], data.n_features, Y.shape[1], option.posterior, option.inducing)
        self.settings_ = self._decide(
            option, chosen, X.shape[0], seed, kl_weight=option.kl_weight, time_budget=option.time_budget
        )
        posterior = given(option.posterior, chosen.posterior)
        if posterior == "point" and option.likelihood == "robustmax":
            raise ValueError(
                "posterior='point' with likelihood='robustmax': which utility is largest has no gradient without "
                "uncertainty; use likelihood='softmax' or 'one_vs_each'"
            )
        inducing = given(option.inducing, chosen.inducing)
        self.spec_ = ClassSpec(
            n_features=data.n_features,
            n_labels=Y.shape[1],
            n_inducing=min(given(option.n_inducing, chosen.n_inducing), X.shape[0]),
            likelihood=option.likelihood,
            kernel=given(option.kernel, "linear" if posterior == "point" else chosen.kernel),
            own_kernel=given(option.own_kernel, chosen.own_kernel),
            posterior=posterior,
            inducing=inducing,
            rivals=option.rivals,
            n_support=SUPPORT if data.n_features > SUPPORT and inducing != "per_class" and posterior != "point" else 0,
            unit_norm=option.unit_norm and self.row_transform_.has_unit_norm,
            epsilon=option.epsilon,
            n_points=option.n_points_predict,
            n_samples=option.n_samples,
            jitter=option.jitter,
            scale=option.scale,
        )
        self.label_counts_ = np.bincount(Y.indices, minlength=Y.shape[1])
        self.n_rows_ = X.shape[0]
        self.history_ = []
        self.n_negatives_ = self._decide_negatives(option.n_negatives, chosen.n_negatives)
        self._require_memory(device)
        with advising_on_memory(self._lower):
            self.model_ = build_multiclass(self.spec_)
            start_multiclass(self.model_, self.spec_, data.X, Y, seed, device)
            self.model_.to(device)
        self._training = self._class_batches = None
        return data

    def _decide_negatives(self, wanted: int | None, planned: int | None) -> int | None:
        """How many rivals a step draws; None for all classes, which robustmax and softmax need."""
        if make_likelihood(self.spec_).needs_all_classes:
            if wanted or self.classes_per_batch or self.rivals != "uniform":
                raise ValueError(
                    f"likelihood={self.likelihood!r} needs all classes in each step; n_negatives, rivals and "
                    "classes_per_batch are for likelihood='one_vs_each'"
                )
            return None
        if planned is None and (self.classes_per_batch or self.rivals != "uniform"):
            planned = 1 if self.classes_per_batch else max(1, self.spec_.n_labels // 4)
        return given(wanted, planned) or None

    def summary(self) -> str:
        """What the model is made of, in a line."""
        spec = self.spec_
        if spec.posterior == "point":
            return f"{spec.n_labels} classes; linear utilities, a point estimate"
        whose = "for each class" if spec.own_kernel else "for all classes"
        return (
            f"{spec.n_labels} classes; kernel {spec.kernel} ({whose}), {spec.n_inducing} inducing inputs "
            f"({spec.inducing}), posterior {spec.posterior}"
        )

    def training_bytes(self) -> int:
        """About how much memory a step of training takes, beside the rows, according to the sizes that were decided."""
        n_classes = self.spec_.n_labels
        if self.n_negatives_:
            own = min(self.classes_per_batch or self.settings_.batch_size, n_classes)
            n_classes = min(n_classes, own + self.n_negatives_)
        return multiclass_bytes(self.spec_, self.settings_.batch_size, n_classes)

    def _facts(self) -> tuple[Any, ...]:
        return self.n_negatives_, self._n_points(), self.classes_per_batch

    def _n_points(self) -> int:
        """Quadrature points in training. The product over rivals in robustmax is a steep function: of fifty classes and
        five points it learns half as well as with ten."""
        return int(given(self.n_points, 20 if self.spec_.likelihood == "robustmax" else 5))

    def _is_capturable(self) -> bool:
        return self.n_negatives_ is None and not self.classes_per_batch

    def _batches(self, data: Dataset) -> Batches | None:
        self._class_batches = None
        if self.classes_per_batch:
            self._class_batches = ClassBatches(data.Y.indices, self.classes_per_batch)
        return self._class_batches

    def _objective(self) -> Any:
        model, likelihood = self.model_, make_likelihood(self.spec_, self._n_points())

        def bound(X: Rows, Y: Tensor, n_data: int, generator: torch.Generator | None = None) -> Elbo:
            batches = self._class_batches
            return model.elbo(
                X,
                Y,
                n_data,
                n_negatives=self.n_negatives_,
                row_weight=None if batches is None else batches.row_weight(Y.col_indices().long()),
                likelihood=likelihood,
                generator=generator,
            )

        return bound

    def __getstate__(self) -> Any:
        """Without the classes of the training rows."""
        return super().__getstate__() | ({"_class_batches": None} if self._class_batches is not None else {})

    def _calibrate(self, held_out: Dataset) -> dict[str, Tensor]:
        """Fit the map of probabilities to rows that the model has not seen."""
        n_rows = min(held_out.n_rows, max(1, 4 * _BLOCK_ENTRIES // self.spec_.n_labels))
        some = held_out.take(slice(n_rows))
        P = np.concatenate([P.cpu().numpy() for _, P in self._probabilities(some.X, calibrated=False)])
        self.model_.calibration.fit(P, some.Y.indices)
        return {}

    def _description(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        config, arrays = super()._description()
        # Of use in training alone.
        return config, {name: value for name, value in arrays.items() if not name.startswith("rivals.")}

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Tensor], names: list[str] | None) -> Self:
        self = super()._restore(config, arrays, names)
        if config["method"] != self.spec_.likelihood:
            raise ValueError(f"a model of {config['method']} with the likelihood {self.spec_.likelihood}")
        if self.label_kind_ != "classes":
            raise ValueError(f"label_kind is {self.label_kind_!r} for one class a row")
        return self

    # Predicting

    def _class_blocks(self) -> list[Tensor | None]:
        """Classes whose matrices fit in memory together: all, or some at a time."""
        spec = self.spec_
        own = spec.has_own_matrices
        each = spec.n_inducing * max(spec.n_inducing, _MOST_ROWS, spec.n_features)
        n_at_once = max(1, _PART_ENTRIES // each) if own and spec.posterior != "point" else spec.n_labels
        if n_at_once >= spec.n_labels:
            return [None]
        every = torch.arange(spec.n_labels, device=self.model_.b.device)
        return list(torch.split(every, n_at_once))

    def _moments(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Moments]]:
        """q(f) of all classes, for blocks of rows."""
        step = max(1, min(_MOST_ROWS, _BLOCK_ENTRIES // self.spec_.n_labels))
        blocks = self._class_blocks()
        with torch.no_grad(), advising_on_memory(FEWER_ROWS):
            parts: list[Part | None] = (
                [self.model_.utilities.of(blocks[0])] if len(blocks) == 1 else [None] * len(blocks)
            )
        for first in range(0, rows.shape[0], step):
            block = slice(first, min(first + step, rows.shape[0]))
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                X = to_tensor(gather_rows(rows, np.arange(block.start, block.stop)), self.model_.b.device)
                found = [self.model_.moments(X, some, part) for some, part in zip(blocks, parts, strict=True)]
                f = Moments(*(torch.cat(part, 1) for part in zip(*found, strict=True)))
            yield block, f

    def _probabilities(self, rows: sparse.csr_array, calibrated: bool) -> Iterator[tuple[slice, Tensor]]:
        """The probabilities of all classes, for blocks of rows."""
        for block, f in self._moments(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                P = self.model_.likelihood.predict_proba(*f)
                if calibrated:
                    P = self.model_.calibration(P)
            yield block, P

    def predict_latent(self, X: Any) -> Utility:
        """Means and variances of the utilities of all classes."""
        rows = self._rows(X)
        with advising_on_memory(FEWER_ROWS):
            found = Utility(*(np.empty((rows.shape[0], self.spec_.n_labels), np.float32) for _ in range(2)))
        for block, f in self._moments(rows):
            found.f_mean[block], found.f_var[block] = (part.cpu().numpy() for part in f)
        return found

    def predict_uncertainty(self, X: Any) -> NDArray[np.float32]:
        """How far each row (N,) should be distrusted: 1 - p (1 - ν), from 0 to 1.

        p is the calibrated probability of the row's first class, ν the share of the prior variance of its utilities
        that the inducing inputs leave open, as a mean over classes: how unlike the training rows the row is.
        """
        rows = self._rows(X)
        first = self.predict_topk(X, 1).data
        novelty = np.zeros(rows.shape[0], np.float32)
        for some in self._class_blocks():
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                part = self.model_.utilities.of(some)
                share = 1.0 if some is None else len(some) / self.spec_.n_labels
                for start in range(0, rows.shape[0], _MOST_ROWS):
                    block = np.arange(start, min(start + _MOST_ROWS, rows.shape[0]))
                    seen = to_tensor(gather_rows(rows, block), self.model_.b.device)
                    novelty[block] += share * part.unexplained_share(seen).cpu().numpy()
        return np.asarray(1 - first * (1 - novelty), np.float32)

    def bound(self, X: Any, Y: Any) -> dict[str, float]:
        """The evidence lower bound on these rows, over all classes: fit, kl and their difference, in nats."""
        rows = self._rows(X)
        target = torch.from_numpy(self._encode(Y, rows.shape[0]).indices.astype(np.int64))
        generator, fit = torch.Generator(self.model_.b.device).manual_seed(0), 0.0
        for block, f in self._moments(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                own = target[block].to(f.mean.device)
                each = self.model_.likelihood.expected_log_prob(*f, own, generator=generator)
                fit += float(each.sum(dtype=torch.float64))
        with torch.no_grad(), advising_on_memory(FEWER_ROWS):
            kl = sum(float(self.model_.utilities.of(some).kl().sum()) for some in self._class_blocks())
        return {"fit": fit, "kl": kl, "bound": fit - kl}

    def _encode(self, Y: Any, n_rows: int) -> sparse.csr_array:
        encoded = super()._encode(Y, n_rows)
        require_one_class(encoded, _FOR_SEVERAL)
        return encoded

    def feature_relevance(self) -> NDArray[np.float32]:
        """Squared ARD weights (D,), as a mean over classes; largest for the features that matter most."""
        self._check_fitted()
        utilities = self.model_.utilities
        relevance = utilities.kernel.feature_relevance() if isinstance(utilities, SparseUtilities) else None
        if relevance is None:
            raise ValueError(f"the kernel {self.spec_.kernel!r} treats all features alike; choose one with _ard")
        relevance = relevance.detach().cpu()
        return self.row_transform_.fold((relevance if relevance.dim() == 1 else relevance.mean(0)).numpy())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = False
        return tags


def _require_two_classes(classes: NDArray[Any]) -> None:
    if classes.size < 2:
        raise DataError(
            f"y has one class, {str(classes[0])!r}",
            expected="at least two classes",
            fix="A classifier needs rows of two classes to tell apart.",
        )
