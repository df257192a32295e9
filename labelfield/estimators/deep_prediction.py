"""What a fitted deep kernel model answers, and its baseline beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.data import Dataset
from labelfield.errors import DataError
from labelfield.estimators.options import advising_on_memory, count_of_labels
from labelfield.estimators.probabilities import FEWER_ROWS, BlockPredictions
from labelfield.linalg.cholesky import FactorisationError
from labelfield.linalg.rows import to_tensor
from labelfield.models.build_deep import DeepSpec, FeatureError, require_features
from labelfield.models.deep_kernel import Baseline, DeepKernel

__all__ = ["DeepLatent", "DeepPredictions"]

# Rows times labels whose probabilities exist at once, and rows that go through a network together.
_BLOCK_ENTRIES, _MOST_ROWS = 1 << 23, 4096


class DeepLatent(NamedTuple):
    """Means and variances of the processes f (N, J) and of the utilities g = A f + b (N, K)."""

    f_mean: NDArray[np.float32]
    f_var: NDArray[np.float32]
    g_mean: NDArray[np.float32]
    g_var: NDArray[np.float32]


class DeepPredictions(BlockPredictions):
    """The predicting half of a classifier with a network. It works through rows in blocks."""

    model_: DeepKernel
    spec_: DeepSpec
    threshold: float
    _n_weights: int

    def _method(self) -> str:
        return "svdkl"

    # Features and probabilities of rows, some at a time

    def _dense_or_sparse(
        self, data: Dataset, takes_sparse: bool, device: torch.device
    ) -> Iterator[tuple[slice, Tensor]]:
        """Rows as a network takes them."""
        n_rows = data.X.shape[0]
        for first in range(0, n_rows, _MOST_ROWS):
            block = slice(first, min(first + _MOST_ROWS, n_rows))
            with advising_on_memory(FEWER_ROWS):
                some = gather_rows(data.X, np.arange(block.start, block.stop))
                X = to_tensor(some, device) if takes_sparse else torch.from_numpy(some.toarray()).to(device)
            yield block, X

    def _features(self, rows: sparse.csr_array, model: Any = None) -> Iterator[tuple[slice, Tensor]]:
        """h of rows under the model's network, or that of its baseline."""
        model = model or self.model_
        device = self.model_.b.device if hasattr(self, "model_") else model.b.device
        data = Dataset(rows, sparse.csr_array((rows.shape[0], 1), dtype=np.float32))
        for block, X in self._dense_or_sparse(data, model.features.takes_sparse, device):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                h = model.features.eval()(X)
                try:
                    require_features(h, block.start)
                except FeatureError as error:
                    raise DataError(str(error)) from None
            yield block, h

    def _probabilities(self, rows: sparse.csr_array, calibrated: bool) -> Iterator[tuple[slice, Tensor]]:
        model = self.model_
        with torch.no_grad():
            prior = None if model.is_plain else model.processes.prior()
        for block, h in self._features(rows):
            for part in self._parts(block):
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    P = model.predict_proba(model.latent(h[_within(part, block)], prior))
                    P = self._calibrated(model.calibration, P) if calibrated else P
                    if not bool(torch.isfinite(P).all()):
                        raise DataError(
                            f"probabilities of rows from {part.start} on are not numbers",
                            fix="The model is broken; train it again.",
                        )
                yield part, P

    def _plain_probabilities(
        self, rows: sparse.csr_array, calibrated: bool, plain: Baseline
    ) -> Iterator[tuple[slice, Tensor]]:
        for block, h in self._features(rows, plain):
            for part in self._parts(block):
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    P = plain.predict_proba(self.model_.sums(h[_within(part, block)]))
                    P = self._calibrated(plain.calibration, P) if calibrated else P
                yield part, P

    def _parts(self, block: slice) -> Iterator[slice]:
        """A block of rows in parts whose probabilities of all labels fit in memory."""
        step = max(1, _BLOCK_ENTRIES // self.spec_.n_labels)
        for first in range(block.start, block.stop, step):
            yield slice(first, min(first + step, block.stop))

    def _check_answers(self) -> None:
        """A model from a file must give numbers: it is tried where features are usual."""
        model = self.model_
        if not model.is_plain:
            try:
                with torch.no_grad():
                    f = model.latent(model.processes.grid.centre.unsqueeze(0))
            except FactorisationError as error:
                raise ValueError(str(error)) from None
            if not all(bool(torch.isfinite(part).all()) for part in f):
                raise ValueError("the processes give values that are not finite")

    # Calibrating

    def _calibrate(self, held_out: Dataset) -> dict[str, Tensor]:
        """Fit the map of probabilities to rows that the model has not seen."""
        some = self._few(held_out)
        self._fit_calibration(self.model_.calibration, self._probabilities(some.X, calibrated=False), some.Y)
        return {}

    def _calibrate_plain(self, held_out: Dataset) -> None:
        """The same for the plain network, before the processes come."""
        some, plain = self._few(held_out), Baseline(self.model_)
        self._fit_calibration(self.model_.calibration, self._plain_probabilities(some.X, False, plain), some.Y)

    def _few(self, held_out: Dataset) -> Dataset:
        return held_out.take(slice(min(held_out.n_rows, max(1, 8 * _BLOCK_ENTRIES // self.spec_.n_labels))))

    # Answers

    def predict_latent(self, X: Any) -> DeepLatent:
        """Means and variances of the processes f (N, J) and of the utilities g = A f + b (N, K), which go together."""
        rows = self._rows(X)
        widths = (self.spec_.n_processes,) * 2 + (self.spec_.n_labels,) * 2
        with advising_on_memory(FEWER_ROWS):
            found = DeepLatent(*(np.empty((rows.shape[0], width), np.float32) for width in widths))
        for block, h in self._features(rows):
            for part in self._parts(block):
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    f = self.model_.latent(h[_within(part, block)])
                    answers = (*f, *self.model_.utilities(f))
                for result, answer in zip(found, answers, strict=True):
                    result[part] = answer.cpu().numpy()
        return found

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The features h of rows (N, Q)."""
        rows = self._rows(X)
        found = np.empty((rows.shape[0], self.spec_.n_outputs), np.float32)
        for block, h in self._features(rows):
            found[block] = h.cpu().numpy()
        return found

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> NDArray[np.float32]:
        """Fit, and give the features h of the same rows."""
        return self.fit(X, y, **options).transform(X)

    def baseline_proba(self, X: Any, *, calibrated: bool = True) -> NDArray[np.float32]:
        """The probability of each label (N, K) under the plain network, as it was before the processes came."""
        rows = self._rows(X)
        return self._dense(self._plain_probabilities(rows, calibrated, self._baseline()), rows.shape[0])

    def baseline_topk(self, X: Any, k: int = 5, *, calibrated: bool = True) -> sparse.csr_array:
        """The k most probable labels of each row under the plain network, as CSR (N, K)."""
        blocks = self._plain_probabilities(self._rows(X), calibrated, self._baseline())
        return self._best(blocks, count_of_labels(k))

    def _baseline(self) -> Any:
        self._check_fitted()
        if not self.spec_.has_baseline:
            raise ValueError(
                "there is no baseline; fit with keep_baseline=True, network_epochs above 0 and a later stage"
            )
        return self.model_.baseline

    def predict_uncertainty(self, X: Any) -> NDArray[np.float32]:
        """How far each row (N,) should be distrusted: 1 - p (1 - ν), from 0 to 1.

        p is the calibrated probability of the row's first label, ν the share of the prior variance of f that is left
        there, as a mean over processes; of the plain network, which has no doubt, 0.
        """
        rows = self._rows(X)
        first = self.predict_topk(X, 1).data
        novelty = np.zeros(rows.shape[0], np.float32)
        if not self.model_.is_plain:
            for block, h in self._features(rows):
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    share = self.model_.latent(h).var / self.model_.processes.prior_variance()
                    novelty[block] = share.clamp(0, 1).mean(1).cpu().numpy()
        return np.asarray(1 - first * (1 - novelty), np.float32)

    def bound(self, X: Any, Y: Any) -> dict[str, float]:
        """The evidence lower bound on these rows, over all labels: fit, kl and their difference, in nats. Of a softmax
        the fit is drawn, always with the same draws."""
        rows = self._rows(X)
        data = Dataset(rows, self._encode(Y, rows.shape[0]))
        fit, generator = 0.0, torch.Generator(self.model_.b.device).manual_seed(0)
        for block, h in self._features(rows):
            for part in self._parts(block):
                with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                    own = to_tensor(gather_rows(data.Y, np.arange(part.start, part.stop)), h.device)
                    estimate = self.model_.plain_log_prob if self.model_.is_plain else self.model_.elbo
                    fit += float(
                        estimate(h[_within(part, block)], own, part.stop - part.start, generator=generator).fit
                    )
        with torch.no_grad():
            kl = 0.0 if self.model_.is_plain else float(self.model_.processes.kl().sum())
        return {"fit": fit, "kl": kl, "bound": fit - kl}

    def _encode(self, Y: Any, n_rows: int) -> sparse.csr_array:
        encoded = super()._encode(Y, n_rows)
        if not self.model_.is_multilabel and (np.diff(encoded.indptr) != 1).any():
            raise DataError("a row has no class or several", expected="one class a row", fix="Check the labels.")
        return encoded


def _within(part: slice, block: slice) -> slice:
    return slice(part.start - block.start, part.stop - block.start)
