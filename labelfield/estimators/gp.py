"""Multi-class Gaussian processes as a scikit-learn classifier."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from labelfield.constraints import Constraint, Flag, Integer, OneOf, Real, Word
from labelfield.data import Dataset
from labelfield.data.transform import choose_class_transform
from labelfield.estimators.blueprint import (
    Blueprint,
    Design,
    Fitted,
    TrainingRows,
    resolve,
    spec_options,
    training_settings,
)
from labelfield.estimators.classifier import Classifier
from labelfield.estimators.inputs import Labels, require_classes, require_one_class
from labelfield.inference.calibrating import calibrate_predictor
from labelfield.inference.class_batches import ClassBatches
from labelfield.inference.fitting import GradientTrainer
from labelfield.inference.gradient import Batches
from labelfield.inference.run import OPTIMISERS, SCHEDULES
from labelfield.linalg.rows import Rows
from labelfield.models.elbo import Elbo
from labelfield.models.multiclass.cost import training_bytes
from labelfield.models.multiclass.plan import plan
from labelfield.models.multiclass.predict import BLOCK_ENTRIES, ClassPredictor
from labelfield.models.multiclass.spec import CONSTRAINTS, ClassSpec, build, make_likelihood
from labelfield.models.multiclass.start import start
from labelfield.models.sampling import Rivals
from labelfield.models.sizes import support_size
from labelfield.models.sparse import MOST_POINTS

_FOR_SEVERAL = "Use MLGPFClassifier (--method mlgpf) for several labels per row."


def _design(given: Any, rows: TrainingRows) -> Design:
    X, Y, labels, device, seed = rows.X, rows.Y, rows.labels, rows.device, rows.seed
    require_classes(Y, labels.classes, _FOR_SEVERAL)
    data, transform = rows.transformed(given.row_transform, choose_class_transform)
    chosen = plan(X.shape[0], X.shape[1], Y.shape[1], given.posterior, given.inducing)
    options = resolve(given, chosen)
    is_point = options.posterior == "point"
    if is_point and options.likelihood == "robustmax":
        raise ValueError(
            "posterior='point' with likelihood='robustmax': which utility is largest has no gradient without "
            "uncertainty; use likelihood='softmax' or 'one_vs_each'"
        )
    has_support = options.inducing != "per_class" and not is_point
    spec = ClassSpec(
        **spec_options(ClassSpec, options)
        | {
            "n_features": data.n_features,
            "n_labels": Y.shape[1],
            "n_inducing": min(options.n_inducing, X.shape[0]),
            "kernel": given.kernel or ("linear" if is_point else chosen.kernel),
            "n_support": support_size(options.n_support, data.n_features) if has_support else 0,
            "unit_norm": options.unit_norm and transform.has_unit_norm,
            "n_points": options.n_points_predict,
        }
    )
    return Design(
        data,
        transform,
        spec,
        training_settings(options, X.shape[0], seed, rows.held_out_seed),
        _choose_negatives(given, spec, chosen.n_negatives),
        lambda model: start(model, spec, data.X, Y, seed, device),
        Labels("classes", labels.classes),
    )


def _choose_negatives(options: Any, spec: ClassSpec, planned: int | None) -> int | None:
    """Return how many other classes a step draws; None for all classes, which robustmax and softmax need."""
    is_special = bool(options.classes_per_batch) or options.negative_sampling != "uniform"
    if make_likelihood(spec).needs_all_classes:
        if options.n_negatives or is_special:
            raise ValueError(
                f"likelihood={options.likelihood!r} needs all classes in each step; n_negatives, negative_sampling and "
                "classes_per_batch are for likelihood='one_vs_each'"
            )
        return None
    if planned is None and is_special:
        planned = 1 if options.classes_per_batch else max(1, spec.n_labels // 4)
    return (planned if options.n_negatives is None else options.n_negatives) or None


def _trainer(options: Any, fitted: Fitted) -> GradientTrainer:
    model, spec = fitted.model, fitted.spec
    # The product over the other classes in robustmax is a steep function: with fifty classes and five points it learns
    # half as well as with ten.
    n_points = options.n_points or (20 if spec.likelihood == "robustmax" else 5)
    likelihood = make_likelihood(spec, n_points)
    current: list[ClassBatches] = []

    def batches(data: Dataset) -> Batches | None:
        current[:] = [ClassBatches(data.Y.indices, options.classes_per_batch)] if options.classes_per_batch else []
        return current[0] if current else None

    def objective(X: Rows, Y: Tensor, n_data: int, generator: torch.Generator | None = None) -> Elbo:
        found: Elbo = model.elbo(
            X,
            Y,
            n_data,
            n_negatives=fitted.n_negatives,
            row_weight=current[0].row_weight(Y.col_indices().long()) if current else None,
            likelihood=likelihood,
            generator=generator,
        )
        return found

    def calibrate(held_out: Dataset) -> dict[str, Tensor]:
        n_rows = min(held_out.n_rows, max(1, 4 * BLOCK_ENTRIES // spec.n_labels))
        some, predictor = held_out.take(slice(n_rows)), ClassPredictor(model, spec)
        return calibrate_predictor(predictor, some.X, some.Y)

    return GradientTrainer(
        model,
        fitted.settings,
        objective,
        lambda: ClassPredictor(model, spec),
        batches=batches,
        calibrate=calibrate,
        is_capturable=fitted.n_negatives is None and not options.classes_per_batch,
        fingerprint=(fitted.n_negatives, n_points, options.classes_per_batch),
    )


def _training_bytes(options: Any, fitted: Fitted) -> int:
    n_classes, batch_size = fitted.spec.n_labels, fitted.settings.batch_size
    if fitted.n_negatives:
        own = min(options.classes_per_batch or batch_size, n_classes)
        n_classes = min(n_classes, own + fitted.n_negatives)
    return training_bytes(fitted.spec, batch_size, n_classes)


def _summary(options: Any, fitted: Fitted) -> str:
    spec = fitted.spec
    if spec.posterior == "point":
        return f"{spec.n_labels} classes; linear utilities, a point estimate"
    whose = "one per class" if spec.kernel_per_class else "shared by all classes"
    return (
        f"{spec.n_labels} classes; kernel {spec.kernel} ({whose}), {spec.n_inducing} inducing inputs "
        f"({spec.inducing}), posterior {spec.posterior}"
    )


def _check(options: Any, fitted: Fitted) -> None:
    if options.likelihood != fitted.spec.likelihood:
        raise ValueError(f"a model of {options.likelihood} with the likelihood {fitted.spec.likelihood}")
    if fitted.labels.kind != "classes":
        raise ValueError(f"label_kind is {fitted.labels.kind!r} for one class per row")


def _with_scores(spec: ClassSpec, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add fresh scores of classes that draw negatives; they are learned in training."""
    if spec.negative_sampling != "importance":
        return arrays
    return arrays | {f"rivals.{name}": value for name, value in Rivals(spec.n_labels).state_dict().items()}


