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


def learn_log_odds(stack: Stack, parts: Sequence[Tensor], known: NDArray[np.int64], truth: sparse.csr_array) -> Tensor:
    """Fit a stack to scores (N, k) of held-out rows for the labels `known` (k,), and return the log-odds (N, k).

    `truth` (N, K) are the labels of these rows. Each part is as a part of the model scores the rows.
    """
    n_labels = max(known.size, 1)
    chosen = cat([part.topk(min(_N_FIRST, known.size), dim=1).indices for part in parts], 1)
    entries = np.unique(np.arange(len(chosen))[:, None] * n_labels + chosen.numpy())
    row, place = entries // n_labels, entries % n_labels
    is_true = holds(truth, known[place][:, None], row[:, None])[:, 0]
    stack.fit([part.numpy()[row, place].astype(np.float64) for part in parts], known[place], is_true)
    odds: Tensor = stack(parts, from_numpy(known))
    return odds
