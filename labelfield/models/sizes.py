"""The sizes at which default rules change, shared by all models."""

from __future__ import annotations

__all__ = ["ALL_LABELS", "MANY_ROWS", "SUPPORT", "VOCABULARY"]

# From this many features on, rows are treated as bags of words; below it as measurements.
VOCABULARY = 1000
# The number of features, the most frequent ones, on which inducing inputs have values: K_Z costs M² per feature, and a
# rare word distinguishes rows, which their norms still show, but does not bring them together.
SUPPORT = 8192
# Up to this many labels, every step uses all of them.
ALL_LABELS = 5000
MANY_ROWS = 100_000
