"""The mean of several predictors that see rows differently, calibrated as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.errors import CannotAnswerError
from labelfield.memory import FEWER_ROWS, advising_on_memory, row_blocks
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.mlgpf.predict import FactorPredictor, RowBlock
from labelfield.models.mlgpf.topk import top_k_of_mean
from labelfield.models.predictor import Block, Latent, Predictor, calibrated_probabilities, to_csr

__all__ = ["EnsemblePredictor", "Member"]

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
        for block in row_blocks(rows.shape[0], self.n_labels, entries=_BLOCK_ENTRIES, most=_MOST_ROWS):
            chosen = np.arange(block.start, block.stop)
            found = [predictor.separate_proba(gather_rows(own, chosen), calibrated=False) for predictor, own in parts]
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                P = torch.from_numpy(np.stack(found)).mean(0)
                P = calibrated_probabilities(self.calibration.cpu(), P) if calibrated else P
            yield Block(block, slice(0, self.n_labels), P)

    def top_k(self, rows: sparse.csr_array, k: int, calibrated: bool = True) -> sparse.csr_array:
        """Return the k labels with the largest mean probability; factor models need not integrate over all labels."""
        factors = [member.predictor for member in self.members if isinstance(member.predictor, FactorPredictor)]
        if len(factors) < len(self.members):
            return super().top_k(rows, k, calibrated)
        return self._top_k_of(rows, k, [factor.row_blocks for factor in factors], calibrated)

    def given(self, rows: sparse.csr_array, observed: sparse.csr_array, k: int) -> sparse.csr_array:
        """Return the k labels with the largest mean probability given labels that are known, as CSR (N, K)."""
        factors = [member.predictor for member in self.members if isinstance(member.predictor, FactorPredictor)]
        if len(factors) < len(self.members):
            raise CannotAnswerError("only factor models (mlgpf) can take up known labels")
        return self._top_k_of(rows, k, [factor.given for factor in factors], True, observed)

    def _top_k_of(
        self, rows: sparse.csr_array, k: int, asked: Sequence[Any], calibrated: bool, observed: Any = None
    ) -> sparse.csr_array:
        """Return the best labels by the mean over factor models, each asked for q(h) of some rows at a time."""
        k = min(k, self.n_labels)
        parts = self._parts(rows)
        models = [predictor.model for predictor, _ in parts if isinstance(predictor, FactorPredictor)]

        def ranked() -> Iterator[tuple[Tensor, Tensor]]:
            for block in row_blocks(rows.shape[0], self.n_labels, entries=_BLOCK_ENTRIES, most=_MOST_ROWS):
                chosen = np.arange(block.start, block.stop)
                known = () if observed is None else (gather_rows(observed, chosen),)
                f = []
                for model, ask, (_, own) in zip(models, asked, parts, strict=True):
                    found: RowBlock = next(ask(gather_rows(own, chosen), *known))
                    with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                        f.append(model.utilities(found.h, found.X))
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    best, p = top_k_of_mean(models, f, k)
                    if calibrated:
                        p = self.calibration.to(p.device)(p, torch.arange(k, device=p.device))
                yield best, p

        return to_csr(ranked(), k, self.n_labels)

    def draws(self, rows: sparse.csr_array, n_draws: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield draws of all members together: each member is as likely as any other."""
        each = max(1, n_draws // len(self.members))
        found = []
        for predictor, own in self._parts(rows):
            found.append(torch.cat([drawn.cpu() for _, drawn in predictor.draws(own, each)], 1))
        yield slice(0, rows.shape[0]), torch.cat(found)

    def mapped(self, values: Tensor, rows: sparse.csr_array) -> Tensor:
        self.calibration.to(values.device)
        return super().mapped(values, rows)

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
        return (
            None if any(one is None for one in found) else torch.cat([one.cpu() for one in found if one is not None], 1)
        )

    def feature_relevance(self) -> NDArray[np.float32] | None:
        """Return the mean over the members that weigh features."""
        found = [
            member.transform.fold(relevance)
            for member in self.members
            if (relevance := member.predictor.feature_relevance()) is not None
        ]
        return np.asarray(np.mean(found, axis=0), np.float32) if found else None
