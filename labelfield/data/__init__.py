"""Data sets: readers and writers of sparse multi-label files, and the batches that models consume."""

from labelfield.data.classes import align_classes
from labelfield.data.dataset import Dataset, Names, describe
from labelfield.data.files import FORMATS, format_of, read, verify, write
from labelfield.data.predictions import read_predictions, write_predictions

__all__ = ["Dataset", "Names", "align_classes", "describe"]
__all__ += ["FORMATS", "format_of", "read", "read_predictions", "verify", "write", "write_predictions"]
