"""Sizes at which the rules for defaults change, for all models."""

from __future__ import annotations

__all__ = ["ALL_LABELS", "MANY_ROWS", "SUPPORT", "VOCABULARY"]

# From this many features on rows count as bags of words, below as measurements.
VOCABULARY = 1000
# Inducing inputs have values on the most frequent features alone: K_Z costs M² for each of them, and a word that few
# rows have tells rows apart, which the rows' own norms still see, but does not bring them together.
SUPPORT = 8192
# Up to this many labels every step looks at all of them.
ALL_LABELS = 5000
MANY_ROWS = 100_000
