"""What features and labels are called: as the model knows, else as whoever asks does, else by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["FeatureNames", "label_names"]


class FeatureNames:
    """The name of each feature, by its number from 0; "feature 17" where nobody knows one."""

    def __init__(self, estimator: Any, given: Sequence[str] | None = None) -> None:
        names: Sequence[str] | None = estimator.feature_names()
        n_features = int(estimator.n_features_in_)
        if names is None and given is not None and len(given) != n_features:
            raise ValueError(f"{len(given)} feature names; expected {n_features}")
        self._names = given if names is None else names

    def __getitem__(self, number: int) -> str:
        return f"feature {number}" if self._names is None else str(self._names[number])


def label_names(estimator: Any) -> list[str]:
    """The name of each label, or its number as text."""
    names: list[str] = estimator._names()
    return names
