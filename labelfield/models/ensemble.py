"""Several predictors that see rows differently, combined: their mean or a stack of them, calibrated as a whole."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.errors import CannotAnswerError
from labelfield.memory import row_blocks
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.ensemble_search import EnsembleScorer
from labelfield.models.predictor import Block, Latent, Predictor, to_csr
from labelfield.models.search import Scorer
from labelfield.models.stack import Stack, log_odds_of

# The most rows times labels of each member whose probabilities exist at once, and the most rows.
_BLOCK_ENTRIES, _MOST_ROWS = 1 << 22, 2000


class Transform(Protocol):
    """The transform that a member applies to rows before its predictor sees them."""

    def __call__(self, X: sparse.csr_array) -> sparse.csr_array: ...

    def fold(self, values: NDArray[np.float32]) -> NDArray[np.float32]: ...


class Member(NamedTuple):
    """A member of an ensemble: its row transform and its predictor."""

    transform: Transform
    predictor: Predictor


class EnsemblePredictor(Predictor):
    """Predictions of all members together. Rows come untransformed: each member transforms them in its own way.

    Probabilities are the mean over members, or come from a stack of their log-odds.
    """

    def __init__(
        self, members: Sequence[Member], calibration: Calibration | Temperature, stack: Stack | None = None
    ) -> None:
        self.members, self.calibration, self.stack = members, calibration, stack
        first = members[0].predictor
        self.n_labels, self.is_exclusive, self.normalises = first.n_labels, first.is_exclusive, first.normalises
        self.is_sampled = first.is_sampled

    def _parts(self, rows: sparse.csr_array) -> list[tuple[Predictor, sparse.csr_array]]:
        """Return the predictor of each member with the rows as it sees them."""
        return [(member.predictor, member.transform(rows)) for member in self.members]

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        parts = self._parts(rows)

        def ask(chosen: NDArray[np.int64]) -> Tensor:
            found = [predictor.separate_proba(gather_rows(own, chosen), calibrated=False) for predictor, own in parts]
            return self.combined([torch.from_numpy(P) for P in found])

        return self.whole_rows(self._blocks(rows), ask, calibrated)

    def combined(self, found: Sequence[Tensor], labels: Tensor | slice = slice(None)) -> Tensor:
        """Return the probabilities (..., labels) of all members together from those of each."""
        if self.stack is None:
            return torch.stack(list(found)).mean(0)
        odds: Tensor = self.stack.to(found[0].device)([log_odds_of(P) for P in found], labels)
        return odds.sigmoid_()

    def _blocks(self, rows: sparse.csr_array) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Yield blocks of rows and their numbers."""
        for block in row_blocks(rows.shape[0], self.n_labels, entries=_BLOCK_ENTRIES, most=_MOST_ROWS):
            yield block, np.arange(block.start, block.stop)

    def top_k(
        self, rows: sparse.csr_array, k: int, calibrated: bool = True, weight: NDArray[np.float64] | None = None
    ) -> sparse.csr_array:
        """Return the k labels with the largest mean probability; some models need not compute all labels."""
        if not self._ranks_means():
            return super().top_k(rows, k, calibrated, weight)
        return self._top_k_of_mean(rows, k, calibrated, weight=weight)

    def scorer(self) -> Scorer:
        if self.normalises or self.is_exclusive:
            return super().scorer()
        return EnsembleScorer(self)

    def given(self, rows: sparse.csr_array, observed: sparse.csr_array, k: int) -> sparse.csr_array:
        """Return the k labels with the largest mean probability given labels that are known, as CSR (N, K)."""
        if not self._ranks_means():
            raise CannotAnswerError("only factor models (mlgpf) can use known labels")
        return self._top_k_of_mean(rows, k, True, observed)

    def _ranks_means(self) -> bool:
        """Return whether all members are of the same kind, one that can rank means."""
        first = self.members[0].predictor
        are_alike = all(type(member.predictor) is type(first) for member in self.members)
        return self.stack is None and first.ranks_means and are_alike

    def _top_k_of_mean(
        self,
        rows: sparse.csr_array,
        k: int,
        calibrated: bool,
        observed: sparse.csr_array | None = None,
        weight: NDArray[np.float64] | None = None,
    ) -> sparse.csr_array:
        """Return the best labels by the mean over the members, which are asked about some rows at a time."""
        k, parts = min(k, self.n_labels), self._parts(rows)
        calibration = self.calibration if calibrated else None
        w = None if weight is None else torch.from_numpy(weight)

        def ranked(chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
            known = None if observed is None else gather_rows(observed, chosen)
            some = [(predictor, gather_rows(own, chosen)) for predictor, own in parts]
            return parts[0][0].top_k_of_mean(some, k, known, calibration, w)

        return to_csr((found for _, found in self.answers(self._blocks(rows), ranked)), k, self.n_labels)

    def latent(self, rows: sparse.csr_array) -> Latent:
        """Return the moments of the utilities of the mixture of all members; their processes h are not comparable."""
        if self.stack is not None:
            raise CannotAnswerError("a mix of different models has no utilities of its own; ask each of its members()")
        found = [predictor.latent(own) for predictor, own in self._parts(rows)]
        mean = np.mean([one.f_mean for one in found], axis=0)
        spread = np.mean([one.f_var + (one.f_mean - mean) ** 2 for one in found], axis=0)
        return Latent(np.asarray(mean, np.float32), np.asarray(spread, np.float32))

    def bound(self, rows: sparse.csr_array, Y: sparse.csr_array) -> Any:
        raise CannotAnswerError("an ensemble has no bound of its own; ask each of its members()")

    def loadings(self) -> Tensor | None:
        """Return the loadings of all members that have them, side by side."""
        found = [member.predictor.loadings() for member in self.members]
        known = [one.cpu() for one in found if one is not None]
        return torch.cat(known, 1) if known else None

    def feature_relevance(self) -> NDArray[np.float32] | None:
        """Return the mean over the members that weight features."""
        each = [(member.transform, member.predictor.feature_relevance()) for member in self.members]
        found = [transform.fold(relevance) for transform, relevance in each if relevance is not None]
        return np.asarray(np.mean(found, axis=0), np.float32) if found else None
