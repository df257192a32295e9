"""Numbers in text: which texts are numbers, and their values."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["INTEGER", "is_not_finite", "parse_many", "parse_number"]

INTEGER = re.compile(r"-?[0-9]{1,4000}")  # Python refuses to convert longer ones
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_number(text: str, dtype: type[np.floating[Any]] = np.float32) -> float | None:
    """Return the number rounded to a type, infinite if it is too large; None for any other text, nan and inf included."""
    if not _NUMBER.fullmatch(text):
        return None
    with np.errstate(over="ignore"):
        return float(dtype(float(text)))


def is_not_finite(text: str) -> bool:
    """Return whether a text means nan or infinity."""
    return text.strip("+-").lower() in ("nan", "inf", "infinity")


def parse_many(text: bytes, separator: str) -> NDArray[np.float64] | None:
    """Return the numbers of a text by NumPy's parser; None if anything else occurs in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how NumPy reports anything else
        try:
            return np.fromstring(text, np.float64, sep=separator)
        except (DeprecationWarning, ValueError):
            return None
