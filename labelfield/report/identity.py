"""What a model is and how it was trained, in words and a few numbers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from labelfield.estimators.protocol import FittedClassifier
from labelfield.inference.run import Epoch

_KINDS = {
    "mlgpf": "A Gaussian-process factor model: a few processes, shared by all labels, are mixed into one utility for "
    "each label.",
    "one_vs_each": "Multi-class Gaussian processes with a one-vs-each likelihood: each class has a process of its own.",
    "robustmax": "Multi-class Gaussian processes with a robustmax likelihood: the class with the largest process wins, "
    "with a small probability of any other.",
    "softmax": "Multi-class Gaussian processes with a softmax likelihood: each class has a process of its own.",
    "svdkl": "A deep kernel model: a network learns features, and Gaussian processes on these features decide.",
    "topics": "A topic model of labels: features say which topics a row is about, and topics say which labels it has.",
}
# What a spec holds that says most about a model, and what to call it.
_FACTS = {
    "n_topics": "topics",
    "n_latent": "shared processes",
    "n_processes": "processes",
    "n_inducing": "inducing inputs",
    "grid_size": "grid points per dimension",
    "network": "network",
    "kernel": "kernel",
    "posterior": "posterior",
    "label_linear": "linear process per label",
    "hinge_cost": "cost of the squared hinge",
}
_ALGORITHMS = {"em": "EM", "online_em": "online EM", "gibbs": "Gibbs sampling"}
# A drop counts if it is at least this share of the whole range of a curve.
_DROP = 0.1


class Identity(NamedTuple):
    """The method, a sentence about it, facts by name, and what the words on the page depend on.

    A model that `is_sampled` has no bound; where some rows were held out for calibration at first, `has_held_out`.
    """

    method: str
    sentence: str
    facts: dict[str, str]
    has_classes: bool
    is_sampled: bool
    has_held_out: bool


def identify(estimator: FittedClassifier) -> Identity:
    """Return what the model is. An ensemble is counted as a whole, with the choices of its first member."""
    members, method = estimator.members(), estimator.method
    first, has_classes = members[0], estimator.label_kind_ == "classes"
    sentence, algorithm = _KINDS.get(method, first.summary()), str(first.get_params().get("algorithm"))
    if len(members) > 1:
        sentence += (
            f" This is an ensemble: the mean of the probabilities of {len(members)} different ones. Kernel and sizes "
            "are those of the first."
        )
    facts = {
        "method": method,
        "ensemble": f"{len(members)} members" if len(members) > 1 else "",
        "classes" if has_classes else "labels": f"{estimator.predictor_.n_labels:,}",
        "features": f"{estimator.n_features_in_:,} ({first.row_transform_.name})",
        "training rows": f"{estimator.n_rows_:,}",
        **_facts_of(first.spec_),
        "found by": _ALGORITHMS.get(algorithm, ""),
        "parameters": f"{estimator.n_parameters():,}",
        "training": _training(members) if first.history_ else "",
    }
    facts = {name: value for name, value in facts.items() if value}
    return Identity(method, sentence, facts, has_classes, algorithm == "gibbs", first.settings_.held_out > 0)


def _facts_of(spec: Any) -> dict[str, str]:
    """Return the facts that a spec holds, without those that mean nothing for this model."""
    left_out = set()
    if hasattr(spec, "n_processes"):
        left_out |= {"n_latent"}  # the same by another name
    if getattr(spec, "is_plain", False):
        left_out |= {"n_processes", "grid_size", "kernel", "posterior"}  # a network alone has no processes
    if getattr(spec, "posterior", None) == "point":
        left_out |= {"n_inducing", "kernel"}  # linear utilities have neither
    if getattr(spec, "likelihood", None) != "squared_hinge":
        left_out |= {"hinge_cost"}
    found = {}
    for name, called in _FACTS.items():
        value = getattr(spec, name, None)
        if name == "network" and hasattr(spec, name):
            widths = "" if value is None else "-".join(map(str, value.hidden))
            found[called] = spec.network_class if value is None else f"{value.name} {widths}".strip()
        elif value is not None and name not in left_out:
            kind = f" ({spec.inducing})" if name == "n_inducing" else ""
            found[called] = value if isinstance(value, str) else f"{value:,}{kind}"
    return found


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
