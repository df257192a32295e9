"""Topics of labels as a scikit-learn classifier."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.constraints import Constraint, Flag, Integer, OneOf, Real, Word
from labelfield.data import Dataset
from labelfield.data.mask import Mask
from labelfield.data.transform import RowTransform, choose_transform
from labelfield.errors import DataError
from labelfield.estimators.blueprint import Blueprint, Design, Fitted, TrainingRows, resolve, training_settings
from labelfield.estimators.classifier import Classifier, hold, train_more
from labelfield.estimators.inputs import Labels
from labelfield.estimators.observed import read_mask, split_missing
from labelfield.estimators.options import check_parameters, choose_seed, count_of, plain_options
from labelfield.inference.fitting import Past
from labelfield.inference.topics import TopicOptions, TopicTrainer
from labelfield.topics.cost import training_bytes
from labelfield.topics.em import ONLINE_WEIGHTS, PRECISION_BY
from labelfield.topics.model import TopicModel
from labelfield.topics.plan import ALGORITHMS, finishing_epochs, plan
from labelfield.topics.predict import LabelEntropy, TopicPredictor
from labelfield.topics.rows import active_labels
from labelfield.topics.spec import TopicSpec

_FOUND_BY = {"em": "EM", "online_em": "online EM", "gibbs": "Gibbs sampling"}


class Topic(NamedTuple):
    """A topic: its number, its share in the labels of the training rows, and its first labels with their weights."""

    number: int
    share: float
    labels: list[tuple[Any, float]]


def _design(given: Any, rows: TrainingRows) -> Design:
    X, Y, device, seed, mask = rows.X, rows.Y, rows.device, rows.seed, rows.mask
    if Y.nnz == 0 and not rows.names_all_labels:
        raise DataError(
            "no row has a label that was observed", expected="some", fix="Check Y and the mask of observed labels."
        )
    options = resolve(given, plan(given.algorithm, Y.shape[1]))
    transform = RowTransform.fit(options.row_transform or choose_transform(X), X, Y)
    # Online, rows are transformed when they are needed: X may be larger than memory.
    is_online = options.algorithm == "online_em"
    data = Dataset(X if is_online else transform(X), Y)
    if options.n_topics > Y.shape[1]:
        raise ValueError(f"n_topics={options.n_topics}; expected at most {Y.shape[1]}, the number of labels")
    placed = np.arange(Y.shape[1]) if rows.names_all_labels else active_labels(Y, None if mask is None else mask.places)
    spec = TopicSpec(
        n_features=transform.n_columns(X.shape[1]),
        n_labels=int(Y.shape[1]),
        n_placed=len(placed),
        n_topics=options.n_topics,
        n_draws=options.n_draws if options.algorithm == "gibbs" else 1,
        is_exclusive=rows.labels.kind == "classes",
    )
    options.batch_size = options.batch_size if is_online else data.n_rows
    settings = training_settings(options, data.n_rows, seed, rows.held_out_seed)
    if settings.held_out:
        settings = replace(settings, finishing_epochs=finishing_epochs(options.algorithm, options.max_epochs))

    def begin(model: Any) -> None:
        model.to(device)
        TopicTrainer(model, spec, settings, _topic_options(options), transform, mask).start(data, placed)

    return Design(data, transform, spec, settings, None, begin)


def _topic_options(options: Any) -> TopicOptions:
    return TopicOptions(**{name: getattr(options, name) for name in TopicOptions.__dataclass_fields__})


def _trains_alone(options: Any, rows: TrainingRows) -> str:
    is_divisible = options.algorithm == "em" and options.n_gradient_steps > 0 and options.precision_by == "mode"
    if rows.mask is None and is_divisible and rows.device.type == "cpu":
        return ""
    return (
        "several processes train it by EM with gradient steps, without missing labels, on CPUs; otherwise it trains in "
        "one process: start it without torchrun"
    )


def _predictor(fitted: Fitted) -> TopicPredictor:
    predictor = TopicPredictor(fitted.model, fitted.spec)
    predictor.is_sampled = fitted.options.algorithm == "gibbs"
    return predictor


def _trainer(options: Any, fitted: Fitted) -> TopicTrainer:
    parts = fitted.settings, _topic_options(options), fitted.row_transform, fitted.mask
    return TopicTrainer(fitted.model, fitted.spec, *parts)


@dataclass(kw_only=True, eq=False, repr=False)
class TopicClassifier(Classifier):
    """Topics of labels [BMLPL]: y_l = 1(Σ_k m_lk ≥ 1), m_lk ~ Poisson(v_lk u_k), u_k ~ Gamma(r_k, e^{wᵀx}).

    With `calibrate` a tenth of the rows is held out at first, probabilities are mapped to fit these rows, and the last
    epochs are on all rows: four of EM, a third of online EM, half of Gibbs sampling. EM then ends its first part at
    five times `tol`. `partial_fit` takes steps of online EM and keeps the map.

    Entries of Y may be missing, and are then ignored: mark them by NaN in a dense Y, or by arguments of `fit`.

    Parameters
    ----------
    n_topics : int or None
        Number of topics K; 100, or as many as labels if these are fewer.
    algorithm : str
        em, online_em for rows that do not fit in memory, or gibbs.
    n_gradient_steps : int
        Conjugate-gradient steps per EM step for the weights of features; 0 solves for them, which is for few features.
    row_transform : str or None
        What is done to rows first: scaled, coded, range, deskew, unit, sqrt, log, tfidf, some of the last four joined
        by +, or none.
    max_epochs : int or None
        Maximum number of passes over the rows.
    tol : float
        EM ends when a step raises the objective by fewer nats per row.
    batch_size : int
        Rows per step of online EM.
    step_power : float
        Step t of online EM counts (t + step_offset)^-step_power.
    step_offset : float
        See step_power.
    n_draws : int
        Draws of the sampler that are kept; probabilities are averaged over them.
    weight_scale : float
        Least scale of the weights of features.
    shape_strength : float
        How strongly r_k is held near 1.
    learn_hyper : bool
        Whether to learn r_k, λ_d and η.
    precision_by : str
        How EM learns λ_d: at its mode under a prior, together with the weights (mode), or by type-II maximum likelihood
        (evidence).
    online_weights : str
        How online EM learns the weights of features: interpolate, or statistics, which solves for them from decayed
        sums of K D² numbers and is for few features.
    time_budget : float or None
        Seconds of training.
    calibrate : bool
        Whether to calibrate probabilities on a tenth of the rows, which then join the training.
    threshold : float
        Least probability at which `predict` assigns a label.
    device : str
        auto, cpu or cuda.
    random_state : int, RandomState or None
        Seed; the same seed gives the same model on the same machine.
    """

    n_topics: int | None = None
    algorithm: str = "em"
    n_gradient_steps: int = 2
    row_transform: str | None = None
    max_epochs: int | None = None
    tol: float = 0.01
    batch_size: int = 1000
    step_power: float = 0.6
    step_offset: float = 2.0
    n_draws: int = 20
    weight_scale: float = 2.0
    shape_strength: float = 1.0
    learn_hyper: bool = True
    precision_by: str = "mode"
    online_weights: str = "interpolate"
    time_budget: float | None = None
    calibrate: bool = True
    threshold: float = 0.5
    device: str = "auto"
    random_state: Any = 0

    constraints: ClassVar[dict[str, Constraint]] = {
        **dict.fromkeys(("n_topics", "max_epochs", "batch_size", "n_draws"), Integer(1)),
        "n_gradient_steps": Integer(0),
        "algorithm": OneOf(ALGORITHMS),
        "precision_by": OneOf(PRECISION_BY),
        "online_weights": OneOf(ONLINE_WEIGHTS),
        **dict.fromkeys(("weight_scale", "shape_strength"), Real(1e-6, 1e6)),
        "time_budget": Real(1e-6),
        "tol": Real(0),
        "threshold": Real(0, 1),
        "step_power": Real(0.5, 1.0),
        "step_offset": Real(1),
        **dict.fromkeys(("learn_hyper", "calibrate"), Flag()),
        "row_transform": Word(),
    }
    method: ClassVar[str] = "topics"
    takes_missing: ClassVar[bool] = True
    blueprint: ClassVar[Blueprint] = Blueprint(
        spec=TopicSpec,
        build=lambda spec, options: TopicModel(spec),
        design=_design,
        predictor=_predictor,
        trainer=_trainer,
        trains_alone=_trains_alone,
        training_bytes=lambda options, fitted: training_bytes(
            fitted.spec,
            fitted.settings.batch_size,
            is_exact=not options.n_gradient_steps,
            keeps_matrices=(options.algorithm, options.online_weights) == ("online_em", "statistics"),
        ),
        summary=lambda options, fitted: (
            f"{fitted.spec.n_labels} labels; {fitted.spec.n_topics} topics by {options.algorithm}"
        ),
        check=lambda options, fitted: fitted.model.check(),
        facts=lambda options, fitted: {
            "topics": f"{fitted.spec.n_topics:,}",
            "found by": _FOUND_BY[options.algorithm],
        },
        to_lower=("n_topics",),
        memory_advice=", or batch_size with algorithm='online_em'; many features need n_gradient_steps above 0",
    )

    # Fitting

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Take a step of online EM on these rows; the first call also builds the model.

        `classes` names all labels, in case the first rows do not show them all. NaN in Y means missing.
        """
        check_parameters(self)
        before, is_new = {**self.__dict__}, not hasattr(self, "fitted_")
        if not is_new:
            model, trainer = self.model_, self.topic_trainer()
            arrays = {name: value.clone() for name, value in model.state_dict().items()}
            before["fitted_"], steps = replace(self.fitted_), {**vars(trainer)}
        try:
            if is_new:
                # All columns of an indicator are labels, whether or not they hold in these rows.
                shape: tuple[int, ...] = getattr(Y, "shape", ())
                is_indicator = classes is None and len(shape) == 2 and shape[1] > 1
                data = self.prepare(X, Y, np.arange(shape[1]) if is_indicator else classes)
                self._give_all_labels_a_place(self.fitted_.mask)
                seen = Dataset(self.rows(X), data.Y)
                train_more(self, seen, Past(0, np.zeros_like(self.label_counts_), []))
                return self
            Y, nan = split_missing(Y)
            mask = None if nan is None else read_mask(None, nan, np.shape(Y), Labels(self.label_kind_, self.classes_))
            self._give_all_labels_a_place(mask)
            return super().partial_fit(X, Y, classes)
        except BaseException:
            # Half a step leaves a model that is neither the old one nor the new one.
            self.__dict__.clear()
            self.__dict__.update(before)
            if not is_new:
                model.load_state_dict(arrays)
                vars(trainer).update(steps)
            raise

    def _give_all_labels_a_place(self, mask: Mask | None) -> None:
        """Let any label hold in the rows to come; the mask says what was observed of them."""
        fitted, old = self.fitted_, self.model_
        if not self.topic_trainer().is_online():
            spec = replace(fitted.spec, n_placed=fitted.spec.n_labels, n_draws=1)
            model = TopicModel(spec).to(old.device)
            model.labels.copy_(torch.arange(spec.n_labels))
            model.hold([old.topics_of_all()])
            model.share.copy_(old.share)
            model.calibration = old.calibration
            fitted.spec, fitted.model = spec, model
            hold(self, fitted)
        trainer = self.topic_trainer()
        trainer.mask, trainer.options = mask, _topic_options(plain_options(self))

    def n_parameters(self) -> int:
        """Return the number of learned parameters."""
        return sum(part.numel() for part in (self.model_.V, self.model_.W, self.model_.r))

    def topic_trainer(self) -> TopicTrainer:
        """Return what trains the fitted model."""
        assert isinstance(self.trainer_, TopicTrainer)
        return self.trainer_

    def topic_predictor(self) -> TopicPredictor:
        """Return what answers for the fitted model."""
        assert isinstance(self.predictor_, TopicPredictor)
        return self.predictor_

    # Topics

    def topics(self, n: int = 10, label_names: Sequence[str] | None = None) -> list[Topic]:
        """Return the topics, those that most labels come from first, each with its n first labels by name."""
        predictor = self.topic_predictor()
        _require_names(label_names, self.spec_.n_labels, "label")
        names, shares = self.label_names() if label_names is None else label_names, self.model_.share
        labels, weights = predictor.first_labels(count_of(n, "n"))
        found = []
        for number in shares.argsort(descending=True, stable=True).tolist():
            pairs = zip(labels[number].tolist(), weights[number].tolist(), strict=True)
            found.append(Topic(number, float(shares[number]), [(names[label], weight) for label, weight in pairs]))
        return found

    def top_features(
        self, topic: int, n: int = 10, feature_names: Sequence[str] | None = None
    ) -> list[tuple[Any, float]]:
        """Return the features that most raise a topic, by name or number, and their weights in ψ."""
        n_topics = self.spec_.n_topics
        is_number = isinstance(topic, int | np.integer) and not isinstance(topic, bool)
        if not is_number or not 0 <= topic < n_topics:
            raise ValueError(f"topic={topic!r}; expected a number from 0 to {n_topics - 1}")
        weights = self.row_transform_.fold(self.topic_predictor().topic_weights()[:, topic])
        _require_names(feature_names, len(weights), "feature")
        best = np.argsort(-weights, kind="stable")[: count_of(n, "n")]
        return [(int(d) if feature_names is None else feature_names[d], float(weights[d])) for d in best]

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the proportions of topics in rows (N, K); rows sum to one."""
        return self.topic_predictor().proportions(self.rows(X))

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> NDArray[np.float32]:
        """Fit, and return the proportions of topics in the same rows."""
        return self.fit(X, y, **options).transform(X)

    def sample(self, X: Any, random_state: Any = None) -> sparse.csr_array:
        """Draw the labels of each row from the model, as a CSR indicator (N, L).

        Labels of a row are drawn together, as often as `predict_proba(X, calibrated=False)` says: the calibration of
        single probabilities has no part in it. Of several draws of V, W and r each row takes one.
        """
        return self.topic_predictor().sample(self.rows(X), np.random.default_rng(choose_seed(random_state)))

    # What to ask for next

    def label_entropy(self, X: Any) -> LabelEntropy:
        """Return how little the model knows of each row and of each label on these rows: for active learning."""
        return self.topic_predictor().entropy(self.rows(X))

    def most_uncertain(self, X: Any, n: int = 10) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the n rows, and the n labels on these rows, that the model knows least of, the least known first."""
        found, n = self.label_entropy(X), count_of(n, "n")
        rows, labels = (np.argsort(-values, kind="stable")[:n] for values in found)
        return rows, self.classes_[labels]


def _require_names(names: Sequence[str] | None, n: int, what: str) -> None:
    if names is not None and len(names) != n:
        raise ValueError(f"{len(names)} {what} names; expected {n}")
