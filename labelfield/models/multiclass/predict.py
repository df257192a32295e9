"""Predictions of a fitted multi-class model, in blocks of rows and, where matrices are large, of classes."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.linalg.rows import device_of
from labelfield.memory import FEWER_ROWS, advising_on_memory
from labelfield.models.multiclass.model import LinearUtilities, MultiClassGP, SparseUtilities
from labelfield.models.multiclass.spec import ClassSpec
from labelfield.models.predictor import Block, Bound, Latent, LatentProcesses, Predictor, tensor_blocks
from labelfield.variational.families import Moments

# Rows times classes whose utilities exist at once, and numbers in the matrices of classes that are looked at together.
BLOCK_ENTRIES, _SUBSET_ENTRIES = 1 << 22, 1 << 26
_MOST_ROWS = 2000


class ClassPredictor(Predictor):
    """Predictions of a model with one process per class."""

    is_exclusive = True

    def __init__(self, model: MultiClassGP, spec: ClassSpec) -> None:
        self.model, self.spec, self.n_labels = model, spec, spec.n_labels
        self.calibration = model.calibration

    def class_blocks(self) -> list[Tensor | None]:
        """Return the classes whose matrices fit in memory together: None for all, or some at a time."""
        spec = self.spec
        each = spec.n_inducing * max(spec.n_inducing, _MOST_ROWS, spec.n_features)
        is_split = spec.has_own_matrices and spec.posterior != "point"
        n_at_once = max(1, _SUBSET_ENTRIES // each) if is_split else spec.n_labels
        if n_at_once >= spec.n_labels:
            return [None]
        return list(torch.split(torch.arange(spec.n_labels, device=device_of(self.model)), n_at_once))

    def moments(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Moments]]:
        """Yield q(f) of all classes, for blocks of rows."""
        blocks = self.class_blocks()
        with torch.no_grad(), advising_on_memory(FEWER_ROWS):
            # What all rows share is formed once, unless there is too much of it.
            subsets = [self.model.utilities.select(blocks[0])] if len(blocks) == 1 else [None] * len(blocks)

        def ask(X: Tensor) -> Moments:
            found = [self.model.moments(X, some, subset) for some, subset in zip(blocks, subsets, strict=True)]
            return Moments(*(torch.cat(part, 1) for part in zip(*found, strict=True)))

        yield from self.answers(self._rows(rows, self.n_labels), ask)

    def _rows(self, rows: sparse.csr_array, width: int) -> Iterator[tuple[slice, Tensor]]:
        return tensor_blocks(rows, device_of(self.model), width, entries=BLOCK_ENTRIES, most=_MOST_ROWS)

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        return self.whole_rows(self.moments(rows), lambda f: self.model.likelihood.predict_proba(*f), calibrated)

    def latent(self, rows: sparse.csr_array) -> Latent:
        shape = rows.shape[0], self.n_labels
        return Latent(*self.filled(self.moments(rows), shape, shape))

    def bound(self, rows: sparse.csr_array, Y: sparse.csr_array) -> Bound:
        """Return the evidence lower bound; where the fit is drawn, always with the same draws."""
        target = torch.from_numpy(Y.indices.astype(np.int64))
        generator, fit = torch.Generator(device_of(self.model)).manual_seed(0), 0.0
        for block, f in self.moments(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                own = target[block].to(f.mean.device)
                each = self.model.likelihood.expected_log_prob(*f, own, generator=generator)
                fit += float(each.sum(dtype=torch.float64))
        with torch.no_grad(), advising_on_memory(FEWER_ROWS):
            kl = sum(float(self.model.utilities.select(some).kl().sum()) for some in self.class_blocks())
        return Bound(fit, kl)

    def feature_relevance(self) -> NDArray[np.float32] | None:
        """Return the squared ARD weights, or the squared weights of linear utilities, as a mean over classes (D,)."""
        utilities = self.model.utilities
        if isinstance(utilities, LinearUtilities):
            weights = utilities.weights.detach().double().cpu().numpy()
            return np.asarray((weights**2).mean(0), np.float32)
        relevance = utilities.kernel.feature_relevance()
        if relevance is None:
            return None
        relevance = relevance.detach().cpu()
        return np.asarray((relevance if relevance.dim() == 1 else relevance.mean(0)).numpy(), np.float32)

    def processes(self, labels: Tensor | None = None) -> LatentProcesses | None:
        utilities = self.model.utilities
        if not isinstance(utilities, SparseUtilities):
            return None
        b = self.model.b.detach()
        labels = None if labels is None else labels.to(b.device)
        parts, has_own_points = utilities.select(labels), self.spec.inducing == "per_class"
        return LatentProcesses(*parts, None, b if labels is None else b[labels], has_own_points=has_own_points)

    def process_blocks(self) -> Iterator[LatentProcesses]:
        found = map(self.processes, self.class_blocks())
        return (block for block in found if block is not None)
