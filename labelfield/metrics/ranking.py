"""Scores of ranked label lists: P@k, recall@k, nDCG@k and their propensity-scored kin (METHODS 6).

Order: higher score first; of equal scores the smaller label index first. In CSR predictions the stored entries are
the list, whatever their values; labels that are not stored are never retrieved, and a list shorter than k misses
in its empty places. Rows without labels count as misses, or are left out with unlabelled="drop".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_positives
from labelfield.errors import DataError
from labelfield.metrics.inputs import Scores, as_scores, block_rows, entry_keys, find, row_of_entries

__all__ = [
    "Judged",
    "TopK",
    "Unlabelled",
    "judge",
    "ndcg_at_k",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
    "top_k",
]

Unlabelled = Literal["miss", "drop"]


@dataclass(frozen=True, eq=False)
class TopK:
    """The k best labels of each row, best first; -1 (and score nan) where a list is shorter."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float64]


def top_k(scores: Any, k: int) -> TopK:
    """The k best labels of each row, from dense scores or CSR predictions."""
    _check_k(k)
    scores = as_scores(scores)
    n, n_labels = scores.shape
    labels = np.full((n, k), -1, np.int64)
    values = np.full((n, k), np.nan)
    if isinstance(scores, np.ndarray):
        width, best = min(k, n_labels), _best_of_dense
    else:
        longest = int(np.diff(scores.indptr).max(initial=0))
        width, best = min(k, longest), _best_of_lists
        n_labels = longest
    for rows in block_rows(n, n_labels):
        if width:
            labels[rows, :width], values[rows, :width] = best(scores, rows, width)
    return TopK(labels, values)


