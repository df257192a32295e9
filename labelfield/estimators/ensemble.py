"""Ensembles: the mean probability over several different classifiers of one kind, calibrated as a whole.

Averaging models that see rows differently is worth far more than one larger model or more seeds of the same.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import clone
from torch import Tensor, nn

from labelfield.constraints import Auto, Constraint, Integer
from labelfield.csr import column_counts
from labelfield.data import Dataset
from labelfield.data.transform import RowTransform
from labelfield.errors import CannotAnswerError
from labelfield.estimators.blueprint import Blueprint, Design, Fitted, TrainingRows
from labelfield.estimators.classifier import Classifier, build, fingerprint, hold, run_training, training_bytes
from labelfield.estimators.mlgpf import MLGPFClassifier, as_known, without_known
from labelfield.estimators.options import check_parameters, choose_device, choose_seed, count_of
from labelfield.inference.audition import LeftOutError, auditioning, is_worth_asking
from labelfield.inference.calibrating import calibrate_mean, fit_stack, held_out_scores, remember
from labelfield.inference.fitting import Past
from labelfield.inference.parallel import at_most_threads, train_in_parallel
from labelfield.inference.run import Epoch, Monitor, Run, Settings
from labelfield.memory import free_bytes
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.ensemble import EnsemblePredictor, Member
from labelfield.models.stack import Stack

MOST_MEMBERS = 8
_AUTO = 4


@dataclass(frozen=True)
class EnsembleSpec:
    """The sizes of an ensemble."""

    n_features: int
    n_labels: int
    n_members: int


class EnsembleModel(nn.Module):
    """The models of all members, and the calibration of their mean, or of a stack of different kinds."""

    def __init__(self, spec: EnsembleSpec, is_stacked: bool = False) -> None:
        super().__init__()
        self.spec, self.members = spec, list[Classifier]()
        self.stack = Stack(spec.n_members, spec.n_labels) if is_stacked else None
        # The rows as the members after the first see them, until training takes them.
        self.rows = list[Dataset]()

    def fill(self, members: Sequence[Classifier], rows: Sequence[Dataset] = ()) -> None:
        """Set the members, built or loaded, with a calibration like theirs that is not yet fitted."""
        self.members, self.rows = list(members), list(rows)
        self.models = nn.ModuleList(member.model_ for member in members)
        own = members[0].predictor_.calibration
        self.calibration: Calibration | Temperature = (
            Temperature() if isinstance(own, Temperature) else Calibration(own.has_lead)
        )

    def leave_out_last(self) -> None:
        """Remove the last member of a stack, and all weights."""
        self.spec = replace(self.spec, n_members=self.spec.n_members - 1)
        self.members, self.models = self.members[:-1], self.models[:-1]
        self.stack = Stack(self.spec.n_members, self.spec.n_labels)


def _remembered(member: Classifier, held_out: Dataset) -> dict[str, Tensor]:
    """Return a member's predictions for held-out rows at this point of its training."""
    return remember(member.blueprint.predictor(member.fitted_), held_out.X, held_out.Y)


