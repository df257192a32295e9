"""Predictions of a fitted deep kernel model, and of the plain network that it started from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.errors import DataError
from labelfield.linalg.cholesky import FactorisationError
from labelfield.linalg.rows import device_of, to_tensor
from labelfield.memory import FEWER_ROWS, advising_on_memory, row_blocks
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.deep.model import Baseline, DeepKernel, Features
from labelfield.models.deep.start import FeatureError, require_features
from labelfield.models.predictor import Block, Bound, Latent, Predictor

# Rows times labels whose probabilities exist at once, and rows that go through a network together.
BLOCK_ENTRIES, _MOST_ROWS = 1 << 23, 4096


def rows_for_network(
    rows: sparse.csr_array, takes_sparse: bool, device: torch.device
) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of rows as a network takes them: sparse or dense."""
    for block in row_blocks(rows.shape[0], 1, entries=BLOCK_ENTRIES, most=_MOST_ROWS):
        with advising_on_memory(FEWER_ROWS):
            some = gather_rows(rows, np.arange(block.start, block.stop))
            X = to_tensor(some, device) if takes_sparse else torch.from_numpy(some.toarray()).to(device)
        yield block, X


def features_of(
    network: Features, rows: sparse.csr_array, device: torch.device, width: int = 1
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the features h (B, Q) of blocks of rows, which must be finite; with `width`, blocks so small that this many
    numbers per row fit in memory."""
    for block, X in rows_for_network(rows, network.takes_sparse, device):
        with torch.no_grad(), advising_on_memory(FEWER_ROWS):
            h = network.eval()(X)
            try:
                require_features(h, block.start)
            except FeatureError as error:
                raise DataError(str(error)) from None
        for part in row_blocks(len(h), width, entries=BLOCK_ENTRIES, most=_MOST_ROWS):
            yield slice(block.start + part.start, block.start + part.stop), h[part]


class DeepPredictor(Predictor):
    """Predictions of a network with Gaussian processes on its features."""

    def __init__(self, model: DeepKernel) -> None:
        self.model, self.n_labels, self.is_exclusive = model, model.n_labels, not model.is_multilabel
        self.calibration = model.calibration

    def features(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Tensor]]:
        """Yield the features h of rows, in blocks so small that the probabilities of all labels fit in memory."""
        return features_of(self.model.features, rows, device_of(self.model), self.n_labels)

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        model = self.model
        with torch.no_grad():
            prior = None if model.is_plain else model.processes.prior()
        blocks = self.features(rows)
        for found in self.whole_rows(blocks, lambda h: model.predict_proba(model.latent(h, prior)), calibrated):
            if not bool(torch.isfinite(found.P).all()):
                raise DataError(
                    f"the probabilities of rows {found.rows.start} and later are not numbers",
                    fix="The model is broken; train it again.",
                )
            yield found

    def latent(self, rows: sparse.csr_array) -> Latent:
        def ask(h: Tensor) -> tuple[Tensor, ...]:
            f = self.model.latent(h)
            return *self.model.utilities(f), *f

        (n, _), (K, J) = rows.shape, self.model.A.shape
        return Latent(*self.filled(self.answers(self.features(rows), ask), (n, K), (n, K), (n, J), (n, J)))

    def bound(self, rows: sparse.csr_array, Y: sparse.csr_array) -> Bound:
        """Return the evidence lower bound; the fit of a softmax is drawn, always with the same draws."""
        model = self.model
        fit, generator = 0.0, torch.Generator(device_of(model)).manual_seed(0)
        estimate = model.plain_log_prob if model.is_plain else model.elbo
        for block, h in self.features(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                own = to_tensor(gather_rows(Y, np.arange(block.start, block.stop)), h.device)
                fit += float(estimate(h, own, len(h), generator=generator).fit)
        with torch.no_grad():
            return Bound(fit, 0.0 if model.is_plain else float(model.processes.kl().sum()))

    def loadings(self) -> Tensor:
        """Return the mixing A, each column times the deviation of its process under the prior."""
        model = self.model
        with torch.no_grad():
            return model.A * (1 if model.is_plain else model.processes.prior_variance().sqrt().to(model.A.dtype))

    def baseline(self) -> BaselinePredictor | None:
        return None if self.model.baseline is None else BaselinePredictor(self.model.baseline, self.model)

    def check(self) -> None:
        """Check that a model from a file gives numbers, by trying it in the middle of its grid."""
        if self.model.is_plain:
            return
        try:
            with torch.no_grad():
                f = self.model.latent(self.model.processes.grid.centre.unsqueeze(0))
        except FactorisationError as error:
            raise ValueError(str(error)) from None
        if not all(bool(torch.isfinite(part).all()) for part in f):
            raise ValueError("the processes return values that are not finite")


class BaselinePredictor(Predictor):
    """Predictions of the plain network that a deep kernel model started from."""

    title, meaning = "network alone", "The network alone is the one that the Gaussian processes were added to."

    def __init__(self, baseline: Baseline, model: DeepKernel) -> None:
        self.network, self.model = baseline, model
        self.n_labels, self.is_exclusive = model.n_labels, not model.is_multilabel
        self.calibration: Calibration | Temperature = baseline.calibration

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        blocks = features_of(self.network.features, rows, device_of(self.model), self.n_labels)
        return self.whole_rows(blocks, lambda h: self.network.predict_proba(self.model.sums(h)), calibrated)
