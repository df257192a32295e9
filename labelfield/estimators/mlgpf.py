"""The multi-label GP factor model as a scikit-learn classifier."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from labelfield.csr import gather_rows
from labelfield.data import Dataset
from labelfield.data.batch import Batch
from labelfield.data.transform import choose_transform, transform_rows
from labelfield.errors import DataError
from labelfield.estimators.inputs import Labels, as_rows, encode_known, encode_labels
from labelfield.inducing import Subspace
from labelfield.inference.source import DatasetSource, ProjectedSource, Source
from labelfield.inference.trainer import Settings, train
from labelfield.linalg.rows import Projected, Rows
from labelfield.metrics import evaluate
from labelfield.models.artifact import save_artifact
from labelfield.models.build import Spec, build, start
from labelfield.models.defaults import plan
from labelfield.models.mlgpf import Elbo
from labelfield.models.prediction import Latent, condition, credible_interval, label_correlation, to_csr, top_k

__all__ = ["MLGPFClassifier"]

_PREDICT_ROWS = 1000
_COUNTS = "training.label_counts"
# Options that are numbers: name, smallest value, whether an integer.
_NUMBERS = (
    *((name, 1, True) for name in ("n_latent", "n_inducing", "rank", "max_epochs", "batch_size", "patience")),
    *((name, 1, True) for name in ("n_points", "n_points_predict")),
    *((name, 0, True) for name in ("n_negatives", "random_state")),
    *((name, 1e-12, False) for name in ("learning_rate", "clip_norm", "time_budget", "jitter")),
    *((name, 0, False) for name in ("kl_weight", "threshold")),
)


class MLGPFClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """f = Φ h(x) + b with h_p ~ GP(0, k), and a Bernoulli for each label.

    Left at None, sizes and rates follow the rule of `labelfield.models.defaults`. `kernel` is a name or a sum of names
    (see `labelfield.kernels.names`); `posterior`, `inducing` and `basis` are those of `labelfield.models.build`;
    `row_transform` what is done to rows (`labelfield.data.transform`). `kl_weight` 1 is the true bound.
    """

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
        row_transform: str | None = None,
        n_negatives: int | None = None,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        schedule: str = "one_cycle",
        kl_weight: float = 1.0,
        clip_norm: float | None = None,
        patience: int | None = None,
        time_budget: float | None = None,
        n_points: int = 3,
        n_points_predict: int = 10,
        jitter: float = 1e-5,
        threshold: float = 0.5,
        device: str = "auto",
        random_state: int = 0,
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
        self.row_transform = row_transform
        self.n_negatives = n_negatives
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
        self.threshold = threshold
        self.device = device
        self.random_state = random_state

    # Fitting

    def prepare(self, X: Any, Y: Any) -> Dataset:
        """Decide everything that does not need training and build the model; returns the rows as it will see them."""
        self._check_options()
        X = as_rows(self, X, reset=True)
        Y, labels = encode_labels(Y, X.shape[0])
        if Y.shape[1] == 0:
            raise DataError("Y has no labels", expected="at least one")
        chosen = plan(X.shape[0], X.shape[1], Y.shape[1])
        self.label_kind_, self.classes_ = labels.kind, labels.classes
        self.row_transform_ = choose_transform(X) if self.row_transform is None else self.row_transform
        data = Dataset(transform_rows(X, self.row_transform_), Y)
        n_inducing = _given(self.n_inducing, chosen.n_inducing)
        rank = min(_given(self.rank, 2 * n_inducing), *X.shape) if "subspace" in self.inducing else 0
        self.spec_ = Spec(
            n_features=X.shape[1],
            n_labels=Y.shape[1],
            n_latent=_given(self.n_latent, chosen.n_latent),
            n_inducing=min(n_inducing, X.shape[0]),
            kernel=_given(self.kernel, chosen.kernel),
            posterior=self.posterior,
            inducing=self.inducing,
            rank=rank,
            unit_norm=self.unit_norm and self.row_transform_ != "none",
            n_points=self.n_points_predict,
            jitter=self.jitter,
        )
        self.settings_ = Settings(
            max_epochs=_given(self.max_epochs, chosen.max_epochs),
            batch_size=min(_given(self.batch_size, chosen.batch_size), X.shape[0]),
            learning_rate=_given(self.learning_rate, chosen.learning_rate),
            schedule=self.schedule,
            kl_weight=self.kl_weight,
            clip_norm=self.clip_norm,
            patience=self.patience,
            time_budget=self.time_budget,
            seed=self.random_state,
        )
        self.label_counts_ = np.bincount(Y.indices, minlength=Y.shape[1])
        self.n_rows_ = X.shape[0]
        self.n_negatives_ = chosen.n_negatives if self.n_negatives is None else self.n_negatives
        self.model_ = build(self.spec_)
        start(
            self.model_,
            self.spec_,
            data.X,
            data.Y,
            self.random_state,
            start_mean=chosen.start_mean,
            basis=self.basis,
        )
        self.model_.to(self._device())
        return data

    def _check_options(self) -> None:
        """Every number is a number and within its range; one error that names the option."""
        for name, lowest, is_integer in _NUMBERS:
            value = getattr(self, name)
            if value is None:
                continue
            kinds = (int, np.integer) if is_integer else (int, float, np.integer, np.floating)
            if isinstance(value, bool) or not isinstance(value, kinds) or not lowest <= value < float("inf"):
                kind = "an integer" if is_integer else "a number"
                raise ValueError(f"{name}={value!r}; expected {kind} of at least {lowest:g}")

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        on_step: Any = None,
    ) -> MLGPFClassifier:
        """Train on rows X (dense or sparse) and labels Y (indicators, lists of labels, or one class a row).

        With `checkpoint` the run can be interrupted and, with `resume`, go on. `validation` rows are scored each epoch.
        """
        data = self.prepare(X, Y)
        return self.train_prepared(data, validation=validation, checkpoint=checkpoint, resume=resume, on_step=on_step)

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> MLGPFClassifier:
        """Go on training with these rows, by one epoch over them; the first call prepares the model."""
        if not hasattr(self, "model_"):
            data = self.prepare(X, Y)
            if classes is not None and len(classes) != self.spec_.n_labels:
                raise DataError(
                    f"the first rows show {self.spec_.n_labels} labels, {len(classes)} were announced",
                    fix="Pass Y as an indicator matrix with a column for each label.",
                )
        else:
            rows = transform_rows(as_rows(self, X, reset=False), self.row_transform_)
            data = Dataset(rows, self._encode(Y, rows.shape[0]))
        settings = replace(
            self.settings_, max_epochs=1, schedule="constant", batch_size=min(self.settings_.batch_size, data.n_rows)
        )
        self._run(data, settings)
        return self

    def train_prepared(
        self,
        data: Dataset,
        *,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        on_step: Any = None,
    ) -> MLGPFClassifier:
        """The second half of `fit`, for rows that `prepare` returned."""
        validate = None
        if validation is not None:
            rows = as_rows(self, validation[0], reset=False)
            truth = self._encode(validation[1], rows.shape[0])

            def validate() -> dict[str, float]:
                scores = evaluate(truth, self.predict_topk(rows, 5))
                return {name: float(scores[name]) for name in ("P@1", "P@3", "P@5")}

        path = None if checkpoint is None else Path(checkpoint)
        run = self._run(data, self.settings_, checkpoint=path, resume=resume, on_step=on_step, validate=validate)
        self.history_ = [asdict(epoch) for epoch in run.history]
        self.n_iter_ = len(run.history)
        return self

    def _run(self, data: Dataset, settings: Settings, **options: Any) -> Any:
        model = self.model_

        def bound(X: Rows, Y: torch.Tensor, n_data: int, generator: torch.Generator) -> Elbo:
            return model.elbo(
                X, Y, n_data, n_negatives=self.n_negatives_ or None, n_points=self.n_points, generator=generator
            )

        try:
            return train(model, bound, self._source(data), settings, identity=self._identity(data), **options)
        except torch.OutOfMemoryError as error:
            raise MemoryError(
                f"out of memory on {self._device()}: lower batch_size, n_latent or n_inducing ({error})"
            ) from None

    def _identity(self, data: Dataset) -> str:
        """What is trained, on what: the make of the model and a fingerprint of the rows."""
        digest = sha256(repr((self.spec_, self.n_negatives_, self.n_points, self.row_transform_, self.basis)).encode())
        for array in (data.X.data, data.X.indices, data.X.indptr, data.Y.indices, data.Y.indptr):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _source(self, data: Dataset) -> Source:
        """Rows from the data, or projected once onto the subspace where that loses nothing."""
        inducing, kernel = self.model_.inducing, self.model_.kernel
        can = isinstance(inducing, Subspace) and self.inducing == "subspace" and kernel.feature_relevance() is None
        if self.precompute and not can:
            raise ValueError("precompute needs inducing='subspace' and a kernel without a weight for each feature")
        if not can or self.precompute is False:
            return DatasetSource(data)
        assert isinstance(inducing, Subspace)
        parts = [inducing.project(X) for X in self._blocks(data.X)]
        return ProjectedSource(Projected(*(torch.cat(part).cpu() for part in zip(*parts, strict=True))), data)

    def seconds_per_step(self, data: Dataset) -> float:
        """How long a step of training takes on rows that `prepare` returned, by trying; nothing is changed by it."""
        source, size = self._source(data), self.settings_.batch_size
        times = []
        for trial in range(2):  # the first also warms up
            started = time.perf_counter()
            X, Y = source.batch(np.arange(trial, trial + size) % data.n_rows, self._device())
            estimate = self.model_.elbo(
                X, Y, data.n_rows, n_negatives=self.n_negatives_ or None, n_points=self.n_points
            )
            (-estimate.bound()).backward()  # type: ignore[no-untyped-call]
            self.model_.zero_grad(set_to_none=True)
            times.append(time.perf_counter() - started)
        return min(times)

    def bound(self, X: Any, Y: Any) -> dict[str, float]:
        """The evidence lower bound on these rows, exact over rows and labels: fit, kl and their difference, in nats."""
        self._check_fitted()
        rows = transform_rows(as_rows(self, X, reset=False), self.row_transform_)
        data = Dataset(rows, self._encode(Y, rows.shape[0]))
        fit, kl = 0.0, 0.0
        with torch.no_grad():
            for first in range(0, data.n_rows, _PREDICT_ROWS):
                batch = Batch.gather(data, slice(first, first + _PREDICT_ROWS), self._device())
                estimate = self.model_.elbo(batch.X, batch.Y, len(batch))
                fit += float(estimate.fit)
                kl = float(estimate.kl)
        return {"fit": fit, "kl": kl, "bound": fit - kl}

    def _encode(self, Y: Any, n_rows: int) -> sparse.csr_array:
        """Labels in the columns that the first fit gave them; labels that it did not see are refused."""
        return encode_known(Y, n_rows, Labels(self.label_kind_, self.classes_))

    # Predicting

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ValueError("device='cuda', but torch sees no CUDA device; use device='cpu' or 'auto'")
        return torch.device(self.device)

    def _blocks(self, X: sparse.csr_array) -> Any:
        for first in range(0, X.shape[0], _PREDICT_ROWS):
            rows = np.arange(first, min(first + _PREDICT_ROWS, X.shape[0]))
            part = Dataset(gather_rows(X, rows), sparse.csr_array((rows.size, 0), dtype=np.float32))
            yield Batch.gather(part, slice(None), self._device()).X

    def _latent(self, X: Any) -> Any:
        """q(h) of each block of rows."""
        self._check_fitted()
        rows = transform_rows(as_rows(self, X, reset=False), self.row_transform_)
        for block in self._blocks(rows):
            with torch.no_grad():  # not around the yield: an abandoned generator would leave gradients off for good
                h = self.model_.latent(block)[0]
            yield h

    def _stack(self, blocks: Any, width: int) -> NDArray[np.float32]:
        parts = [block.cpu().numpy() for block in blocks]
        return np.concatenate(parts) if parts else np.zeros((0, width), np.float32)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Mean utilities (N, K); of two classes, how far the second is above the first (N,)."""
        self._check_fitted()
        blocks = (self.model_.utilities(h).mean for h in self._latent(X))
        with torch.no_grad():
            utilities = self._stack(blocks, self.spec_.n_labels)
        is_binary = self.label_kind_ == "classes" and self.spec_.n_labels == 2
        return utilities[:, 1] - utilities[:, 0] if is_binary else utilities

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The probability of each label (N, K), with the uncertainty of f integrated out.

        For one class a row they are divided by their sum.
        """
        self._check_fitted()
        with torch.no_grad():
            P = self._stack((self.model_.predict_proba(h) for h in self._latent(X)), self.spec_.n_labels)
        if self.label_kind_ == "classes":
            P /= np.maximum(P.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return P

    def predict_topk(self, X: Any, k: int = 5) -> sparse.csr_array:
        """The k most probable labels of each row and their probabilities, as CSR (N, K)."""
        return self._topk(self._latent(X), k)

    def _topk(self, blocks: Any, k: int) -> sparse.csr_array:
        if k < 1:
            raise ValueError(f"k={k}; expected at least 1")
        self._check_fitted()
        k = min(k, self.spec_.n_labels)
        labels, values = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
        with torch.no_grad():
            for h in blocks:
                best, p = top_k(self.model_, h, k)
                labels.append(best.cpu().numpy())
                values.append(p.cpu().numpy())
        return to_csr(np.concatenate(labels), np.concatenate(values), self.spec_.n_labels)

    def predict(self, X: Any, k: int | None = None) -> Any:
        """Labels whose probability reaches `threshold`, or the k most probable, as a CSR indicator (N, K).

        For one class a row, the most probable class (N,).
        """
        self._check_fitted()
        if self.label_kind_ == "classes":
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        if k is not None:
            chosen = self.predict_topk(X, k)
            chosen.data = np.ones_like(chosen.data)
            return chosen
        parts = []
        with torch.no_grad():
            for h in self._latent(X):
                chosen = self.model_.predict_proba(h) >= self.threshold
                parts.append(sparse.csr_array(chosen.cpu().numpy().astype(np.float32)))
        return (
            sparse.csr_array(sparse.vstack(parts))
            if parts
            else sparse.csr_array((0, self.spec_.n_labels), dtype=np.float32)
        )

    def predict_latent(self, X: Any) -> Latent:
        """Means and variances of the latent processes h (N, P) and of the utilities f (N, K)."""
        self._check_fitted()
        parts: list[list[torch.Tensor]] = [[], [], [], []]
        with torch.no_grad():
            for h in self._latent(X):
                for part, found in zip(parts, (*h, *self.model_.utilities(h)), strict=True):
                    part.append(found)
        widths = (self.spec_.n_latent,) * 2 + (self.spec_.n_labels,) * 2
        return Latent(*(self._stack(part, width) for part, width in zip(parts, widths, strict=True)))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Lower and upper ends (N, K) of the central credible interval of each label's probability."""
        if not 0 < level < 1:
            raise ValueError(f"level={level}; expected between 0 and 1")
        low, high = [], []
        with torch.no_grad():
            for h in self._latent(X):
                ends = credible_interval(self.model_.utilities(h), level, lambda q: float(ndtri(q)))
                low.append(ends[0])
                high.append(ends[1])
        return self._stack(low, self.spec_.n_labels), self._stack(high, self.spec_.n_labels)

    def condition(self, X: Any, observed: Any, k: int = 5) -> sparse.csr_array:
        """The k most probable labels of each row, given labels that are known: +1 for one that holds, -1 for one that
        does not, 0 or nothing for one that is not known. Known labels are not listed again."""
        self._check_fitted()
        observed = sparse.csr_array(observed, copy=True)
        observed.eliminate_zeros()
        if not np.isin(observed.data, (-1, 1)).all():
            raise DataError("observed holds other values than -1, 0 and 1", fix="Use 1 for holds, -1 for does not.")
        rows = as_rows(self, X, reset=False)
        if observed.shape != (rows.shape[0], self.spec_.n_labels):
            raise DataError(
                f"observed has shape {observed.shape}", expected=f"({rows.shape[0]}, {self.spec_.n_labels})"
            )
        longest = int(np.diff(observed.indptr).max(initial=0))
        ranked = self._topk(self._conditioned(rows, observed), k + longest)
        return _without(ranked, observed, k)

    def _conditioned(self, rows: sparse.csr_array, observed: sparse.csr_array) -> Any:
        first = 0
        for h in self._latent(rows):
            part = observed[first : first + h.mean.shape[0]]
            known = torch.sparse_csr_tensor(
                torch.from_numpy(part.indptr.astype(np.int64)),
                torch.from_numpy(part.indices.astype(np.int64)),
                torch.from_numpy(part.data.astype(np.float32)),
                size=part.shape,
                check_invariants=False,
            ).to(h.mean.device)
            with torch.no_grad():
                sharpened = condition(self.model_, h, known)
            yield sharpened
            first += h.mean.shape[0]

    # Understanding

    def label_correlation(self, labels: Any = None) -> NDArray[np.float32]:
        """Correlation of the utilities of labels under the prior, from ΦΦᵀ."""
        self._check_fitted()
        return label_correlation(self.model_, labels)

    def feature_relevance(self) -> NDArray[np.float32]:
        """Squared ARD weights (D,), largest for the features that matter most."""
        self._check_fitted()
        relevance = self.model_.kernel.feature_relevance()
        if relevance is None:
            raise ValueError(f"the kernel {self.spec_.kernel!r} treats all features alike; choose one with _ard")
        return np.asarray(relevance.detach().cpu().numpy())

    # Saving

    def save(self, folder: str | Path, label_names: Any = None) -> None:
        """Write the fitted model to a folder that `labelfield.load` reads anywhere."""
        self._check_fitted()
        classes = self.classes_.tolist() if self.label_kind_ != "indicator" else None
        names = [str(name) for name in (self.classes_ if label_names is None else label_names)]
        if len(names) != self.spec_.n_labels or any("\n" in name for name in names):
            raise DataError(f"{len(names)} label names", expected=f"{self.spec_.n_labels}, without line breaks")
        config = {
            "method": "mlgpf",
            "options": {name: _given(value, None) for name, value in self.get_params().items()},
            "spec": asdict(self.spec_),
            "settings": asdict(self.settings_),
            "row_transform": self.row_transform_,
            "n_negatives": self.n_negatives_,
            "label_kind": self.label_kind_,
            "n_rows": self.n_rows_,
            "classes": classes,
            "history": getattr(self, "history_", []),
        }
        arrays = {**self.model_.state_dict(), _COUNTS: torch.from_numpy(self.label_counts_)}
        save_artifact(Path(folder), config, arrays, names)

    @classmethod
    def _restore(
        cls, config: dict[str, Any], arrays: dict[str, torch.Tensor], names: list[str] | None
    ) -> MLGPFClassifier:
        options = {name: value for name, value in config["options"].items() if name != "device"}
        estimator = cls(**options)
        estimator.spec_ = Spec(**config["spec"])
        estimator.settings_ = Settings(**config["settings"])
        estimator.row_transform_ = config["row_transform"]
        estimator.n_negatives_ = config["n_negatives"]
        estimator.label_kind_ = config["label_kind"]
        n_labels = estimator.spec_.n_labels
        estimator.classes_ = np.array(config["classes"]) if config["classes"] is not None else np.arange(n_labels)
        if names is None or len(names) != n_labels or estimator.classes_.size != n_labels:
            raise ValueError(f"labels.txt has {len(names or [])} names for {n_labels} labels")
        estimator.label_names_ = names
        estimator.history_ = config["history"]
        estimator.n_iter_ = len(estimator.history_)
        estimator.n_features_in_ = estimator.spec_.n_features
        estimator.n_rows_ = int(config["n_rows"])
        arrays = dict(arrays)
        estimator.label_counts_ = arrays.pop(_COUNTS).numpy()
        if estimator.label_counts_.shape != (n_labels,):
            raise ValueError(f"label counts of shape {estimator.label_counts_.shape}")
        estimator.model_ = build(estimator.spec_)
        estimator.model_.load_state_dict(arrays)
        if isinstance(estimator.model_.inducing, Subspace):
            estimator.model_.inducing.refresh()
        return estimator

    def to(self, device: str) -> MLGPFClassifier:
        """Move the fitted model to "cpu", "cuda", or wherever "auto" finds best."""
        self.device = device
        self.model_.to(self._device())
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags


def _given(value: Any, rule: Any) -> Any:
    """What the user said, or what the rule says; NumPy's numbers as Python's, which JSON can hold."""
    chosen = rule if value is None else value
    return chosen.item() if isinstance(chosen, np.generic) else chosen


def _without(ranked: sparse.csr_array, known: sparse.csr_array, k: int) -> sparse.csr_array:
    """The k best entries of each row of `ranked` that are not stored in `known`."""
    n, n_labels = ranked.shape
    row = np.repeat(np.arange(n), np.diff(ranked.indptr))
    known_keys = np.repeat(np.arange(n), np.diff(known.indptr)) * n_labels + known.indices
    fresh = ~np.isin(row * n_labels + ranked.indices, known_keys[known.data != 0])
    row, labels, values = row[fresh], ranked.indices[fresh], ranked.data[fresh]
    order = np.lexsort((labels, -values, row))
    place = np.arange(order.size) - np.searchsorted(row[order], row[order])
    kept = np.sort(order[place < k])
    return sparse.csr_array((values[kept], (row[kept], labels[kept])), shape=(n, n_labels))
