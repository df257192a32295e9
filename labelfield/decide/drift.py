"""Check whether new rows look like the training rows, so that promises can be trusted.

A promise holds for rows that are drawn as the held-out rows were. Then what the model says of new rows is distributed
as what it said of held-out rows, which can be tested without labels. Two things are compared: the probability of the
first label, by the largest distance between distributions (Kolmogorov and Smirnov), and the mean probability of each
label, by the squared distance between means. With labels, promises themselves are tested.

The map of probabilities was learned from the held-out rows. Its noise is about that of as many rows once more, and so
these count twice in what chance explains of probabilities. The final model may be a little surer than the one that
spoke of held-out rows, since these have joined the training: only distances above `USUAL` in that direction are a
reason to warn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts
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
_N_COMPARISONS = 3
# Draws from which it is known how far labels are apart by chance, rows of each part in them, and labels per row.
_N_DRAWS, _MOST_EXCHANGED, _N_FIRST = 599, 3000, 10
# Distances between rows that exist at once.
_AT_ONCE = 1 << 22


class Comparison(NamedTuple):
    """A comparison of held-out and new rows: what each says in a number, how far the two are apart, and the distance
    from which on that is a reason to warn."""

    name: str
    held_out: float
    new: float
    distance: float
    most: float


class Promise(NamedTuple):
    """A promise on new rows with labels: what was promised, what was reached, the p-value of "it is kept"."""

    name: str
    promised: float
    reached: float
    p_value: float


@dataclass(frozen=True)
class Drift:
    """The result of comparing new rows with held-out ones, and the conclusion in words."""

    comparisons: list[Comparison]
    promises: list[Promise]
    n_held_out: int
    n_new: int

    @property
    def is_new_kind(self) -> bool:
        """Whether new rows are not like the training rows."""
        return any(one.distance > one.most for one in self.comparisons)

    @property
    def is_broken(self) -> bool:
        """Whether a promise is not kept on new rows with labels."""
        return any(one.p_value < ALARM for one in self.promises)

    @property
    def said(self) -> str:
        """What follows, in a sentence."""
        if self.is_broken:
            broken = [one for one in self.promises if one.p_value < ALARM]
            names = ", ".join(f"{one.name} {one.reached:.3f} instead of {one.promised:.3f}" for one in broken)
            return f"Promises do not hold on these rows ({names}). Train again with rows like these."
        if self.is_new_kind:
            worst = max(self.comparisons, key=lambda one: one.distance / one.most)
            return (
                f"These rows are not like the training rows ({worst.name}: {worst.new:.3f}, {worst.held_out:.3f} "
                "before). Promises may not hold; label some of these rows and check again."
            )
        return "These rows look like the training rows: nothing speaks against believing promises."


def compare(evidence: Evidence, labels: NDArray[np.integer], p: NDArray[np.floating]) -> list[Comparison]:
    """Compare the listed labels of new rows (n, k), the most probable first, and their probabilities with those of
    held-out rows. All comparisons together warn about rows of the same kind with a probability of `ALARM`."""
    if len(p) < LEAST_NEW_ROWS:
        expected = f"at least {LEAST_NEW_ROWS} to compare"
        raise DataError(f"{len(p)} rows", expected, "Check more rows at once.")
    before, after = evidence.p[:, 0].astype(np.float64), p[:, 0].astype(np.float64)
    lower, higher = _distances(before, after)
    size = np.sqrt(1 / len(after) + 2 / len(before))
    by_chance = float(np.sqrt(np.log(_N_COMPARISONS / ALARM) / 2) * size)
    means = float(before.mean()), float(after.mean())
    return [
        Comparison("probability of the first label, lower", *means, lower, by_chance),
        Comparison("probability of the first label, higher", *means, higher, USUAL + by_chance),
        _label_shares(
            _sparse(evidence.labels, evidence.p, evidence.n_labels),
            _sparse(labels, p, evidence.n_labels),
            ALARM / _N_COMPARISONS,
        ),
    ]


def _label_shares(before: sparse.csr_array, after: sparse.csr_array, level: float) -> Comparison:
    """Compare the mean probability of each label: Σ (mean - mean)², and how large chance makes it, by exchanging rows.

    The number of each part is the sum over the ten labels that are most probable on average in held-out rows.
    """
    n, m = before.shape[0], after.shape[0]
    rows = sparse.csr_array(sparse.vstack([before, after]))
    rows = sparse.csr_array(rows[:, np.unique(rows.indices)])  # labels that no row lists would be zeros
    # Which rows stand for held-out ones: those that are, and then as many drawn again and again.
    is_own = np.repeat(np.array([1, 0], np.float32), [n, m])
    drawn = np.random.default_rng(0).permuted(np.tile(is_own, (_N_DRAWS, 1)), axis=1)
    own = np.asarray(rows.T @ np.vstack([is_own, drawn]).T, np.float64).T
    rest = np.asarray(rows.sum(0), np.float64).ravel() - own
    distances = np.square(own / n - rest / m).sum(1)
    most = float(np.quantile(distances[1:], 1 - level, method="higher"))
    usual = np.argsort(-own[0], kind="stable")[:10]
    sums = float(own[0, usual].sum() / n), float(rest[0, usual].sum() / m)
    return Comparison("expected number of the ten usual labels", *sums, float(distances[0]), most)


def _sparse(labels: NDArray[np.integer], p: NDArray[np.floating], n_labels: int) -> sparse.csr_array:
    """Return the first labels of some rows, evenly among all, with their probabilities."""
    kept = np.unique(np.linspace(0, len(p) - 1, min(len(p), _MOST_EXCHANGED)).astype(np.int64))
    labels, p = labels[kept, :_N_FIRST], p[kept, :_N_FIRST].clip(0)
    order = np.argsort(labels, axis=1)
    data = np.take_along_axis(p, order, 1).ravel().astype(np.float32)
    columns = np.take_along_axis(labels, order, 1).ravel().astype(np.int32)
    return from_counts(np.full(len(p), labels.shape[1]), columns, data, n_labels)


def _distances(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float]:
    """Return how far the distribution function of `after` is above and below that of `before` at the most."""
    every = np.concatenate([before, after])
    shares = [np.searchsorted(np.sort(part), every, side="right") / len(part) for part in (before, after)]
    difference = shares[1] - shares[0]
    # Of equals `max` takes the first: not the -0.0 that -difference may have.
    return max(0.0, float(difference.max())), max(0.0, float(-difference.min()))


def distance(X: sparse.csr_array, known: sparse.csr_array) -> NDArray[np.float64]:
    """Return the distance of each row of X (N,) to the nearest of the known rows, 1 - cosine: from 0 to 1 for rows
    without negative numbers, and 1 for an empty row.

    Of the measures that were compared, this one finds rows of another kind best. It needs the training rows.
    """
    if X.shape[1] != known.shape[1] or not known.shape[0]:
        expected = f"at least one known row of {X.shape[1]:,} features, as X has"
        raise DataError(f"{known.shape[0]:,} known rows of {known.shape[1]:,} features", expected, "Pass both as read.")
    turned, nearest = sparse.csc_array(_unit(known).T), [np.zeros(0)]
    n_rows = max(1, _AT_ONCE // known.shape[0])
    for start in range(0, X.shape[0], n_rows):
        nearest.append((_unit(X[start : start + n_rows]) @ turned).max(axis=1).toarray().ravel())
    return 1 - np.concatenate(nearest)


def _unit(rows: sparse.csr_array) -> sparse.csr_array:
    """Return rows of norm 1; an empty one stays empty."""
    rows = sparse.csr_array(rows, dtype=np.float64)
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return sparse.csr_array(sparse.diags_array(1 / np.where(norms > 0, norms, 1)) @ rows)


def judge_promises(new: Evidence, policies: Sequence[Policy]) -> list[Promise]:
    """Test on new rows with labels whether policies keep what they promise."""
    found = []
    for policy in policies:
        for name, promised in policy.promised.items():
            is_tag = tagged(new, policy)
            n_tags, n_hits = (is_tag & new.is_known).sum(1), (is_tag & new.hit).sum(1)
            if name == "precision":
                z, least = promised * n_tags - n_hits, -(1 - promised) * policy.max_tags
            elif name == "recall":
                has_labels = new.true_counts > 0
                z, least = promised - (n_hits / np.maximum(new.true_counts, 1))[has_labels], promised - 1
            else:
                continue
            p_value = betting_p_value(z, min(least, -1e-6), ALARM)
            found.append(Promise(name, promised, reached_by(new, policy)[name], p_value))
    return found
