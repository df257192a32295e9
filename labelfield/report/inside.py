"""What a model has learned, in words and pictures: labels that go together, features, inducing inputs, topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.explain import InducingInput, LabelNeighbours, inducing_inputs, label_neighbours, relevant_features
from labelfield.explain.names import FeatureNames
from labelfield.report.scores import Counts

__all__ = ["Inside", "TopicWords", "image_side", "look_inside"]

_N_NEIGHBOURS, _N_FEATURES, _N_INPUTS, _N_PICTURES, _N_TOPICS, _N_WORDS = 12, 24, 12, 30, 24, 8
# Labels less alike than this are not shown as neighbours, nor is a table of fewer labels than that.
_LEAST_LIKE, _LEAST_NEIGHBOURS = 0.1, 3
# So many inducing inputs are looked at that every class is likely to have some among them.
_N_CANDIDATES = 240
# Rows by which one sees whether features are pixels, the smallest picture, and how alike neighbours are in one.
_SEEN_ROWS, _LEAST_SIDE, _ALIKE = 500, 8, 0.5


@dataclass(frozen=True)
class TopicWords:
    """A topic: its share in the labels of the training rows, its labels with weights, the features that raise it."""

    number: int
    share: float
    labels: list[tuple[str, float]]
    features: list[str]


@dataclass(frozen=True, eq=False)
class Inside:
    """What can be said; empty where a method has no such thing. `pictures` are inducing inputs as square images, by
    the class they belong to or speak for."""

    neighbours: list[LabelNeighbours] = field(default_factory=list)
    features: list[tuple[str, float]] = field(default_factory=list)
    has_names: bool = True  # else features are numbers
    inputs: list[InducingInput] = field(default_factory=list)
    n_inputs: int = 0
    has_values: bool = False  # of features, in units of their own, so that they mean something
    pictures: list[tuple[str, NDArray[np.float64]]] = field(default_factory=list)
    relevance_picture: NDArray[np.float64] | None = None
    topics: list[TopicWords] = field(default_factory=list)
    n_topics: int = 0


def image_side(X: sparse.csr_array) -> int | None:
    """The side of the square images that rows seem to be: pixels are like those beside and below them."""
    side = isqrt(X.shape[1])
    if side < _LEAST_SIDE or side * side != X.shape[1] or X.shape[0] < 2:
        return None
    rows = np.unique(np.linspace(0, X.shape[0] - 1, min(_SEEN_ROWS, X.shape[0])).astype(np.int64))
    images = X[rows].toarray().reshape(-1, side, side).astype(np.float64)
    if images.min() < 0:
        return None
    across = _alike(images[:, :, 1:], images[:, :, :-1])
    down = _alike(images[:, 1:], images[:, :-1])
    return side if min(across, down) > _ALIKE else None


def _alike(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The correlation of pixels with their neighbours."""
    a, b = first.ravel() - first.mean(), second.ravel() - second.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def look_inside(
    estimator: Any,
    counts: Counts,
    occurs: NDArray[np.bool_],
    side: int | None,
    feature_names: Sequence[str] | None,
) -> Inside:
    """Everything that the method has to say. Features that hardly a test row has, by `occurs` (D,), are not listed:
    what never varies may have kept the weight it started with."""
    known: Sequence[str] | None = estimator.feature_names()
    names = feature_names if known is None else known
    frequent = np.argsort(-counts.of_labels[: estimator.spec_.n_labels], kind="stable")
    frequent = frequent[counts.of_labels[frequent] > 0][:_N_NEIGHBOURS]
    neighbours = _neighbours(estimator, frequent.tolist())
    inputs = inducing_inputs(estimator, _N_INPUTS, _N_WORDS, feature_names=names) if side is None else None
    spec = estimator.spec_
    has_own = getattr(spec, "inducing", "") == "per_class"
    return Inside(
        neighbours,
        _features(estimator, occurs, names) if side is None else [],
        names is not None,
        inputs or [],
        getattr(spec, "n_inducing", 0) * (spec.n_labels if has_own else 1),
        not estimator.row_transform_.has_unit_norm,
        [] if side is None else _pictures(estimator, side, occurs),
        None if side is None else _relevance(estimator, side, occurs),
        *_topics(estimator, names),
    )


