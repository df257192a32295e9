"""Everything that the page says, as plain facts: computed once, and only then put into words and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.errors import DataError
from labelfield.estimators.protocol import FittedClassifier
from labelfield.explain import explain_row
from labelfield.inference.run import Epoch
from labelfield.metrics.probabilities import Reliability
from labelfield.progress import Progress, ignore
from labelfield.report.examples import Example, examples
from labelfield.report.identity import Identity, identify, learning_curves
from labelfield.report.learned import Learned, image_side, what_it_learned
from labelfield.report.predictions import predict_rows
from labelfield.report.scores import Band, Counts, Errors, Score, bands, confusion, errors, reliabilities, scores

__all__ = ["Facts", "gather"]

_N_STRONGEST = 6
# A feature that a smaller share of the rows has says nothing about the model.
_SELDOM = 1e-3
# Each feature of an example is left out once, which predicts all labels: more probabilities than this take minutes.
_MOST_PROBABILITIES = 200_000_000


@dataclass(frozen=True, eq=False)
class Facts:
    """What the model is, what it predicts for the test rows, and what it has learned.

    `images` are the examples as pictures, where rows are images. Else, where features have names, `carried` are the
    features that did most for or against the first label of each example: name, value, and by how much the log-odds
    fall without it.
    """

    identity: Identity
    curves: list[list[Epoch]]
    n_rows: int
    n_unlabelled: int
    n_unseen: int
    label_names: Sequence[str]
    counts: Counts
    scores: list[Score]
    bands: list[Band]
    confusion: NDArray[np.int64] | None
    reliabilities: dict[int, Reliability]
    errors: Errors
    has_novelty: bool
    examples: list[Example]
    learned: Learned
    images: list[NDArray[np.float64]]
    carried: list[list[tuple[str, float, float]]]


def gather(
    estimator: FittedClassifier,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    *,
    counts: Counts | None = None,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    progress: Progress = ignore,
) -> Facts:
    """Gather the facts about a fitted model on rows X with true labels Y (CSR), whose first columns are its labels.

    Further columns are classes that it has not seen. Names and counts are those of the model, unless given.
    """
    if Y.shape[0] == 0:
        raise DataError("no test rows", expected="at least one", fix="Check the file.")
    if Y.nnz == 0:
        raise DataError("no test row has a label", expected="rows with labels, to compare with", fix="Check the file.")
    names = list(estimator.label_names() if label_names is None else label_names)
    names += map(str, range(len(names), Y.shape[1]))  # labels that were not in training
    counts = Counts(estimator.label_counts_, estimator.n_rows_) if counts is None else counts
    identity = identify(estimator)
    has_classes = identity.has_classes
    found = predict_rows(estimator, X, Y, progress)
    side = image_side(X)
    occurs = np.bincount(X.indices, minlength=X.shape[1]) > _SELDOM * X.shape[0]
    chosen = examples(estimator, X, found)
    rows = gather_rows(X, np.array([example.row for example in chosen], np.int64))
    return Facts(
        identity=identity,
        curves=learning_curves(estimator),
        n_rows=int(Y.shape[0]),
        n_unlabelled=int(np.count_nonzero(found.judged.n_true == 0)),
        n_unseen=int(np.count_nonzero(Y.indices >= estimator.predictor_.n_labels)),
        label_names=names,
        counts=counts,
        scores=scores(found, counts, has_classes),
        bands=bands(found, counts, names, has_classes),
        confusion=confusion(found) if has_classes else None,
        reliabilities=reliabilities(found, has_classes),
        errors=errors(found),
        has_novelty=found.has_novelty,
        examples=chosen,
        learned=what_it_learned(estimator, counts, occurs, side, feature_names),
        images=[] if side is None else _images(rows, side),
        carried=_carried(estimator, rows, feature_names) if side is None else [],
    )


def _images(rows: sparse.csr_array, side: int) -> list[NDArray[np.float64]]:
    images = rows.toarray().astype(np.float64).reshape(-1, side, side)
    return [image / image.max() if image.max() > 0 else image for image in images]


def _carried(
    estimator: FittedClassifier, rows: sparse.csr_array, names: Sequence[str] | None
) -> list[list[tuple[str, float, float]]]:
    """Return the features of each row that did most for or against its first label; nothing if they have no names."""
    has_names = names is not None or estimator.feature_names() is not None
    if not has_names or rows.nnz * estimator.predictor_.n_labels > _MOST_PROBABILITIES:
        return []
    found = []
    for row in range(rows.shape[0]):
        own = gather_rows(rows, np.array([row]))
        labels = explain_row(estimator, own, k=1, n_features=_N_STRONGEST, n_inducing=0, feature_names=names).labels
        found.append(labels[0].features)
    return found
