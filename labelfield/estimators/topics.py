"""Topics of labels as a scikit-learn classifier."""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.utils import TransformerTags
from torch import Tensor

from labelfield.csr import as_positives
from labelfield.data import Dataset
from labelfield.data.transform import RowTransform, choose_transform
from labelfield.errors import DataError
from labelfield.estimators.inputs import Labels, as_rows, encode_labels
from labelfield.estimators.options import (
    Number,
    Rule,
    advising_on_memory,
    check_options,
    choose_device,
    choose_seed,
    given,
)
from labelfield.estimators.restoring import COUNTS, check_map
from labelfield.estimators.topic_inputs import Mask, read_mask, split_missing
from labelfield.estimators.topic_training import SHARE_ROWS, TopicTraining
from labelfield.inference.loop import TrainingError
from labelfield.inference.run import Epoch, Settings
from labelfield.inference.topics import exposed, sums_behind
from labelfield.models.calibration import Calibration, Temperature
from labelfield.topics.em import EMState, em_step, start_em
from labelfield.topics.gibbs import GibbsOptions, gibbs_step, start_gibbs
from labelfield.topics.model import TopicModel, TopicSpec
from labelfield.topics.rows import TopicRows
from labelfield.topics.state import Topics

__all__ = ["ALGORITHMS", "TopicClassifier"]

ALGORITHMS = ("em", "online_em", "gibbs")
_EPOCHS = {"em": 100, "online_em": 20, "gibbs": 200}
_MOST_TOPICS = 100
# Rows by which a step is timed.
_TIMED_ROWS = 5_000
_RULES: dict[str, Rule] = {
    **{name: Number(1, is_integer=True) for name in ("n_topics", "max_epochs", "batch_size", "n_draws")},
    "n_gradient_steps": Number(0, is_integer=True),
    "algorithm": ALGORITHMS,
    **{name: Number(1e-6, highest=1e6) for name in ("weight_scale", "shape_strength")},
    "time_budget": Number(1e-6),
    **{name: Number(0) for name in ("tolerance", "threshold")},
    "step_power": Number(0.5, highest=1.0),
    "step_offset": Number(1),
    "learn_hyper": bool,
    "calibrated": bool,
    "row_transform": str,
}


