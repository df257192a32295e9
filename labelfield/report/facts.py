"""The facts on the page, computed once, before they are put into words and figures."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from labelfield.csr import column_counts
from labelfield.errors import DataError
from labelfield.estimators.protocol import FittedClassifier
from labelfield.inference.run import Epoch
from labelfield.metrics.propensity import RankBy, rank_power, rank_weight
from labelfield.progress import Progress, ignore
from labelfield.report.decisions import Decisions, decisions
from labelfield.report.examples import Example, examples
from labelfield.report.identity import Identity, identify, learning_curves
from labelfield.report.learned import Learned, image_side, what_it_learned
from labelfield.report.predictions import Predictions, predict_rows
from labelfield.report.scores import Counts, Errors, Score, errors, scores

# A feature that a smaller share of the rows has says nothing about the model.
_SELDOM = 1e-3


class Facts(NamedTuple):
    """The model's identity, its predictions for the test rows, and what it has learned.

    `n_unseen` is how many of their true labels the model has not seen in training, and `rank_power` the power of the
    inverse propensity in the order of labels: 0 for probabilities alone. Examples are called by ids if rows have them.
    """

    identity: Identity
    curves: list[list[Epoch]]
    label_names: Sequence[str]
    counts: Counts
    predictions: Predictions
    n_unseen: int
    scores: list[Score]
    errors: Errors
    examples: list[Example]
    learned: Learned
    rank_power: float = 0.0
    decisions: Decisions | str = ""
    has_ids: bool = False


def gather(
    estimator: FittedClassifier,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    *,
    counts: Counts | None = None,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    rank_by: RankBy = "probability",
    texts: Sequence[Sequence[str]] | None = None,
    ids: Sequence[str] | None = None,
    progress: Progress = ignore,
) -> Facts:
    """Gather the facts about a fitted model on rows X with true labels Y (CSR), whose first columns are its labels.

    Further columns are classes that it has not seen. Names and counts are those of the model, unless given. For several
    labels per row, `rank_by` is that of `predict_topk`. `texts` are the documents that the rows were made of, field by
    field, and `ids` what they are called.
    """
    if Y.shape[0] == 0:
        raise DataError("no test rows", expected="at least one", fix="Check the file.")
    if Y.nnz == 0:
        raise DataError("no test row has a label", expected="rows with labels, to compare with", fix="Check the file.")
    names = list(estimator.label_names() if label_names is None else label_names)
    names += map(str, range(len(names), Y.shape[1]))  # labels that were not in training
    counts = Counts(estimator.label_counts_, estimator.n_rows_) if counts is None else counts
    identity = identify(estimator)
    power = rank_power(rank_by)
    if power and identity.has_classes:
        raise ValueError(f"rank_by={rank_by!r} is for several labels per row")
    weight = rank_weight(power, lambda: counts.wide(Y.shape[1]).inverse_propensity)
    found = predict_rows(estimator, X, Y, progress, weight)
    side = image_side(X)
    occurs = column_counts(X) > _SELDOM * X.shape[0]
    return Facts(
        identity=identity,
        curves=learning_curves(estimator),
        label_names=names,
        counts=counts,
        predictions=found,
        n_unseen=int(np.count_nonzero(Y.indices >= estimator.predictor_.n_labels)),
        scores=scores(found, counts, identity.has_classes),
        errors=errors(found),
        examples=examples(estimator, X, found, side, feature_names, texts, ids),
        learned=what_it_learned(estimator, counts, occurs, side, feature_names),
        rank_power=power,
        decisions=decisions(estimator, X, Y),
        has_ids=ids is not None,
    )
