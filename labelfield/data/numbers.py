"""Numbers in text: which texts are numbers, and their values."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

__all__ = ["INTEGER", "is_not_finite", "parse_number"]

INTEGER = re.compile(r"-?[0-9]{1,4000}")  # Python refuses to convert longer ones
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_number(text: str, dtype: type[np.floating[Any]] = np.float32) -> float | None:
    """Return a number rounded to a type, infinite if it is too large; None for any other text, also for nan and inf."""
    if not _NUMBER.fullmatch(text):
        return None
    with np.errstate(over="ignore"):
        return float(dtype(float(text)))


def is_not_finite(text: str) -> bool:
    """Return whether a text means nan or infinity."""
    return text.strip("+-").lower() in ("nan", "inf", "infinity")
