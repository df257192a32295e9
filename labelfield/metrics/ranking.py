"""Scores of ranked label lists: P@k, recall@k, nDCG@k and their propensity-scored versions.

Higher scores come first, and the smaller label index among equal scores. In CSR predictions, the stored entries are the
list, including those with score 0; other labels are never retrieved, and the missing places of a list shorter than k
count as misses. Rows without labels count as misses, or are left out with unlabelled="drop".
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_positives, column_counts, from_counts, row_of_entries
from labelfield.errors import DataError
from labelfield.metrics.inputs import Scores, as_scores, block_rows, entry_keys, find

Unlabelled = Literal["miss", "drop"]


@dataclass(frozen=True, eq=False)
class TopK:
    """The k best labels of each row, best first, with their scores; -1 (and score nan) after the end of a shorter list.

    Where labels have weights, the best are those with the largest score times weight; scores are without the weight.
    """

    labels: NDArray[np.int64]
    scores: NDArray[np.float64]


def top_k(scores: Any, k: int, weight: NDArray[np.float64] | None = None) -> TopK:
    """Return the k best labels of each row, from dense scores or CSR predictions.

    With a `weight` (K,) labels are ranked by score times weight.
    """
    _check_k(k)
    scores = as_scores(scores)
    weight = None if weight is None else _as_weight(np.asarray(weight, np.float64), scores.shape[1])
    n, n_labels = scores.shape
    labels = np.full((n, k), -1, np.int64)
    values = np.full((n, k), np.nan)
    is_dense = isinstance(scores, np.ndarray)
    counts = np.full(n, n_labels) if is_dense else np.diff(scores.indptr)
    longest = int(counts.max(initial=0))
    width = min(k, longest)
    for rows in block_rows(n, longest) if width else ():
        if is_dense:
            block = scores[rows]
            best = found = _best_places(block if weight is None else block * weight, width)
        else:  # the lists of these rows, side by side from the left
            place = np.arange(longest)
            is_filled = place < counts[rows, None]
            where = np.where(is_filled, scores.indptr[:-1][rows, None] + place, 0)
            block = np.where(is_filled, scores.data[where].astype(np.float64), -np.inf)
            best = _best_places(block if weight is None else block * weight[scores.indices[where]], width)
            found = np.take_along_axis(scores.indices[where], best, axis=1)
        is_there = np.arange(width) < counts[rows, None]
        labels[rows, :width] = np.where(is_there, found, -1)
        values[rows, :width] = np.where(is_there, np.take_along_axis(block, best, axis=1), np.nan)
    return TopK(labels, values)


def _as_weight(weight: NDArray[np.float64], n_labels: int) -> NDArray[np.float64]:
    if weight.shape != (n_labels,) or not (np.isfinite(weight) & (weight > 0)).all():
        raise DataError(f"weights of shape {weight.shape}", f"a positive number for each of {n_labels} labels")
    return weight


def _best_places(block: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return the places of the k largest entries of each row, the largest first, and the first among equal ones."""
    n_places = block.shape[1]
    if k < n_places:
        best = np.argpartition(block, n_places - k, axis=1)[:, n_places - k :]
        kth = np.take_along_axis(block, best, axis=1).min(axis=1)
        # If more than k entries reach the k-th, the partition has chosen arbitrarily among equal ones.
        tied = np.flatnonzero(np.count_nonzero(block >= kth[:, None], axis=1) > k)
        if tied.size:
            best[tied] = np.argsort(-block[tied], axis=1, kind="stable")[:, :k]
        best.sort(axis=1)
    else:
        best = np.broadcast_to(np.arange(n_places), block.shape)
    order = np.argsort(-np.take_along_axis(block, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


@dataclass(frozen=True, eq=False)
class RankedHits:
    """Ranked lists, and whether the label in each place is true: all that the scores at k = 1 … k_max need."""

    ranked: TopK
    hit: NDArray[np.bool_]
    Y: sparse.csr_array
    k_max: int
    unlabelled: Unlabelled = "miss"

    @cached_property
    def n_true(self) -> NDArray[np.int64]:
        return np.asarray(np.diff(self.Y.indptr), np.int64)

    @property
    def n_rows(self) -> int:
        """The number of rows that means are taken over."""
        return self.hit.shape[0] if self.unlabelled == "miss" else int(np.count_nonzero(self.n_true))

    def _mean(self, per_row: NDArray[np.float64]) -> float:
        """Return the mean over the rows that count; a row without labels adds 0 to the sum."""
        return float(per_row.sum() / self.n_rows) if self.n_rows else float("nan")

    def _hits(self, k: int) -> NDArray[np.bool_]:
        """Return the hits in the first k places, or in fewer if there are fewer labels."""
        _check_k(k)
        if k > self.k_max:
            raise ValueError(f"k={k}, but labels were ranked only up to k={self.k_max}")
        return self.hit[:, :k]

    def precision(self, k: int) -> float:
        """Return P@k: hits in the first k places over k."""
        return self._mean(self._hits(k).sum(axis=1) / k)

    def recall(self, k: int) -> float:
        """Return recall@k: hits in the first k places over the number of true labels."""
        return self._mean(self._hits(k).sum(axis=1) / np.maximum(self.n_true, 1))

    def f1(self, k: int) -> float:
        """Return F1@k: twice the hits in the first k places over the labels listed there and the true ones."""
        n_listed = np.count_nonzero(self.ranked.labels[:, :k] >= 0, axis=1)
        return self._mean(2 * self._hits(k).sum(axis=1) / np.maximum(n_listed + self.n_true, 1))

    def ndcg(self, k: int) -> float:
        """Return nDCG@k: discounted hits over the best possible discounted hits of min(k, |true|) labels."""
        return self._mean(self.ndcg_by_row(k))

    def ndcg_by_row(self, k: int) -> NDArray[np.float64]:
        """Return nDCG@k of each row, 0 for rows without labels."""
        hits = self._hits(k)
        return np.asarray((hits @ discount(hits.shape[1])) / self._ideal(k))

    def psp(self, k: int, inverse: NDArray[np.float64]) -> float:
        """Return PSP@k: hits weighted by inverse propensities over the most that any ranking could have."""
        return _ratio(self._weighted(k, inverse).sum(), self._best_weights(k, inverse).sum())

    def psndcg(self, k: int, inverse: NDArray[np.float64]) -> float:
        """Return PSnDCG@k: PSP@k with discounts, with the gain of each row divided by its unweighted ideal first."""
        gain, best, ideal = self._weighted(k, inverse), self._best_weights(k, inverse), self._ideal(k)
        discounts = discount(gain.shape[1])
        return _ratio(((gain @ discounts) / ideal).sum(), ((best @ discounts) / ideal).sum())

    def _ideal(self, k: int) -> NDArray[np.float64]:
        """Return DCG of a perfect list of min(k, |true|) labels; 1 for rows without labels, whose gain is 0."""
        width = min(k, self.hit.shape[1])
        total = np.concatenate(([1.0], np.cumsum(discount(width))))
        return np.asarray(total[np.minimum(self.n_true, width)])

    def _weighted(self, k: int, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the inverse propensity of each hit in the first k places, and 0 for each miss."""
        n_labels = self.Y.shape[1]
        if inverse.shape != (n_labels,):
            found, expected = f"propensities of {inverse.size} labels", f"those of {n_labels} labels"
            raise DataError(found, expected, "Use the same label set.")
        return np.where(self._hits(k), inverse[self.ranked.labels[:, :k]], 0.0)

    def _best_weights(self, k: int, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the k largest inverse propensities of the true labels of each row, largest first, then 0."""
        place_of = np.empty(inverse.size, np.int64)
        descending = np.argsort(-inverse, kind="stable")
        place_of[descending] = np.arange(inverse.size)
        # Sorting row * K + place sorts the labels of every row by weight in one flat sort.
        row = row_of_entries(self.Y)
        key = np.sort(row * inverse.size + place_of[self.Y.indices])
        place_in_row = np.arange(key.size) - self.Y.indptr[:-1].astype(np.int64)[row]
        kept = place_in_row < k
        best = np.zeros((self.Y.shape[0], min(k, self.hit.shape[1])))
        best[row[kept], place_in_row[kept]] = inverse[descending[key[kept] - row[kept] * inverse.size]]
        return best


def score_ranking(
    Y: Any,
    scores: Any,
    k: int,
    *,
    unlabelled: Unlabelled = "miss",
    weight: NDArray[np.float64] | None = None,
) -> RankedHits:
    """Rank the labels of each row once, for all scores at up to k; with a `weight` (K,) by score times weight."""
    _check_k(k)
    if unlabelled not in ("miss", "drop"):
        raise ValueError(f"unlabelled={unlabelled!r}; expected 'miss' or 'drop'")
    Y = as_positives(Y)
    scores = as_scores(scores, Y.shape)
    ranked = top_k(scores, min(k, max(Y.shape[1], 1)), weight)  # a list is never longer than all labels
    asked = np.arange(Y.shape[0])[:, None] * Y.shape[1] + ranked.labels
    is_hit = find(entry_keys(Y), asked)[1] & (ranked.labels >= 0)
    return RankedHits(ranked, is_hit, Y, k, unlabelled)


def discount(k: int) -> NDArray[np.float64]:
    """Return 1 / log2(1 + rank) for ranks 1 … k."""
    return 1.0 / np.log2(np.arange(2, k + 2))


def _ratio(gained: float, best: float) -> float:
    return float(gained / best) if best > 0 else float("nan")


def _check_k(k: int) -> None:
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
        raise ValueError(f"k={k!r}; expected a positive integer")


def precision_at_k(Y: Any, scores: Scores, k: int = 5, *, unlabelled: Unlabelled = "miss") -> float:
    """Return P@k."""
    return score_ranking(Y, scores, k, unlabelled=unlabelled).precision(k)


def recall_at_k(Y: Any, scores: Scores, k: int = 5, *, unlabelled: Unlabelled = "miss") -> float:
    """Return recall@k."""
    return score_ranking(Y, scores, k, unlabelled=unlabelled).recall(k)


def f1_at_k(Y: Any, scores: Scores, k: int = 5, *, unlabelled: Unlabelled = "miss") -> float:
    """Return F1@k, a mean over rows."""
    return score_ranking(Y, scores, k, unlabelled=unlabelled).f1(k)


def ndcg_at_k(Y: Any, scores: Scores, k: int = 5, *, unlabelled: Unlabelled = "miss") -> float:
    """Return nDCG@k."""
    return score_ranking(Y, scores, k, unlabelled=unlabelled).ndcg(k)


def psp_at_k(Y: Any, scores: Scores, inverse_propensity: NDArray[np.float64], k: int = 5) -> float:
    """Return PSP@k; rows without labels add nothing to numerator and denominator."""
    return score_ranking(Y, scores, k).psp(k, np.asarray(inverse_propensity, np.float64))


def psndcg_at_k(Y: Any, scores: Scores, inverse_propensity: NDArray[np.float64], k: int = 5) -> float:
    """Return PSnDCG@k; rows without labels add nothing to numerator and denominator."""
    return score_ranking(Y, scores, k).psndcg(k, np.asarray(inverse_propensity, np.float64))


def popularity(Y_train: Any, n_rows: int, k: int = 5) -> sparse.csr_array:
    """Return the predictions that every model must beat: the k most frequent training labels, for every row.

    They are CSR, with the frequency of each label as its probability.
    """
    Y_train = as_positives(Y_train)
    frequency = column_counts(Y_train) / max(Y_train.shape[0], 1)
    best = np.sort(top_k(frequency[None], min(k, frequency.size)).labels[0]).astype(np.int32)
    values = np.tile(frequency[best].astype(np.float32), n_rows)
    return from_counts(np.full(n_rows, best.size), np.tile(best, n_rows), values, frequency.size)
