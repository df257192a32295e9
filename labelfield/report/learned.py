"""What a model has learned, in words and pictures: similar labels, features, inducing inputs, topics."""

from collections.abc import Sequence
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.estimators.protocol import FittedClassifier
from labelfield.explain import InducingInput, LabelNeighbours, inducing_inputs, label_neighbours
from labelfield.explain.features import feature_namer, topic_features
from labelfield.explain.inducing import count_inputs, strongest_inputs
from labelfield.report.scores import Counts

_N_NEIGHBOURS, _N_FEATURES, _N_INPUTS, _N_PICTURES, _N_TOPICS, _N_WORDS = 12, 24, 12, 30, 24, 8
# Less similar labels are not shown as neighbours, nor is a table of fewer labels.
_LEAST_SIMILARITY, _LEAST_NEIGHBOURS = 0.1, 3
# Inducing inputs among which every class is likely to have some.
_N_CANDIDATES = 240
# Rows that show whether features are pixels, the smallest side of an image, and the least correlation of neighbours.
_SEEN_ROWS, _LEAST_SIDE, _LEAST_CORRELATION = 500, 8, 0.5


class Learned(NamedTuple):
    """What a model has learned; parts that it does not have are empty.

    `has_names` says whether features have names rather than numbers, `has_values` whether their values are in units of
    their own and so worth showing. `pictures` are inducing inputs as square images, each with the class that it belongs
    to or speaks for. `topics` come with the features that raise them.
    """

    has_names: bool
    has_values: bool
    neighbours: list[LabelNeighbours]
    features: list[tuple[str, float]]
    relevance_picture: NDArray[np.float64] | None
    inputs: list[InducingInput]
    pictures: list[tuple[str, NDArray[np.float64]]]
    n_inputs: int
    topics: list[tuple[Any, list[str]]]
    n_topics: int


def image_side(X: sparse.csr_array) -> int | None:
    """Return the side of the square images that rows seem to be, or None: pixels resemble their neighbours."""
    side = isqrt(X.shape[1])
    if side < _LEAST_SIDE or side * side != X.shape[1] or X.shape[0] < 2:
        return None
    rows = np.unique(np.linspace(0, X.shape[0] - 1, min(_SEEN_ROWS, X.shape[0])).astype(np.int64))
    images = X[rows].toarray().reshape(-1, side, side).astype(np.float64)
    if images.min() < 0:
        return None
    pairs = (images[:, :, 1:], images[:, :, :-1]), (images[:, 1:], images[:, :-1])
    with np.errstate(invalid="ignore"):  # images of one colour have no correlation
        likeness = [np.corrcoef(one.ravel(), other.ravel())[0, 1] for one, other in pairs]
    return side if all(value > _LEAST_CORRELATION for value in likeness) else None


def what_it_learned(
    estimator: FittedClassifier, counts: Counts, seen: NDArray[np.bool_], side: int | None, names: Sequence[str] | None
) -> Learned:
    """Return everything that the model has learned, as images of this side where rows are images.

    Features that hardly any test row has, by `seen` (D,), are left out: features that never vary may have kept the
    weight they started with.
    """
    name, relevance = feature_namer(estimator, names), estimator.feature_relevance()
    inputs = inducing_inputs(estimator, _N_INPUTS, _N_WORDS, feature_names=names) if side is None else None
    topics, features = estimator.topics(_N_WORDS) or [], list[tuple[str, float]]()
    if side is None and relevance is not None:
        order = np.argsort(-relevance, kind="stable")
        features = [(name(d), float(relevance[d])) for d in order[seen[order]][:_N_FEATURES].tolist()]
    return Learned(
        has_names=names is not None or estimator.feature_names() is not None,
        has_values=not estimator.members()[0].row_transform_.has_unit_norm,
        neighbours=_neighbours(estimator, counts),
        features=features,
        relevance_picture=None if side is None or relevance is None else as_image(relevance, side, seen),
        inputs=inputs or [],
        pictures=[] if side is None else _pictures(estimator, seen, side),
        n_inputs=count_inputs(estimator),
        topics=[
            (own, [name(d) for d, _ in topic_features(estimator, own.number, _N_WORDS)]) for own in topics[:_N_TOPICS]
        ],
        n_topics=len(topics),
    )


def _neighbours(estimator: FittedClassifier, counts: Counts) -> list[LabelNeighbours]:
    """Return the most frequent labels with similar ones; nothing if hardly any label has similar ones."""
    n_labels = estimator.predictor_.n_labels
    if n_labels <= 2:
        return []
    frequent = np.argsort(-counts.of_labels[:n_labels], kind="stable")
    frequent = frequent[counts.of_labels[frequent] > 0][:_N_NEIGHBOURS]
    found = []
    for own in label_neighbours(estimator, frequent.tolist(), 4) or []:
        if alike := [pair for pair in own.neighbours if pair[1] >= _LEAST_SIMILARITY]:
            found.append(own._replace(neighbours=alike))
    return found if len(found) >= _LEAST_NEIGHBOURS else []


def as_image(values: NDArray[Any], side: int, occurs: NDArray[np.bool_] | bool = True) -> NDArray[np.float64]:
    """Return the values of features as a square image from 0 to 1; those below 0 or of hardly any row count as 0."""
    flat = np.where(occurs, np.maximum(values, 0), 0).astype(np.float64)
    return (flat / flat.max() if flat.max() > 0 else flat).reshape(side, side)


def _pictures(
    estimator: FittedClassifier, occurs: NDArray[np.bool_], side: int
) -> list[tuple[str, NDArray[np.float64]]]:
    """Return inducing inputs as images, those of one class side by side."""
    kept: dict[str, list[InducingInput]] = {}
    for own in strongest_inputs(estimator, _N_CANDIDATES, side * side, str) or []:
        if own.labels:
            kept.setdefault(own.of_class or own.labels[0][0], []).append(own)
    most = max(1, _N_PICTURES // max(len(kept), 1))
    pictures = []
    for name in sorted(kept, key=estimator.label_names().index):
        for own in kept[name][:most]:
            values = np.zeros(side * side)
            values[[int(number) for number, _ in own.features]] = [value for _, value in own.features]
            pictures.append((name, as_image(values, side, occurs)))
    return pictures[:_N_PICTURES]
