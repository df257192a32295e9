"""Ensembles: the mean probability over several unlike classifiers of one kind, calibrated as a whole.

Averaging models that see rows differently is worth far more than one larger model or more seeds of the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from torch import Tensor, nn

from labelfield.constraints import Constraint
from labelfield.csr import from_counts, gather_rows
from labelfield.data import Dataset
from labelfield.data.transform import RowTransform
from labelfield.errors import CannotAnswerError
from labelfield.estimators.blueprint import Blueprint, Design, TrainingRows
from labelfield.estimators.classifier import Classifier
from labelfield.estimators.inputs import as_rows
from labelfield.estimators.mlgpf import MLGPFClassifier, as_known, without_known
from labelfield.estimators.options import check_parameters, choose_device, choose_seed, count_of
from labelfield.inference.calibrating import N_REMEMBERED
from labelfield.inference.fitting import Past
from labelfield.inference.parallel import train_in_parallel
from labelfield.inference.run import Monitor, Run, Settings, Validate
from labelfield.memory import FEWER_ROWS, advising_on_memory, free_bytes, row_blocks
from labelfield.metrics import evaluate
from labelfield.metrics.ranking import judge
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.mlgpf.predict import FactorPredictor, RowBlock
from labelfield.models.mlgpf.topk import top_k_of_mean
from labelfield.models.predictor import Block, Latent, Predictor, calibrated_probabilities, to_csr

__all__ = ["MOST_MEMBERS", "EnsembleClassifier", "EnsembleModel", "EnsembleSpec", "count_members"]

MOST_MEMBERS = 8
_AUTO = 4
# Rows times labels of each member whose probabilities exist at once, and rows at the most.
_BLOCK_ENTRIES, _MOST_ROWS = 1 << 22, 2000


@dataclass(frozen=True)
class EnsembleSpec:
    """The sizes of an ensemble."""

    n_features: int
    n_labels: int
    n_members: int


class EnsembleModel(nn.Module):
    """The models of all members, and the calibration of their mean."""

    def __init__(self, spec: EnsembleSpec) -> None:
        super().__init__()
        self.spec, self.members = spec, list[Classifier]()
        # The rows as the members after the first see them, until training takes them.
        self.rows = list[Dataset]()

    def fill(self, members: Sequence[Classifier], rows: Sequence[Dataset] = ()) -> None:
        """Take over members, built or loaded, with a calibration like theirs that knows nothing yet."""
        self.members, self.rows = list(members), list(rows)
        self.models = nn.ModuleList(member.model_ for member in members)
        own = members[0].predictor_.calibration
        self.calibration: Calibration | Temperature = (
            Temperature() if isinstance(own, Temperature) else Calibration(own.has_lead)
        )


class EnsemblePredictor(Predictor):
    """Answers of the mean over members. Rows come as they were given: each member transforms them in its own way."""

    def __init__(self, members: Sequence[Classifier], calibration: Calibration | Temperature) -> None:
        self.members, self.calibration = members, calibration
        first = members[0].predictor_
        self.n_labels, self.is_exclusive, self.normalises = first.n_labels, first.is_exclusive, first.normalises

    def _parts(self, rows: sparse.csr_array) -> list[tuple[Predictor, sparse.csr_array]]:
        """Return the predictor of each member with the rows as it sees them."""
        return [(member.predictor_, member.row_transform_(rows)) for member in self.members]

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        parts = self._parts(rows)
        for block in row_blocks(rows.shape[0], self.n_labels, entries=_BLOCK_ENTRIES, most=_MOST_ROWS):
            chosen = np.arange(block.start, block.stop)
            found = [predictor.separate_proba(gather_rows(own, chosen), calibrated=False) for predictor, own in parts]
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                P = torch.from_numpy(np.stack(found)).mean(0)
                P = calibrated_probabilities(self.calibration.cpu(), P) if calibrated else P
            yield Block(block, slice(0, self.n_labels), P)

    def top_k(self, rows: sparse.csr_array, k: int, calibrated: bool = True) -> sparse.csr_array:
        """Return the k labels with the largest mean probability; factor models need not integrate over all labels."""
        if not all(isinstance(member.predictor_, FactorPredictor) for member in self.members):
            return super().top_k(rows, k, calibrated)
        blocks = [predictor.row_blocks for predictor, _ in self._parts(rows)]  # type: ignore[attr-defined]
        return self._top_k_of(rows, k, blocks, calibrated)

    def given(self, rows: sparse.csr_array, observed: sparse.csr_array, k: int) -> sparse.csr_array:
        """Return the k labels with the largest mean probability given labels that are known, as CSR (N, K)."""
        asked = [partial(predictor.given, observed=observed) for predictor, _ in self._parts(rows)]  # type: ignore[attr-defined]
        return self._top_k_of(rows, k, asked, calibrated=True, observed=observed)

    def _top_k_of(
        self,
        rows: sparse.csr_array,
        k: int,
        asked: Sequence[Any],
        calibrated: bool,
        observed: sparse.csr_array | None = None,
    ) -> sparse.csr_array:
        """Return the best labels by the mean over factor models, each asked for q(h) of blocks of rows."""
        k = min(k, self.n_labels)
        own = [seen for _, seen in self._parts(rows)]
        models = [member.model_ for member in self.members]
        step = max(1, min(_MOST_ROWS, _BLOCK_ENTRIES // self.n_labels))

        def ranked() -> Iterator[tuple[Tensor, Tensor]]:
            for first in range(0, rows.shape[0], step):
                chosen = np.arange(first, min(first + step, rows.shape[0]))
                known = {} if observed is None else {"observed": gather_rows(observed, chosen)}
                blocks: list[RowBlock] = [
                    next(ask(gather_rows(seen, chosen), **known)) for ask, seen in zip(asked, own, strict=True)
                ]
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    f = [model.utilities(block.h, block.X) for model, block in zip(models, blocks, strict=True)]
                    best, p = top_k_of_mean(models, f, k)
                    if calibrated:
                        p = self.calibration.to(p.device)(p, torch.arange(k, device=p.device))
                yield best, p

        return to_csr(ranked(), k, self.n_labels)

    def draws(self, rows: sparse.csr_array, n_draws: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield draws of all members together: each member is as likely as any other."""
        each = max(1, n_draws // len(self.members))
        found = []
        for predictor, own in self._parts(rows):
            found.append(torch.cat([drawn.cpu() for _, drawn in predictor.draws(own, each)], 1))
        yield slice(0, rows.shape[0]), torch.cat(found)

    def mapped(self, values: Tensor, rows: sparse.csr_array) -> Tensor:
        self.calibration.to(values.device)
        return super().mapped(values, rows)

    def novelty(self, rows: sparse.csr_array) -> NDArray[np.float32]:
        return np.mean([predictor.novelty(own) for predictor, own in self._parts(rows)], axis=0, dtype=np.float32)

    def latent(self, rows: sparse.csr_array) -> Latent:
        """Return the moments of the utilities of the mixture of all members; their processes h are not comparable."""
        found = [predictor.latent(own) for predictor, own in self._parts(rows)]
        mean = np.mean([one.f_mean for one in found], axis=0)
        spread = np.mean([one.f_var + (one.f_mean - mean) ** 2 for one in found], axis=0)
        return Latent(np.asarray(mean, np.float32), np.asarray(spread, np.float32))

    def bound(self, rows: sparse.csr_array, Y: sparse.csr_array) -> Any:
        raise CannotAnswerError("an ensemble has no bound of its own; ask each of its members()")

    def loadings(self) -> Tensor | None:
        """Return the loadings of all members side by side."""
        found = [member.predictor_.loadings() for member in self.members]
        return (
            None if any(one is None for one in found) else torch.cat([one.cpu() for one in found if one is not None], 1)
        )

    def feature_relevance(self) -> NDArray[np.float32] | None:
        """Return the mean over the members that weigh features."""
        found = [relevance for member in self.members if (relevance := member.feature_relevance()) is not None]
        return np.mean(found, axis=0, dtype=np.float32) if found else None


class EnsembleTrainer:
    """Trains all members, several at a time, and calibrates their mean on the rows that all of them held out."""

    def __init__(self, model: EnsembleModel) -> None:
        self.model = model
        # As many members as there are cores train at the same time; a GPU is busy with one.
        is_on_cpu = choose_device(model.members[0].device).type == "cpu"
        self.n_at_once = min(len(model.members), torch.get_num_threads()) if is_on_cpu else 1

    def train(self, data: Dataset, monitor: Monitor) -> Run:
        members, trainings = self.model.members, []
        if monitor.checkpoint is not None and not monitor.resume:
            for number in range(1, MOST_MEMBERS):
                _checkpoint(monitor.checkpoint, number).unlink(missing_ok=True)  # of an older run
        for number, (member, rows) in enumerate(zip(members, [data, *self.model.rows], strict=True)):
            watched = monitor if number == 0 else replace(monitor, validate=None)
            if monitor.checkpoint is not None:
                path = _checkpoint(monitor.checkpoint, number)
                watched = replace(watched, checkpoint=path, identity=member.identity(rows))
            trainings.append(partial(_train_member, member, rows, watched))
        self.model.rows = []
        free = free_bytes(choose_device(members[0].device))
        needed = self.n_at_once * max(member.training_bytes() for member in members)
        n_at_once = 1 if free is not None and needed > free else self.n_at_once
        runs = train_in_parallel(trainings, n_at_once, monitor.on_step)
        memories = [run.memory for run in runs]
        _calibrate_mean(self.model.calibration, memories, members[0].spec_.n_labels)
        for member, scores in zip(members, _held_out_scores(memories, members[0].spec_.n_labels), strict=True):
            member.held_out_scores_ = scores
        return runs[0]

    def train_more(self, data: Dataset, past: Past) -> Run:
        raise CannotAnswerError("an ensemble cannot be fitted in parts; fit its estimator instead")

    def stage_settings(self) -> dict[str, Settings]:
        return self.model.members[0].trainer_.stage_settings()

    def n_whole_epochs(self) -> float:
        rounds = -(-len(self.model.members) // self.n_at_once)
        return rounds * self.model.members[0].trainer_.n_whole_epochs()

    def seconds_per_step(self, data: Dataset) -> float:
        return self.model.members[0].trainer_.seconds_per_step(data)

    def fingerprint(self) -> tuple[Any, ...]:
        return (len(self.model.members),)


def _train_member(member: Classifier, rows: Dataset, monitor: Monitor, on_step: Any) -> Run:
    return member.run_training(rows, replace(monitor, on_step=on_step))


def _checkpoint(path: Path, number: int) -> Path:
    """Return the checkpoint of a member; those of the others stand beside that of the first."""
    return path if number == 0 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _calibrate_mean(
    calibration: Calibration | Temperature, memories: Sequence[dict[str, Tensor]], n_labels: int
) -> None:
    """Fit the map of mean probabilities, from what each member said of the rows that were held out, if any were."""
    if not all("p" in memory for memory in memories):
        return
    truth, mean = _truth(memories[0], n_labels), _mean(memories, n_labels)
    if isinstance(calibration, Temperature):
        P = mean.toarray()
        is_open = np.ones(P.shape, np.bool_)
        is_open[np.repeat(np.arange(len(P)), np.diff(mean.indptr)), mean.indices] = False
        # Classes beyond the remembered ones share what is left: none of them is impossible.
        left = np.maximum(1 - P.sum(1, keepdims=True), 0) / np.maximum(is_open.sum(1, keepdims=True), 1)
        P = np.where(is_open, left, P)
        calibration.fit(P / np.maximum(P.sum(1, keepdims=True), np.finfo(np.float32).tiny), truth.indices)
    else:
        judged = judge(truth, mean, N_REMEMBERED)
        calibration.fit(judged.ranked.scores, judged.hit)


def _held_out_scores(memories: Sequence[dict[str, Tensor]], n_labels: int) -> list[dict[str, list[float]]]:
    """Return P@1, 3 and 5 on held-out rows of each member alone, and of the mean of it and all before it."""
    if not all("p" in memory for memory in memories):
        return [{} for _ in memories]
    truth = _truth(memories[0], n_labels)

    def scores(some: Sequence[dict[str, Tensor]]) -> list[float]:
        found = evaluate(truth, _mean(some, n_labels))
        return [float(found[f"P@{k}"]) for k in (1, 3, 5)]

    return [{"alone": scores([memory]), "together": scores(memories[: i + 1])} for i, memory in enumerate(memories)]


def _truth(memory: dict[str, Tensor], n_labels: int) -> sparse.csr_array:
    return from_counts(memory["true_counts"].numpy(), memory["true_labels"].numpy(), None, n_labels)


def _mean(memories: Sequence[dict[str, Tensor]], n_labels: int) -> sparse.csr_array:
    """Return the best labels of held-out rows by the mean over members.

    A label that a member does not remember counts 0 for it: it is not among its 64 best.
    """
    n_rows, n_kept = memories[0]["labels"].shape
    rows = np.arange(n_rows)[:, None]
    keys = np.concatenate([(rows * n_labels + memory["labels"].numpy()).ravel() for memory in memories])
    values = np.concatenate([memory["p"].numpy().ravel() for memory in memories])
    found, place_of = np.unique(keys, return_inverse=True)
    total = np.bincount(place_of, values) / len(memories)
    row, label = found // n_labels, found % n_labels
    order = np.lexsort((label, -total, row))
    counts = np.bincount(row, minlength=n_rows)
    place = np.arange(order.size) - (np.cumsum(counts) - counts)[row[order]]
    kept = order[place < n_kept]
    shape = (n_rows, n_kept)
    lists = (
        torch.from_numpy(label[kept].reshape(shape)),
        torch.from_numpy(total[kept].astype(np.float32).reshape(shape)),
    )
    return to_csr([lists], n_kept, n_labels)


def _design(options: Any, rows: TrainingRows) -> Design:
    """Build the members: the first as the user wants it, the others in the ways that help most for their kind."""
    n_members = count_members(options.n_members)
    first = clone(_first_member(options.estimator))
    n_rounds = -(-n_members // _n_at_once(first, n_members))
    alike: dict[str, Any] = {"random_state": rows.seed}
    if first.time_budget is not None:
        alike["time_budget"] = float(first.time_budget) / n_rounds
    members, data = [first.set_params(**alike)], [_build_member(first, rows)]
    tried: list[dict[str, Any]] = [{}]
    for variant in first.blueprint.variants(first.fitted_, MOST_MEMBERS):
        if len(members) == n_members:
            break
        # What the user chose stays; a smaller learning rate goes with more epochs.
        own = {name: value for name, value in variant.items() if name == "random_state" or getattr(first, name) is None}
        if "max_epochs" not in own:
            own.pop("learning_rate", None)
        if own in tried:
            continue
        tried.append(own)
        member = clone(first).set_params(**own)
        seen = _build_member(member, rows)
        if not any(_are_alike(member, other) for other in members):
            members.append(member)
            data.append(seen)
    if len(members) < n_members:
        warnings.warn(
            f"the ensemble has {len(members)} members, not {n_members}: with the options given there are no more "
            "unlike ones. Leave kernel, row_transform, label_linear or sizes open",
            UserWarning,
            stacklevel=6,
        )
    spec = EnsembleSpec(rows.X.shape[1], rows.Y.shape[1], len(members))
    return Design(
        data[0],
        RowTransform("none"),
        spec,
        first.settings_,
        first.n_negatives_,
        lambda model: model.fill(members, data[1:]),  # type: ignore[operator]
        first.fitted_.labels,
    )


def _first_member(estimator: Any) -> Any:
    """Return the first member before fit; raise a ValueError for anything but a classifier."""
    if estimator is None:
        return MLGPFClassifier()
    if not isinstance(estimator, Classifier) or isinstance(estimator, EnsembleClassifier):
        raise ValueError(
            f"estimator={estimator!r}; expected a classifier of labelfield other than an ensemble, or None"
        )
    return estimator


def _build_member(member: Classifier, rows: TrainingRows) -> Dataset:
    """Build a member for checked rows, of which all members hold out the same."""
    check_parameters(member)
    member.n_features_in_ = rows.X.shape[1]
    seed = choose_seed(member.random_state)
    return member.build(rows._replace(seed=seed, held_out_seed=None if seed == rows.seed else rows.seed))


def _are_alike(one: Classifier, other: Classifier) -> bool:
    """Whether training both would give the same model twice."""

    def make(member: Classifier) -> tuple[Any, ...]:
        spec = member.spec_
        spec = replace(spec, n_label_linear=0) if hasattr(spec, "n_label_linear") else spec
        return spec, member.row_transform_.name, member.settings_.seed

    return make(one) == make(other)


def count_members(n_members: Any) -> int:
    """Return how many members are asked for; raise a ValueError for anything but "auto" or a count."""
    is_count = isinstance(n_members, int | np.integer) and not isinstance(n_members, bool)
    if n_members == "auto":
        return _AUTO
    if not is_count or not 2 <= n_members <= MOST_MEMBERS:
        raise ValueError(f"n_members={n_members!r}; expected 'auto', or from 2 to {MOST_MEMBERS} members")
    return int(n_members)


def _n_at_once(member: Classifier, n_members: int) -> int:
    """Return how many members train at the same time: as many as there are cores; a GPU is busy with one."""
    return min(n_members, torch.get_num_threads()) if choose_device(member.device).type == "cpu" else 1


@dataclass(kw_only=True, eq=False, repr=False)
class EnsembleClassifier(Classifier):
    """An ensemble of unlike classifiers of one kind: the mean of their probabilities, calibrated as a whole.

    Members differ in what helps most for their kind: scalings of rows, kernels and sizes for MLGPF, seeds for the
    others. What the user chose stays as it is. Intervals are those of the mixture of all members, uncertainty is the
    mean over them, latent moments are those of the mixture, and known labels condition every member.

    Parameters
    ----------
    estimator : classifier or None
        The first member, unfitted; None for MLGPFClassifier().
    n_members : int or str
        Number of members from 2 to 8, or "auto" for 4.
    """

    estimator: Any = None
    n_members: Any = "auto"

    constraints: ClassVar[dict[str, Constraint]] = {}
    blueprint: ClassVar[Blueprint] = Blueprint(
        spec=EnsembleSpec,
        build=lambda spec, options: EnsembleModel(spec),
        design=_design,
        predictor=lambda fitted: EnsemblePredictor(fitted.model.members, fitted.model.calibration),
        trainer=lambda options, fitted: EnsembleTrainer(fitted.model),
        summary=lambda options, fitted: (
            f"an ensemble of {fitted.spec.n_members}; the first: {fitted.model.members[0].summary()}"
        ),
        check_labels=lambda fitted, Y: fitted.model.members[0].blueprint.check_labels(
            fitted.model.members[0].fitted_, Y
        ),
        memory_hint="n_members, or the sizes of the estimator",
    )

    @property
    def method(self) -> str:
        """The method of the members."""
        return str(self._first().method)

    @property
    def device(self) -> Any:
        """Where the members are."""
        return self._first().device

    @property
    def random_state(self) -> Any:
        """The seed of the first member."""
        return self._first().random_state

    @property
    def threshold(self) -> float:
        """The threshold of the members."""
        return float(self._first().threshold)

    def _first(self) -> Any:
        return self.members()[0] if hasattr(self, "fitted_") else _first_member(self.estimator)

    def members(self) -> list[Any]:
        """Return the members, the first as the user wanted it."""
        return list(self.model_.members)

    def training_bytes(self) -> int:
        """Return about how much memory the members that train at the same time take, beside the rows."""
        each = sorted(member.training_bytes() for member in self.members())
        return sum(each[-_n_at_once(self._first(), len(each)) :])

    def n_parameters(self) -> int:
        """Return how many numbers are learned by all members."""
        return sum(member.n_parameters() for member in self.members())

    def validation(self, X: Any, Y: Any) -> Validate:
        """Return what scores these rows by the first member: the others are not trained at the same pace."""
        # The table that X may be has names that only the ensemble knows.
        return self._first().validation(as_rows(self, X, reset=False), Y)  # type: ignore[no-any-return]

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Raise: members that see rows differently cannot be fitted in parts."""
        raise ValueError("an ensemble cannot be fitted in parts; fit its estimator instead")

    def condition(self, X: Any, observed: Any, k: int = 5) -> sparse.csr_array:
        """Return the k labels with the largest mean probability given labels that are known, as CSR (N, K).

        `observed` (N, K) is +1 for a label that holds, -1 for one that does not, and 0 for one that is not known.
        Known labels are not listed again. Only members of MLGPF can answer.
        """
        rows, k = self.rows(X), count_of(k)
        if not all(isinstance(member, MLGPFClassifier) for member in self.members()):
            raise CannotAnswerError(f"models of {self.method} cannot take up known labels; MLGPF can")
        known = as_known(observed, (rows.shape[0], self.spec_.n_labels))
        assert isinstance(self.predictor_, EnsemblePredictor)
        longest = int(np.diff(known.indptr).max(initial=0))
        return without_known(self.predictor_.given(rows, known, k + longest), known, k)

    def to(self, device: str) -> Self:
        """Move all members to "cpu", "cuda", or the best device there is ("auto")."""
        for member in self.members():
            member.to(device)
        self.model_.calibration.to(choose_device(device))
        self.hold(self.fitted_)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self._first().blueprint.can_be_multi_label
        return tags
