"""Log-odds from scores of held-out rows: the slopes by frequency of a label, learned where they decide."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, cat, from_numpy

from labelfield.inference.calibrating import holds
from labelfield.models.stack import Stack

# Labels per held-out row from which log-odds are learned: the best by score.
_N_FIRST = 16


class ScoredRows:
    """Scores (N, k) of held-out rows for the labels `known` (k,), as each part of a model has them.

    `truth` (N, K) are the labels of these rows.
    """

    def __init__(self, parts: Sequence[Tensor], known: NDArray[np.int64], truth: sparse.csr_array) -> None:
        self.parts, self.known = parts, known
        n_labels = max(known.size, 1)
        chosen = cat([part.topk(min(_N_FIRST, known.size), dim=1).indices for part in parts], 1)
        entries = np.unique(np.arange(len(chosen))[:, None] * n_labels + chosen.numpy())
        self._rows, places = entries // n_labels, entries % n_labels
        self._labels = known[places]
        self._is_true = holds(truth, self._labels[:, None], self._rows[:, None])[:, 0]
        self._scores = [part.numpy()[self._rows, places].astype(np.float64) for part in parts]

    def learn_log_odds(self, stack: Stack) -> Tensor:
        """Fit a stack to all rows, and return the log-odds (N, k) of all of them."""
        stack.fit(self._scores, self._labels, self._is_true)
        odds: Tensor = stack(self.parts, from_numpy(self.known))
        return odds

    def learn_apart(self, stack: Stack, near: Stack, taking_part: NDArray[np.intp]) -> None:
        """Fit a stack to some of the rows, beginning near one that was fitted to all."""
        takes_part = np.zeros(len(self.parts[0]), np.bool_)
        takes_part[taking_part] = True
        used = takes_part[self._rows]
        stack.fit([part[used] for part in self._scores], self._labels[used], self._is_true[used], near)
