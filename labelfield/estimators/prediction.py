"""What a fitted factor model answers: probabilities, rankings, utilities, intervals, and what it has learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logit, ndtri
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.errors import DataError
from labelfield.estimators.ensemble import top_k_of_mean
from labelfield.estimators.folders import SavedClassifier
from labelfield.estimators.options import advising_on_memory, count_of_labels
from labelfield.estimators.probabilities import FEWER_ROWS
from labelfield.linalg.rows import to_tensor
from labelfield.models.build import Spec
from labelfield.models.calibration import N_RANKS, Calibration, places
from labelfield.models.mlgpf import MLGPF
from labelfield.models.prediction import (
    Latent,
    condition,
    credible_interval,
    label_blocks,
    label_correlation,
    to_csr,
    to_indicator,
    top_k,
    unexplained_share,
)
from labelfield.variational import Moments

__all__ = ["BLOCK_ROWS", "FactorPredictions"]

# Rows that are looked at together.
BLOCK_ROWS = 2000
# Rows times labels of each member of an ensemble whose utilities exist at once.
_ENSEMBLE_ENTRIES = 1 << 22


class _Block(NamedTuple):
    """Some rows: which, their features, and q(h) there."""

    rows: slice
    X: Tensor
    h: Moments


class FactorPredictions(SavedClassifier):
    """The predicting half of a classifier whose utilities are f = Φ h + b. It works through rows and labels in blocks,
    so that beside what is asked for a few million numbers exist at once, whatever N and K."""

    model_: MLGPF
    spec_: Spec
    threshold: float
    others_: list[Any]
    ensemble_calibration_: Calibration

    def _row_blocks(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Tensor]]:
        """Some rows at a time: which, and their features where the model is."""
        for first in range(0, rows.shape[0], BLOCK_ROWS):
            block = slice(first, min(first + BLOCK_ROWS, rows.shape[0]))
            with advising_on_memory(FEWER_ROWS):
                X = to_tensor(gather_rows(rows, np.arange(block.start, block.stop)), self.model_.b.device)
            yield block, X

    def _latent(self, rows: sparse.csr_array) -> Iterator[_Block]:
        """Each block of rows and q(h) there."""
        with torch.no_grad():
            frame = self.model_.frame()
        for block, X in self._row_blocks(rows):
            # Neither is held around the yield: an abandoned generator would leave them open for good.
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                h = self.model_.latent(X, frame)[0]
            yield _Block(block, X, h)

    def _answers(
        self, rows: sparse.csr_array, ask: Callable[[Moments], tuple[Tensor, ...]], calibrated: bool = False
    ) -> Iterator[tuple[slice, slice, list[Tensor]]]:
        """What `ask` makes of q(f), for each block of rows and labels; probabilities may be calibrated on the way."""
        calibration = self.model_.calibration
        calibrated = calibrated and not calibration.is_identity()
        for block, X, h in self._latent(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                best = top_k(self.model_, h, X, N_RANKS)[0] if calibrated else None
            for labels, f in label_blocks(self.model_, h, X):
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    answers = list(ask(f))
                    if best is not None:
                        rank = places(best, labels)
                        answers = [calibration(answer, rank) for answer in answers]
                yield block, labels, answers

    def _dense(
        self,
        rows: sparse.csr_array,
        ask: Callable[[Moments], tuple[Tensor, ...]],
        n_results: int = 1,
        calibrated: bool = False,
    ) -> list[NDArray[np.float32]]:
        """The answers as dense arrays (N, K)."""
        with advising_on_memory(FEWER_ROWS):
            results = [np.empty((rows.shape[0], self.spec_.n_labels), np.float32) for _ in range(n_results)]
        for block, labels, answers in self._answers(rows, ask, calibrated):
            for result, answer in zip(results, answers, strict=True):
                result[block, labels] = answer.cpu().numpy()
        return results

    def _probability(self, f: Moments) -> tuple[Tensor]:
        return (self.model_.likelihood.predict_proba(*f),)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Log-odds of the raw probabilities (N, K); of two classes, how far the second is above the first (N,)."""
        P = self._probabilities(X, calibrated=False)
        scores = np.asarray(logit(np.clip(P, np.finfo(np.float32).tiny, 1 - np.finfo(np.float32).epsneg)), np.float32)
        is_binary = self.label_kind_ == "classes" and self.spec_.n_labels == 2
        return scores[:, 1] - scores[:, 0] if is_binary else scores

    def predict_proba(self, X: Any, *, calibrated: bool = True) -> NDArray[np.float32]:
        """The probability of each label (N, K), with the uncertainty of f integrated out, and calibrated unless
        raw ones are asked for. For one class a row they are divided by their sum.
        """
        P = self._probabilities(X, calibrated)
        if self.label_kind_ == "classes":
            P /= np.maximum(P.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return P

    def _probabilities(self, X: Any, calibrated: bool) -> NDArray[np.float32]:
        rows = self._rows(X)
        if not self.others_:
            return self._dense(rows, self._probability, calibrated=calibrated)[0]
        P = np.empty((rows.shape[0], self.spec_.n_labels), np.float32)
        for block, means in self._mean_probabilities(X, calibrated):
            P[block] = means.cpu().numpy()
        return P

    def predict_topk(self, X: Any, k: int = 5, *, calibrated: bool = True) -> sparse.csr_array:
        """The k most probable labels of each row and their probabilities, as CSR (N, K)."""
        if not self.others_:
            return self._topk(self._latent(self._rows(X)), count_of_labels(k), calibrated)
        k = min(count_of_labels(k), self.spec_.n_labels)
        labels, values = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
        for _, utilities in self._member_utilities(X):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                best, p = top_k_of_mean([member.model_ for member in self._members()], utilities, k)
                if calibrated:
                    p = self.ensemble_calibration_(p, torch.arange(k, device=p.device))
            labels.append(best.cpu().numpy())
            values.append(p.cpu().numpy())
        return to_csr(np.concatenate(labels), np.concatenate(values), self.spec_.n_labels)

    def _members(self) -> list[Any]:
        """All members of an ensemble; of a single model, itself."""
        return [self, *self.others_]

    def _member_utilities(self, X: Any) -> Iterator[tuple[slice, list[Moments]]]:
        """q(f) of all labels under each member, for blocks of so few rows that they fit in memory."""
        members = self._members()
        rows = [member._rows(X) for member in members]
        step = max(1, min(BLOCK_ROWS, _ENSEMBLE_ENTRIES // self.spec_.n_labels))
        for first in range(0, rows[0].shape[0], step):
            block = slice(first, min(first + step, rows[0].shape[0]))
            utilities = []
            for member, own in zip(members, rows, strict=True):
                _, seen, h = next(member._latent(gather_rows(own, np.arange(block.start, block.stop))))
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    utilities.append(member.model_.utilities(h, seen))
            yield block, utilities

    def _mean_probabilities(self, X: Any, calibrated: bool) -> Iterator[tuple[slice, Tensor]]:
        """The mean over members of all probabilities, for blocks of rows."""
        members = self._members()
        for block, utilities in self._member_utilities(X):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                parts = [m.model_.likelihood.predict_proba(*f) for m, f in zip(members, utilities, strict=True)]
                means = torch.stack(parts).mean(0)
                if calibrated:
                    best = means.sort(dim=1, descending=True, stable=True).indices[:, :N_RANKS]
                    means = self.ensemble_calibration_(means, places(best, slice(0, means.shape[1])))
            yield block, means

    def _topk(self, blocks: Iterable[_Block], k: int, calibrated: bool) -> sparse.csr_array:
        k = min(k, self.spec_.n_labels)
        labels, values = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
        for _, X, h in blocks:
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                best, p = top_k(self.model_, h, X, k)
                if calibrated:
                    p = self.model_.calibration(p, torch.arange(k, device=p.device))
            labels.append(best.cpu().numpy())
            values.append(p.cpu().numpy())
        return to_csr(np.concatenate(labels), np.concatenate(values), self.spec_.n_labels)

    def predict(self, X: Any, k: int | None = None) -> Any:
        """Labels whose probability reaches `threshold`, or the k most probable, as a CSR indicator (N, K).

        For one class a row, the most probable class (N,).
        """
        self._check_fitted()
        if self.label_kind_ == "classes":
            best = self.predict_topk(X, 1)
            return self.classes_[best.indices]
        if k is not None:
            chosen = self.predict_topk(X, k)
            chosen.data = np.ones_like(chosen.data)
            return chosen
        rows = self._rows(X)
        every = slice(0, self.spec_.n_labels)
        parts = (
            ((block, every, [means]) for block, means in self._mean_probabilities(X, calibrated=True))
            if self.others_
            else self._answers(rows, self._probability, calibrated=True)
        )
        reached = ((block, labels, answers[0] >= self.threshold) for block, labels, answers in parts)
        return to_indicator(reached, (rows.shape[0], self.spec_.n_labels))

    def predict_latent(self, X: Any) -> Latent:
        """Means and variances of the latent processes h (N, P) and of the utilities f (N, K)."""
        rows = self._rows(X)
        widths = (self.spec_.n_latent,) * 2 + (self.spec_.n_labels,) * 2
        with advising_on_memory(FEWER_ROWS):
            found = Latent(*(np.empty((rows.shape[0], width), np.float32) for width in widths))
        for block, seen, h in self._latent(rows):
            found.h_mean[block], found.h_var[block] = (part.cpu().numpy() for part in h)
            with advising_on_memory(FEWER_ROWS):
                for labels, f in label_blocks(self.model_, h, seen):
                    found.f_mean[block, labels], found.f_var[block, labels] = (part.cpu().numpy() for part in f)
        return found

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Lower and upper ends (N, K) of the central credible interval of each label's (calibrated) probability."""
        if not 0 < level < 1:
            raise ValueError(f"level={level}; expected between 0 and 1")
        z = float(ndtri(0.5 + level / 2))
        low, high = self._dense(self._rows(X), lambda f: credible_interval(f, z), 2, calibrated=True)
        return low, high

    def predict_uncertainty(self, X: Any) -> NDArray[np.float32]:
        """How far each row (N,) should be distrusted: 1 - p (1 - ν), from 0 to 1.

        p is the calibrated probability of the row's first label. ν is how unlike the training rows the row is: the
        share of the prior variance of h there that the inducing inputs leave open, 1 - k_iZ K_Z⁻¹ k_Zi / k_ii. It reads
        as the chance that the first label is wrong, if whatever is not known about a row counts as wrong. Under a
        stationary kernel ν, and so this, tends to 1 as a row moves away from all others; p alone may tend to anything.
        For known kinds of rows 1 - p orders mistakes a little better. Of an ensemble, ν is the mean over members;
        private processes have no part in it.
        """
        first = self.predict_topk(X, 1).data
        novelty = np.mean([member._novelty(X) for member in self._members()], axis=0)
        return np.asarray(1 - first * (1 - novelty), np.float32)

    def _novelty(self, X: Any) -> NDArray[np.float32]:
        """ν (N,) under this member alone."""
        rows = self._rows(X)
        novelty = np.empty(rows.shape[0], np.float32)
        with torch.no_grad():
            frame = self.model_.frame()
        for block, seen in self._row_blocks(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                novelty[block] = unexplained_share(self.model_, seen, frame).cpu().numpy()
        return novelty

    def condition(self, X: Any, observed: Any, k: int = 5) -> sparse.csr_array:
        """The k most probable labels of each row, given labels that are known: +1 for one that holds, -1 for one that
        does not, 0 or nothing for one that is not known. Known labels are not listed again."""
        rows, k = self._rows(X), count_of_labels(k)
        observed = sparse.csr_array(observed, dtype=np.float32, copy=True)
        observed.sum_duplicates()
        observed.eliminate_zeros()
        if not np.isin(observed.data, (-1, 1)).all():
            raise DataError("observed holds other values than -1, 0 and 1", fix="Use 1 for holds, -1 for does not.")
        if observed.shape != (rows.shape[0], self.spec_.n_labels):
            raise DataError(
                f"observed has shape {observed.shape}", expected=f"({rows.shape[0]}, {self.spec_.n_labels})"
            )
        longest = int(np.diff(observed.indptr).max(initial=0))
        ranked = self._topk(self._conditioned(rows, observed), k + longest, calibrated=True)
        return _without(ranked, observed, k)

    def _conditioned(self, rows: sparse.csr_array, observed: sparse.csr_array) -> Iterator[_Block]:
        for block, X, h in self._latent(rows):
            known: Tensor = to_tensor(sparse.csr_array(observed[block]), h.mean.device)
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                sharpened = condition(self.model_, h, X, known)
            yield _Block(block, X, sharpened)

    def label_correlation(self, labels: Any = None) -> NDArray[np.float32]:
        """Correlation of the utilities of these labels (default: all) under the prior, from ΦΦᵀ."""
        self._check_fitted()
        with advising_on_memory("the number of labels: pass some of them as labels="):
            return label_correlation(self.model_, labels)

    def feature_relevance(self) -> NDArray[np.float32]:
        """Squared ARD weights (D,), largest for the features that matter most, summed over the views of a row."""
        self._check_fitted()
        relevance = self.model_.kernel.feature_relevance()
        if relevance is None:
            raise ValueError(f"the kernel {self.spec_.kernel!r} treats all features alike; choose one with _ard")
        return self.row_transform_.fold(relevance.detach().cpu().numpy())


def _without(ranked: sparse.csr_array, known: sparse.csr_array, k: int) -> sparse.csr_array:
    """The k best entries of each row of `ranked` that are not stored in `known`."""
    n, n_labels = ranked.shape
    row = np.repeat(np.arange(n), np.diff(ranked.indptr))
    known_keys = np.repeat(np.arange(n), np.diff(known.indptr)) * n_labels + known.indices
    fresh = ~np.isin(row * n_labels + ranked.indices, known_keys)
    row, labels, values = row[fresh], ranked.indices[fresh], ranked.data[fresh]
    order = np.lexsort((labels, -values, row))
    place = np.arange(order.size) - np.searchsorted(row[order], row[order])
    kept = np.sort(order[place < k])
    return sparse.csr_array((values[kept], (row[kept], labels[kept])), shape=(n, n_labels))
