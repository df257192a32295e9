"""The multi-label GP factor model as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import clone

from labelfield.data import Dataset
from labelfield.data.batch import Batch
from labelfield.data.transform import RowTransform, choose_transform
from labelfield.errors import DataError
from labelfield.estimators.ensemble import (
    MOST_MEMBERS,
    N_REMEMBERED,
    calibration_of_mean,
    check_ensemble,
    checkpoint_of_member,
    held_out_scores,
    members,
    n_members,
    remembered,
)
from labelfield.estimators.ensemble_folders import SavedFactors
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
from labelfield.estimators.prediction import BLOCK_ROWS
from labelfield.inducing import Subspace
from labelfield.inference.schedule import SCHEDULES
from labelfield.inference.source import Source, TensorSource
from labelfield.inference.together import train_together
from labelfield.inference.trainer import Run, Training, held_out_rows
from labelfield.linalg.rows import Projected, Rows
from labelfield.metrics.propensity import inverse_propensity_of
from labelfield.metrics.ranking import score_ranking
from labelfield.models.build import BASES, INDUCING, MOST_POINTS, POSTERIORS, Spec, build, start
from labelfield.models.cost import free_bytes, training_bytes
from labelfield.models.defaults import SUPPORT, plan
from labelfield.models.mlgpf import Elbo
from labelfield.models.pattern import occurring_features
from labelfield.models.prediction import expected_log_likelihood
from labelfield.models.private import PRIVATE

__all__ = ["MLGPFClassifier"]

# By how much the utility of a label may change when its smallest private weights are dropped after training.
_PRUNED = 0.1
# Features that a label may have private weights on.
_MOST_PRIVATE = 10_000
_RULES: dict[str, Rule] = {
    **{name: Number(1, is_integer=True) for name in ("n_latent", "n_inducing", "rank", "max_epochs", "batch_size")},
    **{name: Number(1, is_integer=True, highest=MOST_POINTS) for name in ("n_points", "n_points_predict")},
    **{name: Number(1e-12) for name in ("learning_rate", "clip_norm", "time_budget")},
    **{name: Number(0) for name in ("kl_weight", "threshold", "jitter", "propensity")},
    "patience": Number(1, is_integer=True),
    "n_negatives": Number(0, is_integer=True),
    "kernel": str,
    "posterior": POSTERIORS,
    "inducing": INDUCING,
    "basis": BASES,
    "schedule": SCHEDULES,
    "row_transform": str,
    "unit_norm": bool,
    "private": PRIVATE,
    "private_scale": Number(1e-12),
    "precompute": bool,
    "calibrated": bool,
}


class MLGPFClassifier(SavedFactors):
    """f = Φ h(x) + b with h_p ~ GP(0, k), and a Bernoulli for each label.

    Left at None, sizes and rates follow the rule of `labelfield.models.defaults`. `kernel` is a name or a sum of names
    (see `labelfield.kernels.names`); `posterior`, `inducing` and `basis` are those of `labelfield.models.build`;
    `row_transform` what is done to rows (`labelfield.data.transform`). A `kl_weight` of 1 is the true bound. With a
    `propensity` above 0 rare labels count that power of their inverse propensity more, where they hold: better for the
    tail (PSP), and their probabilities come out too high. With `ensemble` unlike members are trained and their
    probabilities averaged; utilities, intervals, `condition` and `bound` are then those of the first.
    """

    _rules = _RULES
    _lower = "batch_size, n_latent or n_inducing"

    def __init__(
        self,
        *,
        n_latent: int | None = None,
        n_inducing: int | None = None,
        kernel: str | None = None,
        posterior: str = "whitened_diagonal",
        inducing: str = "free",
        rank: int | None = None,
        basis: str = "svd",
        precompute: bool | None = None,
        unit_norm: bool = True,
        private: str | None = None,
        private_scale: float = 2.0,
        row_transform: str | None = None,
        n_negatives: int | None = None,
        propensity: float = 0.0,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        schedule: str = "one_cycle",
        kl_weight: float | None = None,
        clip_norm: float | None = None,
        patience: int | None = None,
        time_budget: float | None = None,
        n_points: int = 3,
        n_points_predict: int = 10,
        jitter: float = 1e-5,
        ensemble: int | str | None = None,
        calibrated: bool = True,
        threshold: float = 0.5,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_latent = n_latent
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.posterior = posterior
        self.inducing = inducing
        self.rank = rank
        self.basis = basis
        self.precompute = precompute
        self.unit_norm = unit_norm
        self.private = private
        self.private_scale = private_scale
        self.row_transform = row_transform
        self.n_negatives = n_negatives
        self.propensity = propensity
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
        self.jitter = jitter
        self.ensemble = ensemble
        self.calibrated = calibrated
        self.threshold = threshold
        self.device = device
        self.random_state = random_state

    # Fitting

    def prepare(self, X: Any, Y: Any, classes: Any = None) -> Dataset:
        """Decide everything that does not need training and build the model; returns the rows as it will see them."""
        self._forget()
        check_options(self, self._rules)
        check_ensemble(self.ensemble)
        option = SimpleNamespace(**{name: given(value, None) for name, value in self.get_params().items()})
        device, seed = choose_device(self.device), choose_seed(self.random_state)
        X = as_rows(self, X, reset=True)
        Y, labels = encode_labels(Y, X.shape[0], classes)
        if Y.shape[1] == 0:
            raise DataError("Y has no labels", expected="at least one")
        chosen = plan(X.shape[0], X.shape[1], Y.shape[1])
        self.label_kind_, self.classes_ = labels.kind, labels.classes
        self.row_transform_ = RowTransform.fit(
            choose_transform(X) if option.row_transform is None else option.row_transform, X
        )
        data = Dataset(self.row_transform_(X), Y)
        # Rows that are seen through a subspace alone have no words of their own, unless asked for.
        private = given(option.private, "off" if "subspace" in option.inducing else chosen.private)
        self.settings_ = self._decide(
            option,
            chosen,
            X.shape[0],
            seed,
            kl_weight=given(option.kl_weight, chosen.kl_weight),
            time_budget=self._time_budget_of_member(),
        )
        pattern = None
        if private != "off":
            aside = held_out_rows(data.n_rows, self.settings_.held_out, seed)
            pattern = occurring_features(data.X, Y, _MOST_PRIVATE, aside, device)
        n_inducing = given(option.n_inducing, chosen.n_inducing)
        rank = min(given(option.rank, 2 * n_inducing), *X.shape) if "subspace" in option.inducing else 0
        self.spec_ = Spec(
            n_features=data.n_features,
            n_labels=Y.shape[1],
            n_latent=given(option.n_latent, chosen.n_latent),
            n_inducing=min(n_inducing, X.shape[0]),
            kernel=given(option.kernel, chosen.kernel),
            posterior=option.posterior,
            inducing=option.inducing,
            rank=rank,
            n_support=SUPPORT if data.n_features > SUPPORT and "subspace" not in option.inducing else 0,
            unit_norm=option.unit_norm and self.row_transform_.has_unit_norm,
            n_points=option.n_points_predict,
            jitter=option.jitter,
            private=private,
            n_private=0 if pattern is None else pattern.features.size,
            private_scale=option.private_scale,
        )
        self.label_counts_ = np.bincount(Y.indices, minlength=Y.shape[1])
        self.n_rows_ = X.shape[0]
        self.history_: list[dict[str, Any]] = []
        self.n_negatives_ = given(option.n_negatives, chosen.n_negatives)
        self._require_memory(device)
        with advising_on_memory(self._lower):
            self.model_ = build(self.spec_)
            if self.model_.private is not None and pattern is not None:
                self.model_.private.fill(pattern)
            start(self.model_, self.spec_, data.X, data.Y, seed, basis=option.basis, device=device)
            self.model_.to(device)
        self._training: Training | None = None
        self.others_: list[MLGPFClassifier] = []
        self.held_out_scores_: dict[str, list[float]] = {}
        self._raw = (X, Y) if self.ensemble is not None else None
        return data

    @property
    def n_members(self) -> int:
        """How many members the ensemble is to have; 1 for a single model."""
        return n_members(self.ensemble)

    def summary(self) -> str:
        """What the model is made of, in a line."""
        spec = self.spec_
        return (
            f"{spec.n_labels} labels; kernel {spec.kernel}, {spec.n_latent} latent processes, {spec.n_inducing} "
            f"inducing inputs ({spec.inducing}), posterior {spec.posterior}, private processes {spec.private}"
        )

    def _time_budget_of_member(self) -> float | None:
        n_rounds = -(-self.n_members // self._n_at_once())
        return None if self.time_budget is None else float(self.time_budget) / n_rounds

    def training_bytes(self) -> int:
        """About how much memory a step of training takes, beside the rows, according to the sizes that were decided."""
        return training_bytes(self.spec_, self.settings_.batch_size, self._n_labels_of_step())

    def _prepare_others(self, X: sparse.csr_array, Y: sparse.csr_array) -> list[tuple[MLGPFClassifier, Dataset]]:
        """The other members, before training, and the same rows as each sees them."""
        others: list[tuple[MLGPFClassifier, Dataset]] = []
        tried: list[dict[str, Any]] = [{}]
        for options in members(self.ensemble, self.spec_, self.settings_, self.n_features_in_):
            if len(others) == self.n_members - 1:
                break
            # The same seed holds out the same rows, on which the mean is calibrated. What the user chose stays.
            alike = {"ensemble": None, "random_state": self.settings_.seed, "time_budget": self.settings_.time_budget}
            own = {name: value for name, value in options.items() if getattr(self, name) is None}
            if "max_epochs" not in own:
                own.pop("learning_rate", None)  # a smaller one goes with more epochs
            if own in tried:
                continue
            tried.append(own)
            other = clone(self).set_params(**alike | own)
            data = other.prepare(X, Y)
            if not any(other._is_like(member) for member in (self, *(before for before, _ in others))):
                others.append((other, data))
        if len(others) < self.n_members - 1:
            warnings.warn(
                f"the ensemble has {len(others) + 1} members, not {self.n_members}: with the options given "
                "there are no more unlike ones. Leave kernel, row_transform, private or sizes open",
                UserWarning,
                stacklevel=4,
            )
        return others

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Go on training with these rows, by one epoch over them; the first call prepares the model.

        The optimiser goes on where the last call left it. `classes` names all labels there will be, where the first
        rows do not show them all. A loaded model starts with a fresh optimiser.
        """
        if self.ensemble is not None:
            raise ValueError("an ensemble cannot be fitted in parts; use ensemble=None")
        return super().partial_fit(X, Y, classes)

    def _train(self, data: Dataset, checkpoint: Path | None, resume: bool, validate: Any, on_step: Any) -> Run:
        if checkpoint is not None and not resume:
            for number in range(1, MOST_MEMBERS):
                checkpoint_of_member(checkpoint, number).unlink(missing_ok=True)  # of an older run
        raw, self._raw = self._raw, None
        if raw is None:
            return super()._train(data, checkpoint, resume, validate, on_step)
        return self._train_all(data, self._prepare_others(*raw), checkpoint, resume, validate, on_step)

    def _train_all(
        self,
        data: Dataset,
        others: list[tuple[MLGPFClassifier, Dataset]],
        checkpoint: Path | None,
        resume: bool,
        validate: Any,
        on_step: Any,
    ) -> Run:
        """Train all members and calibrate their mean."""
        trainings = [partial(super()._train, data, checkpoint, resume, validate)]
        for number, (other, rows) in enumerate(others, 1):
            path = None if checkpoint is None else checkpoint_of_member(checkpoint, number)
            trainings.append(partial(other._train, rows, path, resume, None))
        n_at_once, free = self._n_at_once(), free_bytes(self.model_.b.device)
        needed = n_at_once * max(member.training_bytes() for member in (self, *(other for other, _ in others)))
        runs = train_together(trainings, 1 if free is not None and needed > free else n_at_once, on_step)
        self.others_ = [other for other, _ in others]
        memories = [run.memory for run in runs]
        self.ensemble_calibration_ = calibration_of_mean(memories, self.spec_.n_labels).to(self.model_.b.device)
        for member, found in zip((self, *self.others_), held_out_scores(memories, self.spec_.n_labels), strict=True):
            member.held_out_scores_ = found
        return runs[0]

    def _n_at_once(self) -> int:
        """How many members train at the same time: as many as there are cores; a GPU is busy with one."""
        if choose_device(self.device).type != "cpu":
            return 1
        return min(self.n_members, torch.get_num_threads())

    def _is_like(self, other: MLGPFClassifier) -> bool:
        """Whether training both would give the same model twice."""
        ours, theirs = (replace(member.spec_, n_private=0) for member in (self, other))
        return ours == theirs and self.row_transform_.name == other.row_transform_.name

    def _end(self) -> None:
        """Drop private weights that matter to no row, and form what all predictions need."""
        private = self.model_.private
        if private is not None and private.kind == "point" and self.row_transform_.has_unit_norm:
            self.model_.private = private.pruned(_PRUNED)
            self.spec_ = replace(self.spec_, n_private=self.model_.private.weights.numel())
        with torch.no_grad():
            self.model_.warm_up()

    def _calibrate(self, held_out: Dataset) -> dict[str, torch.Tensor]:
        """Fit the map of probabilities to rows that the model has not seen; what it said of them is remembered."""
        ranked = self._topk(self._latent(held_out.X), N_REMEMBERED, calibrated=False)
        judged = score_ranking(held_out.Y, ranked, N_REMEMBERED)
        self.model_.calibration.fit(judged.ranked.scores, judged.hit)
        self._without_held_out()
        return remembered(ranked, held_out.Y)

    def _without_held_out(self) -> None:
        if self.model_.private is not None:
            self.model_.private.release()

    def _facts(self) -> tuple[Any, ...]:
        return self.n_negatives_, self.n_points, self.propensity, self.basis

    def _is_capturable(self) -> bool:
        return not self.n_negatives_

    def _objective(self) -> Any:
        model, positive_weight = self.model_, self._positive_weight()

        def bound(X: Rows, Y: torch.Tensor, n_data: int, generator: torch.Generator | None = None) -> Elbo:
            return model.elbo(
                X,
                Y,
                n_data,
                n_negatives=self.n_negatives_ or None,
                n_points=self.n_points,
                positive_weight=positive_weight,
                generator=generator,
            )

        return bound

    def _positive_weight(self) -> torch.Tensor | None:
        """A power of the inverse propensity of each label; on average over the labels that hold it is 1."""
        if not self.propensity:
            return None
        weight = inverse_propensity_of(self.label_counts_, self.n_rows_) ** self.propensity
        weight /= (weight @ self.label_counts_) / max(self.label_counts_.sum(), 1) or 1
        return torch.from_numpy(weight.astype(np.float32)).to(self.model_.b.device)

    def _source(self, data: Dataset) -> Source:
        """Rows from the data, or projected once onto the subspace where that loses nothing."""
        inducing, kernel = self.model_.inducing, self.model_.kernel
        can = isinstance(inducing, Subspace) and self.inducing == "subspace" and kernel.feature_relevance() is None
        can = can and self.model_.private is None
        if self.precompute and not can:
            raise ValueError(
                "precompute needs inducing='subspace', no private processes, and no weight for each feature"
            )
        if not can or self.precompute is False:
            return self._source_of_rows(data)
        assert isinstance(inducing, Subspace)
        parts = []
        for first in range(0, data.n_rows, BLOCK_ROWS):
            block = Batch.gather(data, slice(first, first + BLOCK_ROWS), self.model_.b.device)
            parts.append(inducing.project(block.X))
        return TensorSource(Projected(*(torch.cat(part).cpu() for part in zip(*parts, strict=True))), data)

    def bound(self, X: Any, Y: Any) -> dict[str, float]:
        """The evidence lower bound on these rows, exact over rows and labels: fit, kl and their difference, in nats."""
        rows = self._rows(X)
        data = Dataset(rows, self._encode(Y, rows.shape[0]))
        fit = 0.0
        with torch.no_grad(), advising_on_memory(self._lower):
            frame = self.model_.frame()
            for first in range(0, data.n_rows, BLOCK_ROWS):
                batch = Batch.gather(data, slice(first, first + BLOCK_ROWS), self.model_.b.device)
                h = self.model_.latent(batch.X, frame)[0]
                fit += expected_log_likelihood(self.model_, h, batch.X, batch.Y)
            kl = float(self.model_.kl(frame.prior))
        return {"fit": fit, "kl": kl, "bound": fit - kl}

    def to(self, device: str) -> Self:
        """Move the fitted model to "cpu", "cuda", or wherever "auto" finds best."""
        super().to(device)
        for member in self.others_:
            member.to(device)
        if self.others_:
            self.ensemble_calibration_.to(choose_device(device))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
