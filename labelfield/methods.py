"""The methods by name: the one place where they are listed, which commands, reports, model folders and docs read.

It does not import torch, so that `labelfield --help` need not wait for it.
"""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

# The labels that a method takes, in words.
SEVERAL, CLASSES, EITHER = "several labels per row", "one class per row", "either"


class Method(NamedTuple):
    """A method: a sentence about it, the labels that it takes, its class, and the options that its name fixes.

    The class may be given by its path, and is then imported when it is needed. Where a method takes either kind of
    labels, the data decide, unless one of the options in `decided_by` says whether there is one class per row.
    """

    sentence: str
    labels: str
    estimator: Any
    options: Mapping[str, Any] = MappingProxyType({})
    decided_by: Mapping[str, Mapping[Any, bool]] = MappingProxyType({})

    def load(self) -> Any:
        """Return the class of the method."""
        if not isinstance(self.estimator, str):
            return self.estimator
        module, _, name = self.estimator.rpartition(".")
        return getattr(import_module(module), name)

    def has_classes(self, options: dict[str, Any]) -> bool | None:
        """Return whether there is one class per row under these options; None where the data decide."""
        said = [values.get(options.get(name)) for name, values in self.decided_by.items()]
        return next((one for one in said if one is not None), None if self.labels == EITHER else self.labels == CLASSES)


_GP = "labelfield.estimators.gp.GPClassifier"

METHODS: dict[str, Method] = {
    "auto": Method(
        "A mix of linear machines and a Gaussian-process factor model, with weights learned on held-out rows.",
        SEVERAL,
        "labelfield.estimators.auto.AutoClassifier",
    ),
    "linear": Method(
        "Linear max-margin machines: for each label a support vector machine, with calibrated probabilities.",
        EITHER,
        "labelfield.estimators.linear.LinearClassifier",
    ),
    "mlgpf": Method(
        "A Gaussian-process factor model: a few processes, shared by all labels, are mixed into one utility for each "
        "label.",
        SEVERAL,
        "labelfield.estimators.mlgpf.MLGPFClassifier",
    ),
    "one_vs_each": Method(
        "Multi-class Gaussian processes with a one-vs-each likelihood: each class has a process of its own.",
        CLASSES,
        _GP,
        {"likelihood": "one_vs_each"},
    ),
    "robustmax": Method(
        "Multi-class Gaussian processes with a robustmax likelihood: the class with the largest process wins, with a "
        "small probability of any other.",
        CLASSES,
        _GP,
        {"likelihood": "robustmax"},
    ),
    "softmax": Method(
        "Multi-class Gaussian processes with a softmax likelihood: each class has a process of its own.",
        CLASSES,
        _GP,
        {"likelihood": "softmax"},
    ),
    "svdkl": Method(
        "A deep kernel model: a network learns features, and Gaussian processes on these features decide.",
        EITHER,
        "labelfield.estimators.deep.DeepKernelClassifier",
        decided_by={"likelihood": {"softmax": True, "bernoulli": False}},
    ),
    "topics": Method(
        "A topic model of labels: features say which topics a row is about, and topics say which labels it has.",
        SEVERAL,
        "labelfield.estimators.topics.TopicClassifier",
    ),
}


def methods_by_labels() -> str:
    """Return a phrase that says which methods take which labels."""
    parts = []
    for labels in (SEVERAL, CLASSES, EITHER):
        *others, last = [name for name, method in METHODS.items() if method.labels == labels]
        parts.append(f"{', '.join(others)}{' or ' if others else ''}{last} for {labels}")
    return f"{'; '.join(parts)}."
