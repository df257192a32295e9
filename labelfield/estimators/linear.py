"""Linear max-margin machines, one per label, as a scikit-learn classifier."""

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from labelfield.constraints import Constraint, Flag, Integer, Real, Word
from labelfield.data.transform import candidate_transforms
from labelfield.errors import CannotAnswerError
from labelfield.estimators.blueprint import Blueprint, Design, Fitted, TrainingRows
from labelfield.estimators.classifier import Classifier
from labelfield.inference.linear import NOT_IN_PARTS, LinearTrainer
from labelfield.inference.margin import Problem
from labelfield.inference.run import Settings
from labelfield.inference.trials import choose_machine
from labelfield.models.linear.cost import training_bytes
from labelfield.models.linear.plan import COSTS, N_LEVELS, default_trees, most_held_out, n_machines
from labelfield.models.linear.predict import LinearPredictor
from labelfield.models.linear.sharded import ShardedPredictor
from labelfield.models.linear.spec import CONSTRAINTS, MOST_TREES, LinearSpec, build

# Rows are held out in turn, so that few are enough to learn probabilities from. To compare candidates takes more.
_LEAST_ROWS_TO_CALIBRATE, _LEAST_ROWS_TO_COMPARE = 20, 100
# The share of a time budget after which no further candidate is tried, and the seconds that always remain.
_TRIALS_SHARE, _LEAST_SECONDS = 1 / 3, 1e-9


def _design(options: Any, rows: TrainingRows) -> Design:
    n_rows = rows.X.shape[0]
    n_labels, n_seen = rows.Y.shape[1], np.unique(rows.Y.indices).size
    n_trees = default_trees(n_labels) if options.n_trees is None else options.n_trees
    n_trees = n_trees if n_seen else 0
    n_all = n_machines(n_labels, n_seen, n_trees)
    can_calibrate = options.calibrate and n_rows >= _LEAST_ROWS_TO_CALIBRATE
    held_out = (rows.n_held_out or min(n_rows // 10, most_held_out(n_all))) if can_calibrate else 0
    settings = Settings(
        1, n_rows, time_budget=options.time_budget, held_out=held_out, seed=rows.seed, held_out_seed=rows.held_out_seed
    )
    transforms = [options.row_transform] if options.row_transform else candidate_transforms(rows.X)
    # Trials are of machines over all rows: they say which rows suit trees, but not which cost.
    costs = [options.cost] if options.cost else list(COSTS[: 1 if n_trees else None])
    trials, started = [], time.perf_counter()
    if settings.held_out and n_rows >= _LEAST_ROWS_TO_COMPARE and len(transforms) * len(costs) > 1:
        chosen_rows = settings.held_out_rows(n_rows)
        budget = None if options.time_budget is None else _TRIALS_SHARE * options.time_budget
        trials = choose_machine(
            rows.X, rows.Y, transforms, costs, chosen_rows, rows.seed, rows.device, budget, rows.cluster
        )
        if options.time_budget is not None:  # what trials have left of it
            left = options.time_budget - (time.perf_counter() - started)
            settings = replace(settings, time_budget=max(left, _LEAST_SECONDS))
    chosen = (trials[0].row_transform, trials[0].cost) if trials else (transforms[0], costs[0])
    data, transform = rows.transformed(chosen[0])
    levels: dict[str, Any] = {"n_levels": N_LEVELS, "has_own": False} if n_trees else {}
    spec = LinearSpec(data.n_features, data.n_labels, float(chosen[1]), n_trees=n_trees, n_machines=n_all, **levels)
    return Design(data, transform, spec, settings, trials=[trial._asdict() for trial in trials])


def _trainer(options: Any, fitted: Fitted) -> LinearTrainer:
    problem = Problem(fitted.spec.cost, options.n_passes, options.tol, fitted.settings.seed)

    def finish() -> None:
        fitted.spec = replace(fitted.spec, n_weights=fitted.model.weights.numel())

    return LinearTrainer(fitted.model, fitted.settings, problem, finish)


def _facts(options: Any, fitted: Fitted) -> dict[str, str]:
    trees = {"label trees": f"{fitted.spec.n_trees}"} if fitted.spec.n_trees else {}
    return {"cost C": f"{fitted.spec.cost:g}", "weights": f"{fitted.spec.n_weights:,}", **trees}


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(Classifier):
    """Linear max-margin machines: for each label an L2-loss support vector machine, with calibrated probabilities.

    The row transform and the cost are chosen by a short comparison on held-out training rows, unless given.

    Parameters
    ----------
    row_transform : str or None
        What is done to rows first: scaled, coded, range, deskew, unit, sqrt, log, tfidf, some of the last four joined
        by +, or none.
    cost : float or None
        Cost C of rows beyond the margin; small values regularise more. None: chosen by trials, 1 with label trees.
    n_trees : int or None
        Label trees in the place of one machine per label, which suit very many labels. None: 3 above 5,000, else 0.
    n_passes : int
        Passes over the rows at the most.
    tol : float
        Passes end when none changes a gradient by more than this.
    time_budget : float or None
        Seconds of trials and training; candidates and passes become fewer, and every label gets at least two passes.
    calibrate : bool
        Whether to learn probabilities on rows that are held out in turn.
    threshold : float
        Least probability at which `predict` assigns a label.
    device : str
        auto, cpu or cuda.
    random_state : int, RandomState or None
        Seed; the same seed gives the same model on the same machine.
    """

    row_transform: str | None = None
    cost: float | None = None
    n_trees: int | None = None
    n_passes: int = 10
    tol: float = 0.1
    time_budget: float | None = None
    calibrate: bool = True
    threshold: float = 0.5
    device: str = "auto"
    random_state: Any = 0

    constraints: ClassVar[dict[str, Constraint]] = {
        **CONSTRAINTS,
        "row_transform": Word(),
        "n_trees": Integer(0, MOST_TREES),
        "n_passes": Integer(1),
        "tol": Real(0),
        "time_budget": Real(1e-12),
        "calibrate": Flag(),
        "threshold": Real(0, 1),
    }
    method: ClassVar[str] = "linear"
    blueprint: ClassVar[Blueprint] = Blueprint(
        spec=LinearSpec,
        build=lambda spec, options: build(spec),
        design=_design,
        predictor=lambda fitted: LinearPredictor(fitted.model, normalises=fitted.labels.kind == "classes"),
        trainer=_trainer,
        training_bytes=lambda options, fitted: training_bytes(fitted.spec, fitted.n_rows, fitted.n_ranks),
        summary=lambda options, fitted: (
            f"{fitted.spec.n_labels} labels; "
            + (
                f"{fitted.spec.n_trees} label trees of linear machines"
                if fitted.spec.n_trees
                else "a linear machine per label"
            )
            + f", cost {fitted.spec.cost:g}"
        ),
        facts=_facts,
        trains_alone=lambda options, rows: "",
        spread=lambda fitted, cluster: ShardedPredictor(
            fitted.model, cluster, normalises=fitted.labels.kind == "classes"
        ),
        to_lower=("n_trees",),
        memory_advice=", or the number of labels",
    )

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Raise: machines are solved on all rows at once."""
        raise CannotAnswerError(NOT_IN_PARTS)
