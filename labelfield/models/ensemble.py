"""The mean of several predictors that see rows differently, calibrated as a whole."""

from collections.abc import Iterator, Sequence
from functools import partial
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
from labelfield.models.mlgpf.predict import FactorPredictor
from labelfield.models.mlgpf.topk import top_k_of_mean
from labelfield.models.mlgpf.weighting import ranked_calibrated
from labelfield.models.predictor import Block, Latent, Predictor, to_csr
from labelfield.variational.families import Moments

# Rows times labels of each member whose probabilities exist at once, and rows at the most.
_BLOCK_ENTRIES, _MOST_ROWS = 1 << 22, 2000


class Transform(Protocol):
    """What a member does to rows before its predictor sees them."""

    def __call__(self, X: sparse.csr_array) -> sparse.csr_array: ...

    def fold(self, values: NDArray[np.float32]) -> NDArray[np.float32]: ...


class Member(NamedTuple):
    """A member of an ensemble: what it does to rows, and what answers for them."""

    transform: Transform
    predictor: Predictor


class EnsemblePredictor(Predictor):
    """Answers of the mean over members. Rows come as they were given: each member transforms them in its own way."""

    def __init__(self, members: Sequence[Member], calibration: Calibration | Temperature) -> None:
        self.members, self.calibration = members, calibration
        first = members[0].predictor
        self.n_labels, self.is_exclusive, self.normalises = first.n_labels, first.is_exclusive, first.normalises

    def _parts(self, rows: sparse.csr_array) -> list[tuple[Predictor, sparse.csr_array]]:
        """Return the predictor of each member with the rows as it sees them."""
        return [(member.predictor, member.transform(rows)) for member in self.members]

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        parts = self._parts(rows)

        def ask(chosen: NDArray[np.int64]) -> Tensor:
            found = [predictor.separate_proba(gather_rows(own, chosen), calibrated=False) for predictor, own in parts]
            return torch.from_numpy(np.stack(found)).mean(0)

        return self.whole_rows(self._blocks(rows), ask, calibrated)

    def _blocks(self, rows: sparse.csr_array) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Yield blocks of rows and their numbers."""
        for block in row_blocks(rows.shape[0], self.n_labels, entries=_BLOCK_ENTRIES, most=_MOST_ROWS):
            yield block, np.arange(block.start, block.stop)

    def top_k(
        self, rows: sparse.csr_array, k: int, calibrated: bool = True, weight: NDArray[np.float64] | None = None
    ) -> sparse.csr_array:
        """Return the k labels with the largest mean probability; factor models need not integrate over all labels."""
        if not self._are_factors():
            return super().top_k(rows, k, calibrated, weight)
        return self._top_k_of(rows, k, calibrated, weight=weight)

    def given(self, rows: sparse.csr_array, observed: sparse.csr_array, k: int) -> sparse.csr_array:
        """Return the k labels with the largest mean probability given labels that are known, as CSR (N, K)."""
        if not self._are_factors():
            raise CannotAnswerError("only factor models (mlgpf) can take up known labels")
        return self._top_k_of(rows, k, True, observed)

    def _are_factors(self) -> bool:
        return all(isinstance(member.predictor, FactorPredictor) for member in self.members)

    def _top_k_of(
        self,
        rows: sparse.csr_array,
        k: int,
        calibrated: bool,
        observed: sparse.csr_array | None = None,
        weight: NDArray[np.float64] | None = None,
    ) -> sparse.csr_array:
        """Return the best labels by the mean over factor models, each asked for q(h) of some rows at a time."""
        k = min(k, self.n_labels)
        parts: list[tuple[Any, sparse.csr_array]] = list(self._parts(rows))
        w = None if weight is None else torch.from_numpy(weight)

        def ranked(chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
            known, f = None if observed is None else gather_rows(observed, chosen), []
            for factor, own in parts:
                found = [factor.model.utilities(h, X) for _, X, h in factor.given(gather_rows(own, chosen), known)]
                f.append(Moments(*(torch.cat(part) for part in zip(*found, strict=True))))
            device = f[0].mean.device
            rank = partial(top_k_of_mean, [factor.model for factor, _ in parts], f)
            calibration: Any = self.calibration.to(device) if calibrated else None
            return ranked_calibrated(rank, k, calibration, None if w is None else w.to(device))

        return to_csr((found for _, found in self.answers(self._blocks(rows), ranked)), k, self.n_labels)

    def draws(self, rows: sparse.csr_array, n_draws: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield draws of all members together: each member is as likely as any other."""
        each = max(1, n_draws // len(self.members))
        found = []
        for predictor, own in self._parts(rows):
            found.append(torch.cat([drawn.cpu() for _, drawn in predictor.draws(own, each)], 1))
        yield slice(0, rows.shape[0]), torch.cat(found)

    def novelty(self, rows: sparse.csr_array) -> NDArray[np.float32]:
        found = [predictor.novelty(own) for predictor, own in self._parts(rows)]
        return np.asarray(np.mean(found, axis=0), np.float32)

    def latent(self, rows: sparse.csr_array) -> Latent:
        """Return the moments of the utilities of the mixture of all members; their processes h are not comparable."""
        found = [predictor.latent(own) for predictor, own in self._parts(rows)]
        mean = np.mean([one.f_mean for one in found], axis=0)
        spread = np.mean([one.f_var + (one.f_mean - mean) ** 2 for one in found], axis=0)
        return Latent(np.asarray(mean, np.float32), np.asarray(spread, np.float32))

    def bound(self, rows: sparse.csr_array, Y: sparse.csr_array) -> Any:
        raise CannotAnswerError("an ensemble has no bound of its own; ask each of its members()")

    def loadings(self) -> Tensor | None:
        """Return the loadings of all members side by side."""
        found = [member.predictor.loadings() for member in self.members]
        known = [one.cpu() for one in found if one is not None]
        return torch.cat(known, 1) if len(known) == len(found) else None

    def feature_relevance(self) -> NDArray[np.float32] | None:
        """Return the mean over the members that weigh features."""
        each = [(member.transform, member.predictor.feature_relevance()) for member in self.members]
        found = [transform.fold(relevance) for transform, relevance in each if relevance is not None]
        return np.asarray(np.mean(found, axis=0), np.float32) if found else None
