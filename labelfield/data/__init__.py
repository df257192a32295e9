"""Data sets: readers and writers of sparse multi-label files, and the batches that models consume."""

from typing import TYPE_CHECKING, Any

from labelfield.data.card import describe
from labelfield.data.classes import align_classes
from labelfield.data.dataset import Dataset
from labelfield.data.files import FORMATS, format_of, read, verify, write
from labelfield.data.names import Names
from labelfield.data.predictions import read_predictions, write_predictions

if TYPE_CHECKING:
    from labelfield.data.batch import Batch

__all__ = [
    "FORMATS",
    "Batch",
    "Dataset",
    "Names",
    "align_classes",
    "describe",
    "format_of",
    "read",
    "read_predictions",
    "verify",
    "write",
    "write_predictions",
]


def __getattr__(name: str) -> Any:
    """Batch on demand: it brings in torch, which takes longer to import than most files to read."""
    if name == "Batch":
        from labelfield.data.batch import Batch

        return Batch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
