"""Predictions of classifiers that form the probabilities of all labels for some rows at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.estimators.folders import SavedClassifier
from labelfield.estimators.inputs import as_rows
from labelfield.estimators.options import advising_on_memory, count_of_labels
from labelfield.models.prediction import to_csr

__all__ = ["FEWER_ROWS", "BlockPredictions"]

FEWER_ROWS = "the number of rows you predict at once, or predict on the CPU"


class BlockPredictions(SavedClassifier):
    """The predicting half of a classifier with few enough labels for all of a row's at once."""

    @abstractmethod
    def _probabilities(self, rows: sparse.csr_array, calibrated: bool) -> Iterator[tuple[slice, Tensor]]:
        """The probabilities of all labels, for blocks of rows."""

    def predict_proba(self, X: Any, *, calibrated: bool = True) -> NDArray[np.float32]:
        """The probability of each label (N, K), with the uncertainty of f integrated out, and calibrated unless raw
        ones are asked for. Of one class a row, rows sum to one."""
        rows = self._rows(X)
        return self._dense(self._probabilities(rows, calibrated), rows.shape[0])

    def _dense(self, blocks: Iterator[tuple[slice, Tensor]], n_rows: int) -> NDArray[np.float32]:
        with advising_on_memory(FEWER_ROWS):
            result = np.empty((n_rows, self.spec_.n_labels), np.float32)
        for block, P in blocks:
            result[block] = P.cpu().numpy()
        return result

    def predict_topk(self, X: Any, k: int = 5, *, calibrated: bool = True) -> sparse.csr_array:
        """The k most probable labels of each row and their probabilities, as CSR (N, K)."""
        return self._best(self._probabilities(self._rows(X), calibrated), count_of_labels(k))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class, or whose labels all, are right."""
        self._check_fitted()
        if self.label_kind_ == "classes" and np.ndim(y) == 2:  # indicators, or lists of one class each
            y = self.classes_[self._encode(y, as_rows(self, X, reset=False).shape[0]).indices]
        return super().score(X, y, sample_weight)

    def _best(self, blocks: Iterator[tuple[slice, Tensor]], k: int) -> sparse.csr_array:
        k = min(k, self.spec_.n_labels)
        labels, values = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
        for _, P in blocks:
            p, best = P.topk(k, dim=1)
            labels.append(best.cpu().numpy())
            values.append(p.cpu().numpy())
        return to_csr(np.concatenate(labels), np.concatenate(values), self.spec_.n_labels)
