"""The default: linear machines and a Gaussian-process factor model, mixed by weights learned on held-out rows."""

import time
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Self

from labelfield.cluster import Cluster, ClusterError
from labelfield.constraints import Constraint, Flag, OneOf, Real
from labelfield.data.transform import ALONE, RowTransform, choose_class_transform, choose_transform
from labelfield.errors import CannotAnswerError
from labelfield.estimators.blueprint import Blueprint, Design, Fitted, TrainingRows
from labelfield.estimators.classifier import Classifier, hold, training_bytes
from labelfield.estimators.ensemble import (
    EnsembleModel,
    EnsembleSpec,
    EnsembleTrainer,
    build_member,
    members_predictor,
)
from labelfield.estimators.linear import LinearClassifier
from labelfield.estimators.mlgpf import MLGPFClassifier
from labelfield.models.linear.plan import default_trees, most_held_out, n_machines
from labelfield.models.linear.sharded import ShardedPredictor
from labelfield.models.mlgpf.plan import companion
from labelfield.models.predictor import Predictor
from labelfield.models.sizes import ALL_LABELS

QUALITIES = ("fast", "good", "best")
# The share of a time budget that linear machines get beside a factor model, and the least that a member gets.
_LINEAR_SHARE, _LEAST_SECONDS = 0.4, 1e-9
# Rows that are held out at the least, unless they would be more than a fifth: weights of members and probabilities are
# learned from them.
_LEAST_HELD_OUT = 1000
# Row transforms that differ most.
_VIEWS = ("unit", "log", "sqrt", "tfidf")


