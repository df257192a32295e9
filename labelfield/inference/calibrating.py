"""Calibration on held-out rows: fit the map of probabilities, and keep the predictions for these rows."""

from collections.abc import Callable, Sequence
from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from torch import Tensor

from labelfield.csr import from_counts
from labelfield.decide.evidence import Evidence, folds
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


# What the names of the evidence for decisions begin with, in memories and in model folders.
EVIDENCE = "evidence."
# The weights of held-out rows in a memory, and how far they may tilt them.
_BALANCE, _MOST_TILT = "balance", 1.0

# Tells for labels (N, k) of rows which were observed.
IsKnown = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
Rows = NDArray[np.intp]


def calibrate_predictor(
    predictor: Predictor,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    is_known: IsKnown | None = None,
    n_ranked: int = N_RANKED,
) -> dict[str, Tensor]:
    """Learn the map of probabilities from held-out rows X and their labels Y, and return the predictions to keep.

    That is the best labels with their raw probabilities and the true ones, and the evidence for decisions, as tensors
    that a checkpoint can hold. Where some labels are missing, those that are not known count for nothing.
    """
    ranked = predictor.top_k(X, N_REMEMBERED, calibrated=False)
    judged = score_ranking(Y, ranked, min(N_REMEMBERED, predictor.n_labels))
    labels, raw = judged.ranked.labels, judged.ranked.scores.astype(np.float32)
    known = None if is_known is None else is_known(labels)
    calibration = predictor.calibration
    if isinstance(calibration, Temperature):
        P = predictor.proba(X, calibrated=False)
        calibration.fit(P, Y.indices)

        def mapped(taking_part: Rows, own: Rows) -> NDArray[np.float32]:
            apart = Temperature()
            apart.fit(P[taking_part], Y.indices[taking_part])
            return np.take_along_axis(apart(torch.from_numpy(P[own])).numpy(), labels[own], 1)

    else:
        calibration.fit(raw[:, :n_ranked], judged.hit[:, :n_ranked], None if known is None else known[:, :n_ranked])

        def mapped(taking_part: Rows, own: Rows) -> NDArray[np.float32]:
            apart = Calibration(calibration.has_lead)
            some = None if known is None else known[taking_part, :n_ranked]
            apart.fit(raw[taking_part, :n_ranked], judged.hit[taking_part, :n_ranked], some)
            return by_rank(apart, raw[own])

    evidence = cross_fitted(lambda taking_part, own: (labels[own], mapped(taking_part, own)), Y, known)
    remembered = {} if known is None else {"is_known": torch.from_numpy(known)}
    return remembered | as_memory(labels, raw, Y) | evidence