def _neighbours(estimator: Any, labels: list[int]) -> list[LabelNeighbours]:
    """Labels with those that are much like them; nothing where hardly any label has such."""
    if estimator.spec_.n_labels <= 2:
        return []
    asked = label_neighbours(estimator, labels, 4) or []
    found = [own._replace(neighbours=[pair for pair in own.neighbours if pair[1] >= _LEAST_LIKE]) for own in asked]
    found = [own for own in found if own.neighbours]
    return found if len(found) >= _LEAST_NEIGHBOURS else []


def _features(estimator: Any, occurs: NDArray[np.bool_], names: Sequence[str] | None) -> list[tuple[str, float]]:
    called = FeatureNames(estimator, names)
    present = {called[d] for d in np.flatnonzero(occurs).tolist()}
    found = relevant_features(estimator, estimator.n_features_in_, feature_names=names) or []
    return [(name, value) for name, value in found if name in present][:_N_FEATURES]


class _Pixels:
    """Where features are in a picture of this side, by their names, or by numbers that are given to them."""

    def __init__(self, estimator: Any, side: int, occurs: NDArray[np.bool_]) -> None:
        known: Sequence[str] | None = estimator.feature_names()
        self.names = [str(d) for d in range(side * side)] if known is None else list(known)
        self.place = {name: place for place, name in enumerate(self.names)}
        self.side, self.occurs = side, occurs

    @property
    def are_all_there(self) -> bool:
        """Two features of one name have no place."""
        return len(self.place) == self.side**2

    def image(self, values: Sequence[tuple[str, float]]) -> NDArray[np.float64]:
        """Values of features as a square image from 0 to 1; negative ones, and those of hardly a row, count as 0."""
        flat = np.zeros(self.side**2)
        for name, value in values:
            flat[self.place[name]] = max(value, 0.0)
        flat[~self.occurs] = 0
        return (flat / flat.max() if flat.max() > 0 else flat).reshape(self.side, self.side)


def _relevance(estimator: Any, side: int, occurs: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """How much each pixel counts."""
    pixels = _Pixels(estimator, side, occurs)
    found = relevant_features(estimator, side * side, feature_names=pixels.names)
    return pixels.image(found) if found and pixels.are_all_there else None


def _pictures(estimator: Any, side: int, occurs: NDArray[np.bool_]) -> list[tuple[str, NDArray[np.float64]]]:
    """Inducing inputs as images, those of one class side by side."""
    pixels = _Pixels(estimator, side, occurs)
    found = inducing_inputs(estimator, _N_CANDIDATES, side * side, feature_names=pixels.names)
    if not found or not pixels.are_all_there:
        return []
    kept: dict[str, list[InducingInput]] = {}
    for own in found:
        if own.labels:
            kept.setdefault(own.of_class or own.labels[0][0], []).append(own)
    most = max(1, _N_PICTURES // max(len(kept), 1))
    order = {name: i for i, name in enumerate(estimator._names())}
    chosen = [(name, own) for name in sorted(kept, key=order.__getitem__) for own in kept[name][:most]]
    return [(name, pixels.image(own.features)) for name, own in chosen[:_N_PICTURES]]


def _topics(estimator: Any, names: Sequence[str] | None) -> tuple[list[TopicWords], int]:
    if estimator._method() != "topics":
        return [], 0
    found = estimator.topics(_N_WORDS)
    words = []
    for topic in found[:_N_TOPICS]:
        features = estimator.top_features(topic.number, _N_WORDS, names)
        labels = [(str(name), float(weight)) for name, weight in topic.labels]
        called = [f"feature {name}" if names is None else str(name) for name, _ in features]
        words.append(TopicWords(topic.number, topic.share, labels, called))
    return words, len(found)
