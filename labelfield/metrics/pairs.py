"""Scores that count pairs of a true and a false label: AUC in three ways, ranking loss, coverage error.

All are computed from two counts for each true entry: how many entries of its group (its row, its label, or all entries)
score less, and how many score no more. In CSR predictions, labels that are not stored tie below all stored ones.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_positives, row_of_entries
from labelfield.metrics.inputs import Scores, as_scores, block_rows, entry_keys, find

__all__ = ["auc", "coverage_error", "ranking_loss"]

Grouping = Literal["micro", "label", "row"]


class _Standing(NamedTuple):
    """For each true entry: its group, its score, and how many entries of the group score less, or no more."""

    group: NDArray[np.int64]
    score: NDArray[np.float64]
    less: NDArray[np.int64]
    no_more: NDArray[np.int64]
    group_size: int
    n_groups: int


def auc(Y: Any, scores: Scores, average: Grouping = "micro") -> float:
    """Return the area under the ROC curve: over all entries, or as a mean over labels or rows with both kinds of entry."""
    if average not in ("micro", "label", "row"):
        raise ValueError(f"average={average!r}; expected 'micro', 'label' or 'row'")
    standing, n_true, n_false = _stand(Y, scores, average)
    below, equal, _ = _false_entries(standing)
    won = np.bincount(standing.group, below + 0.5 * equal, standing.n_groups)
    defined = (n_true > 0) & (n_false > 0)
    if not defined.any():
        return float("nan")
    return float(np.mean(won[defined] / (n_true[defined] * n_false[defined])))


def ranking_loss(Y: Any, scores: Scores) -> float:
    """Return the mean over rows of the fraction of (true, false) pairs in the wrong order, where a tie is wrong.

    As in scikit-learn, a row with no or only true labels counts as 0.
    """
    standing, n_true, n_false = _stand(Y, scores, "row")
    _, equal, above = _false_entries(standing)
    wrong = np.bincount(standing.group, equal + above, standing.n_groups)
    return float(np.mean(wrong / np.maximum(n_true * n_false, 1))) if n_true.size else float("nan")


def coverage_error(Y: Any, scores: Scores) -> float:
    """Return the mean over rows of how many labels score at least as much as the lowest true label.

    As in scikit-learn, a row without labels counts as 0.
    """
    standing, n_true, _ = _stand(Y, scores, "row")
    depth = np.zeros(standing.n_groups, np.int64)
    np.maximum.at(depth, standing.group, standing.group_size - standing.less)
    return float(depth.mean()) if n_true.size else float("nan")


def _false_entries(s: _Standing) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Count the false entries of its group that score below, equal to and above each true entry."""
    less_true, no_more_true = _count(s.group, s.score, s.group, s.score)
    n_true = np.bincount(s.group, minlength=s.n_groups)[s.group]
    below = s.less - less_true
    equal = s.no_more - no_more_true - below
    above = s.group_size - n_true - below - equal
    return below, equal, above


def _count(
    group: NDArray[np.int64], score: NDArray[np.float64], asked_group: NDArray[np.int64], asked: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, for each asked (group, score), the entries of that group that score less, and no more."""
    _, place = np.unique(np.concatenate([score, asked]), return_inverse=True)
    width = int(place.max(initial=0)) + 1
    key = np.sort(group * width + place[: score.size])
    asked_key = asked_group * width + place[score.size :]
    start = np.searchsorted(key, asked_group * width)
    return np.searchsorted(key, asked_key) - start, np.searchsorted(key, asked_key, side="right") - start


def _count_in_rows(block: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, for each entry of a dense block, the entries of its row that score less, and no more."""
    order = np.argsort(block, axis=1)
    ordered = np.take_along_axis(block, order, axis=1)
    place = np.arange(block.shape[1])
    starts = np.ones(block.shape, np.bool_)  # of runs of equal scores
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(starts, place, 0), axis=1)
    is_last = np.ones(block.shape, np.bool_)
    is_last[:, :-1] = starts[:, 1:]
    end = np.where(is_last, place + 1, block.shape[1])
    end = np.minimum.accumulate(end[:, ::-1], axis=1)[:, ::-1]
    less, no_more = np.empty_like(first), np.empty_like(first)
    np.put_along_axis(less, order, first, axis=1)
    np.put_along_axis(no_more, order, end, axis=1)
    return less, no_more


def _stand(Y: Any, scores: Scores, average: Grouping) -> tuple[_Standing, NDArray[np.float64], NDArray[np.float64]]:
    Y = as_positives(Y)
    scores = as_scores(scores, Y.shape)
    n, k = Y.shape
    row, label = row_of_entries(Y), Y.indices.astype(np.int64)
    group, n_groups, size = {
        "micro": (np.zeros(row.size, np.int64), 1, n * k),
        "label": (label, k, n),
        "row": (row, n, k),
    }[average]
    stand = _stand_in_dense if isinstance(scores, np.ndarray) else _stand_in_lists
    score, less, no_more = stand(Y, scores, average, group, n_groups, size)
    n_true = np.bincount(group, minlength=n_groups).astype(np.float64)  # products of counts overflow integers
    return _Standing(group, score, less, no_more, size, n_groups), n_true, size - n_true


def _stand_in_dense(
    Y: sparse.csr_array, scores: Any, average: Grouping, group: NDArray[np.int64], n_groups: int, size: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    row, label = row_of_entries(Y), Y.indices.astype(np.int64)
    score = scores[row, label].astype(np.float64)
    if average == "micro":
        ordered = np.sort(scores, axis=None)
        wanted = scores[row, label]
        return score, np.searchsorted(ordered, wanted), np.searchsorted(ordered, wanted, side="right")
    by_group = scores if average == "row" else scores.T
    member = label if average == "row" else row
    less, no_more = np.empty(row.size, np.int64), np.empty(row.size, np.int64)
    order = np.argsort(group, kind="stable")
    ends = np.searchsorted(group[order], np.arange(n_groups + 1))
    for groups in block_rows(n_groups, size):
        block = by_group[groups]
        entries = order[ends[groups.start] : ends[groups.stop]]
        at = (group[entries] - groups.start, member[entries])
        less[entries], no_more[entries] = (count[at] for count in _count_in_rows(block))
    return score, less, no_more


def _stand_in_lists(
    Y: sparse.csr_array, scores: Any, average: Grouping, group: NDArray[np.int64], n_groups: int, size: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    stored_group = {
        "micro": np.zeros(scores.nnz, np.int64),
        "label": scores.indices.astype(np.int64),
        "row": row_of_entries(scores),
    }[average]
    found, is_stored = find(entry_keys(scores), entry_keys(Y))
    score = np.full(found.size, -np.inf)
    score[is_stored] = scores.data[found[is_stored]]
    unstored = size - np.bincount(stored_group, minlength=n_groups)
    less, no_more = _count(stored_group, scores.data.astype(np.float64), group, score)
    less = np.where(is_stored, less + unstored[group], 0)
    return score, less, np.where(is_stored, no_more + unstored[group], unstored[group])
