"""A model's identity and training, in words and a few numbers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from labelfield.estimators.protocol import FittedClassifier
from labelfield.inference.run import Epoch
from labelfield.methods import METHODS

# A drop counts if it is at least this share of the whole range of a curve.
_DROP = 0.1


class Identity(NamedTuple):
    """The method, a sentence about it, facts by name, and flags for the wording of the page.

    A model that `is_sampled` has no bound; where some rows were held out for calibration at first, `has_held_out`.
    """

    method: str
    sentence: str
    facts: dict[str, str]
    has_classes: bool
    is_sampled: bool
    has_held_out: bool


def identify(estimator: FittedClassifier) -> Identity:
    """Return the identity of the model. An ensemble is counted as a whole, with the choices of its first member."""
    members, method = estimator.members(), estimator.method
    first, has_classes = members[0], estimator.label_kind_ == "classes"
    sentence = METHODS[method].sentence if method in METHODS else first.summary()
    is_alike = all(member.method == method for member in members)
    if len(members) > 1 and is_alike:
        sentence += (
            f" This is an ensemble: it averages the probabilities of {len(members)} different models. Kernel and sizes "
            "are those of the first."
        )
    facts = {
        "method": method,
        "ensemble" if is_alike else "mix": f"{len(members)} members" if len(members) > 1 else "",
        "classes" if has_classes else "labels": f"{estimator.predictor_.n_labels:,}",
        "features": f"{estimator.n_features_in_:,} ({first.row_transform_.name})",
        "training rows": f"{estimator.n_rows_:,}",
        **estimator.facts(),
        "parameters": f"{estimator.n_parameters():,}",
        "training": _training(members) if first.history_ else "",
    }
    facts = {name: value for name, value in facts.items() if value}
    return Identity(method, sentence, facts, has_classes, estimator.predictor_.is_sampled, first.settings_.held_out > 0)


def _training(members: list[Any]) -> str:
    """Return the epochs and the time of all members in words."""
    n_epochs = sum(len(member.history_) for member in members)
    seconds = sum(member.history_[-1]["seconds"] for member in members if member.history_)
    size, unit = (1, "s") if seconds < 60 else (60, "minutes") if seconds < 3600 else (3600, "hours")
    return f"{n_epochs:,} epoch{'' if n_epochs == 1 else 's'}, {seconds / size:.1f} {unit}"


def learning_curves(estimator: FittedClassifier) -> list[list[Epoch]]:
    """Return the epochs of each member that recorded some; a single model is its only member."""
    return [[Epoch(**epoch) for epoch in member.history_] for member in estimator.members() if member.history_]


def drops(curve: Sequence[Epoch]) -> bool:
    """Return whether the bound drops within one epoch, in the later half of a single stage, by much of its range."""
    bound = [epoch.bound for epoch in curve]
    reach = max(bound) - min(bound[len(bound) // 5 :])
    is_single = len({epoch.stage for epoch in curve}) == 1
    return is_single and any(b < a - _DROP * reach for a, b in pairwise(bound[len(bound) // 2 :]))
