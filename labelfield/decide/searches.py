"""Searches for the lowest threshold whose tags are precise enough, with as many of the surest rows as a test needs."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from labelfield.decide.bounds import betting_p_value, share_p_value
from labelfield.decide.evidence import Evidence

# A search for a precision begins with as many tags as pass the test with the probability _POWER if they are wrong at
# _WRONG of the allowed rate; a test of several tags per row needs about _SEVERAL times as many rows.
_WRONG, _POWER, _SEVERAL = 1 / 3, 0.8, 2
# The largest share of the rows to begin with: few models are sure of more.
_MOST_SURE = 0.2
# The share of 1 - confidence that each of two searches spends. Part of it is left over, so that promises are kept about
# as often if they are judged on no more new rows than were held out.
_SHARE = 0.4
# Thresholds between 0 and 1 that are looked at.
_N_THRESHOLDS = 400


def precision_p_value(evidence: Evidence, threshold: float, max_tags: int, precision: float, level: float) -> float:
    """Return a p-value of "of all tags of at least this probability, at most this share are right".

    With one tag per row that is a share of independent draws. With several, the hits of a row minus `precision` times
    its tags have a mean of at most 0.
    """
    n_tags, n_hits = evidence.outcome(threshold, max_tags)
    if max_tags == 1:
        return share_p_value(int(n_hits.sum()), int(n_tags.sum()), precision)
    return betting_p_value(n_hits - precision * n_tags, -precision * max_tags, level)


class Search(NamedTuple):
    """Tests one threshold after another for this number of tags per row, from high to low.

    A search begins with the rows whose first labels are most probable, so many of them; where there is more than one
    such start, each has its part of `level`. A test that is passed hands what it had on to the next one, which adds its
    own if it is a start; one that is not passed keeps it (the fallback procedure: Wiens, 2003).

    If surer tags are not right less often, all thresholds up to some t are too low. A false rejection is then one of t,
    with what the starts above it have handed on, or of a start below t. Given where the surest rows end, and given how
    many rows are above t, rows are independent draws: all together happen with a probability of `level` at the most.
    """

    max_tags: int
    level: float
    starts: tuple[int, ...]
    precision: float

    def tests(self, evidence: Evidence) -> list[tuple[float, float]]:
        """Return the thresholds from the first on, and the level that each has of its own."""
        first = np.sort(evidence.p[:, 0])[::-1]
        own = dict[float, float]()
        for n_surest in self.starts:
            threshold = max(float(first[min(n_surest, first.size) - 1]), 0.0)
            own[threshold] = own.get(threshold, 0.0) + self.level / len(self.starts)
        falling = (threshold for threshold in (*rising_thresholds(), 0.0) if threshold < max(own))
        return sorted((dict.fromkeys(falling, 0.0) | own).items(), reverse=True)

    def p_value(self, evidence: Evidence, threshold: float) -> float:
        """Return a p-value of "the tags at this threshold are right too rarely"."""
        return precision_p_value(evidence, threshold, self.max_tags, self.precision, self.level)

    def rejected(self, evidence: Evidence) -> list[float]:
        """Return the thresholds whose tags are precise enough."""
        handed_on, left, found = 0.0, self.level, []
        for threshold, own in self.tests(evidence):
            level, left = handed_on + own, left - own
            handed_on = level if level and self.p_value(evidence, threshold) <= level else 0.0
            if handed_on:
                found.append(threshold)
            elif left <= 0:
                break
        return found


def searches_for(n_rows: int, precision: float, max_tags: int, confidence: float) -> list[Search]:
    """Return how to look for a threshold, with one tag per row and with several: one needs far fewer rows.

    All searches together fail with a probability of 1 - confidence at most. They begin where the test has power,
    whatever probabilities mean: from too few rows it can conclude nothing, and more rows are less sure. Where there are
    many more rows than needed they begin a second time, with more rows: the very surest are not always the best ones.
    """
    level = _SHARE * (1 - confidence)
    better = 1 - _WRONG * (1 - precision)
    spread = [np.sqrt(share * (1 - share)) for share in (precision, better)]
    needed = ((ndtri(1 - level) * spread[0] + ndtri(_POWER) * spread[1]) / (better - precision)) ** 2
    # Without a wrong one log level / log precision of them pass the test, and half as many more with one.
    most = max(1.5 * np.log(level) / np.log(precision), _MOST_SURE * n_rows)
    starts = tuple(ceil(n) for n in ((needed, most) if most > 1.5 * needed else (min(needed, most),)))
    several = [Search(max_tags, level, tuple(_SEVERAL * n for n in starts), precision)] if max_tags > 1 else []
    return [Search(1, level, starts, precision), *several]


def rising_thresholds() -> list[float]:
    """Return thresholds from small to large, closer together where probabilities are near 0 or 1."""
    odds = np.linspace(-12, 12, _N_THRESHOLDS)
    return list((1 / (1 + np.exp(-odds))).tolist())
