"""What a model is and how it was trained, in words and a few numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

__all__ = ["Curve", "Identity", "identify", "learning_curves"]

_KINDS = {
    "mlgpf": "A Gaussian-process factor model: a few processes, shared by all labels, are mixed into one utility for "
    "each label.",
    "one_vs_each": "Multi-class Gaussian processes with a one-vs-each likelihood: each class has a process of its own.",
    "robustmax": "Multi-class Gaussian processes with a robustmax likelihood: the class with the largest process wins, "
    "except for a small chance of any other.",
    "softmax": "Multi-class Gaussian processes with a softmax likelihood: each class has a process of its own.",
    "svdkl": "A deep kernel model: a network learns features, Gaussian processes on these features make the decision.",
    "topics": "A topic model of labels: features say which topics a row is about, topics say which labels it has.",
}
# What a spec holds that says most about a model, and what that is called.
_SIZES = {
    "n_topics": "topics",
    "n_latent": "shared processes",
    "n_processes": "processes",
    "n_inducing": "inducing inputs",
    "grid_size": "grid points a dimension",
}
# A curve falls if it does so by this share of its reach.
_FALL = 0.1
_CHOICES = {"kernel": "kernel", "posterior": "posterior", "private": "private processes"}


@dataclass(frozen=True)
class Identity:
    """The method, a sentence about it, and facts by name."""

    method: str
    sentence: str
    facts: dict[str, str]
    has_classes: bool
    is_calibrated: bool = False


@dataclass(frozen=True)
class Curve:
    """What was recorded of each epoch: seconds of training and the bound (nats a row), by stage, and scores."""

    seconds: list[float]
    bound: list[float]
    stage: list[str]
    scores: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def falls(self) -> bool:
        """Whether in the later half of a single stage it falls at once, by a good part of all that it rose."""
        later = self.bound[len(self.bound) // 2 :]
        reach = max(self.bound) - min(self.bound[len(self.bound) // 5 :])
        return len(set(self.stage)) == 1 and any(b < a - _FALL * reach for a, b in pairwise(later))


def identify(estimator: Any) -> Identity:
    """What the model is. An ensemble is counted as a whole, with the choices of its first member."""
    spec, method = estimator.spec_, estimator._method()
    members = [estimator, *getattr(estimator, "others_", ())]
    has_classes = estimator.label_kind_ == "classes"
    facts: dict[str, str] = {"method": method}
    if len(members) > 1:
        facts["ensemble"] = f"{len(members)} members"
    facts["classes" if has_classes else "labels"] = f"{spec.n_labels:,}"
    facts["features"] = f"{estimator.n_features_in_:,} ({estimator.row_transform_.name})"
    facts["training rows"] = f"{estimator.n_rows_:,}"
    for name, called in _SIZES.items():
        if hasattr(spec, name) and not _is_beside_the_point(spec, name):
            kind = f" ({spec.inducing})" if name == "n_inducing" else ""
            facts[called] = f"{getattr(spec, name):,}{kind}"
    if method == "topics":
        facts["found by"] = {"em": "EM", "online_em": "online EM", "gibbs": "Gibbs sampling"}[estimator.algorithm]
    if "network" in vars(spec):
        facts["network"] = _network(spec)
    for name, called in _CHOICES.items():
        value = vars(spec).get(name)
        if isinstance(value, str) and not _is_beside_the_point(spec, name):
            facts[called] = value
    facts["parameters"] = f"{sum(member.n_parameters() for member in members):,}"
    if estimator.history_:
        facts["training"] = _training(members)
    sentence = _KINDS[method]
    if len(members) > 1:
        sentence += f" {len(members)} of them, each unlike the others, and the mean of their probabilities."
    return Identity(method, sentence, facts, has_classes, bool(getattr(estimator, "calibrated", False)))


def _is_beside_the_point(spec: Any, name: str) -> bool:
    """Linear utilities without uncertainty have neither inducing inputs nor a kernel, a network alone no processes;
    those of a deep kernel are not named twice."""
    if name == "n_latent" and hasattr(spec, "n_processes"):
        return True
    if getattr(spec, "is_plain", False):
        return name in ("n_processes", "grid_size", "kernel", "posterior")
    return vars(spec).get("posterior") == "point" and name in ("n_inducing", "kernel")


def _network(spec: Any) -> str:
    """Its kind and the widths of its layers; a network of the user's own by its class."""
    if spec.network is None:
        return str(spec.network_class)
    return " ".join([spec.network.name, "-".join(map(str, spec.network.hidden))]).strip()


def _training(members: list[Any]) -> str:
    """Epochs and time; of an ensemble over all members."""
    n_epochs = sum(len(member.history_) for member in members)
    seconds = sum(member.history_[-1]["seconds"] for member in members if member.history_)
    return f"{n_epochs:,} epochs, {in_words(seconds)}"


def in_words(seconds: float) -> str:
    """A time as a person says it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} minutes"
    return f"{seconds / 3600:.1f} hours"


def learning_curves(estimator: Any) -> list[Curve]:
    """The curve of the model and, of an ensemble, of each other member; nothing where nothing was recorded."""
    members = [estimator, *getattr(estimator, "others_", ())]
    return [_curve(member.history_) for member in members if member.history_]


def _curve(history: list[dict[str, Any]]) -> Curve:
    scores: dict[str, list[tuple[float, float]]] = {}
    for epoch in history:
        for name, value in epoch["scores"].items():
            scores.setdefault(name, []).append((float(epoch["seconds"]), float(value)))
    return Curve(
        [float(epoch["seconds"]) for epoch in history],
        [float(epoch["bound"]) for epoch in history],
        [str(epoch["stage"]) for epoch in history],
        scores,
    )
