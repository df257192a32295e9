"""Explain why a model gives one row its labels."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.errors import CannotAnswerError, DataError
from labelfield.estimators.inputs import as_rows
from labelfield.estimators.protocol import FittedClassifier
from labelfield.explain.features import Namer, feature_namer
from labelfield.explain.inducing import InducingInput, contributions, describe_inputs
from labelfield.explain.occlusion import feature_effects

# Labels that say what a topic is about.
_N_FIRST = 3
# The strongest inducing inputs of a label with what they add, and its utility, linear process and bias.
_Carried = tuple[list[tuple[InducingInput, float]], float | None, float | None, float | None]


class TopicShare(NamedTuple):
    """A topic, its first labels by name, and its share in the rate of the label that is explained."""

    number: int
    labels: list[str]
    share: float


class LabelExplanation(NamedTuple):
    """A label of a row, and the evidence for it.

    `features` are (name, value, effect): by how much the log-odds of its raw probability fall without the feature
    (`labelfield.explain.occlusion`), the largest effects first, whether for or against the label. `inducing` are
    inducing inputs and what each adds to the mean `utility`, which is the sum over all of them, `label_linear` and
    `bias` (`labelfield.explain.inducing`). `topics` are those that contribute most to its rate. Parts that a model
    does not have are empty or None.
    """

    number: int
    name: str
    probability: float
    interval: tuple[float, float] | None
    features: list[tuple[str, float, float]]
    inducing: list[tuple[InducingInput, float]]
    topics: list[TopicShare]
    utility: float | None = None
    label_linear: float | None = None
    bias: float | None = None


class RowExplanation(NamedTuple):
    """The most probable labels of a row, most probable first; how many features it has; and the level of intervals."""

    labels: list[LabelExplanation]
    n_features: int
    level: float


def explain_row(
    estimator: FittedClassifier,
    x: Any,
    *,
    k: int = 5,
    labels: Sequence[int] | NDArray[np.int64] | None = None,
    n_features: int = 8,
    n_inducing: int = 3,
    level: float = 0.9,
    feature_names: Sequence[str] | None = None,
) -> RowExplanation:
    """Explain the k most probable labels of one row x, a vector or a matrix of one row, by the evidence for each.

    `labels` are the numbers of labels to explain instead of the most probable ones.
    Features are called as the model knows them, else as in `feature_names`. Up to `n_inducing` inducing inputs and as
    many topics are listed. An ensemble has no inducing inputs; everything else describes the whole ensemble.
    """
    is_vector = not sparse.issparse(x) and np.ndim(x) == 1
    row = as_rows(estimator, np.asarray(x)[None] if is_vector else x, reset=False)
    if row.shape[0] != 1:
        raise DataError(f"{row.shape[0]} rows", expected="one row", fix="Pass one row at a time.")
    with warnings.catch_warnings():
        # The row was checked with its names, which a CSR array does not keep.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        if labels is None:
            best = estimator.predict_topk(row, k)
            order = np.argsort(-best.data, kind="stable")
            asked, probabilities = best.indices[order].astype(np.int64), best.data[order].tolist()
        else:
            asked = np.asarray(labels, np.int64)
            probabilities = estimator.predict_topk(row, estimator.predictor_.n_labels).toarray()[0, asked].tolist()
        names, name = estimator.label_names(), feature_namer(estimator, feature_names)
        ends = intervals(estimator, row, level)
        effects = feature_effects(estimator, row, asked)
        inputs = _inputs(estimator, row, asked, n_inducing, n_features, name)
        topics = _topics(estimator, row, asked, n_inducing, names)
    found = []
    for place, label in enumerate(asked.tolist()):
        effect = effects.effects[:, place]
        by_size = np.argsort(-np.abs(effect), kind="stable")[:n_features].tolist()
        features = [(name(int(effects.features[d])), float(effects.values[d]), float(effect[d])) for d in by_size]
        interval = None if ends is None else (float(ends[0][0, label]), float(ends[1][0, label]))
        strongest, *parts = inputs[place]
        own = names[label], probabilities[place], interval, features, strongest, topics[place]
        found.append(LabelExplanation(label, *own, *parts))
    return RowExplanation(found, int(effects.features.size), level)


def intervals(
    estimator: FittedClassifier, X: Any, level: float = 0.9
) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """Return the ends of intervals as `predict_interval` does, or None for a model that has none."""
    try:
        return estimator.predict_interval(X, level)
    except CannotAnswerError:
        return None


def _inputs(
    estimator: FittedClassifier, row: sparse.csr_array, labels: NDArray[np.int64], n: int, n_features: int, name: Namer
) -> list[_Carried]:
    """Return the n inducing inputs with the largest effect on each label, and the parts of its mean utility."""
    parts = contributions(estimator, row, labels)
    if parts is None:
        return [([], None, None, None) for _ in labels]
    strongest = np.argsort(-np.abs(parts.inducing), axis=1, kind="stable")[:, :n].tolist()
    places = [
        [(label if parts.has_own_points else None, number) for number in own]
        for label, own in zip(labels.tolist(), strongest, strict=True)
    ]
    described = describe_inputs(estimator, list({at for own in places for at in own}), n_features, name, row)
    found: list[_Carried] = []
    for own, effects, linear, bias in zip(places, parts.inducing, parts.label_linear, parts.bias, strict=True):
        listed = [(described[at], float(effects[at[1]])) for at in own]
        found.append((listed, float(effects.sum() + linear + bias), float(linear), float(bias)))
    return found


def _topics(
    estimator: FittedClassifier, row: sparse.csr_array, labels: NDArray[np.int64], n: int, names: list[str]
) -> list[list[TopicShare]]:
    """Return the n topics that contribute most to each label."""
    shares = estimator.predictor_.topic_shares(estimator.rows(row), labels)
    first = estimator.predictor_.first_labels(_N_FIRST)
    if shares is None or first is None:
        return [[] for _ in labels]
    strongest = np.argsort(-shares, axis=1, kind="stable")[:, :n].tolist()
    return [
        [TopicShare(number, [names[label] for label in first[0][number]], float(own[number])) for number in best]
        for own, best in zip(shares, strongest, strict=True)
    ]
