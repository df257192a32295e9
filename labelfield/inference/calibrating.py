"""Calibration on held-out rows: fit the map of probabilities, and remember what was said of these rows."""

from collections.abc import Callable, Sequence
from copy import deepcopy

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
from labelfield.models.stack import Stack, log_odds_of

# Labels per held-out row that the map of probabilities is learned from.
N_RANKED = 20
# Labels per held-out row that a member of an ensemble remembers, so that the mean over members can be calibrated.
N_REMEMBERED = 64
# Labels per held-out row, the best of each member, from which the weights of members are learned.
_N_FIRST = 16
# Held-out rows that can tell whether weights should depend on how frequent a label is; with fewer, they do.
_ENOUGH_ROWS = 1000


# Tells for labels (N, k) of rows which were observed.
IsKnown = Callable[[NDArray[np.int64]], NDArray[np.bool_]]


def fit_calibration(
    predictor: Predictor,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    is_known: IsKnown | None = None,
    n_ranked: int = N_RANKED,
) -> None:
    """Learn the map from the raw probabilities of held-out rows X and their labels Y.

    Where some labels are missing, those that are not known count for nothing.
    """
    if isinstance(predictor.calibration, Temperature):
        predictor.calibration.fit(predictor.proba(X, calibrated=False), Y.indices)
        return
    k = min(n_ranked, predictor.n_labels)
    judged = score_ranking(Y, predictor.top_k(X, k, calibrated=False), k)
    known = None if is_known is None else is_known(judged.ranked.labels)
    predictor.calibration.fit(judged.ranked.scores, judged.hit, known)


def remember(
    predictor: Predictor, X: sparse.csr_array, Y: sparse.csr_array, is_known: IsKnown | None = None
) -> dict[str, Tensor]:
    """Return the best labels of held-out rows and the true ones, as tensors that a checkpoint can hold.

    Where some labels are missing, those among the best that are not known are remembered too.
    """
    ranked = predictor.top_k(X, N_REMEMBERED, calibrated=False)
    shape = (ranked.shape[0], -1)
    labels = ranked.indices.reshape(shape).astype(np.int64)
    known = {} if is_known is None else {"is_known": torch.from_numpy(is_known(labels))}
    return known | as_memory(labels, ranked.data.reshape(shape).copy(), Y)


def as_memory(labels: NDArray[np.int64], p: NDArray[np.float32], Y: sparse.csr_array) -> dict[str, Tensor]:
    """Return some labels (N, k) of held-out rows, their raw probabilities and the true labels, as tensors."""
    return {
        "labels": torch.from_numpy(labels),
        "p": torch.from_numpy(p),
        "true_counts": torch.from_numpy(np.diff(Y.indptr).astype(np.int64)),
        "true_labels": torch.from_numpy(Y.indices.copy()),
    }


