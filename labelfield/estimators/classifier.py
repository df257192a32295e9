"""The one base of all classifiers: scikit-learn's interface over a blueprint, and nothing of any model.

A final class declares options (dataclass fields, documented in its docstring), `constraints` beside them, and a
`blueprint` of functions that decide, build, train and predict. It inherits the protocol that everything above
uses (`labelfield.estimators.protocol`).
"""

from abc import ABC
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.utils import TransformerTags

from labelfield.cluster import ALONE, Arrays, Cluster, ClusterError
from labelfield.constraints import Constraint
from labelfield.csr import column_counts, digest_of
from labelfield.data import Dataset, Names
from labelfield.data.classes import class_name
from labelfield.data.transform import RowTransform
from labelfield.decide import Decision, Evidence, Policy, fit_policy
from labelfield.decide.intervals import intervals, reliability
from labelfield.errors import CannotAnswerError, DataError, no_numbers
from labelfield.estimators.blueprint import Blueprint, Fitted, TrainingRows
from labelfield.estimators.inputs import Labels, as_rows, encode_known, encode_labels, encode_seen
from labelfield.estimators.observed import read_mask, split_missing
from labelfield.estimators.options import check_parameters, choose_device, choose_seed, count_of, plain_options
from labelfield.estimators.searching import (
    Search,
    index_of,
    index_where_it_pays,
    rows_for_index,
    search_index,
    uses_index,
)
from labelfield.inference.calibrating import evidence_of
from labelfield.inference.fitting import Past, Trainer
from labelfield.inference.run import Monitor, Run, Settings, Validate
from labelfield.inference.signals import Interrupted, stop_requests
from labelfield.mapped import pieces
from labelfield.memory import FEWER_ROWS, OutOfMemoryError, advising_on_memory, free_bytes, only_new_garbage
from labelfield.metrics import evaluate
from labelfield.metrics.propensity import RankBy, inverse_propensity_of, rank_weight
from labelfield.models.index import Index
from labelfield.models.predictor import Latent, Predictor
from labelfield.models.search import Searched
from labelfield.text.parts import TextParts
from labelfield.version import __version__

Value = TypeVar("Value")


class TrainingCost(NamedTuple):
    """The cost of training: memory besides the rows, time, and the settings of each stage."""

    n_bytes: int
    seconds: float
    stages: dict[str, Settings]


