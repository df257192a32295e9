"""Linear machines: for each label the maximum of a generalised posterior under a max-margin pseudo-likelihood.

    p(w_k) = N(0, I),    p(b_k) = N(-1, 0.3²),    p̃(y_ik | f_ik) = exp(-C (1 - y_ik f_ik)₊²),    f_ik = w_kᵀ x_i + b_k,
    y = ±1

The optimum of log p(w) + log p(b) + Σ log p̃ is that of the L2-loss support vector machine. Its intercept stays near -1,
the score of a label without any evidence, unless the label is frequent. Scores become log-odds by a map that is
learned on rows held out (`labelfield.models.stack`), since p̃ is no distribution over y.

Very many labels also have label trees of two levels (as in Parabel and Bonsai). Each tree splits the labels into groups
of similar ones. One machine per group tells whether any of its labels holds, and a further machine per label, solved on
the rows of its group alone, which of them. With ρ(f) = -(1 - f)₊², which is log p̃(1 | f) for C = 1,

    t_k = log mean over trees of exp(ρ(f_group(k)) + ρ(f_k | group(k)))

Log-odds then come from the score of the label's own machine and t_k together. Trees share what similar labels have in
common, and cost little: machines of groups are few, and those within groups see few rows.
"""

from collections.abc import Iterable, Sequence
from math import log

import torch
from torch import Tensor, nn

from labelfield.linalg.rows import dot
from labelfield.models.calibration import Calibration
from labelfield.models.stack import Stack

# Log-odds per unit of score before the map is learned.
_SLOPE = 4.0
# t below this is all the same: what no tree believes.
_LEAST = -10.0
# Weights that are laid out densely at a time.
_SCRATCH = 1 << 25


class LinearMachines(nn.Module):
    """The weights of machines one after another (pointers, features), by how much their intercepts differ from -1, and
    the map from scores to log-odds.

    The first K machines are those of the labels. Then come, for each tree, K machines of labels within their groups,
    and last the machines of groups. `groups` (trees, K) says which machine is that of the group of a label.
    """

    pointers: Tensor
    features: Tensor
    intercepts: Tensor
    groups: Tensor

    def __init__(
        self, n_features: int, n_labels: int, n_weights: int = 0, n_trees: int = 0, n_machines: int | None = None
    ) -> None:
        super().__init__()
        self.n_features, self.n_labels = n_features, n_labels
        n_machines = n_labels if n_machines is None else n_machines
        self.register_buffer("groups", torch.zeros(n_trees, n_labels, dtype=torch.int64))
        self.register_buffer("pointers", torch.zeros(n_machines + 1, dtype=torch.int64))
        self.register_buffer("features", torch.zeros(n_weights, dtype=torch.int32))
        self.register_buffer("intercepts", torch.zeros(n_machines))
        self.weights = nn.Parameter(torch.zeros(n_weights), requires_grad=False)
        self.stack, self.calibration = Stack(1 if n_trees == 0 else 2, n_labels), Calibration()
        self.stack.slopes.fill_(_SLOPE)
        self.stack.offsets.fill_(-_SLOPE)
        if n_trees:
            self.stack.slopes[0] /= 2
            self.stack.slopes[1] = 0.5  # t is log p already
            self.stack.offsets /= 2

    def fill(self, pointers: Tensor, features: Tensor, weights: Tensor, intercepts: Tensor) -> None:
        """Set the weights of all machines and their intercepts."""
        device = self.weights.device
        self.pointers, self.features, self.intercepts = (part.to(device) for part in (pointers, features, intercepts))
        self.weights = nn.Parameter(weights.to(device), requires_grad=False)

    def scores(self, X: Tensor) -> Tensor:
        """Return f + 1 of all machines for sparse rows, with the weights of a few laid out densely at a time."""
        parts = [self.weights.new_zeros(X.shape[0], 0)]
        step = max(1, _SCRATCH // max(self.n_features, 1))
        for first in range(0, self.intercepts.numel(), step):
            pointers = self.pointers[first : first + step + 1]
            width, own = len(pointers) - 1, slice(int(pointers[0]), int(pointers[-1]))
            column = torch.repeat_interleave(torch.arange(width, device=X.device), pointers.diff())
            cells = self.features[own].long() * width + column
            scratch = self.weights.new_zeros(self.n_features * width).scatter_(0, cells, self.weights[own])
            parts.append(dot(X, scratch.view(self.n_features, width)))
        return torch.cat(parts, 1) + self.intercepts

    def parts(self, scores: Tensor) -> list[Tensor]:
        """Return the parts of the log-odds: f + 1 of the labels' own machines (B, K), and t where there are trees."""
        n_trees, n_labels = self.groups.shape
        own, *within = (scores[:, number * n_labels : (1 + number) * n_labels] for number in range(1 + n_trees))
        return parts_of(own, within, (scores[:, groups] for groups in self.groups))


def parts_of(own: Tensor, within: Sequence[Tensor], of_groups: Iterable[Tensor]) -> list[Tensor]:
    """Return what log-odds of some labels are made of, from f + 1 of their own machines (B, k) and, for each tree, of
    those within their groups and those of their groups."""
    if not within:
        return [own]
    trees = torch.empty(len(within), *own.shape, device=own.device)
    for tree, inside, group in zip(trees, within, of_groups, strict=True):
        torch.add(rho(group), rho(inside), out=tree)
    return [own, trees.logsumexp(0).sub_(log(len(within))).clamp_min_(_LEAST)]


def rho(scores: Tensor) -> Tensor:
    """Return -(1 - f)₊² from f + 1."""
    return (2 - scores).clamp_min_(0).square_().neg_()