class TopicClassifier(TopicTraining):
    """Labels that come from topics [BMLPL]: y_l = 1(Σ_k m_lk ≥ 1), m_lk ~ Poisson(v_lk u_k), u_k ~ Gamma(r_k, e^{wᵀx}).

    `algorithm` is "em", "online_em" (some rows at a time, which are read and made when they are needed) or "gibbs" (of
    whose draws `n_draws` are kept, and probabilities averaged over them). For the weights of features EM takes
    `n_gradient_steps` conjugate-gradient steps a step, or solves for them with 0, which is for few features. EM ends
    when a step raises the objective by less than `tolerance` nats a row. Online EM counts its t-th step
    (t + step_offset)^-step_power. With `learn_hyper` r_k, λ_d and η are learned; `weight_scale` and `shape_strength`
    are of their priors (`labelfield.topics.state`).

    With `calibrated` a tenth of the rows is held out at first, probabilities are mapped to fit these rows, and the last
    epochs are on all rows: of EM four, of online EM a third, of Gibbs sampling half. EM then ends its first part at
    five times the tolerance. `partial_fit` keeps the map.

    Entries of Y may be missing: not a number in a dense Y, or as `fit` is told. They count as nothing at all.
    """

    _rules = _RULES
    _lower = "n_topics, or batch_size with algorithm='online_em'; with many features do not set n_gradient_steps=0"

    def __init__(
        self,
        *,
        n_topics: int | None = None,
        algorithm: str = "em",
        n_gradient_steps: int = 2,
        row_transform: str | None = None,
        max_epochs: int | None = None,
        tolerance: float = 0.01,
        batch_size: int = 1000,
        step_power: float = 0.6,
        step_offset: float = 2.0,
        n_draws: int = 20,
        weight_scale: float = 2.0,
        shape_strength: float = 1.0,
        learn_hyper: bool = True,
        time_budget: float | None = None,
        calibrated: bool = True,
        threshold: float = 0.5,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_topics = n_topics
        self.algorithm = algorithm
        self.n_gradient_steps = n_gradient_steps
        self.row_transform = row_transform
        self.max_epochs = max_epochs
        self.tolerance = tolerance
        self.batch_size = batch_size
        self.step_power = step_power
        self.step_offset = step_offset
        self.n_draws = n_draws
        self.weight_scale = weight_scale
        self.shape_strength = shape_strength
        self.learn_hyper = learn_hyper
        self.time_budget = time_budget
        self.calibrated = calibrated
        self.threshold = threshold
        self.device = device
        self.random_state = random_state

    _spec_type = TopicSpec
    _online: EMState | None = None

    @staticmethod
    def _build(spec: Any) -> TopicModel:
        return TopicModel(spec, Temperature() if spec.is_exclusive else Calibration(has_lead=True))

    # Fitting

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        observed: Any = None,
        missing: Any = None,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        on_step: Any = None,
    ) -> Self:
        """Train on rows X (dense or sparse) and labels Y (indicators, lists of labels, or one class a row).

        Which entries of Y were `observed`, or are `missing`: as a boolean or sparse matrix, or for each row a list of
        labels. With `checkpoint` the run can be interrupted and, with `resume`, go on.
        """
        data = self.prepare(X, Y, observed=observed, missing=missing)
        return self.train_prepared(data, validation=validation, checkpoint=checkpoint, resume=resume, on_step=on_step)

    def prepare(self, X: Any, Y: Any, classes: Any = None, *, observed: Any = None, missing: Any = None) -> Dataset:
        self._forget()
        check_options(self, self._rules)
        device, seed = choose_device(self.device), choose_seed(self.random_state)
        X = as_rows(self, X, reset=True)
        Y, nan = split_missing(Y)
        if nan is not None and (observed is not None or missing is not None):
            raise ValueError("Y has missing entries of its own; pass neither observed nor missing")
        Y, labels = encode_labels(Y, X.shape[0], classes)
        self.label_kind_, self.classes_ = labels.kind, labels.classes
        self._mask = read_mask(observed, nan if nan is not None else missing, Y.shape, labels)
        if self._mask is not None:
            Y = self._mask.hides(Y)
        _require_labels(Y, classes is not None)
        name = choose_transform(X) if self.row_transform is None else self.row_transform
        self.row_transform_ = RowTransform.fit(name, X)
        # Online, rows are made when they are needed: X may be larger than memory.
        is_online = self.algorithm == "online_em"
        data = Dataset(X if is_online else self.row_transform_(X), Y)
        self.label_counts_ = np.bincount(Y.indices, minlength=Y.shape[1])
        self.n_rows_, self.n_negatives_, self.history_, self.n_iter_ = data.n_rows, None, [], 0
        self._training, self._online = None, None
        # Fewer topics than labels cannot tell all labels apart, and one tells none: of few labels each has its own.
        n_topics = given(self.n_topics, min(_MOST_TOPICS, Y.shape[1]))
        if n_topics > Y.shape[1]:
            raise ValueError(
                f"n_topics={n_topics}, and there are {Y.shape[1]} labels; expected no more topics than labels"
            )
        self._labels = np.arange(Y.shape[1]) if classes is not None else self._active(Y)
        n_features = X.shape[1] * len(self.row_transform_.views)
        self.spec_ = TopicSpec(
            n_features=n_features,
            n_labels=int(Y.shape[1]),
            n_placed=len(self._labels),
            n_topics=int(n_topics),
            n_draws=given(self.n_draws, 1) if self.algorithm == "gibbs" else 1,
            is_exclusive=labels.kind == "classes",
        )
        max_epochs = given(self.max_epochs, _EPOCHS[self.algorithm])
        held_out = self._n_held_out(data.n_rows, max_epochs)
        self.settings_ = Settings(
            max_epochs=max_epochs,
            batch_size=min(given(self.batch_size, 1), data.n_rows) if is_online else data.n_rows,
            tol=float(self.tolerance),
            time_budget=given(self.time_budget, None),
            schedule="constant",
            learning_rate=1.0,
            held_out=held_out,
            finishing_epochs=self._finishing_epochs(max_epochs) if held_out else 0,
            seed=seed,
        )
        self._require_memory(device)
        with advising_on_memory(self._lower):
            self.model_ = self._build(self.spec_).to(device)
            self._hold([self._start(self._topic_rows(data, self._first_rows(data.n_rows)[:SHARE_ROWS]))])
        return data

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Go on with these rows by a step of online EM; the first call prepares the model, and `classes` names all
        labels there will be, where the first rows do not show them all. What is not a number in Y is missing."""
        before = dict(self.__dict__)
        try:
            return self._partial_fit(X, Y, classes)
        except BaseException:
            # All as it was: half a step leaves a model that is neither the old one nor the new one.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _partial_fit(self, X: Any, Y: Any, classes: Any) -> Self:
        check_options(self, self._rules)
        if not hasattr(self, "model_"):
            # All columns of an indicator are labels, whether or not they hold in these rows.
            shape: tuple[int, ...] = getattr(Y, "shape", ())
            is_indicator = classes is None and len(shape) == 2 and shape[1] > 1
            data = self.prepare(X, Y, np.arange(shape[1]) if is_indicator else classes)
            n_before = data.n_rows
        else:
            if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise DataError("classes differ from those of the first call", fix="Fit anew.")
            rows = as_rows(self, X, reset=False)
            Y, nan = split_missing(Y)
            encoded = self._encode(Y, rows.shape[0])
            self._mask = read_mask(None, nan, encoded.shape, Labels(self.label_kind_, self.classes_))
            encoded = encoded if self._mask is None else self._mask.hides(encoded)
            data = Dataset(rows if self.algorithm == "online_em" else self.row_transform_(rows), encoded)
            n_before, self.n_rows_ = self.n_rows_, self.n_rows_ + data.n_rows
        started = time.monotonic()
        with torch.no_grad(), advising_on_memory(self._lower):
            state, some = self._go_on(data, n_before)
            rate = (state.n_steps + float(self.step_offset)) ** -float(self.step_power) if state.n_steps else 1.0
            state, info = em_step(state, some, self._em_options(), rate=rate, n_data=self.n_rows_)
            if not np.isfinite(info.objective) or not bool(torch.isfinite(state.topics.W).all()):
                raise TrainingError("the objective is not finite; scale the rows, or lower weight_scale")
            self._online = EMState(state.topics, state.sums, n_steps=state.n_steps)
            self._hold([state.topics])
            self._find_shares(data)
        if n_before < self.n_rows_:
            self.label_counts_ = self.label_counts_ + np.bincount(data.Y.indices, minlength=data.n_labels)
        self._mask = None
        seconds = (self.history_[-1]["seconds"] if self.history_ else 0.0) + time.monotonic() - started
        epoch = Epoch(len(self.history_), info.objective / self.n_rows_, rate, seconds)
        self.history_ = [*self.history_, vars(epoch) | {"scores": {}}]
        self.n_iter_ = len(self.history_)
        return self

    def _go_on(self, data: Dataset, n_before: int) -> tuple[EMState, TopicRows]:
        """Where online EM stands after n_before rows, and the next ones. A model that was fitted or loaded stands where
        it would have come to what it is."""
        topics = self._with_all_places() if self._online is None else self._online.topics
        n_steps = len(self.history_) if self._online is None else self._online.n_steps
        sums = None if self._online is None else self._online.sums
        if self._mask is None and sums is not None and sums.exposure is not None:
            self._mask = Mask(sparse.csr_array(data.Y.shape, dtype=np.float32), is_missing=True)  # nothing is
        some = self._topic_rows(data, np.arange(data.n_rows))
        if sums is None and n_steps:
            in_topics = self.model_.share.double() * float(self.label_counts_.sum())
            sums = sums_behind(topics, some, self._priors(), in_topics, n_before)
        if sums is not None and self._mask is not None:
            sums = exposed(sums)
        return EMState(topics, sums, n_steps=n_steps), some

    def _with_all_places(self) -> Topics:
        """From now on any label may hold."""
        topics = self.model_.topics_of_all()
        self._labels = np.arange(self.spec_.n_labels)
        self.spec_ = replace(self.spec_, n_placed=self.spec_.n_labels, n_draws=1)
        share, calibration = self.model_.share, self.model_.calibration
        self.model_ = self._build(self.spec_).to(self.model_.device)
        self.model_.share.copy_(share)
        self.model_.calibration = calibration
        return topics

    # What it costs

    def summary(self) -> str:
        """What the model is made of, in a line."""
        return f"{self.spec_.n_labels} labels; {self.spec_.n_topics} topics by {self.algorithm}"

    def training_bytes(self) -> int:
        spec, n_rows = self.spec_, self.settings_.batch_size
        of_rows, of_labels, of_features = (size * spec.n_topics for size in (n_rows, spec.n_placed, spec.n_features))
        exact = 0 if self.n_gradient_steps else 24 * spec.n_features**2
        return 4 * (10 * of_rows + 6 * of_labels + 8 * of_features + of_labels * spec.n_draws) + exact

    def n_parameters(self) -> int:
        return sum(part.numel() for part in (self.model_.V, self.model_.W, self.model_.r))

    def seconds_per_step(self, data: Dataset) -> float:
        """How long a step takes, by one on some rows; nothing is changed by it."""
        n_rows = min(data.n_rows, _TIMED_ROWS, self.settings_.batch_size)
        with torch.no_grad(), advising_on_memory(self._lower):
            rows, topics = self._topic_rows(data, np.arange(n_rows)), self.model_.topics()
            rng = np.random.default_rng(self.settings_.seed)
            sampler = start_gibbs(topics, rows, rng) if self.algorithm == "gibbs" else None
            started = time.perf_counter()
            if sampler is None:
                em_step(start_em(topics), rows, self._em_options())
            else:
                gibbs_step(sampler, rows, GibbsOptions(self._priors()), rng)
        return (time.perf_counter() - started) * self.settings_.batch_size / n_rows

    # Saving and loading

    def _facts(self) -> tuple[Any, ...]:
        digest = ""
        if self._mask is not None:
            parts = (self._mask.places.indptr, self._mask.places.indices)
            digest = sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
            digest += str(self._mask.is_missing)
        names = ("algorithm", "n_gradient_steps", "step_power", "step_offset", "weight_scale", "shape_strength")
        return (*(getattr(self, name) for name in (*names, "learn_hyper")), digest)

    def _restore_model(self, arrays: dict[str, Tensor]) -> tuple[Any, Any]:
        counts = arrays.pop(COUNTS)
        if counts.shape != (self.spec_.n_labels,) or counts.dtype != torch.int64 or bool((counts < 0).any()):
            raise ValueError(f"label counts of shape {tuple(counts.shape)}, or negative ones")
        for name, array in arrays.items():
            kind = torch.int64 if name == "labels" else torch.float32
            if array.dtype != kind or not bool(torch.isfinite(array).all()):
                raise ValueError(f"{name} is not of finite {kind} numbers")
        if not any(name.startswith("calibration.") for name in arrays):  # saved before there was one
            fresh = Calibration(has_lead=True).state_dict()
            arrays = arrays | {f"calibration.{name}": value for name, value in fresh.items()}
        with torch.device("meta"):
            model = self._build(self.spec_)
        model.load_state_dict(arrays, assign=True)
        model.check()
        check_map(model.calibration)
        self._labels = model.labels.numpy()
        self._mask = self._online = None
        return model, counts.numpy()

    def _objective(self) -> Any:
        raise NotImplementedError("the steps of a topic model are its own")

    def _calibrate(self, held_out: Dataset) -> dict[str, Tensor]:
        raise NotImplementedError("a topic model calibrates by its own steps")

    def to(self, device: str) -> Self:
        super().to(device)
        self._online = None  # what it remembers stayed where it was
        return self

    def __getstate__(self) -> Any:
        return super().__getstate__() | {"_mask": None, "_online": None}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.transformer_tags = TransformerTags(preserves_dtype=["float32"])
        return tags


def _require_labels(Y: sparse.csr_array, is_named: bool) -> None:
    if Y.shape[1] == 0:
        raise DataError("Y has no labels", expected="at least one")
    if as_positives(Y).nnz == 0 and not is_named:
        raise DataError("no row has a label that was observed", expected="some", fix="Check Y and what was observed.")
