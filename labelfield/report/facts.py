"""Everything the page says, as plain facts: computed once, and only then put into words and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.errors import DataError
from labelfield.explain import explain_row
from labelfield.metrics.probabilities import Reliability
from labelfield.progress import Progress, ignore
from labelfield.report.answers import Answers, ask
from labelfield.report.examples import Example, examples
from labelfield.report.identity import Curve, Identity, identify, learning_curves
from labelfield.report.inside import Inside, image_side, look_inside
from labelfield.report.scores import Band, Counts, Doubt, Score, bands, confusion, doubt, reliabilities, scores

__all__ = ["Facts", "gather"]

_N_STRONGEST = 6
# A feature that no larger share of the rows has says nothing about the model.
_SELDOM = 1e-3
# Each feature of a row is taken out once, and all labels asked about: more answers than this take minutes.
_MOST_ANSWERS = 200_000_000


@dataclass(frozen=True, eq=False)
class Facts:
    """What the model is, what it says of the test rows, and what it has learned."""

    identity: Identity
    curves: list[Curve]
    n_rows: int
    n_unlabelled: int
    n_unseen: int
    label_names: Sequence[str]
    counts: Counts
    scores: list[Score]
    bands: list[Band]
    confusion: NDArray[np.int64] | None
    reliabilities: dict[int, Reliability]
    doubt: Doubt
    has_novelty: bool
    examples: list[Example]
    inside: Inside
    # Of each example its picture, where rows are images; else, where features have names, those that did most for its
    # first label, with their values and by how much its log-odds fall without them.
    pictures: list[NDArray[np.float64]]
    words: list[list[tuple[str, float, float]]]


def gather(
    estimator: Any,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    *,
    counts: Counts | None = None,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    progress: Progress = ignore,
) -> Facts:
    """The facts about a fitted model on rows X with the true labels Y (CSR), whose first columns are its labels.

    Further columns are classes that it has not seen. Names and counts are those of the model, if not given.
    """
    if Y.shape[0] == 0:
        raise DataError("no test rows", expected="at least one", fix="Check the file.")
    if Y.nnz == 0:
        raise DataError("no test row has a label", expected="rows with labels, to compare with", fix="Check the file.")
    names = list(estimator._names() if label_names is None else label_names)
    names += map(str, range(len(names), Y.shape[1]))  # labels that were not in training
    counts = Counts(estimator.label_counts_, estimator.n_rows_) if counts is None else counts
    has_classes = estimator.label_kind_ == "classes"
    answers = ask(estimator, X, Y, progress)
    side = image_side(X)
    occurs = np.bincount(X.indices, minlength=X.shape[1]) > _SELDOM * X.shape[0]
    chosen = examples(estimator, X, answers)
    rows = gather_rows(X, np.array([example.row for example in chosen], np.int64))
    known: Sequence[str] | None = estimator.feature_names()
    return Facts(
        identity=identify(estimator),
        curves=learning_curves(estimator),
        n_rows=int(Y.shape[0]),
        n_unlabelled=int(np.count_nonzero(answers.judged.n_true == 0)),
        n_unseen=_n_unseen(answers, estimator.spec_.n_labels),
        label_names=names,
        counts=counts,
        scores=scores(answers, counts, has_classes),
        bands=bands(answers, counts, names, has_classes),
        confusion=confusion(answers) if has_classes else None,
        reliabilities=reliabilities(answers, has_classes),
        doubt=doubt(answers),
        has_novelty=answers.has_novelty,
        examples=chosen,
        inside=look_inside(estimator, counts, occurs, side, feature_names),
        pictures=[] if side is None else _pictures(rows, side),
        words=_words(estimator, rows, feature_names if known is None else known) if side is None else [],
    )


def _n_unseen(answers: Answers, n_labels: int) -> int:
    """True labels that the model does not know; of one class a row, rows of such classes."""
    return int(np.count_nonzero(answers.Y.indices >= n_labels))


def _pictures(rows: sparse.csr_array, side: int) -> list[NDArray[np.float64]]:
    images = rows.toarray().astype(np.float64).reshape(-1, side, side)
    return [image / image.max() if image.max() > 0 else image for image in images]


def _words(estimator: Any, rows: sparse.csr_array, names: Sequence[str] | None) -> list[list[tuple[str, float, float]]]:
    """The features of each row that did most for its first label, or against it; nothing where they have no names."""
    if names is None or rows.nnz * estimator.spec_.n_labels > _MOST_ANSWERS:
        return []
    found = []
    for row in range(rows.shape[0]):
        own = gather_rows(rows, np.array([row]))
        labels = explain_row(estimator, own, k=1, n_features=_N_STRONGEST, n_inducing=1, feature_names=names).labels
        found.append(labels[0].features)
    return found
