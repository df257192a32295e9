"""Rings: data with one class per row that no line can separate."""

from __future__ import annotations

import numpy as np

from labelfield.csr import from_counts
from labelfield.data import Dataset, Names

__all__ = ["make_rings"]


def make_rings(n_rows: int = 1000, n_rings: int = 5, *, noise: float = 0.25, seed: int = 0) -> Dataset:
    """Draw points on concentric rings in the plane, one class per ring, with equally many rows in each class.

    Ring k = 0, 1, … has radius k + 1 + `noise` · N(0, 1) and a uniform angle, so only the radius tells the class. The
    best rule chooses the nearest ring, with an error rate of 2 (1 - 1 / rings) Q(1 / (2 noise)): 3.6 % for 5 rings and
    the default noise. All classes have the same mean, so linear rules are hardly better than chance.
    """
    if not 1 <= n_rings <= n_rows:
        raise ValueError(f"n_rows={n_rows} and n_rings={n_rings}; expected at least one row for each ring")
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise={noise}; expected a standard deviation")
    rng = np.random.default_rng(seed)
    ring = rng.permutation(np.arange(n_rows) % n_rings)
    radius = ring + 1 + noise * rng.standard_normal(n_rows)
    angle = rng.uniform(0, 2 * np.pi, n_rows)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    names = Names(f"ring {k + 1}" for k in range(n_rings))
    return Dataset(X, from_counts(np.ones(n_rows, np.int64), ring.astype(np.int32), None, n_rings), names)
