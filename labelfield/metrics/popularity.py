"""The baseline that every model must beat: the most frequent training labels, the same for every row."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from labelfield.csr import as_positives, from_counts
from labelfield.metrics.ranking import top_k

__all__ = ["popularity"]


def popularity(Y_train: Any, n_rows: int, k: int = 5) -> sparse.csr_array:
    """Return CSR predictions: in every row the k most frequent training labels, with their frequency as probability."""
    Y_train = as_positives(Y_train)
    frequency = np.bincount(Y_train.indices, minlength=Y_train.shape[1]) / max(Y_train.shape[0], 1)
    best = np.sort(top_k(frequency[None], min(k, frequency.size)).labels[0])
    return from_counts(
        np.full(n_rows, best.size, np.int64),
        np.tile(best.astype(np.int32), n_rows),
        np.tile(frequency[best].astype(np.float32), n_rows),
        frequency.size,
    )