def _best_of_dense(scores: Any, rows: slice, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    block = scores[rows]
    n_labels = block.shape[1]
    if k < n_labels:
        best = np.argpartition(block, n_labels - k, axis=1)[:, n_labels - k :]
        kth = np.take_along_axis(block, best, axis=1).min(axis=1)
        # Where more than k labels reach the k-th score, the partition chose among equals at will.
        tied = np.flatnonzero(np.count_nonzero(block >= kth[:, None], axis=1) > k)
        if tied.size:
            best[tied] = np.argsort(-block[tied], axis=1, kind="stable")[:, :k]
        best.sort(axis=1)
    else:
        best = np.broadcast_to(np.arange(n_labels), block.shape)
    values = np.take_along_axis(block, best, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1), np.take_along_axis(values, order, axis=1)


def _best_of_lists(scores: Any, rows: slice, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    indptr = scores.indptr[rows.start : rows.stop + 1].astype(np.int64)
    counts = np.diff(indptr)
    width = int(counts.max(initial=0))
    place = np.arange(width)
    filled = place < counts[:, None]
    where = np.where(filled, indptr[:-1, None] + place, 0)
    negated = np.where(filled, -scores.data[where].astype(np.float64), np.inf)
    order = np.argsort(negated, axis=1, kind="stable")[:, :k]
    labels = np.take_along_axis(scores.indices[where].astype(np.int64), order, axis=1)
    values = -np.take_along_axis(negated, order, axis=1)
    missing = place[: order.shape[1]] >= counts[:, None]
    labels[missing] = -1
    values[missing] = np.nan
    out_labels = np.full((counts.size, k), -1, np.int64)
    out_values = np.full((counts.size, k), np.nan)
    out_labels[:, : order.shape[1]], out_values[:, : order.shape[1]] = labels, values
    return out_labels, out_values


@dataclass(frozen=True, eq=False)
class Judged:
    """Ranked lists and the verdict on each place: everything that the scores at k = 1 … k_max need."""

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
        """How many rows a mean is over."""
        return self.hit.shape[0] if self.unlabelled == "miss" else int(np.count_nonzero(self.n_true))

    def _mean(self, per_row: NDArray[np.float64]) -> float:
        """The mean over the rows that count; a row without labels has nothing to add to the sum."""
        return float(per_row.sum() / self.n_rows) if self.n_rows else float("nan")

    def _hits(self, k: int) -> NDArray[np.bool_]:
        """The verdicts on the first k places, or on fewer where there are fewer labels."""
        _check_k(k)
        if k > self.k_max:
            raise ValueError(f"k={k}, but the lists were judged up to {self.k_max}")
        return self.hit[:, :k]

    def precision(self, k: int) -> float:
        """P@k: hits in the first k places over k."""
        return self._mean(self._hits(k).sum(axis=1) / k)

    def recall(self, k: int) -> float:
        """Recall@k: hits in the first k places over the number of true labels."""
        return self._mean(self._hits(k).sum(axis=1) / np.maximum(self.n_true, 1))

    def ndcg(self, k: int) -> float:
        """nDCG@k: discounted hits over the best discounted hits of min(k, |true|) labels."""
        hits = self._hits(k)
        return self._mean((hits @ discount(hits.shape[1])) / self._ideal(k))

    def psp(self, k: int, inverse: NDArray[np.float64]) -> float:
        """PSP@k: inverse-propensity weighted hits over the most that any ranking could have."""
        self._check_weights(inverse)
        return _ratio(self._weighted(k, inverse).sum(), self._best_weights(k, inverse).sum())

    def psndcg(self, k: int, inverse: NDArray[np.float64]) -> float:
        """PSnDCG@k: the discounted kind of PSP@k; each row's gain is over its unweighted ideal first."""
        self._check_weights(inverse)
        ideal = self._ideal(k)
        gain, best = self._weighted(k, inverse), self._best_weights(k, inverse)
        discounts = discount(gain.shape[1])
        return _ratio(((gain @ discounts) / ideal).sum(), ((best @ discounts) / ideal).sum())

    def _ideal(self, k: int) -> NDArray[np.float64]:
        """DCG of a perfect list of min(k, |true|) labels; 1 for rows without labels, whose gain is 0."""
        width = min(k, self.hit.shape[1])
        total = np.concatenate(([1.0], np.cumsum(discount(width))))
        return np.asarray(total[np.minimum(self.n_true, width)])

    def _check_weights(self, inverse: NDArray[np.float64]) -> None:
        n_labels = self.Y.shape[1]
        if inverse.shape != (n_labels,):
            found = f"propensities of {inverse.size} labels"
            raise DataError(found, expected=f"of {n_labels}", fix="Use the same label set.")

    def _weighted(self, k: int, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(self._hits(k), inverse[self.ranked.labels[:, :k]], 0.0)

    def _best_weights(self, k: int, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
        """The k largest inverse propensities among each row's true labels, largest first, 0 beyond."""
        place_of = np.empty(inverse.size, np.int64)
        descending = np.argsort(-inverse, kind="stable")
        place_of[descending] = np.arange(inverse.size)
        # Sorting row * K + place orders every row's labels by weight in one flat sort.
        row = row_of_entries(self.Y)
        key = np.sort(row * inverse.size + place_of[self.Y.indices])
        place_in_row = np.arange(key.size) - self.Y.indptr[:-1].astype(np.int64)[row]
        kept = place_in_row < k
        best = np.zeros((self.Y.shape[0], min(k, self.hit.shape[1])))
        best[row[kept], place_in_row[kept]] = inverse[descending[key[kept] - row[kept] * inverse.size]]
        return best


def judge(Y: Any, scores: Any, k: int, *, unlabelled: Unlabelled = "miss") -> Judged:
    """Rank once, for any of the scores at up to k."""
    _check_k(k)
    if unlabelled not in ("miss", "drop"):
        raise ValueError(f"unlabelled={unlabelled!r}; expected 'miss' or 'drop'")
    Y = as_positives(Y)
    scores = as_scores(scores, Y.shape)
    ranked = top_k(scores, min(k, max(Y.shape[1], 1)))  # a list is never longer than all labels
    return Judged(ranked, _is_positive(Y, ranked.labels), Y, k, unlabelled)


def _is_positive(Y: sparse.csr_array, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each ranked label is true, by a search among the sorted keys row * K + label of the positives."""
    asked = np.arange(labels.shape[0])[:, None] * Y.shape[1] + labels
    return np.asarray(find(entry_keys(Y), asked)[1] & (labels >= 0))


def discount(k: int) -> NDArray[np.float64]:
    """1 / log2(1 + rank) for ranks 1 … k."""
    return 1.0 / np.log2(np.arange(2, k + 2))


def _ratio(gained: float, best: float) -> float:
    return float(gained / best) if best > 0 else float("nan")


def _check_k(k: int) -> None:
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
        raise ValueError(f"k={k!r}; expected a positive integer")


def precision_at_k(Y: Any, scores: Scores, k: int = 5, *, unlabelled: Unlabelled = "miss") -> float:
    """P@k."""
    return judge(Y, scores, k, unlabelled=unlabelled).precision(k)


def recall_at_k(Y: Any, scores: Scores, k: int = 5, *, unlabelled: Unlabelled = "miss") -> float:
    """Recall@k."""
    return judge(Y, scores, k, unlabelled=unlabelled).recall(k)


def ndcg_at_k(Y: Any, scores: Scores, k: int = 5, *, unlabelled: Unlabelled = "miss") -> float:
    """nDCG@k."""
    return judge(Y, scores, k, unlabelled=unlabelled).ndcg(k)


def psp_at_k(Y: Any, scores: Scores, inverse_propensity: NDArray[np.float64], k: int = 5) -> float:
    """PSP@k; rows without labels add nothing to either side."""
    return judge(Y, scores, k).psp(k, np.asarray(inverse_propensity, np.float64))


def psndcg_at_k(Y: Any, scores: Scores, inverse_propensity: NDArray[np.float64], k: int = 5) -> float:
    """PSnDCG@k; rows without labels add nothing to either side."""
    return judge(Y, scores, k).psndcg(k, np.asarray(inverse_propensity, np.float64))