def _facts(options: Any, fitted: Fitted) -> dict[str, str]:
    spec = fitted.spec
    is_point = spec.posterior == "point"  # linear utilities have neither inducing inputs nor a kernel
    sizes = {} if is_point else {"inducing inputs": f"{spec.n_inducing:,} ({spec.inducing})", "kernel": spec.kernel}
    return sizes | {"posterior": spec.posterior}


@dataclass(kw_only=True, eq=False, repr=False)
class GPClassifier(Classifier):
    """Multi-class Gaussian processes: f_k = b_k + GP(0, k_k), and a one-vs-each, robustmax or softmax likelihood.

    Options left at None are chosen from the size of the data (`labelfield.models.multiclass.plan`).

    Parameters
    ----------
    likelihood : str
        one_vs_each, robustmax or softmax.
    n_inducing : int or None
        Number of inducing inputs M, for all classes or per class.
    kernel : str or None
        Name of a kernel, or a sum such as "se_ard + linear" (see `labelfield.kernels.names`).
    kernel_per_class : bool or None
        Whether each class has a kernel of its own.
    posterior : str or None
        Family of q(u): whitened_diagonal, whitened_shared, whitened_full, full or parsimonious; or point, for linear
        utilities without uncertainty.
    inducing : str or None
        Inducing inputs: per_class, or shared by all classes: free or fixed.
    n_support : int or None
        Number of features, the most frequent ones, on which shared inducing inputs have values; 0 for all.
    unit_norm : bool
        Whether to keep inducing inputs at norm 1, if rows are.
    row_transform : str or None
        What is done to rows first: scaled, coded, range, deskew, unit, sqrt, log, tfidf, some of the last four joined
        by +, or none. By default features whose numbers are codes of categories are coded, others scaled.
    n_negatives : int or None
        Other classes drawn per batch of one-vs-each; 0 for all classes.
    negative_sampling : str
        How they are drawn: uniform, or importance for those that scored high.
    classes_per_batch : int or None
        Number of classes that the rows of a batch belong to.
    epsilon : float
        Chance under robustmax that the class is not the one with the largest utility.
    prior_scale : float
        Prior scale of the weights of a point estimate.
    max_epochs : int or None
        Passes over the rows.
    batch_size : int or None
        Rows per step B.
    learning_rate : float or None
        Highest learning rate.
    schedule : str
        How the learning rate changes: one_cycle, cosine, linear or constant.
    optimiser : str
        How gradients become steps: adam, adagrad, adadelta or rmsprop. Rates are chosen for adam.
    kl_weight : float
        Weight of the divergence; 1 is the true bound.
    clip_norm : float or None
        Largest norm of a gradient; larger gradients are scaled down to it.
    n_iter_no_change : int or None
        Epochs without a better bound before training stops.
    time_budget : float or None
        Seconds of training.
    n_points : int or None
        Quadrature points in training.
    n_points_predict : int
        Quadrature points in prediction.
    n_samples : int
        Draws of the utilities in prediction.
    jitter : float
        Added to the diagonal of K_Z, relative to its mean.
    calibrate : bool
        Whether to calibrate probabilities on a tenth of the rows, which then join the training.
    device : str
        auto, cpu or cuda.
    random_state : int, RandomState or None
        Seed; the same seed gives the same model on the same machine.
    """

    likelihood: str = "one_vs_each"
    n_inducing: int | None = None
    kernel: str | None = None
    kernel_per_class: bool | None = None
    posterior: str | None = None
    inducing: str | None = None
    n_support: int | None = None
    unit_norm: bool = True
    row_transform: str | None = None
    n_negatives: int | None = None
    negative_sampling: str = "uniform"
    classes_per_batch: int | None = None
    epsilon: float = 1e-3
    prior_scale: float = 1.0
    max_epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    schedule: str = "one_cycle"
    optimiser: str = "adam"
    kl_weight: float = 1.0
    clip_norm: float | None = None
    n_iter_no_change: int | None = None
    time_budget: float | None = None
    n_points: int | None = None
    n_points_predict: int = 20
    n_samples: int = 256
    jitter: float = 1e-5
    calibrate: bool = True
    device: str = "auto"
    random_state: Any = 0

    constraints: ClassVar[dict[str, Constraint]] = {
        **CONSTRAINTS,
        **dict.fromkeys(("max_epochs", "batch_size", "n_iter_no_change", "classes_per_batch"), Integer(1)),
        **dict.fromkeys(("n_points", "n_points_predict"), Integer(1, MOST_POINTS)),
        **dict.fromkeys(("learning_rate", "clip_norm", "time_budget"), Real(1e-12)),
        "kl_weight": Real(0),
        **dict.fromkeys(("n_negatives", "n_support"), Integer(0)),
        "schedule": OneOf(SCHEDULES),
        "optimiser": OneOf(OPTIMISERS),
        "row_transform": Word(),
        "calibrate": Flag(),
    }
    blueprint: ClassVar[Blueprint] = Blueprint(
        spec=ClassSpec,
        build=lambda spec, options: build(spec),
        design=_design,
        predictor=lambda fitted: ClassPredictor(fitted.model, fitted.spec),
        trainer=_trainer,
        training_bytes=_training_bytes,
        summary=_summary,
        facts=_facts,
        check_labels=lambda fitted, Y: require_one_class(Y, _FOR_SEVERAL),
        check=_check,
        to_lower=("batch_size", "n_inducing"),
        training_only=("rivals.",),
        with_training_arrays=_with_scores,
        can_be_multi_label=False,
    )

    @property
    def method(self) -> str:
        """The likelihood: what this kind of model is called on the command line."""
        return self.spec_.likelihood if hasattr(self, "fitted_") else self.likelihood
