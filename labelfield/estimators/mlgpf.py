"""The multi-label GP factor model as a scikit-learn classifier."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.cluster import Cluster
from labelfield.constraints import Constraint, Flag, Integer, OneOf, Real, Word
from labelfield.data import Dataset
from labelfield.data.batch import Batch
from labelfield.data.transform import MEASURED
from labelfield.errors import DataError
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
from labelfield.estimators.options import count_of
from labelfield.inducing import Subspace
from labelfield.inference.calibrating import N_REMEMBERED, calibrate_predictor
from labelfield.inference.fitting import GradientTrainer, rows_source
from labelfield.inference.run import OPTIMISERS, SCHEDULES
from labelfield.inference.source import MaskedSource, ResidentSource, Source, TensorSource
from labelfield.inference.team import NO_TEAM, Team
from labelfield.linalg.rows import Projected, Rows, device_of
from labelfield.memory import advising_on_memory, free_bytes
from labelfield.metrics.propensity import inverse_propensity_of
from labelfield.models.elbo import Elbo
from labelfield.models.mlgpf.cooccurrence import occurring_features
from labelfield.models.mlgpf.cost import is_small_step, training_bytes
from labelfield.models.mlgpf.plan import plan, variants
from labelfield.models.mlgpf.predict import BLOCK_ROWS, FactorPredictor, label_correlation
from labelfield.models.mlgpf.shares import Shares
from labelfield.models.mlgpf.spec import CONSTRAINTS, Spec, build
from labelfield.models.mlgpf.start import BASES, start
from labelfield.models.predictor import MOST_IN_SETS, LabelSets
from labelfield.models.sizes import support_size
from labelfield.models.sparse import MOST_POINTS, STARTS, start_lengths

# By how much the log-odds of a label may change when its smallest weights are dropped after training.
_PRUNED = 0.1
# The most features on which a label may have its own weights.
_MOST_FEATURES = 10_000


def _design(given: Any, rows: TrainingRows) -> Design:
    X, Y, device, seed = rows.X, rows.Y, rows.device, rows.seed
    is_subspace = "subspace" in given.inducing
    options = resolve(given, plan(X.shape[0], X.shape[1], Y.shape[1]))
    if is_subspace and given.label_linear is None:
        options.label_linear = "off"  # rows that are only seen through a subspace have no words
    data, transform = rows.transformed(options.row_transform)
    settings = training_settings(options, X.shape[0], seed, rows.held_out_seed, rows.n_held_out)
    pattern = None
    if options.label_linear != "off":
        pattern = occurring_features(data.X, Y, _MOST_FEATURES, settings.held_out_rows(data.n_rows), device)
    spec = Spec(
        **spec_options(Spec, options)
        | {
            "n_features": data.n_features,
            "n_labels": Y.shape[1],
            "n_inducing": min(options.n_inducing, X.shape[0]),
            "rank": min(options.rank or 2 * options.n_inducing, *X.shape) if is_subspace else 0,
            "n_support": 0 if is_subspace else support_size(options.n_support, data.n_features),
            "unit_norm": options.unit_norm and transform.has_unit_norm,
            "n_points": options.n_points_predict,
            "n_label_linear": 0 if pattern is None else pattern.features.size,
        }
    )

    def begin(model: Any) -> None:
        if pattern is not None:
            model.label_linear.fill(pattern)
        n_observed = None if rows.mask is None else rows.mask.n_observed_of_labels()
        at = {"basis": options.basis, "at": options.inducing_start}
        start(model, spec, data.X, data.Y, seed, **at, n_observed=n_observed, device=device)
        if transform.name in MEASURED:
            start_lengths(model.kernel, data.X, np.random.default_rng(seed))

    return Design(data, transform, spec, settings, options.n_negatives, begin)


def _trainer(options: Any, fitted: Fitted) -> GradientTrainer:
    model = fitted.model
    weights: list[torch.Tensor] = []  # of the labels that hold, where rare ones count more
    shares: list[Shares] = []  # of the labels, where several processes train

    def objective(X: Rows, Y: Any, n_data: int, generator: torch.Generator | None = None) -> Elbo:
        found: Elbo = model.elbo(
            X,
            Y,
            n_data,
            n_negatives=fitted.n_negatives or None,
            n_points=options.n_points,
            positive_weight=weights[0] if weights else None,
            generator=generator,
            shares=shares[0] if shares else None,
        )
        return found

    def divide(cluster: Cluster) -> Team:
        if cluster.size == 1:
            return NO_TEAM
        shares[:] = [Shares.of(model, cluster)]
        return Team(cluster, model, shares[0].keep(model))

    def source(data: Dataset) -> Source:
        weights[:] = [_positive_weight(options.propensity, fitted)] if options.propensity else []
        found = _source(options, fitted, data)
        # Fewer rows than the mask has are its first ones.
        return found if fitted.mask is None else MaskedSource(found, fitted.mask.take(slice(data.n_rows)))

    def release() -> None:
        """Let weights learn that waited for the held-out rows."""
        if model.label_linear is not None:
            model.label_linear.release()

    def calibrate(held_out: Dataset) -> dict[str, torch.Tensor]:
        predictor = FactorPredictor(model)
        mask, is_known = fitted.mask, None
        if mask is not None:
            is_known = mask.take(fitted.settings.held_out_rows(mask.places.shape[0])).observes
        return calibrate_predictor(predictor, held_out.X, held_out.Y, is_known, N_REMEMBERED)

    def finish() -> None:
        """Drop weights that matter to no row."""
        if fitted.spec.label_linear == "point" and fitted.row_transform.has_unit_norm:
            model.label_linear = model.label_linear.pruned(_PRUNED / model.likelihood.scale)
            fitted.spec = replace(fitted.spec, n_label_linear=model.label_linear.weights.numel())

    return GradientTrainer(
        model,
        fitted.settings,
        objective,
        lambda: FactorPredictor(model),
        source=source,
        calibrate=calibrate,
        begin_more=release,
        finish=finish,
        divide=divide,
        is_capturable=not fitted.n_negatives,
        n_threads=1 if is_small_step(fitted.spec, fitted.settings.batch_size, fitted.n_labels_per_step) else None,
        fingerprint=(
            fitted.n_negatives,
            options.n_points,
            options.propensity,
            options.basis,
            options.inducing_start,
            "" if fitted.mask is None else fitted.mask.digest(),
        ),
    )


def _trains_alone(options: Any, rows: TrainingRows) -> str:
    if rows.mask is not None:
        return "with missing labels it trains in one process: start it without torchrun"
    return "" if rows.device.type == "cpu" else "several processes train it on CPUs: pass --device cpu"


def _positive_weight(power: float, fitted: Fitted) -> torch.Tensor:
    """Return a power of the inverse propensity of each label (K,), with a mean of 1 over the labels that hold."""
    weight = inverse_propensity_of(fitted.label_counts, fitted.n_rows) ** power
    weight /= (weight @ fitted.label_counts) / max(fitted.label_counts.sum(), 1) or 1
    return torch.from_numpy(weight.astype(np.float32)).to(device_of(fitted.model))


def _source(options: Any, fitted: Fitted, data: Dataset) -> Source:
    """Return rows from the data, or projected once onto the subspace if that loses nothing."""
    inducing, device = fitted.model.inducing, device_of(fitted.model)
    can = isinstance(inducing, Subspace) and not inducing.basis.requires_grad and fitted.model.label_linear is None
    can = can and fitted.model.kernel.feature_relevance() is None
    if options.precompute and not can:
        raise ValueError(
            "precompute=True needs inducing='subspace' or 'subspace_fixed', label_linear='off', and a kernel without a "
            "weight per feature"
        )
    if not can or options.precompute is False:
        return rows_source(data, device)
    free = free_bytes(device) if device.type == "cuda" else None
    # On a GPU rows stay there if they fit: steps on them are then captured.
    stays = free is not None and 16 * data.n_rows * (fitted.spec.rank + 1) < free
    parts = []
    for first in range(0, data.n_rows, BLOCK_ROWS):
        projected = inducing.project(Batch.gather(data, slice(first, first + BLOCK_ROWS), device).X)
        parts.append(projected if stays else Projected(*(part.cpu() for part in projected)))
    rows = Projected(*(torch.cat(part) for part in zip(*parts, strict=True)))
    return ResidentSource(data, device, rows) if stays else TensorSource(rows, data)


def _summary(options: Any, fitted: Fitted) -> str:
    spec = fitted.spec
    hinge = f", squared hinge with cost {spec.hinge_cost:g}" if spec.likelihood == "squared_hinge" else ""
    return (
        f"{spec.n_labels} labels; kernel {spec.kernel}, {spec.n_latent} latent processes, {spec.n_inducing} inducing "
        f"inputs ({spec.inducing}), posterior {spec.posterior}, linear process per label: {spec.label_linear}{hinge}"
    )


def _with_waiting(spec: Spec, arrays: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Add the marks of weights that wait for held-out rows: in a saved model none does."""
    if spec.label_linear == "off":
        return arrays
    return arrays | {"label_linear.waiting": torch.zeros(spec.n_label_linear, dtype=torch.bool)}


