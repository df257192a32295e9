"""Predictions of a fitted model for rows, in blocks that bound the memory for any number of rows and labels.

`Predictor` is the one interface between models and everything above them. A final class in each model package defines
its probabilities; whatever it does not override has a documented default: None for what a model has not learned
(`loadings`, `feature_relevance`, `processes`), a CannotAnswerError for a question that makes no sense for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import from_counts, gather_rows
from labelfield.errors import CannotAnswerError
from labelfield.kernels import Kernel, Points
from labelfield.linalg.rows import device_of, to_tensor
from labelfield.memory import FEWER_ROWS, advising_on_memory, row_blocks
from labelfield.models.calibration import N_RANKS, Calibration, Temperature, ranks_of
from labelfield.variational.families import Family, Prior

if TYPE_CHECKING:
    from labelfield.models.index import Index
    from labelfield.models.search import Guesses, Scorer, Searched

Answer = TypeVar("Answer")
# Blocks of rows, with what is known about each.
Blocks = Iterable[tuple[Any, ...]]
# Labels of which all sets are looked at.
MOST_IN_SETS = 12
_NO_INDEX = "labels can be indexed by linear machines, factor models (mlgpf) and mixes of them"
_TINY = float(np.finfo(np.float32).tiny)
_ALMOST_ONE = 1 - float(np.finfo(np.float32).epsneg)


class Block(NamedTuple):
    """The probabilities P of some labels of some rows."""

    rows: slice
    labels: slice
    P: Tensor


class Latent(NamedTuple):
    """Means and variances of the utilities f (N, K), and of the latent processes h (N, P) that they are mixed from."""

    f_mean: NDArray[np.float32]
    f_var: NDArray[np.float32]
    h_mean: NDArray[np.float32] | None = None
    h_var: NDArray[np.float32] | None = None


class LabelSets(NamedTuple):
    """The most probable labels of rows (N, k), sets of them, the most probable first, as members (N, n, k), and the
    probability (N, n) that a set is exactly what holds among these labels."""

    labels: NDArray[np.int64]
    is_member: NDArray[np.bool_]
    probability: NDArray[np.float32]


class Bound(NamedTuple):
    """The evidence lower bound of some rows, in nats: fit - kl."""

    fit: float
    kl: float


class LatentProcesses(NamedTuple):
    """Latent processes with inducing inputs, as explanations need them.

    Utilities are `mixing` (K, P) times the processes; without a mixing each label has a process of its own, and with
    `has_own_points` also inducing inputs of its own. `offsets` gives what else the utilities of labels are the sum of
    at a row: the linear process of a label, where there is one.
    """

    kernel: Kernel
    points: Points
    prior: Prior
    family: Family
    mixing: Tensor | None
    b: Tensor
    offsets: Callable[[Tensor], Tensor] | None = None
    has_own_points: bool = False


class Predictor(ABC):
    """Predictions for rows (CSR) as the model sees them."""

    n_labels: int
    # Whether the model has labels exclude each other: the probabilities of a row sum to one.
    is_exclusive: bool
    # Whether `proba` divides them by their sum: for one class per row under a model of separate labels.
    normalises: bool = False
    # Whether the model was drawn by a sampler: its history has log-likelihoods, no bounds.
    is_sampled: bool = False
    # Whether `top_k_of_mean` ranks the mean of several models without the probabilities of all labels.
    ranks_means: bool = False
    # Of a baseline: what it is called beside the model, and a sentence about it.
    title, meaning = "", ""
    calibration: Calibration | Temperature
    # The guesses of the last search with an index.
    _guesses: Guesses | None = None

    @abstractmethod
    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        """Yield the probabilities of all labels of all rows, block by block."""

    def whole_rows(self, blocks: Blocks, ask: Callable[..., Tensor], calibrated: bool) -> Iterator[Block]:
        """Yield the probabilities that `ask` gives for all labels of blocks of rows, calibrated on request."""
        for block, *given in blocks:
            # Neither is held around the yield: an abandoned generator would leave them open for good.
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                P = ask(*given)
                P = calibrated_probabilities(self.calibration.to(P.device), P) if calibrated else P
            yield Block(block, slice(0, self.n_labels), P)

    def answers(self, blocks: Blocks, ask: Callable[..., Answer]) -> Iterator[tuple[slice, Answer]]:
        """Yield the rows of each block (rows, *rest) with ask(*rest), which has no gradient."""
        for block, *given in blocks:
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                answer = ask(*given)
            yield block, answer

    def filled(self, blocks: Blocks, *shapes: tuple[int, ...]) -> list[NDArray[np.float32]]:
        """Return arrays of these shapes, filled block by block from its place and its part of each array."""
        with advising_on_memory(FEWER_ROWS):
            result = [np.empty(shape, np.float32) for shape in shapes]
        for where, parts in blocks:
            for array, part in zip(result, parts, strict=True):
                array[where] = part.cpu().numpy()
        return result

    def proba(self, rows: sparse.csr_array, calibrated: bool = True) -> NDArray[np.float32]:
        """Return the probability of each label (N, K)."""
        P = self.separate_proba(rows, calibrated)
        if self.normalises:
            P /= np.maximum(P.sum(axis=1, keepdims=True), np.float32(_TINY))
        return P

    def separate_proba(self, rows: sparse.csr_array, calibrated: bool = True) -> NDArray[np.float32]:
        """Return the model's own probability of each label (N, K), even where rows have one class each."""
        blocks = ((block[:2], block[2:]) for block in self.probabilities(rows, calibrated))
        return self.filled(blocks, (rows.shape[0], self.n_labels))[0]

    def top_k(
        self, rows: sparse.csr_array, k: int, calibrated: bool = True, weight: NDArray[np.float64] | None = None
    ) -> sparse.csr_array:
        """Return the k most probable labels of each row with their probabilities, as CSR (N, K).

        With a positive `weight` (K,) return those with the largest probability times weight. The values are
        probabilities all the same, so the order is that of value times weight.
        """
        k = min(k, self.n_labels)
        best = (_best(block.P, k, weight) for block in self.probabilities(rows, calibrated))
        return to_csr(best, k, self.n_labels)

    def searched(self, rows: sparse.csr_array, k: int, index: Index, calibrated: bool = True) -> Searched:
        """Return the same as `top_k` from the labels with the best guesses, as many as the audit chose."""
        from labelfield.models.search import Guesses, Searched, search

        guesses = self._guesses
        if guesses is None or guesses.directions is not index.directions:
            self._guesses = None
            # Guesses refer to a copy: what refers to itself stays in memory until it is searched for garbage.
            guesses = self._guesses = Guesses(copy(self).scorer(), index.directions)
        k = min(k, self.n_labels)
        found = [
            (np.zeros((0, k), np.int64), np.zeros((0, k), np.float32), np.zeros(0, np.bool_), np.zeros(0, np.int64))
        ]
        found += search(guesses, rows, k, index.audit.n_kept)
        labels, values, is_certified, n_scored = (np.concatenate(part) for part in zip(*found, strict=True))
        p = torch.from_numpy(values)
        if calibrated:  # which preserves the ranking
            p = self.calibration(p, torch.arange(k).expand_as(p))
        return Searched(to_csr([(torch.from_numpy(labels), p)], k, self.n_labels), is_certified, n_scored)

    def scorer(self) -> Scorer:
        """Return the model as a search sees it; a CannotAnswerError if all labels have to be ranked."""
        raise CannotAnswerError(_NO_INDEX)

    def top_k_by_utility(self, rows: sparse.csr_array, k: int) -> sparse.csr_array:
        """Return the k labels of each row with the largest mean utility, as CSR (N, K) of σ of it: the probability if
        utilities had no variance."""
        raise CannotAnswerError("only factor models can rank labels by mean utility")

    def reached(self, rows: sparse.csr_array, threshold: float) -> sparse.csr_array:
        """Return the labels whose probability reaches the threshold, as a CSR indicator (N, K)."""
        parts = ((rows, labels, threshold <= P) for rows, labels, P in self.probabilities(rows))
        return to_indicator(parts, (rows.shape[0], self.n_labels))

    def scores(self, rows: sparse.csr_array) -> NDArray[np.float32]:
        """Return log p of classes, or the log-odds of labels (N, K), from raw probabilities."""
        P = np.maximum(self.separate_proba(rows, calibrated=False), np.float32(_TINY))
        scores = np.log(P)
        if not self.is_exclusive:
            scores -= np.log1p(-np.minimum(P, np.float32(_ALMOST_ONE)))
        return scores

    def log_odds(self, rows: sparse.csr_array) -> NDArray[np.float64]:
        """Return the log-odds of raw probabilities (N, K), whether or not labels exclude each other.

        For two classes under a model of separate labels, return how far each is above the other.
        """
        scores = np.asarray(self.scores(rows), np.float64)
        if not self.is_exclusive:
            return scores - scores[:, ::-1] if self.normalises and self.n_labels == 2 else scores
        # A float32 probability comes no closer to 1 than this.
        return np.asarray(scores - np.log(-np.expm1(np.minimum(scores, np.log(_ALMOST_ONE)))))

    def latent(self, rows: sparse.csr_array) -> Latent:
        """Return the moments of utilities and latent processes."""
        raise CannotAnswerError("this model has no utilities with means and variances")

    def sets(self, rows: sparse.csr_array, k: int, n_sets: int, n_draws: int) -> LabelSets:
        """Return the most probable sets of the k most probable labels, by joint draws of what labels share."""
        raise CannotAnswerError("sets of labels are drawn by factor models (mlgpf) alone")

    def bound(self, rows: sparse.csr_array, Y: sparse.csr_array) -> Bound:
        """Return the evidence lower bound of rows with labels Y, exact over rows and labels."""
        raise CannotAnswerError("this model has no evidence lower bound")

    def loadings(self) -> Tensor | None:
        """Return coordinates (K, ...) in which labels that go together have a small angle; None if there are none."""
        return None

    def feature_relevance(self) -> NDArray[np.float32] | None:
        """Return how much each feature matters (D,); None for a model that does not weight features."""
        return None

    def processes(self, labels: Tensor | None = None) -> LatentProcesses | None:
        """Return the processes behind these labels, or all; None for a model without inducing inputs."""
        return None

    def process_blocks(self) -> Iterator[LatentProcesses]:
        """Yield the processes behind all labels, as many labels at a time as fit in memory."""
        every = self.processes()
        if every is not None:
            yield every

    def topic_shares(self, row: sparse.csr_array, labels: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Return the share of each topic (k, topics) in each of these labels of one row; None without topics."""
        return None

    def topic_weights(self) -> NDArray[np.float32] | None:
        """Return the weight of each feature in each topic (D, topics); None without topics."""
        return None

    def first_labels(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Return the n first labels of each topic (topics, n) and their weights; None without topics."""
        return None

    def top_k_of_mean(
        self,
        parts: Sequence[tuple[Any, sparse.csr_array]],
        k: int,
        observed: sparse.csr_array | None,
        calibration: Any,
        weight: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the k labels with the largest mean probability over predictors of this kind, each with its rows.

        Only where `ranks_means`. `observed` has labels that are known: +1 holds, -1 does not. Probabilities go through
        the calibration, if there is one, and labels are ranked by them times a `weight` (K,), if there is one.
        """
        raise CannotAnswerError("this model cannot rank means")

    def baseline(self) -> Predictor | None:
        """Return the plain model that this one started from and is compared with; None if there is none."""
        return None


class UtilityPredictor(Predictor):
    """The predictor of any model with Gaussian utilities: `model.moments(X)`, `model.likelihood` and a calibration."""

    def __init__(self, model: Any, n_labels: int, is_exclusive: bool) -> None:
        self.model, self.n_labels, self.is_exclusive = model, n_labels, is_exclusive
        self.calibration = model.calibration

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        model, blocks = self.model, tensor_blocks(rows, device_of(self.model), self.n_labels, entries=1 << 22)
        return self.whole_rows(blocks, lambda X: model.likelihood.predict_proba(*model.moments(X)), calibrated)


def tensor_blocks(
    rows: sparse.csr_array, device: torch.device, width: int = 1, *, entries: int, most: int = 2000
) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of rows, as `row_blocks` cuts them, each as a sparse tensor on a device."""
    for block in row_blocks(rows.shape[0], width, entries=entries, most=most):
        with advising_on_memory(FEWER_ROWS):
            X = to_tensor(gather_rows(rows, np.arange(block.start, block.stop)), device)
        yield block, X


def calibrated_probabilities(calibration: Any, P: Tensor) -> Tensor:
    """Map raw probabilities of all labels (B, K) to calibrated ones, by a Calibration or a Temperature."""
    result: Tensor = P
    if isinstance(calibration, Temperature):
        result = calibration(P)
    elif not calibration.is_identity():
        result = calibration(P, _ranks(P))
    return result


def _ranks(P: Tensor) -> Tensor:
    """Return the place of each label in the ranking of its row, from probabilities of all labels (B, K)."""
    best = P.sort(dim=1, descending=True, stable=True).indices[:, :N_RANKS]
    return ranks_of(best, slice(0, P.shape[1]))


def _best(P: Tensor, k: int, weight: NDArray[np.float64] | None) -> tuple[Tensor, Tensor]:
    """Return the k labels of rows (B, K) with the largest weighted probabilities, and their probabilities."""
    if weight is None:
        values, labels = P.topk(k, dim=1)
        return labels, values
    labels = (P * torch.from_numpy(weight).to(P.device)).topk(k, dim=1).indices
    return labels, P.gather(1, labels)


def to_csr(parts: Iterable[tuple[Tensor, Tensor]], k: int, n_labels: int) -> sparse.csr_array:
    """Return lists of k labels per row and their values, given in blocks of rows, as CSR (N, K) with sorted columns."""
    found = [(np.zeros((0, k), np.int64), np.zeros((0, k), np.float32))]
    found += [(labels.cpu().numpy(), values.cpu().numpy()) for labels, values in parts]
    labels, values = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.argsort(labels, axis=1)
    columns, data = (np.take_along_axis(part, order, 1).ravel() for part in (labels, values))
    return from_counts(np.full(len(labels), k, np.int64), columns.astype(np.int32), data, n_labels)


def to_indicator(parts: Iterable[tuple[slice, slice, Tensor]], shape: tuple[int, int]) -> sparse.csr_array:
    """Return a CSR indicator (N, K) from blocks of it: their rows, their labels, and which labels hold there."""
    found = [(np.zeros(0, np.int64),) * 2]
    for rows, labels, holds in parts:
        row, column = (part.cpu().numpy() for part in holds.nonzero(as_tuple=True))
        found.append((row + rows.start, column + labels.start))
    row, column = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((column, row))
    return from_counts(np.bincount(row, minlength=shape[0]), column[order].astype(np.int32), None, shape[1])
