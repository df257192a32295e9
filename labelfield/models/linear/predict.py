"""Predictions of linear machines."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.linalg.rows import to_tensor
from labelfield.memory import FEWER_ROWS, advising_on_memory, row_blocks
from labelfield.models.linear.model import LinearMachines
from labelfield.models.linear.scores import Weights, products
from labelfield.models.linear.search import LinearScorer
from labelfield.models.predictor import Block, Predictor
from labelfield.models.search import Scorer

# The most rows times machines whose scores exist at once, and rows. A GPU lays out all weights again for each block.
_BLOCK_ENTRIES, _MOST_ROWS = {"cpu": 1 << 23, "cuda": 1 << 27}, 2000


class LinearPredictor(Predictor):
    """Probabilities of linear machines: the sigmoid of scaled scores, calibrated on rows that were held out."""

    is_exclusive = False

    def __init__(self, model: LinearMachines, normalises: bool = False) -> None:
        self.model, self.n_labels, self.normalises = model, model.n_labels, normalises
        self.calibration = model.calibration

    @cached_property
    def weights(self) -> Weights:
        """The weights of all machines."""
        parts = (self.model.weights, self.model.features, self.model.pointers)
        return Weights(*(part.cpu().numpy() for part in parts))

    def scores_of(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Tensor]]:
        """Yield f + 1 = wᵀx + b + 1 for blocks of rows and all machines."""
        n_machines, entries = self.model.intercepts.numel(), _BLOCK_ENTRIES[self.model.weights.device.type]
        for block in row_blocks(rows.shape[0], n_machines, entries=entries, most=_MOST_ROWS):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                some = gather_rows(rows, np.arange(block.start, block.stop))
                if self.model.weights.device.type == "cpu":
                    scores = products(some, self.weights, torch.get_num_threads())
                    found = torch.from_numpy(scores).add_(self.model.intercepts)
                else:
                    found = self.model.scores(to_tensor(some, self.model.weights.device))
            yield block, found

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        model = self.model
        return self.whole_rows(
            self.scores_of(rows), lambda found: model.stack(model.parts(found)).sigmoid(), calibrated
        )

    def scorer(self) -> Scorer:
        if self.normalises:
            return super().scorer()
        return LinearScorer(self)

    def feature_relevance(self) -> NDArray[np.float32]:
        """Return the sum of the squared weights of each feature over all machines, per label."""
        own = self.weights
        total = np.bincount(own.features, np.square(own.weights), self.model.n_features)
        return np.asarray(total / self.n_labels, np.float32)