@dataclass(kw_only=True, eq=False, repr=False)
class MLGPFClassifier(Classifier):
    """Multi-label Gaussian-process factor model: f = Φ h(x) + b with h_p ~ GP(0, k), and a Bernoulli per label.

    With likelihood="squared_hinge" each label has a margin instead, as in a support vector machine. Entries of Y may be
    missing, and are then ignored: mark them by NaN in a dense Y, or by arguments of `fit`.

    Options left at None are chosen from the size of the data (`labelfield.models.mlgpf.plan`).

    Parameters
    ----------
    n_latent : int or None
        Number of latent processes P.
    n_inducing : int or None
        Number of inducing inputs M.
    kernel : str or None
        Name of a kernel, or a sum such as "se_ard + linear" (see `labelfield.kernels.names`).
    posterior : str
        Family of q(u): whitened_diagonal, whitened_shared, whitened_full, full or parsimonious.
    inducing : str
        Where inducing inputs live: free, fixed, subspace, subspace_fixed, or subspace_basis, with a learned basis.
    inducing_start : str
        Where inducing inputs start: kmeans, at centres of the rows, or rows, at random ones.
    n_support : int or None
        Number of features, the most frequent ones, on which free or fixed inducing inputs have values; 0 for all.
    rank : int or None
        Dimensions R of the subspace.
    basis : str
        Where the subspace starts: svd or kmeans.
    precompute : bool or None
        Whether to project all rows onto the subspace once, before training.
    unit_norm : bool
        Whether to keep inducing inputs at norm 1, if rows are.
    label_linear : str or None
        A linear process for each label: off, point or mean_field.
    label_linear_scale : float
        Prior scale of the weights of these linear processes, or where it starts.
    likelihood : str
        How utilities become labels: bernoulli, or squared_hinge, whose margin suits rare labels.
    hinge_cost : float or None
        Cost C of a row inside the margin of the squared hinge.
    row_transform : str or None
        What is done to rows first: scaled, coded, range, deskew, unit, sqrt, log, tfidf, some of the last four joined
        by +, or none.
    n_negatives : int or None
        Labels drawn per batch beside those that hold in it; 0 for all labels.
    propensity : float
        How much more rare labels count where they hold. 0.5 helps the tail; probabilities of rare labels rise.
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
    kl_weight : float or None
        Weight of the divergence; 1 is the true bound.
    clip_norm : float or None
        Largest norm of a gradient; larger gradients are scaled down to it.
    n_iter_no_change : int or None
        Epochs without a better bound before training stops.
    time_budget : float or None
        Seconds of training.
    n_points : int
        Quadrature points in training.
    n_points_predict : int
        Quadrature points in prediction.
    jitter : float
        Added to the diagonal of K_Z, relative to its mean.
    calibrate : bool
        Whether to calibrate probabilities on a tenth of the rows, which then join the training.
    threshold : float
        Least probability at which `predict` assigns a label.
    device : str
        auto, cpu or cuda.
    random_state : int, RandomState or None
        Seed; the same seed gives the same model on the same machine.
    """

    n_latent: int | None = None
    n_inducing: int | None = None
    kernel: str | None = None
    posterior: str = "whitened_diagonal"
    inducing: str = "free"
    inducing_start: str = "kmeans"
    n_support: int | None = None
    rank: int | None = None
    basis: str = "svd"
    precompute: bool | None = None
    unit_norm: bool = True
    label_linear: str | None = None
    label_linear_scale: float = 2.0
    likelihood: str = "bernoulli"
    hinge_cost: float | None = None
    row_transform: str | None = None
    n_negatives: int | None = None
    propensity: float = 0.0
    max_epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    schedule: str = "one_cycle"
    optimiser: str = "adam"
    kl_weight: float | None = None
    clip_norm: float | None = None
    n_iter_no_change: int | None = None
    time_budget: float | None = None
    n_points: int = 3
    n_points_predict: int = 10
    jitter: float = 1e-5
    calibrate: bool = True
    threshold: float = 0.5
    device: str = "auto"
    random_state: Any = 0

    constraints: ClassVar[dict[str, Constraint]] = {
        **CONSTRAINTS,
        **dict.fromkeys(("rank", "max_epochs", "batch_size", "n_iter_no_change"), Integer(1)),
        **dict.fromkeys(("n_points", "n_points_predict"), Integer(1, MOST_POINTS)),
        **dict.fromkeys(("learning_rate", "clip_norm", "time_budget"), Real(1e-12)),
        **dict.fromkeys(("kl_weight", "propensity"), Real(0)),
        "threshold": Real(0, 1),
        **dict.fromkeys(("n_negatives", "n_support"), Integer(0)),
        "inducing_start": OneOf(STARTS),
        "basis": OneOf(BASES),
        "schedule": OneOf(SCHEDULES),
        "optimiser": OneOf(OPTIMISERS),
        "row_transform": Word(),
        "precompute": Flag(),
        "calibrate": Flag(),
    }
    method: ClassVar[str] = "mlgpf"
    takes_missing: ClassVar[bool] = True
    blueprint: ClassVar[Blueprint] = Blueprint(
        spec=Spec,
        build=lambda spec, options: build(spec),
        design=_design,
        predictor=lambda fitted: FactorPredictor(fitted.model, normalises=fitted.labels.kind == "classes"),
        trainer=_trainer,
        trains_alone=_trains_alone,
        training_bytes=lambda options, fitted: training_bytes(
            fitted.spec, fitted.settings.batch_size, fitted.n_labels_per_step, fitted.n_ranks
        ),
        summary=_summary,
        facts=lambda options, fitted: {
            "shared processes": f"{fitted.spec.n_latent:,}",
            "inducing inputs": f"{fitted.spec.n_inducing:,} ({fitted.spec.inducing})",
            "kernel": fitted.spec.kernel,
            "posterior": fitted.spec.posterior,
            "linear process per label": fitted.spec.label_linear,
        },
        variants=lambda fitted, n: variants(
            fitted.spec, fitted.settings.max_epochs, fitted.settings.learning_rate, len(fitted.row_transform.views)
        ),
        to_lower=("batch_size", "n_latent", "n_inducing"),
        training_only=("label_linear.waiting",),
        with_training_arrays=_with_waiting,
    )

    def condition(self, X: Any, observed: Any, k: int = 5, *, rank_by: str = "probability") -> sparse.csr_array:
        """Return the k most probable labels of each row, given labels that are known, as CSR (N, K).

        `observed` (N, K) is +1 for a label that holds, -1 for one that does not, and 0 for one that is not known.
        Known labels are not listed again. With rank_by="utility" labels are ranked by their utility at the most
        probable h, as in the thesis [TH 4.37], and the values are σ of it.
        """
        if rank_by not in ("probability", "utility"):
            raise ValueError(f"rank_by={rank_by!r}; expected 'probability' or 'utility'")
        rows, k = self.rows(X), count_of(k)
        known = as_known(observed, (rows.shape[0], self.spec_.n_labels))
        predictor: Any = self.predictor_
        longest = int(np.diff(known.indptr).max(initial=0))
        if rank_by == "utility":
            return without_known(predictor.top_k_by_utility(rows, k + longest, known), known, k)
        return without_known(predictor.top_k_of(predictor.given(rows, known), k + longest), known, k)

    def label_correlation(self, labels: Any = None) -> NDArray[np.float32]:
        """Return the correlation of the utilities of these labels (default: all) under the prior, from ΦΦᵀ."""
        with advising_on_memory("the number of labels: pass some of them as labels="):
            return label_correlation(self.model_, labels)

    def predict_sets(self, X: Any, k: int = 8, n_sets: int = 3, n_draws: int = 200) -> LabelSets:
        """Return sets of labels that go together: the most probable sets of the k most probable labels of each row.

        Given the processes h the labels of a row are independent, and what is unknown about h moves all of them
        together through Φ. The probability that a set is exactly what holds of these labels is the mean over draws of
        h, always the same ones. It is that of the model, not calibrated on held-out rows; `decide` has a calibrated one
        of the tags that it gives.
        """
        for name, value in {"k": k, "n_sets": n_sets, "n_draws": n_draws}.items():
            count_of(value, name)
        if k > MOST_IN_SETS:
            raise ValueError(f"k={k}; expected at most {MOST_IN_SETS}: all 2^k sets are looked at")
        rows = self.rows(X)
        return self.predictor_.sets(rows, k, n_sets, n_draws)


