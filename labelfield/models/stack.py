"""Log-odds from the scores of one or more parts, with weights learned on rows that no part has seen.

    z_k = Σ_j (a_j + b_j ℓ_k) s_jk + c + d ℓ_k,    ℓ_k = log(1 + n_k) - its mean over the labels that hold

n_k is how many training rows the label has. The slopes depend on it because the same score means more for a rare label:
a machine that has seen a label three times scores even the clearest row low. Labels without a positive come last.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from torch import Tensor, nn

# The prior belief in the weights that a stack starts with, in numbers of held-out entries.
_CAUTION = 1.0
# Log-odds of a label that held in no training row, relative to others.
NEVER = -30.0


class Stack(nn.Module):
    """The weights of parts; `levels` (K,) is ℓ, and `is_seen` which labels held in training."""

    weights: Tensor
    by_level: Tensor
    offsets: Tensor
    levels: Tensor
    unseen: Tensor

    def __init__(self, n_parts: int, n_labels: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.ones(n_parts))
        self.register_buffer("by_level", torch.zeros(n_parts))
        self.register_buffer("offsets", torch.zeros(2))  # c and d
        self.register_buffer("levels", torch.zeros(n_labels))
        self.register_buffer("unseen", torch.zeros(n_labels))  # 0, or NEVER

    def count(self, label_counts: NDArray[np.int64]) -> None:
        """Take over how often labels held."""
        level = np.log1p(label_counts)
        mean = level @ label_counts / max(label_counts.sum(), 1)
        self.levels.copy_(torch.from_numpy((level - mean).astype(np.float32)))
        self.unseen.copy_(torch.from_numpy(np.where(label_counts > 0, 0, NEVER).astype(np.float32)))

    def forward(self, scores: Sequence[Tensor], labels: Tensor | slice = slice(None)) -> Tensor:
        """Return the log-odds of labels (..., labels) from the scores of each part, of the same shape."""
        level = self.levels[labels]
        result = self.offsets[0] + self.offsets[1] * level + self.unseen[labels]
        for part, weight, change in zip(scores, self.weights, self.by_level, strict=True):
            result = torch.addcmul(result, part, weight + change * level)
        return result

    def fit(
        self, scores: Sequence[NDArray[np.floating]], labels: NDArray[np.integer], is_true: NDArray[np.bool_]
    ) -> None:
        """Learn all weights from the scores of entries (n,), their labels, and whether these hold.

        This is logistic regression: the likelihood is concave. A weak prior at the weights that the stack has keeps a
        few rows from deciding. The mean slope of a part is not negative.
        """
        n_parts, level = len(scores), self.levels.numpy()[labels].astype(np.float64)
        columns = [*scores, *(part * level for part in scores), np.ones_like(level), level]
        features = np.stack(columns, 1).astype(np.float64)
        start = np.concatenate([part.double().numpy() for part in (self.weights, self.by_level, self.offsets)])
        # Steps in units of each column's spread, so that the prior means the same for scores of any scale.
        spread = np.maximum(np.sqrt(np.mean(features**2, axis=0)), 1e-6)

        def loss(free: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            u = features @ (start + free / spread)
            value = np.logaddexp(0, u).sum() - u @ is_true + 0.5 * _CAUTION * free @ free
            return float(value), (features.T @ (expit(u) - is_true)) / spread + _CAUTION * free

        bounds = [(-weight * unit, None) for weight, unit in zip(start[:n_parts], spread, strict=False)]
        bounds += [(None, None)] * (n_parts + 2)
        found = start + minimize(loss, np.zeros(len(start)), jac=True, method="L-BFGS-B", bounds=bounds).x / spread
        values = torch.from_numpy(found.astype(np.float32)).split([n_parts, n_parts, 2])
        for buffer, value in zip((self.weights, self.by_level, self.offsets), values, strict=True):
            buffer.copy_(value)
