"""Which features a model looks at most, over all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelfield.estimators.gp import GPClassifier
from labelfield.estimators.mlgpf import MLGPFClassifier
from labelfield.estimators.topics import TopicClassifier
from labelfield.explain.names import FeatureNames
from labelfield.models.processes import LinearUtilities

__all__ = ["relevant_features"]


def relevant_features(
    estimator: Any, n: int = 20, *, feature_names: Sequence[str] | None = None
) -> list[tuple[str, float]] | None:
    """The n features that matter most, by name, with their relevance; None where the method does not say.

    Of a kernel with a weight for each feature (ARD) it is the squared weight; of topics, and of linear utilities, the
    mean over topics, by their share, or over classes of the squared weight. Features that never vary may have kept the
    weight they started with.
    """
    relevance = _relevance(estimator)
    if relevance is None:
        return None
    names = FeatureNames(estimator, feature_names)
    best = np.argsort(-relevance, kind="stable")[:n]
    return [(names[d], float(relevance[d])) for d in best.tolist()]


def _relevance(estimator: Any) -> NDArray[np.float64] | None:
    if isinstance(estimator, TopicClassifier):
        W = estimator.model_.W.mean(0)[:-1].double().cpu().numpy()
        share = estimator.model_.share.double().cpu().numpy()
        return np.asarray(estimator.row_transform_.fold(W**2 @ share), np.float64)
    if isinstance(estimator, GPClassifier) and isinstance(estimator.model_.utilities, LinearUtilities):
        weights = estimator.model_.utilities.weights.detach().double().cpu().numpy()
        return np.asarray(estimator.row_transform_.fold((weights**2).mean(0)), np.float64)
    if not isinstance(estimator, GPClassifier | MLGPFClassifier):
        return None
    try:
        return np.asarray(estimator.feature_relevance(), np.float64)
    except ValueError:  # the kernel treats all features alike
        return None