class _Learned(Generic[Value]):
    """A learned attribute, `model_`: a read-only view of the fitted state, which is not there before fit."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __get__(self, estimator: Any, owner: type[Any]) -> Value:
        if estimator is None:
            return cast("Value", self)
        value = estimator.fitted()
        for name in self.path.split("."):
            value = getattr(value, name)
        return cast("Value", value)

    def __set__(self, estimator: Any, value: Any) -> None:
        raise AttributeError(f"{self.path.split('.')[-1]}_ is a view of the fitted state, and read-only")


class Classifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn is untyped
    """A classifier over a blueprint."""

    blueprint: ClassVar[Blueprint]
    constraints: ClassVar[dict[str, Constraint]]
    # The name on the command line and in model folders; a property where an option decides.
    method: ClassVar[Any]
    device: Any
    random_state: Any
    threshold: Any = 0.5
    # Whether entries of Y may be missing; a property where another estimator decides.
    takes_missing: ClassVar[Any] = False
    # Whether validation rows are scored by all members together.
    validates_whole: ClassVar[bool] = False

    predictor_ = _Learned[Predictor]("predictor")
    model_, spec_, settings_ = _Learned[Any]("model"), _Learned[Any]("spec"), _Learned[Settings]("settings")
    history_, n_iter_ = _Learned[list[dict[str, Any]]]("history"), _Learned[int]("n_iter")
    row_transform_, n_negatives_ = _Learned[RowTransform]("row_transform"), _Learned[int | None]("n_negatives")
    label_counts_, n_rows_ = _Learned[NDArray[np.int64]]("label_counts"), _Learned[int]("n_rows")
    feature_names_digest_ = _Learned[str | None]("feature_names_digest")
    held_out_scores_ = _Learned[dict[str, list[float]]]("held_out_scores")
    trials_ = _Learned[list[dict[str, Any]]]("trials")
    evidence_ = _Learned[Evidence | None]("evidence")
    index_ = _Learned[Index | None]("index")
    text_ = _Learned[TextParts | None]("text")
    label_kind_, classes_ = _Learned[str]("labels.kind"), _Learned[NDArray[Any]]("labels.classes")

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
        """Train on rows X (dense or sparse) and labels Y (indicators, lists of labels, or one class per row).

        Factor models, topics and ensembles of them leave out missing entries of Y: NaN in a dense Y, those not
        `observed`, or those that are `missing`, each a boolean or sparse matrix or a list of labels for each row.

        With `checkpoint`, an interrupted run can continue later with `resume=True`. `validation` rows are scored after
        each epoch. `on_step(run, n_steps)` is called after each step.
        """
        data = self.prepare(X, Y, observed=observed, missing=missing)
        return self.train_prepared(data, validation=validation, checkpoint=checkpoint, resume=resume, on_step=on_step)

    @only_new_garbage()
    def prepare(
        self,
        X: Any,
        Y: Any,
        classes: Any = None,
        *,
        observed: Any = None,
        missing: Any = None,
        cluster: Cluster = ALONE,
    ) -> Dataset:
        """Decide everything that needs no training, build the model, and return the rows as training takes them.

        `classes` names all labels, in case Y does not show them all; for the other arguments see `fit`. All processes
        of a `cluster` call this with the same rows, and then `train_prepared`; the first has the model at the end.
        """
        rows = read_rows(self, X, Y, classes, observed, missing)
        if cluster.size > 1:
            if why := self.blueprint.trains_alone(plain_options(self), rows):
                raise ClusterError(f"{self.method}: {why}", is_known_to_all=True)
            # The seed that was drawn counts, and not what it was drawn from.
            options = {name: value for name, value in vars(plain_options(self)).items() if name != "random_state"}
            alike = {"version of labelfield": __version__, "options": repr(sorted(options.items()))}
            alike["random_state"] = str(rows.seed)
            arrays = {"training rows": rows.X, "training labels": rows.Y}
            cluster.agree(alike | {name: digest_of(array) for name, array in arrays.items()})
        data = build(self, rows._replace(cluster=cluster))
        self.fitted_.rows_for_index = rows_for_index(rows.X, self.spec_.n_labels)
        return data

    @only_new_garbage()
    def train_prepared(
        self,
        data: Dataset,
        *,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        on_step: Any = None,
        cluster: Cluster = ALONE,
    ) -> Self:
        """Train on the rows that `prepare` returned: the second half of `fit`."""
        monitor = Monitor(
            checkpoint=None if checkpoint is None else Path(checkpoint),
            resume=resume,
            identity="" if checkpoint is None else fingerprint(self, data, cluster),
            on_step=on_step,
            validate=None if validation is None else _validation(self, *validation),
            cluster=cluster,
        )
        run_training(self, data, monitor)
        if cluster.size == 1:
            self.fitted_.index = index_where_it_pays(self.fitted_)
        self.fitted_.rows_for_index = None
        return self

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Train for one more epoch, on these rows; the first call also builds the model.

        The optimiser continues where the last call left it; that of a loaded model starts fresh. `classes` names all
        labels, in case the first rows do not show them all. NaN in Y means missing, if the method allows it.
        """
        if not hasattr(self, "fitted_"):
            data = self.prepare(X, Y, classes)
            train_more(self, data, Past(0, np.zeros_like(self.label_counts_), []))
            return self
        is_named = self.label_kind_ != "indicator"  # whose columns have numbers, whatever they are called
        if classes is not None and not (
            np.array_equal(np.unique(classes), self.classes_) if is_named else len(classes) == len(self.classes_)
        ):
            raise DataError("classes differ from those of the first call", fix="Fit a new model.")
        rows = self.rows(X)
        Y, gaps = _missing_entries(self, Y, None, None)
        data = Dataset(rows, self.encode(Y, rows.shape[0]))
        self.fitted_.mask = read_mask(None, gaps, data.Y.shape, Labels(self.label_kind_, self.classes_))
        past = Past(self.n_rows_, self.label_counts_, self.history_)
        self.fitted_.label_counts = self.label_counts_ + column_counts(data.Y)
        self.fitted_.n_rows += data.n_rows
        try:
            train_more(self, data, past)
        except BaseException:  # rows that were not trained on do not count
            self.fitted_.n_rows, self.fitted_.label_counts, self.fitted_.mask = past.n_rows, past.label_counts, None
            raise
        return self

    # Predicting

    def predict(self, X: Any, k: int | None = None) -> Any:
        """Return the most probable class of each row (N,).

        For several labels per row, return those whose probability reaches `threshold`, or the k most probable, as a
        CSR indicator (N, K).
        """
        rows = self.rows(X)
        if self.label_kind_ == "classes":
            if k is not None:
                raise ValueError("k is for several labels per row; predict_topk ranks classes")
            return np.asarray(self.classes_[self.predictor_.top_k(rows, 1).indices])
        if k is None:
            return self.predictor_.reached(rows, self.threshold)
        chosen = self.predictor_.top_k(rows, count_of(k))
        chosen.data = np.ones_like(chosen.data)
        return chosen

    def predict_proba(self, X: Any, *, calibrated: bool = True) -> NDArray[np.float32]:
        """Return the probability of each label (N, K), with the uncertainty of the model integrated out.

        Probabilities are calibrated unless raw ones are asked for; those of one class per row sum to one.
        """
        rows = self.rows(X)
        P = self.predictor_.proba(rows, calibrated)
        _require_numbers(P)
        return P

    def predict_topk(
        self,
        X: Any,
        k: int = 5,
        *,
        calibrated: bool = True,
        rank_by: RankBy = "probability",
        search: Search = "auto",
    ) -> sparse.csr_array:
        """Return the k best labels of each row and their probabilities, as CSR (N, K).

        By default the best are the most probable. With rank_by="propensity" they have the largest probability times
        inverse propensity, which favours rare labels and is best for PSP@k; a number such as 0.5 is a power of the
        inverse propensity. The values are still probabilities: `metrics.evaluate`, given the same `rank_by` and
        the training labels, ranks them in that order.

        With rank_by="utility" factor models rank by mean utility, as the papers do [TH 4.36]. The values are then the
        probabilities that labels would have if utilities had no variance, whether `calibrated` or not.

        With search="exact" all labels are scored exactly; with "index" those with the best guesses alone, if labels
        have an index (`index_labels`). "auto" uses the index if there is one that pays, on a CPU, by probability, for
        as many labels as were audited (5); `search_topk` also says which lists are proven to be complete.
        """
        rows = self.rows(X)
        if self.uses_index(k, rank_by, search):
            return search_index(self.fitted(), rows, count_of(k), calibrated).best
        if rank_by == "utility":
            return self.predictor_.top_k_by_utility(rows, count_of(k))
        weight = rank_weight(rank_by, lambda: inverse_propensity_of(self.label_counts_, self.n_rows_))
        best = self.predictor_.top_k(rows, count_of(k), calibrated, weight)
        _require_numbers(best.data)
        return best

    def search_topk(self, X: Any, k: int = 5, *, calibrated: bool = True) -> Searched:
        """Return what `predict_topk` with search="index" does, with certificates.

        `best` are the labels. Where `is_certified` (N,), a bound proves that a search of all labels would find the
        same; elsewhere the audit says how many are found. `n_scored` (N,) is how many labels were scored exactly.
        """
        rows = self.rows(X)
        self.uses_index(k, "probability", "index")
        return search_index(self.fitted(), rows, count_of(k), calibrated)

    def uses_index(self, k: int, rank_by: Any, search: str) -> bool:
        """Return whether `predict_topk` with these arguments uses the index; raise if it should and cannot."""
        return uses_index(self.fitted(), count_of(k), rank_by, search)

    def index_labels(self, X: Any, *, target: float = 0.99, confidence: float = 0.95) -> Self:
        """Index the labels, so that the best labels of rows are found by guesses for all and exact scores of few.

        Rows X need no labels, and should be like those to come; at least 400 are needed. An audit on them chooses
        how many labels of a row are scored exactly: as few as find `target` of the 5 best labels, on average over rows,
        with this confidence. The index is saved with the model.
        """
        if not (0 < target < 1 and 0 < confidence < 1):
            raise ValueError(f"target={target}, confidence={confidence}; expected numbers between 0 and 1")
        rows, fitted = self.rows(X), self.fitted()
        with advising_on_memory(FEWER_ROWS):
            fitted.index = index_of(fitted.predictor, rows, target, confidence)
        return self

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the lower and upper ends (N, K) of an interval for each calibrated probability, from held-out rows.

        Among all labels with this probability, the share that holds lies in the interval with probability `level`: a
        confidence interval for the true frequency, narrow where there are many such labels in held-out rows. A model
        without held-out rows raises a CannotAnswerError.
        """
        if not 0 < level < 1:
            raise ValueError(f"level={level}; expected between 0 and 1")
        rows = self.rows(X)
        evidence = self.held_out_evidence()
        return intervals(reliability(evidence, level), self.predictor_.separate_proba(rows), evidence.n_listed)

    def predict_uncertainty(self, X: Any, best: sparse.csr_array | None = None) -> NDArray[np.float32]:
        """Return how far to distrust the first label of each row (N,): 1 - p, of its calibrated probability p.

        Of the measures that were compared this one finds mistakes best. Rows unlike all training rows are found better
        by `labelfield.decide.distance`. Pass the result of `predict_topk` for these rows as `best` to avoid computing
        probabilities again.
        """
        first = self.predictor_.top_k(self.rows(X), 1).data if best is None else best.max(axis=1).toarray().ravel()
        return np.asarray(1 - first, np.float32)

    def decide(
        self,
        X: Any,
        *,
        precision: float | None = None,
        recall: float | None = None,
        review_rate: float | None = None,
        max_tags: int | None = None,
        f1: bool = False,
        confidence: float | None = 0.95,
    ) -> Decision:
        """Return tags for rows, and which rows to leave to a person, with a promise learned from held-out rows.

        Ask for one of these: a `precision` of all tags (0.95 by default), a `recall` of the true labels of a row, a
        largest `review_rate` of rows left to a person, or, without any promise, the best `f1` of each label. Rows get
        at most `max_tags` tags; the default is as many as were ranked for recall and f1, 1 for classes, and 5
        otherwise. A promise fails with probability at most 1 - confidence, if rows are drawn as the training rows were;
        with confidence=None a recall is promised on average. If no promise can be made, a CannotAnswerError is raised.
        """
        rows = self.rows(X)
        aims = {"precision": precision, "recall": recall, "review_rate": review_rate, "max_tags": max_tags, "f1": f1}
        policy = self.policy(**aims, confidence=confidence)
        return policy.apply(self.predictor_.top_k(rows, policy.n_listed))

    def policy(self, **asked: Any) -> Policy:
        """Return the rule that `decide` uses for the same arguments."""
        return fit_policy(self.held_out_evidence(), one_each=self.label_kind_ == "classes", **asked)

    def held_out_evidence(self) -> Evidence:
        """Return the predictions for held-out rows; raise a CannotAnswerError that says why there are none."""
        return evidence_for(self.fitted())

    def predict_latent(self, X: Any) -> Latent:
        """Return the means and variances of the utilities f (N, K), and of the processes h that they are mixed from.

        Topics have neither and raise a CannotAnswerError.
        """
        rows = self.rows(X)
        return self.predictor_.latent(rows)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Return the log-odds of raw probabilities, or the log-probabilities of classes (N, K).

        For two classes, return how far the second is above the first (N,).
        """
        rows = self.rows(X)
        scores = self.predictor_.scores(rows)
        is_binary = self.label_kind_ == "classes" and self.spec_.n_labels == 2
        return scores[:, 1] - scores[:, 0] if is_binary else scores

    def bound(self, X: Any, Y: Any) -> dict[str, float]:
        """Return the evidence lower bound on these rows, over all labels: fit, kl and their difference, in nats."""
        rows = self.rows(X)
        fit, kl = self.predictor_.bound(rows, self.encode(Y, rows.shape[0]))
        return {"fit": fit, "kl": kl, "bound": fit - kl}

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose class is right, or whose labels are all right.

        A label that was not in the first fit, as in folds of cross-validation, is missed.
        """
        is_classes, n_rows = self.label_kind_ == "classes", as_rows(self, X, reset=False).shape[0]
        if is_classes and np.ndim(y) == 2:  # indicators, or lists of one class each
            y = self.classes_[self.encode(y, n_rows).indices]
        if is_classes:
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        truth, has_others = encode_seen(y, n_rows, Labels(self.label_kind_, self.classes_))
        is_right = ~has_others & (sparse.csr_array(truth != self.predict(X)).sum(axis=1) == 0)
        return float(np.average(is_right, weights=sample_weight))

    # What is known about the model

    def fitted(self) -> Fitted:
        """Return the fitted state; raise a NotFittedError before fit."""
        found: Fitted | None = self.__dict__.get("fitted_")
        if found is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
        if found.predictor is None:  # a copy of a fitted classifier
            hold(self, found)
        return found

    @property
    def trainer_(self) -> Trainer:
        """The trainer of the model, made when needed from the current options."""
        fitted = self.fitted()
        if fitted.trainer is None:
            fitted.trainer = self.blueprint.trainer(plain_options(self), fitted)
        trainer: Trainer = fitted.trainer
        return trainer

    def summary(self) -> str:
        """Return a one-line description of the model."""
        return self.blueprint.summary(self.fitted().options, self.fitted_)

    def facts(self) -> dict[str, str]:
        """Return the most important sizes and choices, by name; for an ensemble, those of its first member."""
        return self.blueprint.facts(self.fitted().options, self.fitted_)

    def n_parameters(self) -> int:
        """Return the number of learned parameters."""
        return sum(parameter.numel() for parameter in self.model_.parameters())

    def training_cost(self, data: Dataset) -> TrainingCost:
        """Estimate the cost of training on the rows that `prepare` returned, by trying a step."""
        hint, stages = self.blueprint.memory_hint, self.trainer_.stage_settings()
        with advising_on_memory(hint):
            seconds = self.trainer_.expected_seconds(data)
        return TrainingCost(training_bytes(self), seconds, stages)

    def members(self) -> list[Any]:
        """Return the members of an ensemble or a mix; for any other classifier, itself alone."""
        return [self]

    def label_names(self) -> list[str]:
        """Return the names of labels: as they were saved, or as their classes are written in files."""
        names = self.fitted().label_names
        if names is not None:
            return names
        return [class_name(str(int(label) if isinstance(label, bool) else label)) for label in self.classes_.tolist()]

    def feature_names(self) -> list[str] | None:
        """Return the names of features in training, from a file or the fitted table; None if unknown."""
        names = self.fitted().feature_names
        if names is None and hasattr(self, "feature_names_in_"):
            names = [str(name) for name in self.feature_names_in_]
        return names

    def name_features(self, names: Names | None, text: TextParts | None = None) -> None:
        """Store the names of features, and the parts that turn documents into rows, for the model folder."""
        self.fitted().text = text
        if names is not None:
            self.fitted().feature_names, self.fitted_.feature_names_digest = list(names), names.digest()

    def feature_relevance(self) -> NDArray[np.float32] | None:
        """Return how much each feature (D,) matters, summed over the views of a row; None if all count the same.

        For kernels with a weight per feature (ARD) it is the squared weight; for topics and linear utilities the mean
        over topics or classes of the squared weight. Features that never vary keep the weight they started with.
        """
        self.fitted()
        found = self.predictor_.feature_relevance()
        return None if found is None else self.row_transform_.fold(found)

    def topics(self, n: int = 10, label_names: Any = None) -> list[Any] | None:
        """Return the topics that labels come from; None for a method without topics."""
        self.fitted()
        return None

    # Inputs

    def rows(self, X: Any) -> sparse.csr_array:
        """Return rows as the model sees them."""
        transform = self.fitted().row_transform
        return transform(as_rows(self, X, reset=False))

    def encode(self, Y: Any, n_rows: int) -> sparse.csr_array:
        """Return labels in the columns of the first fit; raise a DataError for labels that it did not see."""
        encoded = encode_known(Y, n_rows, Labels(self.label_kind_, self.classes_))
        self.blueprint.check_labels(self.fitted(), encoded)
        return encoded

    # Saving and moving

    def save(self, folder: str | Path, label_names: Any = None) -> None:
        """Write the fitted model to a folder that `labelfield.load` reads anywhere."""
        from labelfield.estimators.persistence import save  # which knows this class

        save(self, Path(folder), label_names)

    def to(self, device: str) -> Self:
        """Move the fitted model to "cpu", "cuda", or the best available device ("auto")."""
        self.fitted().model.to(choose_device(device))
        self.device = device
        hold(self, self.fitted_)  # an optimiser would stay where it was
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return "fitted_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = self.blueprint.can_be_multi_label
        if hasattr(self, "transform"):  # it can give features to another model
            tags.transformer_tags = TransformerTags(preserves_dtype=["float32"])
        return tags


def read_rows(
    estimator: Classifier, X: Any, Y: Any, classes: Any = None, observed: Any = None, missing: Any = None
) -> TrainingRows:
    """Check options, rows and labels for a new fit, and discard the old one, whose parts would not fit."""
    estimator.__dict__.pop("fitted_", None)
    check_parameters(estimator)
    device, seed = choose_device(estimator.device), choose_seed(estimator.random_state)
    Y, missing = _missing_entries(estimator, Y, observed, missing)
    X = as_rows(estimator, X, reset=True)
    Y, labels = encode_labels(Y, X.shape[0], classes)
    if Y.shape[1] == 0:
        raise DataError("Y has no labels", expected="at least one")
    mask = read_mask(observed, missing, Y.shape, labels)
    Y = Y if mask is None else mask.hides(Y)
    return TrainingRows(X, Y, labels, device, seed, mask, names_all_labels=classes is not None)


def _missing_entries(estimator: Classifier, Y: Any, observed: Any, missing: Any) -> tuple[Any, Any]:
    """Return Y without gaps, and which entries are missing, if any; raise for a method that needs all of them."""
    is_told = observed is not None or missing is not None
    if not estimator.takes_missing:
        if is_told:
            raise ValueError(f"{type(estimator).__name__} needs all labels observed; pass neither observed nor missing")
        return Y, None  # a gap in Y is refused where Y is read
    Y, gaps = split_missing(Y)
    if gaps is not None and is_told:
        raise ValueError("Y already marks missing entries; pass neither observed nor missing")
    return Y, missing if gaps is None else gaps


def hold(estimator: Classifier, fitted: Fitted) -> None:
    """Give a classifier a new or loaded state, with a predictor for it."""
    estimator.fitted_ = fitted
    fitted.trainer, fitted.predictor = None, estimator.blueprint.predictor(fitted)


def spread(estimator: Any, cluster: Cluster) -> None:
    """Let all processes of a cluster answer for a fitted classifier together, each for a share of the labels or rows.

    From then on all of them must ask the same questions about the same rows; all get the answers.
    """
    if cluster.size > 1:
        estimator.fitted().predictor = estimator.blueprint.spread(estimator.fitted_, cluster)
        estimator.fitted_.index = None  # with which one process searches


def build(estimator: Classifier, rows: TrainingRows) -> Dataset:
    """Build the model for checked rows, and return these as it will see them."""
    options = plain_options(estimator)
    design = estimator.blueprint.design(options, rows)
    counts = column_counts(rows.Y)
    labels = design.labels or rows.labels
    parts = design.row_transform, labels, counts, rows.X.shape[0], design.n_negatives, design.are_dense
    fitted = Fitted(design.spec, design.settings, None, *parts, mask=rows.mask, trials=design.trials, options=options)
    fitted.n_ranks = rows.cluster.size
    hint = estimator.blueprint.memory_hint
    needed, free = estimator.blueprint.training_bytes(options, fitted), free_bytes(rows.device)
    if free is not None and needed > free:
        # Refuse now, before the system kills the process.
        sizes = [f"{name}={value}" for name, value in vars(design.spec).items() if name in estimator.blueprint.to_lower]
        raise OutOfMemoryError(
            f"training needs about {needed / 2**30:,.1f} GiB and {rows.device} has {free / 2**30:,.1f} GiB free; "
            f"{', '.join([*sizes, f'batch_size={design.settings.batch_size}'])}",
            hint,
        )
    with advising_on_memory(hint):
        fitted.model = estimator.blueprint.build(design.spec, options)
        design.start(fitted.model)
        fitted.model.to(rows.device)
    hold(estimator, fitted)
    return design.data


def run_training(estimator: Classifier, data: Dataset, monitor: Monitor) -> Run:
    """Train under a monitor, keep the history, and return the run."""
    with stop_requests() as requests, _changing_model(estimator):

        def stop() -> None:
            if requests:
                raise Interrupted(requests[0])

        if monitor.cluster.size > 1:
            monitor.cluster.while_waiting = stop
        run = estimator.trainer_.train(data, monitor)
    # Further training uses the options of that time, on other rows.
    estimator.fitted_.trainer = estimator.fitted_.mask = None
    estimator.fitted_.history = [asdict(epoch) for epoch in run.history]
    estimator.fitted_.evidence = evidence_of(run.memory, estimator.spec_.n_labels)
    return run


def train_more(estimator: Classifier, data: Dataset, past: Past) -> None:
    """Train for one more epoch on rows as the model sees them."""
    with _changing_model(estimator):
        run = estimator.trainer_.train_more(data, past)
    estimator.fitted_.mask = estimator.fitted_.evidence = None
    estimator.fitted_.index = estimator.fitted_.rows_for_index = None
    estimator.fitted_.no_evidence = "the model was trained with partial_fit, which holds out no rows. Train it with fit"
    estimator.fitted_.history = [asdict(epoch) for epoch in run.history]


@contextmanager
def _changing_model(estimator: Classifier) -> Iterator[None]:
    """Advise on memory, and make a new predictor for the changed model, even after an interrupted training."""
    try:
        with advising_on_memory(estimator.blueprint.memory_hint):
            yield
    finally:
        estimator.fitted_.predictor = estimator.blueprint.predictor(estimator.fitted_)


def evidence_for(fitted: Fitted) -> Evidence:
    """Return the predictions for held-out rows; raise a CannotAnswerError that says why there are none."""
    if fitted.evidence is not None:
        return fitted.evidence
    why = fitted.no_evidence
    if not why and not getattr(fitted.options, "calibrate", True):
        why = "the model was trained with calibrate=False, and no rows were held out. Train it with calibrate=True"
    if not why:
        why = (
            f"the model was trained on {fitted.n_rows:,} rows or for too few epochs, and none were held out. Train it "
            "on more rows, at least 1,000"
        )
    raise CannotAnswerError(f"no promise can be made: {why}")


def training_bytes(estimator: Classifier) -> int:
    """Estimate the memory that a training step takes besides the rows."""
    return estimator.blueprint.training_bytes(plain_options(estimator), estimator.fitted())


def fingerprint(estimator: Classifier, data: Dataset, cluster: Cluster = ALONE) -> str:
    """Return a fingerprint of the model and its training data; in a cluster, that of the first rank, since others
    may round rows differently."""

    def own() -> Arrays:
        parts = (estimator.spec_, *estimator.trainer_.fingerprint(), estimator.row_transform_.name)
        digest = sha256(repr(parts).encode())
        for array in (data.X.data, data.X.indices, data.X.indptr, data.Y.indices, data.Y.indptr):
            for some in pieces(array):
                digest.update(np.ascontiguousarray(array[some]).data)
        return {"digest": np.frombuffer(digest.digest(), np.uint8)}

    return cluster.share("the fingerprint of the training", own)["digest"].tobytes().hex()


def _validation(estimator: Classifier, X: Any, Y: Any) -> Validate:
    """Return a function that scores these rows after each epoch.

    For an ensemble it scores the first member, since the others train at another pace; for a mix, the whole, once.
    """
    first: Classifier = estimator if estimator.validates_whole else estimator.members()[0]
    X = as_rows(estimator, X, reset=False)  # the ensemble, not its member, knows the names of a table's columns
    truth, rows = estimator.encode(Y, X.shape[0]), first.row_transform_(X)

    def validate() -> dict[str, float]:
        scores = evaluate(truth, first.blueprint.predictor(first.fitted_).top_k(rows, 5))
        return {name: float(scores[name]) for name in ("P@1", "P@3", "P@5")}

    return validate


def _require_numbers(P: NDArray[Any]) -> None:
    if not np.isfinite(P).all():
        raise no_numbers()
