"""Why a model gives one row the labels it gives."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.errors import DataError
from labelfield.estimators.inputs import as_rows
from labelfield.estimators.topics import TopicClassifier
from labelfield.explain.inducing import InducingInput, contributions, describe_inputs
from labelfield.explain.intervals import intervals
from labelfield.explain.names import FeatureNames, label_names
from labelfield.explain.occlusion import feature_effects
from labelfield.explain.topics import TopicShare, first_labels, topic_shares

__all__ = ["LabelExplanation", "RowExplanation", "explain_row"]

# Labels that say what a topic is about.
_N_FIRST = 3


class LabelExplanation(NamedTuple):
    """A label of a row, and what carried it.

    `features` are (name, value, effect): by how much the log-odds of its raw probability fall when the feature is taken
    out of the row (`labelfield.explain.occlusion`), those of the largest effect first, be it for or against the label.
    `inducing` are inducing inputs and what each adds to the mean utility; with all others, `private` and `bias` it is
    that utility (`labelfield.explain.inducing`). `topics` are those that most of the label's rate comes from. Empty
    where the method has none of it; `interval` and the parts of the utility are then None.
    """

    number: int
    name: str
    probability: float
    interval: tuple[float, float] | None
    features: list[tuple[str, float, float]]
    inducing: list[tuple[InducingInput, float]]
    topics: list[TopicShare]
    utility: float | None = None
    private: float | None = None
    bias: float | None = None


class RowExplanation(NamedTuple):
    """The most probable labels of a row, most probable first; how many features it has; and the level of intervals."""

    labels: list[LabelExplanation]
    n_features: int
    level: float


def explain_row(
    estimator: Any,
    x: Any,
    *,
    k: int = 5,
    n_features: int = 8,
    n_inducing: int = 3,
    level: float = 0.9,
    feature_names: Sequence[str] | None = None,
) -> RowExplanation:
    """The k most probable labels of one row x, as a vector or a matrix of one row, and what carried each of them.

    Features are called as the model knows them, else as in `feature_names`. Of an ensemble, effects of features are of
    the whole; intervals and inducing inputs are of its first member. As many topics are listed as inducing inputs.
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level}; expected between 0 and 1")
    row = _one_row(estimator, x)
    with warnings.catch_warnings():
        # The row has lost its names on the way, which are known to be right.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        return _explain(estimator, row, k, n_features, n_inducing, level, feature_names)


def _explain(
    estimator: Any,
    row: sparse.csr_array,
    k: int,
    n_features: int,
    n_inducing: int,
    level: float,
    feature_names: Sequence[str] | None,
) -> RowExplanation:
    best = estimator.predict_topk(row, k)
    order = np.argsort(-best.data, kind="stable")
    labels, probabilities = best.indices[order].astype(np.int64), best.data[order].tolist()
    ends = _intervals(estimator, row, labels, level)
    effects = feature_effects(estimator, row, labels)
    features, names = FeatureNames(estimator, feature_names), label_names(estimator)
    carried = _carried_by_inputs(estimator, row, labels, n_inducing, n_features, feature_names)
    topics = _carried_by_topics(estimator, row, labels, n_inducing, names)
    found = []
    for place, label in enumerate(labels.tolist()):
        strongest = np.argsort(-np.abs(effects.effects[:, place]), kind="stable")[:n_features].tolist()
        own = [
            (features[int(effects.features[d])], float(effects.values[d]), float(effects.effects[d, place]))
            for d in strongest
        ]
        found.append(
            LabelExplanation(
                label,
                names[label],
                float(probabilities[place]),
                ends[place],
                own,
                carried[place].inputs,
                topics[place],
                *carried[place][1:],
            )
        )
    return RowExplanation(found, int(effects.features.size), level)


def _one_row(estimator: Any, x: Any) -> sparse.csr_array:
    """x as CSR (1, D)."""
    estimator._check_fitted()
    is_vector = not sparse.issparse(x) and np.ndim(x) == 1
    row = as_rows(estimator, np.asarray(x)[None] if is_vector else x, reset=False)
    if row.shape[0] != 1:
        raise DataError(f"{row.shape[0]} rows", expected="one row", fix="Pass one row at a time.")
    return row


def _intervals(
    estimator: Any, row: sparse.csr_array, labels: NDArray[np.int64], level: float
) -> list[tuple[float, float] | None]:
    """The credible interval of each label's probability, where the method has one."""
    found = intervals(estimator, row, level)
    if found is None:
        return [None] * labels.size
    low, high = (np.asarray(end)[0, labels].tolist() for end in found)
    return list(zip(low, high, strict=True))


class _Carried(NamedTuple):
    """The first inducing inputs of a label, and the parts of its mean utility."""

    inputs: list[tuple[InducingInput, float]]
    utility: float | None = None
    private: float | None = None
    bias: float | None = None


def _carried_by_inputs(
    estimator: Any,
    row: sparse.csr_array,
    labels: NDArray[np.int64],
    n: int,
    n_features: int,
    feature_names: Sequence[str] | None,
) -> list[_Carried]:
    parts = contributions(estimator, row, labels)
    if parts is None:
        return [_Carried([]) for _ in labels]
    is_own = getattr(estimator.spec_, "inducing", "") == "per_class"
    strongest = np.argsort(-np.abs(parts.inducing), axis=1, kind="stable")[:, :n]
    places = [
        [(label if is_own else None, number) for number in own]
        for label, own in zip(labels.tolist(), strongest.tolist(), strict=True)
    ]
    each = sorted({place for own in places for place in own}, key=str)
    inputs = describe_inputs(estimator, each, n_features, feature_names, row)
    found = []
    for place, own in enumerate(places):
        pairs = [(inputs[at], float(parts.inducing[place, at[1]])) for at in own]
        private, bias = float(parts.private[place]), float(parts.bias[place])
        found.append(_Carried(pairs, float(parts.inducing[place].sum()) + private + bias, private, bias))
    return found


def _carried_by_topics(
    estimator: Any, row: sparse.csr_array, labels: NDArray[np.int64], n: int, names: list[str]
) -> list[list[TopicShare]]:
    if not isinstance(estimator, TopicClassifier):
        return [[] for _ in labels]
    shares = topic_shares(estimator, row, labels)
    strongest = np.argsort(-shares, axis=1, kind="stable")[:, :n]
    firsts = first_labels(estimator, np.unique(strongest).tolist(), _N_FIRST, names)
    return [
        [TopicShare(number, firsts[number], float(own[number])) for number in best]
        for own, best in zip(shares, strongest.tolist(), strict=True)
    ]