def as_known(observed: Any, shape: tuple[int, int]) -> sparse.csr_array:
    """Return known labels as CSR of +1 and -1; raise a DataError for other values or another shape."""
    known = sparse.csr_array(observed, dtype=np.float32, copy=True)
    known.sum_duplicates()
    known.eliminate_zeros()
    if not np.isin(known.data, (-1, 1)).all():
        raise DataError(
            "observed holds values other than -1, 0 and 1",
            fix="Use 1 for a label that holds, -1 for one that does not.",
        )
    if known.shape != shape:
        raise DataError(f"observed has shape {known.shape}", expected=str(shape))
    return known


def without_known(ranked: sparse.csr_array, known: sparse.csr_array, k: int) -> sparse.csr_array:
    """Return the k best entries of each row of `ranked` that are not stored in `known`."""
    n, n_labels = ranked.shape
    row = np.repeat(np.arange(n), np.diff(ranked.indptr))
    known_keys = np.repeat(np.arange(n), np.diff(known.indptr)) * n_labels + known.indices
    fresh = ~np.isin(row * n_labels + ranked.indices, known_keys)
    row, labels, values = row[fresh], ranked.indices[fresh], ranked.data[fresh]
    order = np.lexsort((labels, -values, row))
    place = np.arange(order.size) - np.searchsorted(row[order], row[order])
    kept = np.sort(order[place < k])
    return sparse.csr_array((values[kept], (row[kept], labels[kept])), shape=(n, n_labels))
