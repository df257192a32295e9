"""Gaussian-process and Bayesian models with very many labels, and the data and scores around them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labelfield import metrics, synth
from labelfield.data import Dataset, describe, read, read_predictions, write, write_predictions
from labelfield.errors import CannotAnswerError, DataError, LabelfieldError
from labelfield.text import read_documents, read_vocabulary
from labelfield.version import __version__

if TYPE_CHECKING:
    from labelfield import active
    from labelfield.data.batch import Batch
    from labelfield.estimators import (
        AutoClassifier,
        DeepKernelClassifier,
        EnsembleClassifier,
        GPClassifier,
        LinearClassifier,
        MLGPFClassifier,
        TextClassifier,
        TopicClassifier,
        load,
    )
    from labelfield.estimators.methods import preset

__all__ = [
    "AutoClassifier",
    "Batch",
    "CannotAnswerError",
    "DataError",
    "Dataset",
    "DeepKernelClassifier",
    "EnsembleClassifier",
    "GPClassifier",
    "LabelfieldError",
    "LinearClassifier",
    "MLGPFClassifier",
    "TextClassifier",
    "TopicClassifier",
    "__version__",
    "active",
    "describe",
    "load",
    "metrics",
    "preset",
    "read",
    "read_documents",
    "read_predictions",
    "read_vocabulary",
    "synth",
    "write",
    "write_predictions",
]


_LAZY = {
    "Batch": "labelfield.data.batch",
    "preset": "labelfield.estimators.methods",
    **dict.fromkeys(
        (
            "AutoClassifier",
            "DeepKernelClassifier",
            "EnsembleClassifier",
            "GPClassifier",
            "LinearClassifier",
            "MLGPFClassifier",
            "TextClassifier",
            "TopicClassifier",
            "load",
        ),
        "labelfield.estimators",
    ),
}


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name == "active":
        return import_module("labelfield.active")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
