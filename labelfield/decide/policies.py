"""Policies: which labels become tags and which rows go to a person, with a promise about the result.

A policy is a threshold on probabilities and a largest number of tags per row. Thresholds are found on held-out rows so
that what is promised holds for any number of them and any distribution, as long as new rows are drawn as they were
(for a precision also as long as surer tags are not right less often, see `Search`):

- precision: learn then test (Angelopoulos et al., 2021). The hypotheses "tags of at least this probability are right
  too rarely" are tested one after another, beginning with as many of the surest rows as a test needs, until one stands.
- recall: upper bounds of a loss that can only grow with the threshold (Bates et al., 2021), or, without a confidence,
  conformal risk control (Angelopoulos et al., 2022), which holds on average over held-out rows.
- review_rate: an exact test of the share of rows without tags, and a bound of the precision for all thresholds at once.
- max_tags: the precision of a rule that nothing was learned for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts, row_of_entries
from labelfield.decide.bounds import betting_p_value, largest, share_p_value
from labelfield.decide.evidence import Evidence
from labelfield.decide.searches import precision_p_value, rising_thresholds, searches_for
from labelfield.decide.sets import learn_map, log_parts, probability_of_set
from labelfield.errors import CannotAnswerError

# Tags per row at the most where a precision or a rate is asked for: a promise about more tags takes far more rows.
MOST_TAGS = 5
# The share of 1 - confidence that a search for a recall spends. The rest is left over, so that promises are kept about
# as often if they are judged on no more new rows than were held out.
_CAUTION = 0.5
# Thresholds of which the precision is bounded at once, where the share of rows decides.
_N_RATES = 50
# Held-out rows with a label before it gets a threshold of its own.
_LEAST_POSITIVES = 5
_STEP = 0.005
_LIKE = ", for rows drawn as the training rows were"


@dataclass(frozen=True, eq=False)
class Policy:
    """A rule for tags, what it promises, and what it did on held-out rows.

    `threshold` is a number, or one for each label (K,). `promised` has the shares that are promised with `confidence`
    (None: on average), and `reached` those of the held-out rows: precision of tags, recall per row, the share of rows
    with tags, tags per row, and the number of rows. `guarantee` says the promise in words.
    """

    kind: str
    target: float | None
    confidence: float | None
    threshold: float | NDArray[np.float64]
    max_tags: int
    guarantee: str
    n_listed: int = 0
    promised: dict[str, float] = field(default_factory=dict)
    reached: dict[str, float] = field(default_factory=dict)
    # From the probability of a set of independent labels to that of the tags of a row.
    set_map: tuple[float, float] = (0.0, 1.0)
    # Labels that hold in no held-out row: nothing is known about these alone.
    unknown_labels: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def said(self) -> str:
        """Return what the policy did on held-out rows, in words."""
        found = self.reached
        tags = f"{found['tags_per_row']:.2f} tags per row, {found['precision']:.1%} of them right"
        rows = f"{found['automatic']:.1%} of the rows tagged, {found['recall']:.1%} of a row's labels found"
        return f"On {found['rows']:,.0f} held-out rows: {rows}, {tags}"

    def apply(self, best: sparse.csr_array) -> Decision:
        """Decide about rows by their `n_listed` most probable labels, as CSR of probabilities."""
        rows = row_of_entries(best)
        least = np.asarray(self.threshold, np.float32)
        reaches = best.data >= (least[best.indices] if least.ndim else least)
        # The place of each entry among those of its row, the most probable first.
        order = np.lexsort((best.indices, -best.data, ~reaches, rows))
        place = np.empty(order.size, np.int64)
        place[order] = np.arange(order.size) - best.indptr[rows[order]]
        kept = reaches & (place < self.max_tags)
        counts = np.bincount(rows[kept], minlength=best.shape[0])
        tags = from_counts(counts, best.indices[kept], best.data[kept], best.shape[1])
        product = np.bincount(rows, log_parts(best.data, kept), minlength=best.shape[0]).astype(np.float64)
        return Decision(tags, counts == 0, probability_of_set(product, self.set_map), self)


@dataclass(frozen=True, eq=False)
class Decision:
    """Tags of rows (CSR of probabilities), which rows a person should see (N,), how probable it is that the tags of a
    row are exactly its labels (N,), and the policy that decided."""

    tags: sparse.csr_array
    review: NDArray[np.bool_]
    exact: NDArray[np.float64]
    policy: Policy

    @property
    def expected_right(self) -> NDArray[np.float64]:
        """The expected number of right tags of each row (N,): the sum of their probabilities."""
        return np.asarray(self.tags.sum(axis=1), np.float64).ravel()


def fit_policy(
    evidence: Evidence,
    *,
    precision: float | None = None,
    recall: float | None = None,
    review_rate: float | None = None,
    max_tags: int | None = None,
    f1: bool = False,
    confidence: float | None = 0.95,
    one_each: bool = False,
) -> Policy:
    """Find the policy for one aim: a precision, a recall, a share of rows for a person, the best F1, or `max_tags`.

    `max_tags` can go with any of the others. Without any aim, the precision is to be 0.95. Where rows have one class
    each (`one_each`), they get one tag at the most.
    """
    aims = {"precision": precision, "recall": recall, "review_rate": review_rate, "f1": True if f1 else None}
    given = {name: value for name, value in aims.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are different aims; pass one of precision, recall, review_rate, f1")
    if not given and max_tags is None:
        given = {"precision": 0.95}
    _check(given, max_tags, confidence)
    if one_each:
        if max_tags not in (None, 1):
            raise ValueError(f"max_tags={max_tags}; with one class per row there is one tag at the most")
        max_tags = 1
    evidence.require_rows()
    kind, target = next(iter(given.items()), ("max_tags", None))
    most = min(evidence.n_listed, max_tags or (evidence.n_listed if kind in ("recall", "f1") else MOST_TAGS))
    policy = _FITS[kind](evidence, target, most, confidence)
    learned = {
        "n_listed": evidence.n_listed,
        "reached": reached_by(evidence, policy),
        "set_map": _learn_sets(evidence, policy),
        "unknown_labels": np.flatnonzero(evidence.held_out_positives() == 0),
    }
    return Policy(**vars(policy) | learned)


def _check(given: dict[str, Any], max_tags: int | None, confidence: float | None) -> None:
    for name, value in given.items():
        if name != "f1" and not (isinstance(value, int | float | np.number) and 0 < value < 1):
            raise ValueError(f"{name}={value!r}; expected a number between 0 and 1, such as 0.95")
    if confidence is not None and not (isinstance(confidence, int | float | np.number) and 0 < confidence < 1):
        raise ValueError(f"confidence={confidence!r}; expected a number between 0 and 1, such as 0.95")
    if confidence is None and "recall" not in given:
        raise ValueError("confidence=None is for a recall, which can be promised on average; pass confidence=0.95")
    is_count = isinstance(max_tags, int | np.integer) and not isinstance(max_tags, bool) and max_tags >= 1
    if max_tags is not None and not is_count:
        raise ValueError(f"max_tags={max_tags!r}; expected a whole number of at least 1")


def tagged(evidence: Evidence, policy: Policy) -> NDArray[np.bool_]:
    """Return which of the listed labels (n, k) a policy makes tags."""
    least = np.asarray(policy.threshold, np.float32)
    is_tag = (evidence.p >= (least[evidence.labels] if least.ndim else least)) & (evidence.p >= 0)
    return np.asarray(is_tag & (np.cumsum(is_tag, axis=1) <= policy.max_tags))


def _learn_sets(evidence: Evidence, policy: Policy) -> tuple[float, float]:
    """Learn from held-out rows how often the tags of a row are exactly its labels."""
    is_tag, is_known = tagged(evidence, policy), evidence.is_known
    n_tags, n_hits = (is_tag & is_known).sum(1), (is_tag & evidence.hit).sum(1)
    is_exact = (n_hits == n_tags) & (n_hits == evidence.true_counts)
    return learn_map(log_parts(evidence.p, is_tag).sum(1, where=is_known), is_exact)


def reached_by(evidence: Evidence, policy: Policy) -> dict[str, float]:
    """Return what a policy does on rows with known labels."""
    is_tag = tagged(evidence, policy)
    n_tags, n_hits = is_tag.sum(1), (is_tag & evidence.hit).sum(1)
    has_labels = evidence.true_counts > 0
    total, n_true = int((is_tag & evidence.is_known).sum()), np.maximum(evidence.true_counts, 1)
    return {
        "precision": float(n_hits.sum() / total) if total else float("nan"),
        "recall": float((n_hits / n_true)[has_labels].mean()) if has_labels.any() else float("nan"),
        "automatic": float((n_tags > 0).mean()),
        "tags_per_row": float(n_tags.mean()),
        "rows": float(evidence.n_rows),
    }


# Precision


def _for_precision(evidence: Evidence, precision: float, max_tags: int, confidence: float) -> Policy:
    """Take the rule that gives the most tags, of those that are precise enough."""
    found = [
        (evidence.outcome(passed[-1], search.max_tags).n_tags.sum(), -passed[-1], search.max_tags)
        for search in searches_for(evidence.n_rows, precision, max_tags, confidence)
        if (passed := search.rejected(evidence))
    ]
    if not found:

        def is_reachable(other: float) -> bool:
            searches = searches_for(evidence.n_rows, other, max_tags, confidence)
            return any(one.p_value(evidence, at) <= own for one in searches for at, own in one.tests(evidence) if own)

        # One after another: where searches begin depends on the precision, so that a lower one may be out of reach.
        lower = (_STEP * place for place in range(int(precision / _STEP), 0, -1))
        reachable = next((other for other in lower if is_reachable(other)), None)
        can = "no precision can" if reachable is None else f"{reachable:.3g} can"
        raise CannotAnswerError(
            f"precision={precision:g} cannot be promised with confidence {confidence:g} from {evidence.n_rows:,} "
            f"held-out rows; {can}. Ask for less, or train on more rows"
        )
    _, below, n_tags = max(found)
    words = f"With confidence {confidence:g}, at least {precision:.4g} of all tags are right{_LIKE}."
    promised = {"precision": precision}
    return Policy("precision", precision, confidence, -below, n_tags, words, promised=promised)


def precision_bound(evidence: Evidence, threshold: float, max_tags: int, level: float) -> float:
    """Return a lower bound of the precision at this threshold that fails with a probability of `level` at the most."""

    def is_certain(precision: float) -> bool:
        return precision_p_value(evidence, threshold, max_tags, precision, level) <= level

    return largest(is_certain, _STEP, 1 - _STEP, _STEP) or 0.0


# Recall


def missed(evidence: Evidence, threshold: float, max_tags: int) -> NDArray[np.float64]:
    """Return the share of its true labels that each row misses, for rows that have labels."""
    has_labels = evidence.true_counts > 0
    found = evidence.outcome(threshold, max_tags).n_hits[has_labels] / evidence.true_counts[has_labels]
    return np.asarray(1 - found)


def _for_recall(evidence: Evidence, recall: float, max_tags: int, confidence: float | None) -> Policy:
    """Go up from no threshold at all, where the least is missed, as long as little enough is missed."""
    can: Callable[[NDArray[np.float64], float], bool]
    if confidence is None:

        def can(loss: NDArray[np.float64], most: float) -> bool:
            return bool((loss.sum() + 1) / (loss.size + 1) <= most)
    else:
        level = _CAUTION * (1 - confidence)

        def can(loss: NDArray[np.float64], most: float) -> bool:
            return betting_p_value(most - loss, most - 1, level) <= level

    least = missed(evidence, 0.0, max_tags)
    if not least.size or not can(least, 1 - recall):
        reachable = largest(lambda other: bool(least.size) and can(least, 1 - other), _STEP, recall, _STEP)
        best = "no recall can" if reachable is None else f"{reachable:.3g} can"
        raise CannotAnswerError(
            f"recall={recall:g} cannot be promised with {_tags(max_tags)} per row from {evidence.n_rows:,} held-out "
            f"rows; {best}. Ask for less, for more tags (max_tags), or train on more rows"
        )
    threshold = 0.0
    for candidate in rising_thresholds():
        if not can(missed(evidence, candidate, max_tags), 1 - recall):
            break
        threshold = candidate
    start = "On average over draws of the held-out rows" if confidence is None else f"With confidence {confidence:g}"
    # Of labels that were missed at random, rows with many have one that was observed more often than rows with few.
    true = "true labels" if evidence.is_known.all() else "observed true labels"
    words = (
        f"{start}, the tags of a row hold at least {recall:.4g} of its {true} on average over rows that have "
        f"labels{_LIKE}."
    )
    return Policy("recall", recall, confidence, threshold, max_tags, words, promised={"recall": recall})


# The share of rows for a person, and fixed numbers of tags


def _for_review_rate(evidence: Evidence, rate: float, max_tags: int, confidence: float) -> Policy:
    """Take the highest threshold that leaves few enough rows without tags."""
    level = (1 - confidence) / 2  # one half for the rate, the other for the precision
    threshold = 0.0
    for candidate in (np.arange(1, _N_RATES) / _N_RATES).tolist():
        n_automatic = int(np.count_nonzero(evidence.p[:, 0] >= np.float32(candidate)))
        if share_p_value(n_automatic, evidence.n_rows, 1 - rate) > level:
            break
        threshold = candidate
    least = precision_bound(evidence, threshold, max_tags, level / _N_RATES)
    words = (
        f"With confidence {confidence:g}, at most {rate:.4g} of the rows go to a person, and at least {least:.4g} of "
        f"all tags of the others are right{_LIKE}."
    )
    promised = {"review_rate": rate, "precision": least}
    return Policy("review_rate", rate, confidence, threshold, max_tags, words, promised=promised)


def _for_max_tags(evidence: Evidence, target: None, max_tags: int, confidence: float) -> Policy:
    least = precision_bound(evidence, 0.0, max_tags, 1 - confidence)
    words = (
        f"Every row gets {_tags(max_tags)}; with confidence {confidence:g}, at least {least:.4g} of all tags are "
        f"right{_LIKE}."
    )
    return Policy("max_tags", None, confidence, 0.0, max_tags, words, promised={"precision": least})


# F1


def _for_f1(evidence: Evidence, target: bool, max_tags: int, confidence: float) -> Policy:
    """Take for each label the threshold with the best F1 on held-out rows; for rare labels the best one for all."""
    is_entry = evidence.is_known
    p, labels, hit = evidence.p[is_entry], evidence.labels[is_entry], evidence.hit[is_entry]
    positives = evidence.held_out_positives()
    common = _best_f1(p, np.zeros(p.size, np.int64), hit, np.array([positives.sum()]))[0]
    own = _best_f1(p, labels.astype(np.int64), hit, positives)
    thresholds = np.where(positives >= _LEAST_POSITIVES, own, common)
    n_common = int(np.count_nonzero(positives < _LEAST_POSITIVES))
    words = (
        f"Each label has the threshold with the best F1 on held-out rows; labels with fewer than "
        f"{_LEAST_POSITIVES} rows there ({n_common:,}) share one. Nothing is promised."
    )
    return Policy("f1", None, confidence, thresholds, max_tags, words)


def _best_f1(
    p: NDArray[np.float32], group: NDArray[np.int64], hit: NDArray[np.bool_], positives: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return for each group of entries the threshold with the best F1, given how many positives the group has in all;
    1 for a group without entries."""
    order = np.lexsort((-p, group))
    p, group, hit = p[order], group[order], hit[order]
    starts = np.searchsorted(group, np.arange(positives.size))
    total = np.r_[0, np.cumsum(hit)]
    n_hits = total[1:] - total[starts[group]]
    n_tags = np.arange(p.size) - starts[group] + 1
    f1 = 2 * n_hits / np.maximum(n_tags + positives[group], 1)
    # Of equal probabilities all become tags or none.
    is_last = np.r_[(p[1:] != p[:-1]) | (group[1:] != group[:-1]), np.ones(min(p.size, 1), np.bool_)]
    f1 = np.where(is_last, f1, -1)
    best = np.lexsort((-f1, group))
    result = np.ones(positives.size)
    has_entries = np.flatnonzero(np.bincount(group, minlength=positives.size))
    result[has_entries] = p[best[starts[has_entries]]]
    return result


def _tags(count: int) -> str:
    return "one tag" if count == 1 else f"{count} tags"


_FITS: dict[str, Callable[..., Policy]] = {
    "precision": _for_precision,
    "recall": _for_recall,
    "review_rate": _for_review_rate,
    "max_tags": _for_max_tags,
    "f1": _for_f1,
}
