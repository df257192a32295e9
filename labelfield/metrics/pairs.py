"""Scores that count pairs of a true and a false label: AUC in three ways, ranking loss, coverage error.

All are computed from two counts for each true entry: how many entries of its group (its row, its label, or all entries)
score less, and how many score no more. In CSR predictions, labels that are not stored tie below all stored ones.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_positives, row_of_entries
from labelfield.metrics.inputs import Scores, as_scores, block_rows, scores_of

Grouping = Literal["micro", "label", "row"]
_Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


class _Standing(NamedTuple):
    """For each true entry: its group, how many entries of the group score less, and how many false ones less or equal.

    All groups have the same size. `n_true` and `n_false` are the numbers of entries of each group, as floats, because
    their products would overflow integers.
    """

    group: NDArray[np.int64]
    less: NDArray[np.int64]
    less_false: NDArray[np.int64]
    equal_false: NDArray[np.int64]
    n_true: NDArray[np.float64]
    n_false: NDArray[np.float64]


def auc(Y: Any, scores: Scores, average: Grouping = "micro") -> float:
    """Return the area under the ROC curve, over all entries, or its mean over labels or rows that have both kinds."""
    if average not in ("micro", "label", "row"):
        raise ValueError(f"average={average!r}; expected 'micro', 'label' or 'row'")
    s = _stand(Y, scores, average)
    won = np.bincount(s.group, s.less_false + 0.5 * s.equal_false, s.n_true.size)
    n_pairs = s.n_true * s.n_false
    return float(np.mean(won[n_pairs > 0] / n_pairs[n_pairs > 0])) if n_pairs.any() else float("nan")


def ranking_loss(Y: Any, scores: Scores) -> float:
    """Return the mean over rows of the fraction of (true, false) pairs in the wrong order, where a tie is wrong.

    As in scikit-learn, a row with no or only true labels counts as 0.
    """
    s = _stand(Y, scores, "row")
    wrong = np.bincount(s.group, s.n_false[s.group] - s.less_false, s.n_true.size)
    return float(np.mean(wrong / np.maximum(s.n_true * s.n_false, 1))) if s.n_true.size else float("nan")


def coverage_error(Y: Any, scores: Scores) -> float:
    """Return the mean over rows of how many labels score at least as much as the lowest true label.

    As in scikit-learn, a row without labels counts as 0.
    """
    s = _stand(Y, scores, "row")
    depth = np.zeros(s.n_true.size)
    np.maximum.at(depth, s.group, (s.n_true + s.n_false)[s.group] - s.less)
    return float(depth.mean()) if depth.size else float("nan")


def _stand(Y: Any, scores: Scores, average: Grouping) -> _Standing:
    Y = as_positives(Y)
    scores = as_scores(scores, Y.shape)
    n, k = Y.shape
    n_groups, size = {"micro": (1, n * k), "label": (k, n), "row": (n, k)}[average]
    group = _groups(Y, average)
    score = scores_of(Y, scores)
    if isinstance(scores, np.ndarray):
        by_group = scores.T if average == "label" else scores.reshape(n_groups, size)
        less, no_more = _count_in_dense(by_group, group, score)
        score = score.astype(np.float64)
    else:
        stored_group, is_stored = _groups(scores, average), ~np.isnan(score)
        score[~is_stored] = -np.inf
        n_unstored = (size - np.bincount(stored_group, minlength=n_groups))[group]
        less, no_more = _count(stored_group, scores.data.astype(np.float64), group, score)
        less, no_more = np.where(is_stored, less + n_unstored, 0), np.where(is_stored, no_more, 0) + n_unstored
    less_true, no_more_true = _count(group, score, group, score)
    less_false = less - less_true
    n_true = np.bincount(group, minlength=n_groups).astype(np.float64)
    return _Standing(group, less, less_false, no_more - no_more_true - less_false, n_true, size - n_true)


def _groups(array: sparse.csr_array, average: Grouping) -> NDArray[np.int64]:
    """Return the group of each stored entry."""
    if average == "micro":
        return np.zeros(array.nnz, np.int64)
    return row_of_entries(array) if average == "row" else array.indices.astype(np.int64)


def _count(
    group: NDArray[np.int64], score: NDArray[np.float64], asked_group: NDArray[np.int64], asked: NDArray[np.float64]
) -> _Counts:
    """Count, for each asked (group, score), the entries of that group that score less, and no more."""
    _, place = np.unique(np.concatenate([score, asked]), return_inverse=True)
    width = int(place.max(initial=0)) + 1
    key = np.sort(group * width + place[: score.size])
    asked_key = asked_group * width + place[score.size :]
    start = np.searchsorted(key, asked_group * width)
    return np.searchsorted(key, asked_key) - start, np.searchsorted(key, asked_key, side="right") - start


def _count_in_dense(by_group: NDArray[Any], group: NDArray[np.int64], asked: NDArray[Any]) -> _Counts:
    """Count the same among the entries of the rows of a dense matrix, each of which is a group."""
    less, no_more = np.empty(group.size, np.int64), np.empty(group.size, np.int64)
    order = np.argsort(group, kind="stable")
    ends = np.searchsorted(group[order], np.arange(len(by_group) + 1))
    for block in block_rows(*by_group.shape):
        for i, ordered in enumerate(np.sort(by_group[block], axis=1), block.start):
            entries = order[ends[i] : ends[i + 1]]
            less[entries] = np.searchsorted(ordered, asked[entries])
            no_more[entries] = np.searchsorted(ordered, asked[entries], side="right")
    return less, no_more