def by_rank(calibration: Calibration, p: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return calibrated probabilities of ranked ones (n, k), the largest first."""
    found: Tensor = calibration(torch.from_numpy(p.astype(np.float32)), torch.arange(p.shape[1]))
    return found.numpy()


def cross_fitted(
    learn: Callable[[Rows, Rows], tuple[NDArray[np.int64], NDArray[np.float32]]],
    Y: sparse.csr_array,
    is_known: NDArray[np.bool_] | None = None,
) -> dict[str, Tensor]:
    """Return the evidence for decisions about held-out rows with labels Y, as tensors that a checkpoint can hold.

    `learn(taking_part, own)` gives labels (n, k) of its own rows and their probabilities, by maps that were learned
    from the rows taking part, which are all others: probabilities of rows that they were learned from look a little
    better than those of new rows.
    """
    if not Y.shape[0]:
        return {}
    turns = []
    for is_own in folds(Y.shape[0]):
        own = np.flatnonzero(is_own)
        # A single row has no others to learn from.
        turns.append((own, *learn(own if is_own.all() else np.flatnonzero(~is_own), own)))
    order = np.argsort(np.concatenate([own for own, _, _ in turns]))
    labels, p = (np.concatenate([turn[part] for turn in turns])[order] for part in (1, 2))
    evidence = Evidence.of(labels, p, Y, is_known)
    return {f"{EVIDENCE}{name}": torch.from_numpy(array) for name, array in evidence.arrays().items()}


def evidence_of(memory: dict[str, Tensor], n_labels: int) -> Evidence | None:
    """Return the evidence for decisions that a run remembers; None if no rows were held out."""
    found = {name.removeprefix(EVIDENCE): part.numpy() for name, part in memory.items() if name.startswith(EVIDENCE)}
    return Evidence.restore(found, n_labels) if found else None


def remember(predictor: Predictor, X: sparse.csr_array, Y: sparse.csr_array) -> dict[str, Tensor]:
    """Return a predictor's current predictions for held-out rows, before anything is learned from them."""
    ranked = score_ranking(
        Y, predictor.top_k(X, N_REMEMBERED, calibrated=False), min(N_REMEMBERED, predictor.n_labels)
    ).ranked
    return as_memory(ranked.labels, ranked.scores.astype(np.float32), Y)


def as_memory(labels: NDArray[np.int64], p: NDArray[np.float32], Y: sparse.csr_array) -> dict[str, Tensor]:
    """Return some labels (N, k) of held-out rows, their raw probabilities and the true labels, as tensors."""
    return {
        "labels": torch.from_numpy(labels),
        "p": torch.from_numpy(p),
        "true_counts": torch.from_numpy(np.diff(Y.indptr).astype(np.int64)),
        "true_labels": torch.from_numpy(Y.indices.copy()),
    }


def balance(surprise: NDArray[np.floating], n_first: int) -> dict[str, Tensor]:
    """Return weights of the first rows, near 1, by which they are as surprising as all rows: a part of a memory.

    `surprise` (N, m) has how many more labels of a row hold than a model expected, that all rows have calibrated. Where
    its first rows were lucky, so were they for other models, which have nothing else to be calibrated on. Weights are
    exp(λᵀ surprise) with the least λ (exponential tilting).
    """
    away = (surprise[:n_first] - surprise.mean(axis=0)).astype(np.float64)

    def spread(tilt: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weight = np.exp(away @ tilt)
        return float(weight.mean() + 0.5 * tilt @ tilt / n_first), away.T @ weight / n_first + tilt / n_first

    found = minimize(spread, np.zeros(away.shape[1]), jac=True, bounds=[(-_MOST_TILT, _MOST_TILT)] * away.shape[1])
    weight = np.exp(away @ found.x)
    return {_BALANCE: torch.from_numpy(weight / weight.mean())}


def holds(Y: sparse.csr_array, labels: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
    """Return which of these labels (N, k) hold in these rows (default: all, one after another), by their labels Y."""
    true = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * Y.shape[1] + Y.indices
    return np.isin(_keys(labels, Y.shape[1]) if rows is None else rows * Y.shape[1] + labels, true)


def calibrate_mean(
    calibration: Calibration | Temperature, memories: Sequence[dict[str, Tensor]], n_labels: int
) -> dict[str, Tensor]:
    """Fit the map of mean probabilities to each member's predictions for held-out rows, if there are any.

    Return the evidence for decisions, as `cross_fitted` does.
    """
    if not all("p" in memory for memory in memories):
        return {}
    truth, mean = _truth(memories[0], n_labels), _mean(memories, n_labels)
    judged = score_ranking(truth, mean, memories[0]["labels"].shape[1])
    labels, raw, known = judged.ranked.labels, judged.ranked.scores, None
    if isinstance(calibration, Temperature):
        P = _shared_rest(mean)
        calibration.fit(P, truth.indices)

        def mapped(taking_part: Rows, own: Rows) -> NDArray[np.float32]:
            apart = Temperature()
            apart.fit(P[taking_part], truth.indices[taking_part])
            return np.take_along_axis(apart(torch.from_numpy(P[own])).numpy(), labels[own], 1)

    else:
        hidden = _hidden(memories, n_labels)
        known = None if hidden is None else ~np.isin(_keys(labels, n_labels), hidden)
        calibration.fit(raw, judged.hit, known)

        def mapped(taking_part: Rows, own: Rows) -> NDArray[np.float32]:
            apart = Calibration(calibration.has_lead)
            apart.fit(raw[taking_part], judged.hit[taking_part], None if known is None else known[taking_part])
            return by_rank(apart, raw[own])

    return cross_fitted(lambda taking_part, own: (labels[own], mapped(taking_part, own)), truth, known)


def _shared_rest(mean: sparse.csr_array) -> NDArray[np.float32]:
    """Return the probabilities of all classes, of which some are known: the others share what is left, since none of
    them is impossible."""
    P = mean.toarray()
    is_open = np.ones(P.shape, np.bool_)
    is_open[np.repeat(np.arange(len(P)), np.diff(mean.indptr)), mean.indices] = False
    left = np.maximum(1 - P.sum(1, keepdims=True), 0) / np.maximum(is_open.sum(1, keepdims=True), 1)
    P = np.where(is_open, left, P)
    return np.asarray(P / np.maximum(P.sum(1, keepdims=True), np.finfo(np.float32).tiny), np.float32)


class _Entries:
    """Labels of held-out rows that any member remembers, one after another: what each member says of them.

    A label that a member does not remember is as likely as the last one that it does.
    """

    def __init__(self, memories: Sequence[dict[str, Tensor]], n_labels: int) -> None:
        self.n_rows, self.n_labels = min(len(memory["labels"]) for memory in memories), n_labels
        counts = memories[0]["true_counts"].numpy()[: self.n_rows]
        self.truth = from_counts(counts, memories[0]["true_labels"].numpy()[: counts.sum()], None, n_labels)
        listed = [_keys(memory["labels"].numpy()[: self.n_rows], n_labels) for memory in memories]
        keys = np.unique(np.concatenate(listed, None))
        self.rows, self.labels = keys // n_labels, keys % n_labels
        self.is_true = holds(self.truth, self.labels[:, None], self.rows[:, None])[:, 0]
        self.parts, self.is_first = [], np.zeros(keys.size, np.bool_)
        for memory, own in zip(memories, listed, strict=True):
            odds = log_odds_of(memory["p"][: self.n_rows].double()).numpy()
            place = np.searchsorted(keys, own)
            part = odds.min(1)[self.rows]
            part[place] = odds
            self.parts.append(part)
            best = np.argsort(-odds, axis=1, kind="stable")[:, :_N_FIRST]
            self.is_first[np.take_along_axis(place, best, 1)] = True
        n_each = np.bincount(self.rows, minlength=self.n_rows)
        self.n_listed, self.starts = int(n_each.min()), np.cumsum(n_each) - n_each
        # A matrix with the entries of each row side by side is sorted far sooner than all of them at once.
        self.places, self.shape = np.arange(keys.size) - self.starts[self.rows], (self.n_rows, int(n_each.max()))

    def ranked(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the places (n, k) of the best entries of each row by these values, best first; of equals, the label
        with the smaller number."""
        side_by_side = np.full(self.shape, np.inf, values.dtype)
        side_by_side[self.rows, self.places] = -values
        order = np.argsort(side_by_side, axis=1, kind="stable")[:, : self.n_listed]
        return np.asarray(self.starts[:, None] + order)

    def learn(
        self,
        stack: Stack,
        calibration: Calibration,
        taking_part: Rows,
        near: Stack | None = None,
        weight: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Learn weights and the map of probabilities from some rows; return the best labels of all, and the raw
        probabilities. For the map each row of all has a `weight`."""
        takes_part = np.zeros(self.n_rows, np.bool_)
        takes_part[taking_part] = True
        used = self.is_first & takes_part[self.rows]
        stack.cpu().fit([part[used] for part in self.parts], self.labels[used], self.is_true[used], near)
        parts = [torch.from_numpy(part.astype(np.float32)) for part in self.parts]
        every: NDArray[np.float32] = stack(parts, torch.from_numpy(self.labels)).sigmoid().numpy()
        best = self.ranked(every)
        first = best[taking_part, :N_RANKED]
        calibration.fit(every[first], self.is_true[first], weight=None if weight is None else weight[taking_part])
        return self.labels[best], every[best]

    def scores(self, labels: NDArray[np.int64], values: NDArray[np.floating]) -> list[float]:
        """Return P@1, 3 and 5 of labels by their values."""
        chosen, p = (torch.from_numpy(np.ascontiguousarray(array)) for array in (labels, values))
        found = evaluate(self.truth, to_csr([(chosen, p)], self.n_listed, self.n_labels))
        return [float(found[f"P@{k}"]) for k in (1, 3, 5)]


def fit_stack(
    stack: Stack, calibration: Calibration, memories: Sequence[dict[str, Tensor]], n_labels: int
) -> tuple[list[dict[str, list[float]]], dict[str, Tensor]]:
    """Learn the weights of members and the map of their probabilities from their predictions for held-out rows.

    Return P@1, 3 and 5 on these rows of each member alone and, for the last, of all together; and the evidence for
    decisions, as `cross_fitted` does.
    """
    if not all("p" in memory and memory["p"].numel() for memory in memories):
        return [{} for _ in memories], {}
    entries, start = _Entries(memories, n_labels), deepcopy(stack.cpu())
    told = next((memory[_BALANCE] for memory in memories if _BALANCE in memory), None)
    weight = None if told is None else told.numpy()[: entries.n_rows]

    def learn(taking_part: Rows, own: Rows) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        apart = Calibration(calibration.has_lead)
        labels, p = entries.learn(deepcopy(start), apart, taking_part, stack, weight)
        return labels[own, :N_REMEMBERED], by_rank(apart, p[own, :N_REMEMBERED])

    together = entries.scores(*entries.learn(stack, calibration, np.arange(entries.n_rows), weight=weight))
    evidence = cross_fitted(learn, entries.truth)
    orders = [entries.ranked(part) for part in entries.parts]
    alone = [entries.scores(entries.labels[best], part[best]) for best, part in zip(orders, entries.parts, strict=True)]
    return [{"alone": one} | ({"together": together} if one is alone[-1] else {}) for one in alone], evidence


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
