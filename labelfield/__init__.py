"""Gaussian-process and Bayesian models with very many labels, and the data and scores around them."""

from typing import TYPE_CHECKING, Any

from labelfield import metrics, synth
from labelfield.data import Dataset, describe, read, read_predictions, write, write_predictions
from labelfield.errors import DataError, LabelfieldError
from labelfield.version import __version__

if TYPE_CHECKING:
    from labelfield.data.batch import Batch


__all__ = [
    "Batch",
    "DataError",
    "Dataset",
    "LabelfieldError",
    "__version__",
    "describe",
    "metrics",
    "read",
    "read_predictions",
    "synth",
    "write",
    "write_predictions",
]


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for."""
    if name == "Batch":
        from labelfield.data.batch import Batch

        return Batch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
