"""Whether new rows look like the training rows, so that promises may be believed.

A promise holds for rows that are drawn as the held-out rows were. Then what the model says of new rows is distributed
as what it said of held-out rows. Labels are not needed to test that: the distributions of a few numbers per row are
compared by the largest distance between them (Kolmogorov and Smirnov). With labels, promises themselves are tested.

The final model has learned from the held-out rows too, and is a little surer of new rows than it was of these.
Distances up to `USUAL` are therefore no reason to warn, however many rows there are, unless it is less sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelfield.decide.bounds import betting_p_value
from labelfield.decide.evidence import Evidence
from labelfield.decide.policies import Policy, reached_by, tagged
from labelfield.errors import DataError

# The probability of a warning about rows that are drawn as the training rows were.
ALARM = 0.01
# Distances between distributions that also appear between held-out and new rows of one kind.
USUAL = 0.05
# With fewer rows, no difference but the largest would be seen.
LEAST_NEW_ROWS = 20
_FIRST = "probability of the first label"


class Comparison(NamedTuple):
    """A number of each row: its mean over held-out and new rows, how far the two distributions are apart, from 0 to 1,
    because it is lower or because it is higher, and the distance from which on each is a reason to warn."""

    name: str
    held_out: float
    new: float
    lower: float
    higher: float
    most_lower: float
    most_higher: float

    @property
    def excess(self) -> float:
        """By how much the distance is above what is usual; negative where it is not."""
        return max(self.lower - self.most_lower, self.higher - self.most_higher)


class Promise(NamedTuple):
    """A promise on new rows with labels: what was promised, what was reached, the p-value of "it is kept"."""

    name: str
    promised: float
    reached: float
    p_value: float


@dataclass(frozen=True)
class Drift:
    """What comparing new rows with held-out ones has found, and in words what follows."""

    comparisons: list[Comparison]
    promises: list[Promise]
    n_held_out: int
    n_new: int

    @property
    def is_new_kind(self) -> bool:
        """Whether new rows are not like the training rows."""
        return any(one.excess > 0 for one in self.comparisons)

    @property
    def is_broken(self) -> bool:
        """Whether a promise is not kept on new rows with labels."""
        return any(one.p_value < ALARM for one in self.promises)

    @property
    def said(self) -> str:
        """What follows, in a sentence."""
        if self.is_broken:
            names = ", ".join(f"{one.name} {one.reached:.3f} instead of {one.promised:.3f}" for one in self.promises)
            return f"Promises do not hold on these rows ({names}). Train again with rows like these."
        if self.is_new_kind:
            worst = max(self.comparisons, key=lambda one: one.excess)
            return (
                f"These rows are not like the training rows ({worst.name}: {worst.new:.3f} on average, "
                f"{worst.held_out:.3f} before). Promises may not hold; label some of these rows and check again."
            )
        return "These rows look like the training rows: nothing speaks against believing promises."


def row_numbers(p: NDArray[np.floating]) -> dict[str, NDArray[np.float64]]:
    """Return what is compared of each row, from the probabilities of its labels (n, k), the most probable first."""
    p = p.astype(np.float64).clip(0)
    others = p[:, 1:].sum(1)
    return {_FIRST: p[:, 0], "expected number of further labels": others}


def compare(evidence: Evidence, new: NDArray[np.floating]) -> list[Comparison]:
    """Compare the probabilities of listed labels of new rows (n, k), the most probable first, with held-out ones."""
    if len(new) < LEAST_NEW_ROWS:
        expected = f"at least {LEAST_NEW_ROWS} to compare"
        raise DataError(f"{len(new)} rows", expected, "Check more rows at once.")
    found, before, after = [], row_numbers(evidence.p), row_numbers(new)
    size = np.sqrt(1 / len(new) + 1 / evidence.n_rows)

    def by_chance(share: float) -> float:
        """Return the distance in one direction that chance exceeds in this share of all warnings."""
        return float(np.sqrt(np.log(1 / (share * ALARM)) / 2) * size)

    for name, held_out in before.items():
        lower, higher = _distances(held_out, after[name])
        usual = USUAL + by_chance(1 / 6)
        most_lower = by_chance(1 / 2) if name == _FIRST else usual
        means = float(held_out.mean()), float(after[name].mean())
        found.append(Comparison(name, *means, lower, higher, most_lower, usual))
    return found


def _distances(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float]:
    """Return how far the distribution function of `after` is above and below that of `before` at the most."""
    every = np.concatenate([before, after])
    shares = [np.searchsorted(np.sort(part), every, side="right") / len(part) for part in (before, after)]
    difference = shares[1] - shares[0]
    return max(float(difference.max()), 0.0), max(float(-difference.min()), 0.0)


def judge_promises(new: Evidence, policies: Sequence[Policy]) -> list[Promise]:
    """Test on new rows with labels whether policies keep what they promise."""
    found = []
    for policy in policies:
        for name, promised in policy.promised.items():
            is_tag = tagged(new, policy)
            n_tags, n_hits = is_tag.sum(1), (is_tag & new.hit).sum(1)
            if name == "precision":
                z, least = promised * n_tags - n_hits, -(1 - promised) * policy.max_tags
            elif name == "recall":
                has_labels = new.true_counts > 0
                z, least = promised - (n_hits / np.maximum(new.true_counts, 1))[has_labels], promised - 1
            else:
                continue
            p_value = betting_p_value(z, min(least, -1e-6), ALARM)
            found.append(Promise(f"{name} {policy.target:g}", promised, reached_by(new, policy)[name], p_value))
    return found
