"""The methods by name, as the command line and model folders call them."""

from __future__ import annotations

from typing import Any

from labelfield.estimators.classifier import Classifier
from labelfield.estimators.deep import DeepKernelClassifier
from labelfield.estimators.ensemble import EnsembleClassifier
from labelfield.estimators.gp import GPClassifier
from labelfield.estimators.mlgpf import MLGPFClassifier
from labelfield.estimators.options import Parameter, parameters
from labelfield.estimators.topics import TopicClassifier
from labelfield.models.multiclass.spec import LIKELIHOODS

__all__ = ["METHODS", "has_classes", "method_options", "method_parameters", "new_estimator"]

METHODS: dict[str, type[Classifier]] = {
    "mlgpf": MLGPFClassifier,
    **dict.fromkeys(LIKELIHOODS, GPClassifier),
    "svdkl": DeepKernelClassifier,
    "topics": TopicClassifier,
}


def method_options(method: str) -> dict[str, Any]:
    """Return what is fixed by the name of a method: the likelihood of multi-class Gaussian processes."""
    return {"likelihood": method} if method in LIKELIHOODS else {}


def method_parameters(method: str) -> dict[str, Parameter]:
    """Return the options that `new_estimator` takes: those that the name does not fix, and `ensemble`."""
    found = {name: one for name, one in parameters(METHODS[method]).items() if name not in method_options(method)}
    return found | {"ensemble": parameters(EnsembleClassifier)["n_members"]._replace(name="ensemble", default=None)}


def new_estimator(method: str, options: dict[str, Any]) -> Classifier:
    """Make an estimator by the name of its method; the option `ensemble` makes an ensemble of that many members."""
    options = dict(options)
    n_members = options.pop("ensemble", None)
    estimator = METHODS[method](**method_options(method), **options)
    return estimator if n_members is None else EnsembleClassifier(estimator=estimator, n_members=n_members)


def has_classes(method: str, options: dict[str, Any]) -> bool | None:
    """Return whether a method takes one class per row; None where the data decide."""
    if method == "svdkl":
        likelihood = options.get("likelihood")
        return None if likelihood is None else likelihood == "softmax"
    return method in LIKELIHOODS
