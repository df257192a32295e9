"""The decisions a model would make: policies with their promises, and their effect on the test rows."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.decide import Evidence, Policy
from labelfield.decide.policies import reached_by, tagged
from labelfield.errors import CannotAnswerError
from labelfield.estimators.protocol import FittedClassifier

# The questions, in the order of the table.
_ASKED: tuple[tuple[str, float], ...] = (
    ("precision", 0.95),
    ("precision", 0.9),
    ("precision", 0.8),
    ("recall", 0.8),
    ("review_rate", 0.2),
)
_N_POINTS = 60
_N_LABELS = 12


class LabelCost(NamedTuple):
    """A label under a policy: how often it became a tag, how often correctly, and how often it holds without one."""

    label: int
    n_tags: int
    n_right: int
    n_left: int


class Decisions(NamedTuple):
    """Policies with what they reach on the test rows; the curve of rows tagged against precision, for up to `max_tags`
    per row; and what the most precise policy costs each frequent label."""

    policies: list[tuple[Policy, dict[str, float]]]
    refused: list[str]
    automatic: NDArray[np.float64]
    precision: NDArray[np.float64]
    costs: list[LabelCost]


def decisions(estimator: FittedClassifier, X: sparse.csr_array, Y: sparse.csr_array) -> Decisions | str:
    """Return the decisions a model would make on test rows, or why it can promise nothing about any."""
    try:
        known = estimator.held_out_evidence()
        estimator.policy(max_tags=1)
    except CannotAnswerError as error:
        return str(error)
    rows = Evidence.of_scores(estimator.predict_topk(X, known.n_listed), Y)
    found, refused = [], dict[str, str]()
    for name, value in _ASKED:
        try:
            policy = estimator.policy(**{name: value})
        except CannotAnswerError as error:
            refused[name] = str(error).split(". ")[0]  # of the least that was refused: more is out of reach too
            continue
        found.append((policy, reached_by(rows, policy)))
    if not found:
        return "; ".join(refused.values())
    first = found[0][0]
    n_tags, n_hits = zip(*(rows.outcome(t, first.max_tags) for t in np.linspace(0, 1, _N_POINTS)[:-1]), strict=True)
    automatic = np.array([np.mean(own > 0) for own in n_tags])
    precision = np.array([hits.sum() / max(own.sum(), 1) for own, hits in zip(n_tags, n_hits, strict=True)])
    is_there = automatic > 0
    return Decisions(found, list(refused.values()), automatic[is_there], precision[is_there], _costs(rows, first))


def _costs(rows: Evidence, policy: Policy) -> list[LabelCost]:
    """Return the effect of a policy on the labels that are most frequent in the test rows."""
    is_tag = tagged(rows, policy)
    n_tags, n_right = (np.bincount(rows.labels[part], minlength=rows.n_labels) for part in (is_tag, is_tag & rows.hit))
    n_true = rows.held_out_positives()
    frequent = [label for label in np.argsort(-n_true, kind="stable")[:_N_LABELS].tolist() if n_true[label]]
    return [
        LabelCost(label, int(n_tags[label]), int(n_right[label]), int(n_true[label] - n_right[label]))
        for label in frequent
    ]