def _design(options: Any, rows: TrainingRows) -> Design:
    """Build the members that the quality asks for; later ones may depend on what the first has found."""
    alike = {name: getattr(options, name) for name in ("calibrate", "threshold", "device")} | {
        "random_state": rows.seed
    }
    budget, n_rows, started = options.time_budget, rows.X.shape[0], time.perf_counter()
    n_labels = rows.Y.shape[1]
    most = most_held_out(n_machines(n_labels, n_labels, default_trees(n_labels)))
    rows = rows._replace(n_held_out=min(max(n_rows // 10, min(n_rows // 5, _LEAST_HELD_OUT)), most))

    def share(part: float) -> dict[str, Any]:
        """Return options with this part of the budget, at most what is left of it."""
        left = None if budget is None else max(budget - (time.perf_counter() - started), _LEAST_SECONDS)
        return alike | {"time_budget": None if left is None else min(part * budget, left)}

    if _are_measurements(rows.X):
        # Columns of measurements have scales of their own, which norms of rows would mix up.
        factor = MLGPFClassifier(row_transform=choose_class_transform(rows.X), **share(1.0))
        return _mix(rows, [factor], [build_member(factor, rows)], [], budget)
    has_factor = _has_factor(options, rows)
    linear = LinearClassifier(**share(_LINEAR_SHARE if has_factor else 1.0))
    members: list[Any] = [linear]
    data = [build_member(linear, rows)]
    trials = linear.trials_
    tried = {str(trial["row_transform"]) for trial in trials} - set(ALONE)
    views = [name for name in dict.fromkeys([linear.row_transform_.name, *_VIEWS]) if name in tried][:3]
    if options.quality == "best" and linear.row_transform_.name in views and len(views) > 1:
        # Unlike views of the rows side by side tell more than any of them.
        wide = LinearClassifier(row_transform="+".join(views), cost=linear.spec_.cost, **share(_LINEAR_SHARE))
        members, data = [wide], [build_member(wide, rows)]
    if has_factor:
        # What suits the machines suits the processes: on Delicious tf-idf, where unit norm is the rule.
        own_view = {"row_transform": linear.row_transform_.name} if linear.row_transform_.has_unit_norm else {}
        smaller = companion(n_rows, rows.X.shape[1], n_labels)
        factors: list[dict[str, Any]] = [{"label_linear": "off"} | own_view | smaller]
        if options.quality == "best":
            other = "tfidf" if choose_transform(rows.X) == linear.row_transform_.name else linear.row_transform_.name
            factors = [{"label_linear": "off"}, {"label_linear": "off", "row_transform": other}]
        for own in factors:
            factor = MLGPFClassifier(**own, **share((1 - _LINEAR_SHARE) / len(factors)))
            members.append(factor)
            data.append(build_member(factor, rows))
    return _mix(rows, members, data, trials, budget)


def _has_factor(options: Any, rows: TrainingRows) -> bool:
    """Return whether a factor model takes part. With sampled labels it takes many times as long as the machines, and
    has added nothing to them."""
    most = {"fast": 0, "good": ALL_LABELS, "best": inf}[options.quality]
    return rows.Y.shape[1] <= most or _are_measurements(rows.X)


def _trains_alone(options: Any, rows: TrainingRows) -> str:
    if not _has_factor(options, rows):
        return ""
    return (
        "a factor model takes part, which trains in one process: start without torchrun, or choose the method linear "
        "or, for rows of words, the quality fast"
    )


def _spread(fitted: Fitted, cluster: Cluster) -> Predictor:
    """Let ranks answer for machines that are the only member."""
    first, *others = fitted.model.members
    if others or not isinstance(first, LinearClassifier):
        raise ClusterError(
            "a factor model takes part, which answers in one process: start without torchrun", is_known_to_all=True
        )
    calibration, stack = fitted.model.calibration, fitted.model.stack
    return ShardedPredictor(first.model_, cluster, calibration=calibration, transform=first.row_transform_, stack=stack)


def _are_measurements(X: Any) -> bool:
    """Return whether rows are dense: for such rows, linear machines are no match for processes."""
    return bool(X.nnz > X.shape[0] * X.shape[1] / 2)


def _mix(rows: TrainingRows, members: list[Any], data: list[Any], trials: list[Any], budget: float | None) -> Design:
    """Return the design of a mix of built members, with the rows as each of them sees them."""
    first, spec = members[0], EnsembleSpec(rows.X.shape[1], rows.Y.shape[1], len(members))
    return Design(
        data[0],
        RowTransform("none"),
        spec,
        replace(first.settings_, time_budget=budget, batch_size=rows.X.shape[0]),
        None,
        lambda model: model.fill(members, data[1:]),
        first.fitted_.labels,
        trials=trials,
    )


def _trainer(options: Any, fitted: Fitted) -> EnsembleTrainer:
    def finish() -> None:
        fitted.spec = fitted.model.spec  # where a member was left out

    return EnsembleTrainer(fitted.model, finish)


@dataclass(kw_only=True, eq=False, repr=False)
class AutoClassifier(Classifier):
    """The default for several labels per row: held-out training rows decide what suits the data.

    Linear max-margin machines are best where labels are rare and rows are words, a Gaussian-process factor model where
    labels are frequent or correlated. Both are trained, and their log-odds mixed by weights that depend on how frequent
    a label is. Dense rows are measurements, and get the factor model alone. With more than 5,000 labels there are
    machines alone, unless the quality is best.

    Parameters
    ----------
    quality : str
        fast: linear machines alone; good: these and a factor model; best: several views of the rows in each.
    time_budget : float or None
        Seconds of trials and training; linear machines take at least two passes.
    calibrate : bool
        Whether to hold out a tenth of the rows (a fifth of few) to learn weights and probabilities; they then join the
        training.
    threshold : float
        Least probability at which `predict` assigns a label.
    device : str
        auto, cpu or cuda.
    random_state : int, RandomState or None
        Seed; the same seed gives the same model on the same machine.
    """

    quality: str = "good"
    time_budget: float | None = None
    calibrate: bool = True
    threshold: float = 0.5
    device: str = "auto"
    random_state: Any = 0

    constraints: ClassVar[dict[str, Constraint]] = {
        "quality": OneOf(QUALITIES),
        "time_budget": Real(1e-12),
        "calibrate": Flag(),
        "threshold": Real(0, 1),
    }
    method: ClassVar[str] = "auto"
    validates_whole: ClassVar[bool] = True
    blueprint: ClassVar[Blueprint] = Blueprint(
        spec=EnsembleSpec,
        build=lambda spec, options: EnsembleModel(spec, is_stacked=True),
        design=_design,
        predictor=members_predictor,
        trainer=_trainer,
        # Members are trained one after another.
        training_bytes=lambda options, fitted: (
            0 if fitted.model is None else max(map(training_bytes, fitted.model.members))
        ),
        summary=lambda options, fitted: " + ".join(
            f"{member.method} ({member.summary().split('; ', 1)[-1]})" for member in fitted.model.members
        ),
        facts=lambda options, fitted: {
            name: value for member in fitted.model.members for name, value in member.facts().items()
        },
        trains_alone=_trains_alone,
        spread=_spread,
        to_lower=("quality",),
    )

    def members(self) -> list[Any]:
        """Return the models that are mixed."""
        return list(self.model_.members)

    def n_parameters(self) -> int:
        """Return the number of learned parameters of all members."""
        return sum(member.n_parameters() for member in self.members())

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Raise: a mix of unlike models cannot be fitted in parts."""
        raise CannotAnswerError("a mix of models cannot be fitted in parts; MLGPFClassifier can")

    def to(self, device: str) -> Self:
        """Move all members to "cpu", "cuda", or the best available device ("auto")."""
        for member in self.members():
            member.to(device)
        self.device = device
        hold(self, self.fitted_)
        return self