class EnsembleTrainer:
    """Trains all members, and calibrates their joint predictions on the rows that all of them held out.

    Members of one kind train several at a time; those of a stack one after another, each on all cores.
    """

    def __init__(self, model: EnsembleModel, finish: Callable[[], None] = lambda: None) -> None:
        self.model, self.finish = model, finish
        self.n_at_once = 1 if model.stack is not None else _n_at_once(model.members[0], len(model.members))

    def train(self, data: Dataset, monitor: Monitor) -> Run:
        members, trainings = self.model.members, []
        if monitor.checkpoint is not None and not monitor.resume:
            for number in range(1, MOST_MEMBERS):
                _checkpoint(monitor.checkpoint, number).unlink(missing_ok=True)  # of an older run
        seen = [data, *self.model.rows]
        for number, (member, rows) in enumerate(zip(members, seen, strict=True)):
            is_scored = number == 0 and self.model.stack is None
            watched = monitor if is_scored else replace(monitor, validate=None)
            if monitor.checkpoint is not None:
                path = _checkpoint(monitor.checkpoint, number)
                watched = replace(watched, checkpoint=path, identity=fingerprint(member, rows, monitor.cluster))
            trainings.append(partial(_train_member, member, rows, watched))
        self.model.rows = []
        free = free_bytes(choose_device(members[0].device))
        needed = self.n_at_once * max(training_bytes(member) for member in members)
        n_at_once = 1 if free is not None and needed > free else self.n_at_once
        if self.model.stack is None:
            runs = train_in_parallel(trainings, n_at_once, monitor.on_step)
            return replace(runs[0], memory=self._combine(data, [run.memory for run in runs]))
        runs = self._train_stack(trainings, seen, monitor)
        memory = self._combine(data, [run.memory for run in runs])
        self.finish()
        run = replace(_chained(runs, [member.method for member in self.model.members]), memory=memory)
        if monitor.validate is not None:  # all members together, now that their weights are known
            run.history[-1] = replace(run.history[-1], scores=monitor.validate())
        return run

    def _train_stack(self, trainings: Sequence[Any], seen: Sequence[Dataset], monitor: Monitor) -> list[Run]:
        """Train members one after another; a second and last one is left out if it adds nothing to the first."""
        runs, members, stack = [trainings[0](monitor.on_step)], self.model.members, self.model.stack
        assert stack is not None
        for training, member, rows in zip(trainings[1:], members[1:], seen[1:], strict=True):
            on_step = monitor.on_step
            if len(members) == 2 and is_worth_asking(rows.n_rows, rows.n_labels, runs[0].memory):
                stack.count(column_counts(rows.Y))
                held_out = rows.take(member.settings_.held_out_rows(rows.n_rows))
                ask = partial(_remembered, member, held_out)
                on_step = auditioning(member.settings_, stack, runs[0].memory, ask, on_step)
            try:
                runs.append(training(on_step))
            except LeftOutError as error:
                self.model.leave_out_last()
                members[0].fitted_.held_out_scores = error.scores
        return runs

    def _combine(self, data: Dataset, memories: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Learn how to combine members from their predictions for the held-out rows; return the evidence."""
        members, stack, calibration = self.model.members, self.model.stack, self.model.calibration
        n_labels, found = members[0].spec_.n_labels, list[dict[str, list[float]]]()
        if stack is None:
            evidence = calibrate_mean(calibration, memories, n_labels)
            found = held_out_scores(memories, n_labels)
        else:
            assert isinstance(calibration, Calibration)
            stack.count(column_counts(data.Y))
            if len(members) == 1:  # which has learned its log-odds and their calibration itself
                calibration.load_state_dict(members[0].predictor_.calibration.state_dict())
                return memories[0]
            with at_most_threads(1):
                found, evidence = fit_stack(stack, calibration, memories, n_labels)
        for member, scores in zip(members, found, strict=True):
            member.fitted_.held_out_scores = scores
        return evidence

    def train_more(self, data: Dataset, past: Past) -> Run:
        raise CannotAnswerError("an ensemble cannot be fitted in parts; fit its estimator instead")

    def stage_settings(self) -> dict[str, Settings]:
        if self.model.stack is None:
            return self.model.members[0].trainer_.stage_settings()
        shares = [member.settings_.time_budget for member in self.model.members]
        known = [share for share in shares if share is not None]
        return {"": replace(self.model.members[0].settings_, time_budget=sum(known) if known else None)}

    def expected_seconds(self, data: Dataset) -> float:
        members = self.model.members
        if self.model.stack is None:
            return -(-len(members) // self.n_at_once) * members[0].trainer_.expected_seconds(data)
        seen = zip(members, [data, *self.model.rows], strict=True)
        return sum(member.trainer_.expected_seconds(rows) for member, rows in seen)

    def fingerprint(self) -> tuple[Any, ...]:
        return (len(self.model.members),)


def _chained(runs: Sequence[Run], names: Sequence[str]) -> Run:
    """Return the epochs of trainings that came one after another, each under the name of its stage."""
    history: list[Epoch] = []
    for run, name in zip(runs, names, strict=True):
        before = history[-1].seconds if history else 0.0
        for epoch in run.history:
            history.append(replace(epoch, epoch=len(history), seconds=before + epoch.seconds, stage=name))
    return Run(history=history)


def _train_member(member: Classifier, rows: Dataset, monitor: Monitor, on_step: Any) -> Run:
    return run_training(member, rows, replace(monitor, on_step=on_step))


def _checkpoint(path: Path, number: int) -> Path:
    """Return the checkpoint of a member; all checkpoints are beside that of the first."""
    return path if number == 0 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _design(options: Any, rows: TrainingRows) -> Design:
    """Build the members: the first as the user wants it, the others in the ways that help most for their kind."""
    n_members = _AUTO if options.n_members == "auto" else options.n_members
    first = clone(_first_member(options.estimator))
    n_rounds = -(-n_members // _n_at_once(first, n_members))
    alike: dict[str, Any] = {"random_state": rows.seed}
    if getattr(first, "time_budget", None) is not None:
        alike["time_budget"] = float(first.time_budget) / n_rounds
    members, data = [first.set_params(**alike)], [build_member(first, rows)]
    tried: list[dict[str, Any]] = [{}]
    for variant in first.blueprint.variants(first.fitted_, MOST_MEMBERS):
        if len(members) == n_members:
            break
        # The user's options stay; a smaller learning rate goes with more epochs.
        own = {name: value for name, value in variant.items() if name == "random_state" or getattr(first, name) is None}
        if "max_epochs" not in own:
            own.pop("learning_rate", None)
        if own in tried:
            continue
        tried.append(own)
        member = clone(first).set_params(**own)
        seen = build_member(member, rows)
        if not any(_are_alike(member, other) for other in members):
            members.append(member)
            data.append(seen)
    if len(members) < n_members:
        warnings.warn(
            f"the ensemble has {len(members)} members, not {n_members}: with the options given there are no more "
            "unlike ones. Leave more options open",
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
        lambda model: model.fill(members, data[1:]),
        first.fitted_.labels,
    )


def _first_member(estimator: Any) -> Any:
    """Return the first member before fit; raise a ValueError for anything but a classifier."""
    if estimator is None:
        return MLGPFClassifier()
    if not isinstance(estimator, Classifier) or has_members(type(estimator)):
        raise ValueError(
            f"estimator={estimator!r}; expected a classifier of labelfield other than an ensemble or a mix, or None"
        )
    return estimator


def has_members(estimator: type[Classifier]) -> bool:
    """Return whether classifiers of this kind consist of others, and so cannot be members themselves."""
    return estimator.blueprint.spec is EnsembleSpec


def build_member(member: Classifier, rows: TrainingRows) -> Dataset:
    """Build a member for checked rows; all members hold out the same ones."""
    check_parameters(member)
    member.n_features_in_ = rows.X.shape[1]
    seed = choose_seed(member.random_state)
    return build(member, rows._replace(seed=seed, held_out_seed=None if seed == rows.seed else rows.seed))


def _are_alike(one: Classifier, other: Classifier) -> bool:
    """Return whether training both would give the same model twice."""

    def make(member: Classifier) -> tuple[Any, ...]:
        spec = member.spec_
        spec = replace(spec, n_label_linear=0) if hasattr(spec, "n_label_linear") else spec
        return spec, member.row_transform_.name, member.settings_.seed

    return make(one) == make(other)


def members_predictor(fitted: Fitted) -> EnsemblePredictor:
    """Return a predictor for all members together."""
    members = [Member(member.row_transform_, member.predictor_) for member in fitted.model.members]
    return EnsemblePredictor(members, fitted.model.calibration, fitted.model.stack)


def members_bytes(members: Sequence[Classifier]) -> int:
    """Return the memory of the largest members that could train at the same time."""
    each = sorted(training_bytes(member) for member in members)
    return sum(each[-_n_at_once(members[0], len(each)) :])


def _n_at_once(member: Classifier, n_members: int) -> int:
    """Return how many members train at the same time: as many as there are cores; a GPU is busy with one."""
    return min(n_members, torch.get_num_threads()) if choose_device(member.device).type == "cpu" else 1


@dataclass(kw_only=True, eq=False, repr=False)
class EnsembleClassifier(Classifier):
    """An ensemble of different classifiers of one kind: the mean of their probabilities, calibrated as a whole.

    Members differ in what helps most for their kind: scalings of rows, kernels and sizes for MLGPF, seeds for the
    others. Options that the user set stay as they are. Intervals are those of the mixture of all members, uncertainty
    is the mean over them, latent moments are those of the mixture, and known labels condition every member.

    Parameters
    ----------
    estimator : classifier or None
        The first member, unfitted; None for MLGPFClassifier().
    n_members : int or str
        Number of members from 2 to 8, or "auto" for 4.
    """

    estimator: Any = None
    n_members: Any = "auto"

    constraints: ClassVar[dict[str, Constraint]] = {"n_members": Auto(Integer(2, MOST_MEMBERS))}
    blueprint: ClassVar[Blueprint] = Blueprint(
        spec=EnsembleSpec,
        build=lambda spec, options: EnsembleModel(spec),
        design=_design,
        predictor=members_predictor,
        trainer=lambda options, fitted: EnsembleTrainer(fitted.model),
        training_bytes=lambda options, fitted: 0 if fitted.model is None else members_bytes(fitted.model.members),
        summary=lambda options, fitted: (
            f"an ensemble of {fitted.spec.n_members}; the first: {fitted.model.members[0].summary()}"
        ),
        check_labels=lambda fitted, Y: fitted.model.members[0].blueprint.check_labels(
            fitted.model.members[0].fitted_, Y
        ),
        facts=lambda options, fitted: fitted.model.members[0].facts(),
        to_lower=("n_members",),
        memory_advice=", or the sizes of the estimator",
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
        """The threshold of the estimator, also where that has changed since fit."""
        return float(_first_member(self.estimator).threshold)

    @property
    def takes_missing(self) -> bool:
        """Whether entries of Y may be missing: as the members say."""
        return bool(self._first().takes_missing)

    def _first(self) -> Any:
        return self.members()[0] if hasattr(self, "fitted_") else _first_member(self.estimator)

    def members(self) -> list[Any]:
        """Return the members, the first as the user wanted it."""
        return list(self.model_.members)

    def n_parameters(self) -> int:
        """Return the number of learned parameters of all members."""
        return sum(member.n_parameters() for member in self.members())

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> Self:
        """Raise: members that see rows differently cannot be fitted in parts."""
        raise CannotAnswerError("an ensemble cannot be fitted in parts; fit its estimator instead")

    def condition(self, X: Any, observed: Any, k: int = 5) -> sparse.csr_array:
        """Return the k labels with the largest mean probability given labels that are known, as CSR (N, K).

        `observed` (N, K) is +1 for a label that holds, -1 for one that does not, and 0 for one that is not known.
        Known labels are not listed again. Only members of MLGPF can answer.
        """
        rows, k = self.rows(X), count_of(k)
        known = as_known(observed, (rows.shape[0], self.spec_.n_labels))
        assert isinstance(self.predictor_, EnsemblePredictor)
        longest = int(np.diff(known.indptr).max(initial=0))
        return without_known(self.predictor_.given(rows, known, k + longest), known, k)

    def to(self, device: str) -> Self:
        """Move all members to "cpu", "cuda", or the best available device ("auto")."""
        for member in self.members():
            member.to(device)
        self.model_.calibration.to(choose_device(device))
        hold(self, self.fitted_)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self._first().blueprint.can_be_multi_label
        return tags
