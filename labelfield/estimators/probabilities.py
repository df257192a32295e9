"""Predictions of classifiers that form the probabilities of all labels for some rows at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from labelfield.estimators.folders import SavedClassifier
from labelfield.estimators.inputs import as_rows
from labelfield.estimators.options import advising_on_memory, count_of_labels
from labelfield.metrics.ranking import score_ranking
from labelfield.models.calibration import N_RANKS, Calibration, places
from labelfield.models.prediction import to_csr, to_indicator

__all__ = ["FEWER_ROWS", "BlockPredictions"]

FEWER_ROWS = "the number of rows you predict at once, or predict on the CPU"
# Labels of each held-out row that the map of probabilities is learned from.
_N_CALIBRATED = 20


class BlockPredictions(SavedClassifier):
    """The predicting half of a classifier with few enough labels for all of a row's at once."""

    threshold: float = 0.5

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

    def predict(self, X: Any, k: int | None = None) -> Any:
        """The most probable class of each row (N,); of several labels a row those whose probability reaches
        `threshold`, or the k most probable, as a CSR indicator (N, K)."""
        self._check_fitted()
        if self.label_kind_ == "classes":
            return np.asarray(self.classes_[self.predict_topk(X, 1).indices])
        if k is not None:
            chosen = self.predict_topk(X, k)
            chosen.data = np.ones_like(chosen.data)
            return chosen
        rows, every = self._rows(X), slice(0, self.spec_.n_labels)
        reached = ((block, every, self.threshold <= P) for block, P in self._probabilities(rows, calibrated=True))
        return to_indicator(reached, (rows.shape[0], self.spec_.n_labels))

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Logarithms of the raw probabilities of classes, log-odds of labels (N, K); of two classes, how far the second
        is above the first (N,)."""
        P = np.maximum(self.predict_proba(X, calibrated=False), np.finfo(np.float32).tiny)
        scores = np.log(P)
        if isinstance(self.model_.calibration, Calibration):  # labels do not exclude each other
            scores -= np.log1p(-np.minimum(P, 1 - np.finfo(np.float32).epsneg))
        is_binary = self.label_kind_ == "classes" and self.spec_.n_labels == 2
        return scores[:, 1] - scores[:, 0] if is_binary else scores

    @staticmethod
    def _calibrated(calibration: nn.Module, P: Tensor) -> Tensor:
        """Raw probabilities of all labels (B, K) as the map has them."""
        if not isinstance(calibration, Calibration):
            result: Tensor = calibration(P)
            return result
        if calibration.is_identity():
            return P
        best = P.sort(dim=1, descending=True, stable=True).indices[:, :N_RANKS]
        return calibration(P, places(best, slice(0, P.shape[1])))  # type: ignore[no-any-return]

    def _fit_calibration(
        self,
        calibration: Any,
        blocks: Iterator[tuple[slice, Tensor]],
        Y: sparse.csr_array,
        is_known: Callable[[NDArray[np.int64]], NDArray[np.bool_]] | None = None,
    ) -> None:
        """Learn the map from raw probabilities of held-out rows and their labels Y; where some of these are missing,
        `is_known` says of labels (N, k) of the rows which were observed."""
        if isinstance(calibration, Calibration):
            k = min(_N_CALIBRATED, self.spec_.n_labels)
            judged = score_ranking(Y, self._best(blocks, k), k)
            known = None if is_known is None else is_known(judged.ranked.labels)
            calibration.fit(judged.ranked.scores, judged.hit, known)
        else:
            calibration.fit(self._dense(blocks, Y.shape[0]), Y.indices)

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
