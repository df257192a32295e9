"""Predictions of a fitted factor model: probabilities, rankings, intervals, latent moments, and known labels."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.linalg.rows import device_of, to_tensor
from labelfield.memory import FEWER_ROWS, advising_on_memory
from labelfield.models.calibration import N_RANKS, ranks_of
from labelfield.models.mlgpf.condition import condition
from labelfield.models.mlgpf.joint import probable_sets, rows_at_once
from labelfield.models.mlgpf.model import MLGPF, InducingState
from labelfield.models.mlgpf.search import FactorScorer
from labelfield.models.mlgpf.topk import label_blocks, top_k, top_k_by_mean, top_k_of_mean
from labelfield.models.mlgpf.weighting import ranked_calibrated
from labelfield.models.predictor import (
    Block,
    Bound,
    LabelSets,
    Latent,
    LatentProcesses,
    Predictor,
    tensor_blocks,
    to_csr,
)
from labelfield.models.search import Scorer
from labelfield.variational.families import Moments

# Rows that are looked at together.
BLOCK_ROWS = 2000


class RowBlock(NamedTuple):
    """Some rows: which, their features, and q(h) there."""

    rows: slice
    X: Tensor
    h: Moments


class FactorPredictor(Predictor):
    """Predictions of a model whose utilities are f = Φ h + b, for blocks of rows and of labels.

    Whatever is the same for all rows is computed once and kept: a model that has changed needs a new
    predictor.
    """

    is_exclusive, ranks_means = False, True

    def __init__(self, model: MLGPF, normalises: bool = False) -> None:
        self.model, self.n_labels, self.normalises = model, model.n_labels, normalises
        self.calibration = model.calibration

    @cached_property
    @torch.no_grad()
    def state(self) -> InducingState:
        """The inducing inputs and their prior, formed once."""
        return self.model.inducing_state()

    def features(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Tensor]]:
        """Yield each block of rows where the model is."""
        return tensor_blocks(rows, device_of(self.model), entries=BLOCK_ROWS)

    def given(self, rows: sparse.csr_array, observed: sparse.csr_array | None = None) -> Iterator[RowBlock]:
        """Yield each block of rows with q(h) there, sharpened by labels that are known: +1 holds, -1 does not."""
        for block, X in self.features(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                h = self.model.latent(X, self.state)[0]
                if observed is not None:
                    known = to_tensor(gather_rows(observed, np.arange(block.start, block.stop)), X.device)
                    h = condition(self.model, h, X, known)
            yield RowBlock(block, X, h)

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        predict = self.model.likelihood.predict_proba
        return (Block(*place, P) for place, (P,) in self._answers(rows, lambda f: [predict(*f)], calibrated))

    def _answers(
        self, rows: sparse.csr_array, ask: Callable[[Moments], Iterable[Tensor]], calibrated: bool = True
    ) -> Iterator[tuple[tuple[slice, slice], list[Tensor]]]:
        """Yield ask(q(f)) for each block of rows and labels, calibrated as probabilities on request."""
        calibration = self.model.calibration
        calibrated = calibrated and not calibration.is_identity()
        for block, X, h in self.given(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                best = top_k(self.model, h, X, N_RANKS)[0] if calibrated else None
            for labels, f in label_blocks(self.model, h, X):
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    found = list(ask(f))
                    if best is not None:
                        rank = ranks_of(best, labels)
                        found = [calibration(answer, rank) for answer in found]
                yield (block, labels), found

    def top_k(
        self, rows: sparse.csr_array, k: int, calibrated: bool = True, weight: NDArray[np.float64] | None = None
    ) -> sparse.csr_array:
        return self.top_k_of(self.given(rows), k, calibrated, weight)

    def top_k_of(
        self,
        blocks: Iterable[RowBlock],
        k: int,
        calibrated: bool = True,
        weight: NDArray[np.float64] | None = None,
    ) -> sparse.csr_array:
        """Return the k most probable labels of rows whose q(h) is known, as CSR (N, K)."""
        k = min(k, self.n_labels)
        w = None if weight is None else torch.from_numpy(weight).to(self.model.b.device)
        calibration = self.model.calibration if calibrated else None

        def ranked(X: Tensor, h: Moments) -> tuple[Tensor, Tensor]:
            return ranked_calibrated(partial(top_k, self.model, h, X), k, calibration, w)

        return to_csr((found for _, found in self.answers(blocks, ranked)), k, self.n_labels)

    def scorer(self) -> Scorer:
        if self.normalises:
            return super().scorer()
        return FactorScorer(self)

    def top_k_by_utility(
        self, rows: sparse.csr_array, k: int, observed: sparse.csr_array | None = None
    ) -> sparse.csr_array:
        """Return the labels with the largest mean utilities, given labels that are known: +1 holds, -1 does not."""
        k = min(k, self.n_labels)

        def ranked(X: Tensor, h: Moments) -> tuple[Tensor, Tensor]:
            return top_k_by_mean(self.model, h, X, k)

        return to_csr((found for _, found in self.answers(self.given(rows, observed), ranked)), k, self.n_labels)

    def top_k_of_mean(
        self,
        parts: Sequence[tuple[Any, sparse.csr_array]],
        k: int,
        observed: sparse.csr_array | None,
        calibration: Any,
        weight: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        f = []
        for factor, rows in parts:
            found = [factor.model.utilities(h, X) for _, X, h in factor.given(rows, observed)]
            f.append(Moments(*(torch.cat(part) for part in zip(*found, strict=True))))
        device, rank = f[0].mean.device, partial(top_k_of_mean, [factor.model for factor, _ in parts], f)
        calibration = None if calibration is None else calibration.to(device)
        return ranked_calibrated(rank, k, calibration, None if weight is None else weight.to(device))

    def latent(self, rows: sparse.csr_array) -> Latent:
        widths = (self.n_labels,) * 2 + (self.model.Phi.shape[1],) * 2
        with advising_on_memory(FEWER_ROWS):
            f_mean, f_var, h_mean, h_var = (np.empty((rows.shape[0], width), np.float32) for width in widths)
        for block, X, h in self.given(rows):
            h_mean[block], h_var[block] = (part.cpu().numpy() for part in h)
            with advising_on_memory(FEWER_ROWS):
                for labels, f in label_blocks(self.model, h, X):
                    f_mean[block, labels], f_var[block, labels] = (part.cpu().numpy() for part in f)
        return Latent(f_mean, f_var, h_mean, h_var)

    def sets(self, rows: sparse.csr_array, k: int, n_sets: int, n_draws: int) -> LabelSets:
        k, model = min(k, self.n_labels), self.model
        noise = np.random.default_rng(0).standard_normal((n_draws, model.Phi.shape[1]), np.float32)
        drawn = torch.from_numpy(noise).to(device_of(model))
        blocks = tensor_blocks(rows, device_of(model), entries=rows_at_once(k, *noise.shape))

        def ask(X: Tensor) -> tuple[Tensor, ...]:
            return probable_sets(model, model.latent(X, self.state)[0], X, k, n_sets, drawn)

        n = min(n_sets, 2**k)
        shapes = (rows.shape[0], k), (rows.shape[0], n, k), (rows.shape[0], n)
        labels, is_member, p = self.filled(self.answers(blocks, ask), *shapes)
        return LabelSets(labels.astype(np.int64), is_member.astype(np.bool_), p)

    def bound(self, rows: sparse.csr_array, Y: sparse.csr_array) -> Bound:
        """Return the bound, with Σ_ik E log p(y_ik | f_ik) exact over all labels."""
        model, fit = self.model, 0.0
        for block, X, h in self.given(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                truth = gather_rows(Y, np.arange(block.start, block.stop))
                for labels, f in label_blocks(model, h, X):
                    own = to_tensor(sparse.csr_array(truth[:, labels]), X.device)
                    fit += float(model.likelihood.expected_log_prob(*f, own, own.col_indices().long()))
        with torch.no_grad():
            return Bound(fit, float(model.kl(self.state.prior)))

    def loadings(self) -> Tensor:
        return self.model.Phi.detach()

    def feature_relevance(self) -> NDArray[np.float32] | None:
        relevance = self.model.kernel.feature_relevance()
        return None if relevance is None else np.asarray(relevance.detach().cpu().numpy(), np.float32)

    def processes(self, labels: Tensor | None = None) -> LatentProcesses:
        model = self.model
        labels = None if labels is None else labels.to(device_of(model))
        chosen = slice(None) if labels is None else labels

        def offsets(X: Tensor) -> Tensor:
            """Return the means (B, K) of the linear processes of these labels."""
            if model.label_linear is None:
                return model.b.new_zeros(X.shape[0], len(model.b[chosen]))
            return model.label_linear.select(labels).means(X)

        return LatentProcesses(
            model.kernel, *self.state, model.family, model.Phi[chosen].detach(), model.b[chosen].detach(), offsets
        )


def label_correlation(model: MLGPF, labels: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """Return the correlation of utilities under the prior, from ΦΦᵀ, between these labels (default: all)."""
    Phi = model.Phi.detach().cpu()
    if labels is not None:
        Phi = Phi[torch.from_numpy(np.asarray(labels, np.int64))]
    Phi = Phi / Phi.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return np.asarray((Phi @ Phi.T).numpy(), np.float32)
