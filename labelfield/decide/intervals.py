"""Intervals of probabilities that can be checked: of all labels with such a probability, how many hold?

Listed labels of held-out rows are put into groups of similar probability, and all labels beyond the list into one more.
The interval of a group is a confidence interval of the share of its labels that hold. It is narrow where there is much
evidence. Labels of one row are not independent: a group counts as many labels as would vary as much if they were.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from labelfield.decide.bounds import share_bounds
from labelfield.decide.evidence import Evidence

# The expected variance of the number of labels that hold in a group, and the largest number of groups.
_VARIANCE, _MOST_GROUPS = 15.0, 40
# A group that reaches further to both sides of one half is cut there: its share would be that of no label in it.
_WIDEST = 0.25


class Reliability(NamedTuple):
    """Groups of probabilities, from small to large: where one ends and the next begins (G - 1,), the share of labels
    that hold in each and the ends of its interval (G,); and the same of labels beyond the list."""

    edges: NDArray[np.float32]
    share: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    beyond: tuple[float, float]

    def group_of(self, p: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the group of each probability."""
        return np.searchsorted(self.edges, p, side="right")


def edges_of(evidence: Evidence) -> NDArray[np.float32]:
    """Return probabilities that cut the listed labels into groups that vary alike; labels have no say in it."""
    p = np.sort(evidence.p[evidence.is_known])
    total = np.cumsum(p.astype(np.float64) * (1 - p))
    n_groups = int(np.clip(total[-1] / _VARIANCE, 1, _MOST_GROUPS)) if p.size else 1
    places = np.searchsorted(total, total[-1] * np.arange(1, n_groups) / n_groups) if n_groups > 1 else []
    edges = np.unique(p[np.asarray(places, np.int64)])
    ends = np.r_[p[:1], edges, p[-1:]]
    middle = int(np.searchsorted(ends, 0.5))
    is_wide = 0 < middle < ends.size and ends[middle - 1] < 0.5 - _WIDEST and ends[middle] > 0.5 + _WIDEST
    return np.unique(np.r_[edges, np.float32(0.5)]) if is_wide else edges


def reliability(evidence: Evidence, level: float, edges: NDArray[np.float32] | None = None) -> Reliability:
    """Return the intervals of groups of probabilities at this level, from held-out rows."""
    edges = edges_of(evidence) if edges is None else edges
    n_groups, rows = len(edges) + 1, np.arange(evidence.n_rows)[:, None]
    is_known = evidence.is_known
    place = (rows * n_groups + np.searchsorted(edges, evidence.p, side="right"))[is_known]
    size = evidence.n_rows * n_groups
    n = np.bincount(place, minlength=size).reshape(-1, n_groups)
    hits = np.bincount(place, evidence.hit[is_known], minlength=size).reshape(-1, n_groups)
    ends = [_bounds(held, each, level) for held, each in zip(hits.T, n.T, strict=True)]
    missed = evidence.true_counts - hits.sum(1)
    beyond = _bounds(missed, np.full(evidence.n_rows, max(evidence.n_labels - evidence.n_listed, 0)), level)
    low, high = np.array(ends).T
    return Reliability(edges, hits.sum(0) / np.maximum(n.sum(0), 1), low, high, beyond)


def _bounds(hits: NDArray[np.number], n: NDArray[np.integer], level: float) -> tuple[float, float]:
    """Return the interval of a share from hits and sizes per row: as of the number of independent labels that would
    vary as much, with Student's quantiles for the few rows that this is known from."""
    total, n_rows = float(n.sum()), int(np.count_nonzero(n))
    if not total:
        return 0.0, 1.0
    share = float(hits.sum()) / total
    if n_rows > 1:
        variance = float(np.square(hits - share * n).sum()) / total**2 * n_rows / (n_rows - 1)
        # Where all labels agree, rows may be what agrees.
        total = min(total, share * (1 - share) / variance) if variance > 0 else float(n_rows)
        total *= float(ndtri(0.5 + level / 2) / stdtrit(n_rows - 1, 0.5 + level / 2)) ** 2
    return share_bounds(share * total, total, level)


def intervals(
    found: Reliability, P: NDArray[np.floating], n_listed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the ends of the interval of each probability (N, K)."""
    group = found.group_of(P)
    low, high = found.low[group], found.high[group]
    n_labels = P.shape[1]
    if n_listed < n_labels and P.size:
        least = np.partition(P, n_labels - n_listed, axis=1)[:, n_labels - n_listed, None]
        low, high = (np.where(least > P, end, part) for end, part in zip(found.beyond, (low, high), strict=True))
    return low.astype(np.float32), high.astype(np.float32)
