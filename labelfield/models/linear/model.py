"""Linear machines: for each label the maximum of a generalised posterior under a max-margin pseudo-likelihood.

    p(w_k) = N(0, I),    p(b_k) = N(-1, 0.3²),    p̃(y_ik | f_ik) = exp(-C (1 - y_ik f_ik)₊²),    f_ik = w_kᵀ x_i + b_k,
    y = ±1

The optimum of log p(w) + log p(b) + Σ log p̃ is that of the L2-loss support vector machine. Its intercept stays near -1,
the score of a label without any evidence, unless the label is frequent. Scores become log-odds by a map that is
learned on rows held out (`labelfield.models.stack`), since p̃ is no distribution over y.

Very many labels have label trees instead (as in Parabel and Bonsai). Each tree splits the labels into upper groups of
similar ones, and these into lower groups. One machine per upper group tells whether any of its labels holds; one per
lower group, solved on the rows of its upper group alone, whether any of its labels does; and one per label, solved on
the rows of its lower group, which of them. With ρ(f) = -(1 - f)₊², which is log p̃(1 | f) for C = 1,

    p_k = mean over trees of exp(ρ(f_upper(k)) + ρ(f_lower(k)) + ρ(f_k | lower(k)))

and log-odds come from log p_k / (1 - p_k) instead of f_k. Trees share what similar labels have in common, and cost
little: machines of upper groups are few, and all others see few rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import exp

import torch
from torch import Tensor, nn

from labelfield.linalg.rows import dot
from labelfield.models.calibration import Calibration
from labelfield.models.linear.plan import N_LEVELS
from labelfield.models.stack import Stack

# Log-odds per unit of score before the map is learned.
_SLOPE = 4.0
# log p below this is all the same: what no tree believes; and p above that: what all are sure of.
_LEAST, _MOST = -10.0, 0.9999
# Weights that are laid out densely at a time.
_SCRATCH = 1 << 25


class LinearMachines(nn.Module):
    """The weights of machines one after another (pointers, features), by how much their intercepts differ from -1, and
    the map from scores to log-odds.

    Without trees there are K machines, those of the labels. Else there are, for each tree, K machines of labels within
    their groups, and then the machines of groups. `groups` (levels · trees, K) says which machines are those of the
    upper and the lower group of a label in the first tree, in the second, and so on. Models of former versions have
    trees of one level, and K machines of the labels themselves before all others, whose scores are another part of the
    log-odds.
    """

    pointers: Tensor
    features: Tensor
    intercepts: Tensor
    groups: Tensor

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        n_weights: int = 0,
        n_trees: int = 0,
        n_machines: int | None = None,
        n_levels: int = N_LEVELS,
        has_own: bool | None = None,
    ) -> None:
        super().__init__()
        self.n_features, self.n_labels, self.n_trees = n_features, n_labels, n_trees
        self.n_levels, self.has_own = n_levels, n_trees == 0 if has_own is None else has_own
        self.n_each = n_trees + self.has_own  # machines of each label
        n_machines = n_labels if n_machines is None else n_machines
        self.register_buffer("groups", torch.zeros(n_levels * n_trees, n_labels, dtype=torch.int64))
        self.register_buffer("pointers", torch.zeros(n_machines + 1, dtype=torch.int64))
        self.register_buffer("features", torch.zeros(n_weights, dtype=torch.int32))
        self.register_buffer("intercepts", torch.zeros(n_machines))
        self.weights = nn.Parameter(torch.zeros(n_weights), requires_grad=False)
        self.stack, self.calibration = Stack(self.has_own + (n_trees > 0), n_labels), Calibration()
        self.stack.slopes.fill_(1.0 if n_trees else _SLOPE)
        self.stack.offsets.fill_(0.0 if n_trees else -_SLOPE)

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
        """Return the parts of the log-odds (B, K), from f + 1 of all machines."""
        n_before = self.n_each * self.n_labels
        of_labels = torch.split(scores[:, :n_before], self.n_labels, dim=1)
        of_groups = rho(scores[:, n_before:])
        return self.parts_of(of_labels, (of_groups[:, group - n_before] for group in self.groups))

    def parts_of(self, of_labels: Sequence[Tensor], of_groups: Iterable[Tensor]) -> list[Tensor]:
        """Return the parts of the log-odds of some labels: f + 1 of their own machines, or the log-odds of p; or both,
        with log p instead, in models of former versions.

        Given are f + 1 of all their machines (B, k), and ρ of their groups in the order of `groups`.
        """
        own, within = list(of_labels[: self.has_own]), of_labels[self.has_own :]
        if not within:
            return own
        p = self._in_trees(within, iter(of_groups))
        return [*own, p.log_().clamp_min_(_LEAST)] if own else [p.clamp_(exp(_LEAST), _MOST).logit_()]

    def _in_trees(self, within: Sequence[Tensor], of_groups: Iterator[Tensor]) -> Tensor:
        """Return p."""
        total = torch.zeros(within[0].shape, device=within[0].device)
        for inside in within:
            path = rho(inside)
            for _ in range(self.n_levels):
                path.add_(next(of_groups))
            total.add_(path.exp_())
        return total.div_(len(within))


def rho(scores: Tensor) -> Tensor:
    """Return -(1 - f)₊² from f + 1."""
    return (2 - scores).clamp_min_(0).square_().neg_()
