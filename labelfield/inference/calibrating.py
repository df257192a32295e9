"""Calibration on held-out rows: fit the map of probabilities, and remember what was said of these rows."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import from_counts
from labelfield.metrics import evaluate
from labelfield.metrics.ranking import score_ranking
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.predictor import Predictor, to_csr

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
    judged = score_ranking(Y, predictor.top_k(X, k, calibrated=False), k)
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


def calibrate_mean(
    calibration: Calibration | Temperature, memories: Sequence[dict[str, Tensor]], n_labels: int
) -> None:
    """Fit the map of mean probabilities, from what each member said of the rows that were held out, if any were."""
    if not all("p" in memory for memory in memories):
        return
    truth, mean = _truth(memories[0], n_labels), _mean(memories, n_labels)
    if isinstance(calibration, Temperature):
        P = mean.toarray()
        is_open = np.ones(P.shape, np.bool_)
        is_open[np.repeat(np.arange(len(P)), np.diff(mean.indptr)), mean.indices] = False
        # Classes beyond the remembered ones share what is left: none of them is impossible.
        left = np.maximum(1 - P.sum(1, keepdims=True), 0) / np.maximum(is_open.sum(1, keepdims=True), 1)
        P = np.where(is_open, left, P)
        calibration.fit(P / np.maximum(P.sum(1, keepdims=True), np.finfo(np.float32).tiny), truth.indices)
    else:
        judged = score_ranking(truth, mean, N_REMEMBERED)
        calibration.fit(judged.ranked.scores, judged.hit)


def held_out_scores(memories: Sequence[dict[str, Tensor]], n_labels: int) -> list[dict[str, list[float]]]:
    """Return P@1, 3 and 5 on held-out rows of each member alone, and of the mean of it and all before it."""
    if not all("p" in memory for memory in memories):
        return [{} for _ in memories]
    truth = _truth(memories[0], n_labels)

    def scores(some: Sequence[dict[str, Tensor]]) -> list[float]:
        found = evaluate(truth, _mean(some, n_labels))
        return [float(found[f"P@{k}"]) for k in (1, 3, 5)]

    return [{"alone": scores([memory]), "together": scores(memories[: i + 1])} for i, memory in enumerate(memories)]


def _truth(memory: dict[str, Tensor], n_labels: int) -> sparse.csr_array:
    return from_counts(memory["true_counts"].numpy(), memory["true_labels"].numpy(), None, n_labels)


def _mean(memories: Sequence[dict[str, Tensor]], n_labels: int) -> sparse.csr_array:
    """Return the best labels of held-out rows by the mean over members.

    A label that a member does not remember counts 0 for it: it is not among its 64 best.
    """
    n_rows, n_kept = memories[0]["labels"].shape
    rows = np.arange(n_rows)[:, None]
    keys = np.concatenate([(rows * n_labels + memory["labels"].numpy()).ravel() for memory in memories])
    values = np.concatenate([memory["p"].numpy().ravel() for memory in memories])
    found, place_of = np.unique(keys, return_inverse=True)
    total = np.bincount(place_of, values) / len(memories)
    row, label = found // n_labels, found % n_labels
    order = np.lexsort((label, -total, row))
    counts = np.bincount(row, minlength=n_rows)
    place = np.arange(order.size) - (np.cumsum(counts) - counts)[row[order]]
    kept = order[place < n_kept]
    parts = (label[kept], total[kept].astype(np.float32))
    labels, p = (torch.from_numpy(part.reshape(n_rows, n_kept)) for part in parts)
    return to_csr([(labels, p)], n_kept, n_labels)
