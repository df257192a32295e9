"""Batches of a few classes each [TH 3.36], so that the rows of a step have few classes of their own, for any K."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["ClassBatches"]


class ClassBatches:
    """Draws classes with equal probability, and equally many rows from each.

    A row of class k then counts (classes present / classes drawn) · N_k / (rows of k in the batch), which makes sums
    over a batch unbiased for sums over all rows.
    """

    def __init__(self, classes: NDArray[np.integer], n_drawn: int) -> None:
        self.classes, self.n_drawn = classes, n_drawn
        self._count(classes)

    def _count(self, classes: NDArray[np.integer]) -> None:
        self.counts = np.bincount(classes)
        self.n_present = int(np.count_nonzero(self.counts))
        self._counts = torch.from_numpy(self.counts)

    def __call__(
        self, order: NDArray[np.int64], size: int, n_steps: int, rng: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        """Return n_steps batches of about this size from these rows."""
        classes = self.classes[order]
        self._count(classes)
        by_class = order[np.argsort(classes, kind="stable")]
        ends = np.cumsum(self.counts)
        present = np.flatnonzero(self.counts)
        n_drawn = min(self.n_drawn, present.size)
        each = max(1, size // n_drawn)
        batches = []
        for _ in range(n_steps):
            drawn = rng.choice(present, n_drawn, replace=False)
            starts, counts = ends[drawn] - self.counts[drawn], self.counts[drawn]
            parts = [
                start + rng.choice(count, min(each, count), replace=False)
                for start, count in zip(starts, counts, strict=True)
            ]
            batches.append(np.sort(by_class[np.concatenate(parts)]))
        return batches

    def row_weight(self, column: Tensor) -> Tensor:
        """Return how much each row of a batch counts (B,), from the classes of the rows."""
        held, place, in_batch = torch.unique(column, return_inverse=True, return_counts=True)
        counts = self._counts[held.cpu()].to(column.device)
        weight: Tensor = (self.n_present / held.numel() * counts / in_batch)[place]
        return weight.float()