def holds(Y: sparse.csr_array, labels: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
    """Return which of these labels (N, k) hold in these rows (default: all, one after another), by their labels Y."""
    true = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * Y.shape[1] + Y.indices
    return np.isin(_keys(labels, Y.shape[1]) if rows is None else rows * Y.shape[1] + labels, true)


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
        judged = score_ranking(truth, mean, memories[0]["labels"].shape[1])
        hidden = _hidden(memories, n_labels)
        known = None if hidden is None else ~np.isin(_keys(judged.ranked.labels, n_labels), hidden)
        calibration.fit(judged.ranked.scores, judged.hit, known)


def fit_stack(
    stack: Stack, calibration: Calibration, memories: Sequence[dict[str, Tensor]], n_labels: int
) -> list[dict[str, list[float]]]:
    """Learn the weights of members and the map of their probabilities, from what each said of the rows held out.

    Where these are many, weights are the same for all labels unless others rank the held-out rows better.
    Return P@1, 3 and 5 on these rows of each member alone and, for the last, of all together. A label that a member
    does not remember is as likely as the last one that it does.
    """
    if not all("p" in memory and memory["p"].numel() for memory in memories):
        return [{} for _ in memories]
    n_rows = min(len(memory["labels"]) for memory in memories)
    counts = memories[0]["true_counts"].numpy()[:n_rows]
    truth = from_counts(counts, memories[0]["true_labels"].numpy()[: counts.sum()], None, n_labels)
    keys = np.unique(np.concatenate([_keys(memory["labels"].numpy()[:n_rows], n_labels) for memory in memories], None))
    rows, labels = keys // n_labels, keys % n_labels
    is_true = holds(truth, labels[:, None], rows[:, None])[:, 0]
    parts, is_first = [], np.zeros(keys.size, np.bool_)
    for memory in memories:
        odds = log_odds_of(memory["p"][:n_rows].double()).numpy()
        place = np.searchsorted(keys, _keys(memory["labels"].numpy()[:n_rows], n_labels))
        part = odds.min(1)[rows]
        part[place] = odds
        parts.append(part)
        is_first[np.take_along_axis(place, np.argsort(-odds, axis=1, kind="stable")[:, :_N_FIRST], 1)] = True
    entries = [part[is_first] for part in parts], labels[is_first], is_true[is_first]
    stack.cpu().fit(*entries)

    n_each = np.bincount(rows, minlength=n_rows)
    n_listed = int(n_each.min())

    def ranked(values: NDArray[np.floating]) -> sparse.csr_array:
        """Return the best labels of each row by these values, of all rows the same number."""
        order = np.lexsort((labels, -values, rows))
        best = order[np.arange(order.size) - (np.cumsum(n_each) - n_each)[rows[order]] < n_listed]
        chosen, p = (torch.from_numpy(array[best].reshape(n_rows, -1)) for array in (labels, values))
        return to_csr([(chosen, p)], n_listed, n_labels)

    def scores(values: NDArray[np.floating]) -> list[float]:
        found = evaluate(truth, ranked(values))
        return [float(found[f"P@{k}"]) for k in (1, 3, 5)]

    def probabilities(stack: Stack = stack) -> NDArray[np.float32]:
        odds = stack([torch.from_numpy(part.astype(np.float32)) for part in parts], torch.from_numpy(labels))
        return np.asarray(odds.sigmoid().numpy())

    if n_rows >= _ENOUGH_ROWS:
        level = deepcopy(stack)
        level.fit_level(*entries)
        if sum(scores(probabilities(level))) >= sum(scores(probabilities())):
            stack.load_state_dict(level.state_dict())
    alone, together = [scores(part) for part in parts], scores(probabilities())
    judged = score_ranking(truth, ranked(probabilities()), min(N_RANKED, n_listed))
    calibration.fit(judged.ranked.scores, judged.hit)
    return [{"alone": one} | ({"together": together} if one is alone[-1] else {}) for one in alone]


def held_out_scores(memories: Sequence[dict[str, Tensor]], n_labels: int) -> list[dict[str, list[float]]]:
    """Return P@1, 3 and 5 on held-out rows of each member alone, and of the mean of it and all before it.

    Labels that were not observed are left out of the rankings.
    """
    if not all("p" in memory for memory in memories):
        return [{} for _ in memories]
    truth, hidden = _truth(memories[0], n_labels), _hidden(memories, n_labels)

    def scores(some: Sequence[dict[str, Tensor]]) -> list[float]:
        mean = _mean(some, n_labels)
        found = evaluate(truth, mean if hidden is None else _without(mean, hidden))
        return [float(found[f"P@{k}"]) for k in (1, 3, 5)]

    return [{"alone": scores([memory]), "together": scores(memories[: i + 1])} for i, memory in enumerate(memories)]


def _truth(memory: dict[str, Tensor], n_labels: int) -> sparse.csr_array:
    return from_counts(memory["true_counts"].numpy(), memory["true_labels"].numpy(), None, n_labels)


def _keys(labels: NDArray[np.int64], n_labels: int) -> NDArray[np.int64]:
    """Return one number for each entry of labels (N, k): its place in a matrix (N, K)."""
    return np.asarray(np.arange(len(labels))[:, None] * n_labels + labels)


def _hidden(memories: Sequence[dict[str, Tensor]], n_labels: int) -> NDArray[np.int64] | None:
    """Return the places of all remembered labels that were not observed; None where everything was."""
    if "is_known" not in memories[0]:
        return None
    places = [_keys(memory["labels"].numpy(), n_labels)[~memory["is_known"].numpy()] for memory in memories]
    return np.unique(np.concatenate(places))


def _without(ranked: sparse.csr_array, hidden: NDArray[np.int64]) -> sparse.csr_array:
    """Return rankings without the labels at these places."""
    row = np.repeat(np.arange(ranked.shape[0]), np.diff(ranked.indptr))
    kept = ~np.isin(row * ranked.shape[1] + ranked.indices, hidden)
    counts = np.bincount(row[kept], minlength=ranked.shape[0])
    return from_counts(counts, ranked.indices[kept], ranked.data[kept], ranked.shape[1])


def _mean(memories: Sequence[dict[str, Tensor]], n_labels: int) -> sparse.csr_array:
    """Return the best labels of held-out rows by the mean over members.

    A label that a member does not remember counts 0 for it: it is not among its 64 best.
    """
    n_rows, n_kept = memories[0]["labels"].shape
    keys = np.concatenate([_keys(memory["labels"].numpy(), n_labels).ravel() for memory in memories])
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
