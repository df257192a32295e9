"""What a model has learned, in words and pictures: similar labels, features, inducing inputs, topics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

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


@dataclass(frozen=True)
class TopicWords:
    """A topic: its share in the labels of the training rows, its labels with weights, the features that raise it."""

    number: int
    share: float
    labels: list[tuple[str, float]]
    features: list[str]


@dataclass(frozen=True, eq=False)
class Learned:
    """What a model has learned; empty where it has no such thing.

    `has_names` says whether features have names rather than numbers, `has_values` whether their values are in units of
    their own and so worth showing. `pictures` are inducing inputs as square images, each with the class that it belongs
    to or speaks for.
    """

    has_names: bool
    has_values: bool
    neighbours: list[LabelNeighbours]
    features: list[tuple[str, float]]
    relevance_picture: NDArray[np.float64] | None
    inputs: list[InducingInput]
    pictures: list[tuple[str, NDArray[np.float64]]]
    n_inputs: int
    topics: list[TopicWords]
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
    across = _correlation(images[:, :, 1:], images[:, :, :-1])
    down = _correlation(images[:, 1:], images[:, :-1])
    return side if min(across, down) > _LEAST_CORRELATION else None


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    a, b = first.ravel() - first.mean(), second.ravel() - second.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def what_it_learned(
    estimator: FittedClassifier,
    counts: Counts,
    occurs: NDArray[np.bool_],
    side: int | None,
    feature_names: Sequence[str] | None,
) -> Learned:
    """Return everything that the model can tell, as images of this side where rows are images.

    Features that hardly any test row has, by `occurs` (D,), are left out: features that never vary may have kept the
    weight they started with.
    """
    name, relevance = feature_namer(estimator, feature_names), estimator.feature_relevance()
    inputs = inducing_inputs(estimator, _N_INPUTS, _N_WORDS, feature_names=feature_names) if side is None else None
    topics = estimator.topics(_N_WORDS) or []
    return Learned(
        has_names=feature_names is not None or estimator.feature_names() is not None,
        has_values=not estimator.members()[0].row_transform_.has_unit_norm,
        neighbours=_neighbours(estimator, counts),
        features=[] if side is not None or relevance is None else _features(relevance, occurs, name),
        relevance_picture=None if side is None or relevance is None else _image(relevance, occurs, side),
        inputs=inputs or [],
        pictures=[] if side is None else _pictures(estimator, occurs, side),
        n_inputs=count_inputs(estimator),
        topics=_describe_topics(estimator, topics[:_N_TOPICS], name),
        n_topics=len(topics),
    )


def _neighbours(estimator: FittedClassifier, counts: Counts) -> list[LabelNeighbours]:
    """Return the most frequent labels with those similar to them; nothing if hardly any label has such."""
    n_labels = estimator.predictor_.n_labels
    if n_labels <= 2:
        return []
    frequent = np.argsort(-counts.of_labels[:n_labels], kind="stable")
    frequent = frequent[counts.of_labels[frequent] > 0][:_N_NEIGHBOURS]
    asked = label_neighbours(estimator, frequent.tolist(), 4) or []
    found = [
        own._replace(neighbours=[pair for pair in own.neighbours if pair[1] >= _LEAST_SIMILARITY]) for own in asked
    ]
    found = [own for own in found if own.neighbours]
    return found if len(found) >= _LEAST_NEIGHBOURS else []


def _features(
    relevance: NDArray[np.float32], occurs: NDArray[np.bool_], name: Callable[[int], str]
) -> list[tuple[str, float]]:
    order = np.argsort(-relevance, kind="stable")
    return [(name(d), float(relevance[d])) for d in order[occurs[order]][:_N_FEATURES].tolist()]


def _image(values: NDArray[Any], occurs: NDArray[np.bool_], side: int) -> NDArray[np.float64]:
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
            pictures.append((name, _image(values, occurs, side)))
    return pictures[:_N_PICTURES]


def _describe_topics(
    estimator: FittedClassifier, topics: Sequence[Any], name: Callable[[int], str]
) -> list[TopicWords]:
    found = []
    for topic in topics:
        labels = [(str(label), float(weight)) for label, weight in topic.labels]
        features = [name(d) for d, _ in topic_features(estimator, topic.number, _N_WORDS)]
        found.append(TopicWords(topic.number, topic.share, labels, features))
    return found
