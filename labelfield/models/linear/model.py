"""Linear machines: for each label the maximum of a generalised posterior under a max-margin pseudo-likelihood.

    p(w_k) = N(0, I),    p(b_k) = N(-1, 0.3²),    p̃(y_ik | f_ik) = exp(-C (1 - y_ik f_ik)₊²),    f_ik = w_kᵀ x_i + b_k,
    y = ±1

The optimum of log p(w) + log p(b) + Σ log p̃ is that of the L2-loss support vector machine. Its intercept stays near -1,
where a label rests that nothing speaks for, unless the label is frequent. Scores become log-odds by a map that is
learned on rows held out (`labelfield.models.stack`), since p̃ is no distribution over y.
"""

import torch
from torch import Tensor, nn

from labelfield.linalg.rows import dot
from labelfield.models.calibration import Calibration
from labelfield.models.stack import Stack

# Log-odds per unit of score before the map is learned.
_SLOPE = 4.0
# Weights that are laid out densely at a time.
_SCRATCH = 1 << 25


class LinearMachines(nn.Module):
    """The weights of K labels, label by label (pointers, features), by how much their intercepts differ from -1, and
    the map from scores to log-odds."""

    pointers: Tensor
    features: Tensor
    intercepts: Tensor

    def __init__(self, n_features: int, n_labels: int, n_weights: int = 0) -> None:
        super().__init__()
        self.n_features, self.n_labels = n_features, n_labels
        self.register_buffer("pointers", torch.zeros(n_labels + 1, dtype=torch.int64))
        self.register_buffer("features", torch.zeros(n_weights, dtype=torch.int32))
        self.register_buffer("intercepts", torch.zeros(n_labels))
        self.weights = nn.Parameter(torch.zeros(n_weights), requires_grad=False)
        self.stack, self.calibration = Stack(1, n_labels), Calibration()
        self.stack.slopes.fill_(_SLOPE)
        self.stack.offsets.fill_(-_SLOPE)

    def fill(self, pointers: Tensor, features: Tensor, weights: Tensor, intercepts: Tensor) -> None:
        """Take over the weights of all labels, as many as there are, and their intercepts."""
        device = self.weights.device
        self.pointers, self.features, self.intercepts = (part.to(device) for part in (pointers, features, intercepts))
        self.weights = nn.Parameter(weights.to(device), requires_grad=False)

    def scores(self, X: Tensor) -> Tensor:
        """Return f + 1 (B, K) for sparse rows, with the weights of a few labels laid out densely at a time."""
        parts = [self.weights.new_zeros(X.shape[0], 0)]
        step = max(1, _SCRATCH // max(self.n_features, 1))
        for first in range(0, self.n_labels, step):
            pointers = self.pointers[first : first + step + 1]
            width, own = len(pointers) - 1, slice(int(pointers[0]), int(pointers[-1]))
            column = torch.repeat_interleave(torch.arange(width, device=X.device), pointers.diff())
            cells = self.features[own].long() * width + column
            scratch = self.weights.new_zeros(self.n_features * width).scatter_(0, cells, self.weights[own])
            parts.append(dot(X, scratch.view(self.n_features, width)))
        return torch.cat(parts, 1) + self.intercepts
