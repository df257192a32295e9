"""Calibration on held-out rows: fit the map of probabilities, and remember what was said of these rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.metrics.ranking import judge
from labelfield.models.calibration import Temperature
from labelfield.models.predictor import Predictor

__all__ = ["N_REMEMBERED", "fit_calibration", "remember"]

# Labels per held-out row that the map of probabilities is learned from.
_N_RANKED = 20
# Labels per held-out row that a member of an ensemble remembers, so that the mean over members can be calibrated.
N_REMEMBERED = 64


def fit_calibration(
    predictor: Predictor,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    is_known: Callable[[NDArray[np.int64]], NDArray[np.bool_]] | None = None,
    n_ranked: int = _N_RANKED,
) -> None:
    """Learn the map from the raw probabilities of held-out rows X and their labels Y.

    Where some labels are missing, `is_known` tells for labels (N, k) of the rows which were observed.
    """
    if isinstance(predictor.calibration, Temperature):
        predictor.calibration.fit(predictor.proba(X, calibrated=False), Y.indices)
        return
    k = min(n_ranked, predictor.n_labels)
    judged = judge(Y, predictor.top_k(X, k, calibrated=False), k)
    known = None if is_known is None else is_known(judged.ranked.labels)
    predictor.calibration.fit(judged.ranked.scores, judged.hit, known)


def remember(predictor: Predictor, X: sparse.csr_array, Y: sparse.csr_array) -> dict[str, Tensor]:
    """Return the best labels of held-out rows and the true ones, as tensors that a checkpoint can hold."""
    ranked = predictor.top_k(X, N_REMEMBERED, calibrated=False)
    shape = (ranked.shape[0], -1)
    return {
        "labels": torch.from_numpy(ranked.indices.reshape(shape).astype(np.int64)),
        "p": torch.from_numpy(ranked.data.reshape(shape).copy()),
        "true_counts": torch.from_numpy(np.diff(Y.indptr).astype(np.int64)),
        "true_labels": torch.from_numpy(Y.indices.copy()),
    }
