"""The names of features, and which of them matter most over all rows."""

from collections.abc import Callable, Sequence

import numpy as np

from labelfield.estimators.protocol import FittedClassifier

Namer = Callable[[int], str]


def feature_namer(estimator: FittedClassifier, given: Sequence[str] | None = None) -> Namer:
    """Return a function from a feature's number to its name: the model's, else the given one, else "feature 17"."""
    names = estimator.feature_names()
    if names is None and given is not None and len(given) != estimator.n_features_in_:
        raise ValueError(f"{len(given)} feature names; expected {estimator.n_features_in_}")
    known = given if names is None else names
    return "feature {}".format if known is None else lambda number: str(known[number])


def relevant_features(
    estimator: FittedClassifier, n: int = 20, *, feature_names: Sequence[str] | None = None
) -> list[tuple[str, float]] | None:
    """Return the n features that matter most, by name, with their relevance (`feature_relevance` of the classifier).

    Return None for a model that does not weight features.
    """
    relevance = estimator.feature_relevance()
    if relevance is None:
        return None
    name = feature_namer(estimator, feature_names)
    best = np.argsort(-relevance, kind="stable")[:n].tolist()
    return [(name(d), float(relevance[d])) for d in best]


def topic_features(estimator: FittedClassifier, topic: int, n: int) -> list[tuple[int, float]]:
    """Return the n features that raise a topic most, by number, with their weights."""
    found = estimator.predictor_.topic_weights()
    assert found is not None  # a model with topics has them
    weights = estimator.row_transform_.fold(found[:, topic])
    return [(d, float(weights[d])) for d in np.argsort(-weights, kind="stable")[:n].tolist()]
