"""Estimators and their options by the name of a method."""

from typing import Any

from sklearn.base import clone

from labelfield.estimators.classifier import Classifier
from labelfield.estimators.ensemble import EnsembleClassifier, has_members
from labelfield.estimators.options import Parameter, parameters
from labelfield.methods import METHODS
from labelfield.presets import PRESETS


def method_parameters(method: str) -> dict[str, Parameter]:
    """Return the options that `new_estimator` takes: those that the name does not fix, and `ensemble` if it can be."""
    estimator, fixed = METHODS[method].load(), METHODS[method].options
    found = parameters(estimator)
    if has_members(estimator):
        return found
    members = parameters(EnsembleClassifier)["n_members"]._replace(name="ensemble", default=None)
    return {name: one for name, one in found.items() if name not in fixed} | {"ensemble": members}


def new_estimator(method: str, options: dict[str, Any]) -> Classifier:
    """Make an estimator by the name of its method; the option `ensemble` makes an ensemble of that many members."""
    options = dict(options)
    n_members = options.pop("ensemble", None)
    estimator: Classifier = METHODS[method].load()(**METHODS[method].options, **options)
    return estimator if n_members is None else EnsembleClassifier(estimator=estimator, n_members=n_members)


def preset(name: str, **options: Any) -> Classifier:
    """Make the estimator of a paper (`labelfield.presets`): "journal", "subspace", "thesis", "thesis-robustmax",
    "svdkl" or "bmlpl". Options given here override those of the paper."""
    if name not in PRESETS:
        raise ValueError(f"preset {name!r}; expected one of {', '.join(PRESETS)}")
    return new_estimator(PRESETS[name].method, {**PRESETS[name].options, **options})


def unfitted(estimator: Any) -> Classifier:
    """Return a new estimator of the same method with the same options."""
    found: Classifier = clone(estimator)
    return found
