"""What all classifiers that a bound trains have in common: fitting, also in parts, resuming, saying what it costs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from torch import nn

from labelfield.data import Dataset
from labelfield.data.transform import RowTransform
from labelfield.errors import DataError
from labelfield.estimators.inputs import Labels, as_rows, encode_known
from labelfield.estimators.options import OutOfMemoryError, Rule, advising_on_memory, choose_device, given
from labelfield.inference.gradient import Batches
from labelfield.inference.run import Epoch, Monitor, Run, Settings
from labelfield.inference.signals import stop_requests
from labelfield.inference.source import DatasetSource, ResidentSource, Source
from labelfield.inference.training import PartialTraining, train
from labelfield.metrics import evaluate
from labelfield.models.cost import free_bytes

__all__ = ["TrainedClassifier"]

# Of fewer rows a tenth says too little about probabilities.
_LEAST_ROWS_TO_CALIBRATE = 300


class TrainedClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn is untyped
    """A classifier with a model that a bound trains; subclasses decide what is built and how it predicts."""

    _rules: ClassVar[dict[str, Rule]]
    # What to lower where memory is short.
    _lower: ClassVar[str]
    device: str
    calibrated: bool
    model_: Any
    spec_: Any
    settings_: Settings
    row_transform_: RowTransform
    label_kind_: str
    classes_: NDArray[Any]
    label_counts_: NDArray[np.int64]
    n_rows_: int
    n_negatives_: int | None
    n_iter_: int
    history_: list[dict[str, Any]]
    _training: PartialTraining | None

    # What a subclass decides

    @abstractmethod
    def prepare(self, X: Any, Y: Any, classes: Any = None) -> Dataset:
        """Decide everything that does not need training and build the model; returns the rows as it will see them."""

    @abstractmethod
    def training_bytes(self) -> int:
        """About how much memory a step of training takes, beside the rows, according to the sizes that were decided."""

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """The labels of rows."""

    @abstractmethod
    def predict_topk(self, X: Any, k: int = 5) -> sparse.csr_array:
        """The k most probable labels of each row."""

    @abstractmethod
    def _objective(self) -> Any:
        """An estimate of the bound from a batch."""

    @abstractmethod
    def _calibrate(self, held_out: Dataset) -> dict[str, torch.Tensor]:
        """Make probabilities fit rows that the model has not seen; what is to be remembered of them."""

    @abstractmethod
    def _facts(self) -> tuple[Any, ...]:
        """What a run depends on, beside its settings and its rows."""

    def _source(self, data: Dataset) -> Source:
        return self._source_of_rows(data)

    def _batches(self, data: Dataset) -> Batches | None:  # a subclass may look at the data
        """How rows come in batches, if not by chance alone."""
        return None

    def _is_capturable(self) -> bool:
        """Whether the shapes of a step depend on the sizes of the batch alone."""
        return False

    def _without_held_out(self) -> None:
        """Nothing is held out: whatever waits for the held-out rows need not."""

    def _rate(self) -> float:
        """At which `partial_fit` goes on."""
        return self.settings_.learning_rate

    def _rates(self) -> dict[nn.Parameter, float] | None:
        """What `partial_fit` trains, each at so many times that rate; None for everything at the same."""
        return None

    def _end(self) -> None:
        """After training."""

    # What follows from it

    def _decide(self, option: Any, chosen: Any, n_rows: int, seed: int, **others: Any) -> Settings:
        """How to train: what the user said, else what the rule chose. A tenth of enough rows is held out at first."""
        max_epochs = given(option.max_epochs, chosen.max_epochs)
        held_out = self._n_held_out(n_rows, max_epochs)
        return Settings(
            max_epochs=max_epochs,
            batch_size=min(given(option.batch_size, chosen.batch_size), n_rows),
            learning_rate=given(option.learning_rate, chosen.learning_rate),
            schedule=option.schedule,
            clip_norm=option.clip_norm,
            n_iter_no_change=option.patience,
            held_out=held_out,
            finishing_epochs=max_epochs // 3 if held_out else 0,
            seed=seed,
            **others,
        )

    def _n_held_out(self, n_rows: int, max_epochs: int) -> int:
        """How many rows calibrate probabilities before they join the training."""
        can_calibrate = self.calibrated and n_rows >= _LEAST_ROWS_TO_CALIBRATE and max_epochs >= 3
        return n_rows // 10 if can_calibrate else 0

    def _forget(self) -> None:
        """A fit that fails leaves nothing of the one before, whose parts would not go together with its own."""
        for name in ("model_", "label_names_", "feature_names_", "feature_names_digest_"):
            self.__dict__.pop(name, None)

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        on_step: Any = None,
    ) -> Self:
        """Train on rows X (dense or sparse) and labels Y (indicators, lists of labels, or one class a row).

        With `checkpoint` the run can be interrupted and, with `resume`, go on. `validation` rows are scored each epoch.
        """
        data = self.prepare(X, Y)
        return self.train_prepared(data, validation=validation, checkpoint=checkpoint, resume=resume, on_step=on_step)

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Go on training with these rows, by one epoch over them; the first call prepares the model.

        The optimiser goes on where the last call left it. `classes` names all labels there will be, where the first
        rows do not show them all. A loaded model starts with a fresh optimiser.
        """
        if not hasattr(self, "model_"):
            data = self.prepare(X, Y, classes)
        else:
            if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise DataError("classes differ from those of the first call", fix="Fit anew.")
            rows = self._rows(X)
            data = Dataset(rows, self._encode(Y, rows.shape[0]))
            self.label_counts_ = self.label_counts_ + np.bincount(data.Y.indices, minlength=data.n_labels)
            self.n_rows_ += data.n_rows
        if self._training is None:
            self._without_held_out()
            settings = replace(self.settings_, learning_rate=self._rate())
            history = [Epoch(**epoch) for epoch in self.history_]
            self._training = PartialTraining(self.model_, settings, history, rates=self._rates())
        batches = self._batches(data)
        with advising_on_memory(self._lower):
            self._remember(self._training.fit(self._objective(), self._source(data), batches))
        return self

    def train_prepared(
        self,
        data: Dataset,
        *,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        on_step: Any = None,
    ) -> Self:
        """The second half of `fit`, for rows that `prepare` returned."""
        validate = None
        if validation is not None:
            rows = as_rows(self, validation[0], reset=False)
            truth = self._encode(validation[1], rows.shape[0])

            def validate() -> dict[str, float]:
                scores = evaluate(truth, self.predict_topk(rows, 5))
                return {name: float(scores[name]) for name in ("P@1", "P@3", "P@5")}

        self._train(data, None if checkpoint is None else Path(checkpoint), resume, validate, on_step)
        return self

    def _train(self, data: Dataset, checkpoint: Path | None, resume: bool, validate: Any, on_step: Any) -> Run:
        with stop_requests(), advising_on_memory(self._lower):
            run = train(
                self.model_,
                self._objective(),
                self._source(data),
                self.settings_,
                monitor=self._monitor(data, checkpoint, resume, validate, on_step),
                calibrate=lambda rows: self._calibrate(data.take(rows)),
                batches=self._batches(data),
                is_capturable=self._is_capturable(),
            )
        self._remember(run)
        self._end()
        return run

    def _monitor(self, data: Dataset, checkpoint: Path | None, resume: bool, validate: Any, on_step: Any) -> Monitor:
        identity = "" if checkpoint is None else self._identity(data)
        return Monitor(checkpoint, resume, identity, on_step, validate)

    def _remember(self, run: Run) -> None:
        self.history_ = [asdict(epoch) for epoch in run.history]
        self.n_iter_ = len(run.history)

    def _identity(self, data: Dataset) -> str:
        """What is trained, on what: the make of the model and a fingerprint of the rows."""
        digest = sha256(repr((self.spec_, *self._facts(), self.row_transform_.name)).encode())
        for array in (data.X.data, data.X.indices, data.X.indptr, data.Y.indices, data.Y.indptr):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _n_labels_of_step(self) -> int:
        """How many labels a step looks at: all, or about those that hold in a batch and the drawn negatives."""
        n_labels = int(self.spec_.n_labels)
        if not self.n_negatives_:
            return n_labels
        per_row = self.label_counts_.sum() / max(self.n_rows_, 1)
        return min(n_labels, int(per_row * self.settings_.batch_size) + self.n_negatives_)

    def n_parameters(self) -> int:
        """How many numbers are learned."""
        return sum(p.numel() for p in self.model_.parameters())

    def stage_settings(self) -> dict[str, Settings]:
        """How each stage of the training goes, by name; a training in one has no name for it."""
        return {"": self.settings_}

    def n_whole_epochs(self) -> float:
        """How many epochs of the whole model the training takes as long as, unless something ends it before."""
        return self.settings_.max_epochs

    def _require_memory(self, device: torch.device) -> None:
        """Refuse what cannot be held before the system kills the process for it."""
        needed, free = self.training_bytes(), free_bytes(device)
        if free is not None and needed > free:
            names = ("n_latent", "n_inducing", "n_outputs", "grid_size")
            sizes = [f"{name}={getattr(self.spec_, name)}" for name in names if name in vars(self.spec_)]
            raise OutOfMemoryError(
                f"training needs about {needed / 2**30:,.1f} GiB and {device} has {free / 2**30:,.1f} GiB free; "
                f"{', '.join(sizes)}, batch_size={self.settings_.batch_size}",
                self._lower,
            )

    def _source_of_rows(self, data: Dataset) -> Source:
        """Rows on the GPU, if they take no more than a quarter of what is free there."""
        device = self.model_.b.device
        free = free_bytes(device) if device.type == "cuda" else None
        is_small = free is not None and 4 * (_bytes(data.X) + _bytes(data.Y)) < free
        return ResidentSource(data, device) if is_small else DatasetSource(data)

    def seconds_per_step(self, data: Dataset) -> float:
        """How long a step of training takes on rows that `prepare` returned, by trying; nothing is changed by it."""
        state = {name: value.clone() for name, value in self.model_.named_buffers()}
        with advising_on_memory(self._lower):
            source, objective = self._source(data.take(slice(self.settings_.batch_size))), self._objective()
            times = []
            for _ in range(2):  # the first also warms up
                started = time.perf_counter()
                X, Y = source.batch(np.arange(source.n_rows), self.model_.b.device)
                (-objective(X, Y, data.n_rows, torch.Generator(self.model_.b.device)).bound()).backward()
                self.model_.zero_grad(set_to_none=True)
                times.append(time.perf_counter() - started)
        for name, value in self.model_.named_buffers():
            value.copy_(state[name])
        return min(times)

    def _rows(self, X: Any) -> sparse.csr_array:
        """Rows as the model sees them."""
        self._check_fitted()
        return self.row_transform_(as_rows(self, X, reset=False))

    def _encode(self, Y: Any, n_rows: int) -> sparse.csr_array:
        """Labels in the columns that the first fit gave them; labels that it did not see are refused."""
        return encode_known(Y, n_rows, Labels(self.label_kind_, self.classes_))

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose labels are all right (scikit-learn's score of a classifier)."""
        self._check_fitted()
        truth = y if self.label_kind_ == "classes" else self._encode(y, as_rows(self, X, reset=False).shape[0])
        return float(accuracy_score(truth, self.predict(X), sample_weight=sample_weight))

    def __getstate__(self) -> Any:
        """Without the optimiser of `partial_fit`, which belongs to this process."""
        return super().__getstate__() | ({"_training": None} if hasattr(self, "_training") else {})

    def to(self, device: str) -> Self:
        """Move the fitted model to "cpu", "cuda", or wherever "auto" finds best."""
        self._check_fitted()
        self.model_.to(choose_device(device))
        self.device = device
        self._training = None  # its optimiser stayed where it was
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _bytes(array: sparse.csr_array) -> int:
    return int(array.data.nbytes + array.indices.nbytes + array.indptr.nbytes)
