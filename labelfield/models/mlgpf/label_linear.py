"""A linear process for each label: f_k = Σ_p φ_kp h_p + b_k + w_kᵀ x with w_k ~ N(0, τ² I).

The shared processes see a row through M inducing inputs; the linear process of a label sees the row's features
themselves. Its weights exist only for features that occur with the label in training, so a D × K matrix is never
formed; all other weights are 0, the mean of the prior. The weights are a point estimate with a given τ, or a mean-field
Gaussian whose τ is learned through the bound. (For a point estimate the density has no maximum in τ: it grows without
limit as τ and the weights shrink together.)
"""

from __future__ import annotations

from itertools import pairwise
from math import log
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from labelfield.compiled import has_numba
from labelfield.linalg.autograd import apply
from labelfield.linalg.rows import dot, entry_rows, squared, take, transposed
from labelfield.models.linear.scores import Weights, products
from labelfield.models.mlgpf.cooccurrence import LabelFeatures

LABEL_LINEAR = ("off", "point", "mean_field")
# Weights are laid out densely for a few labels at a time, in about this many numbers, which fit in a core's cache or
# keep a GPU busy. (EUR-Lex on 2 cores: a product with 64 labels at a time runs twice as fast as with 1,700.)
_SCRATCH = {"cpu": 5 << 16, "cuda": 1 << 26}
# The initial deviation of mean-field weights.
_SPREAD = 0.1


class _Layout(NamedTuple):
    """Where the weights of some labels lie in a dense (D, labels) scratch matrix."""

    columns: slice  # in the result
    weights: slice  # in the vector of weights
    cells: Tensor  # positions in the flattened scratch matrix


class LabelLinear(nn.Module):
    """The weights of K labels on the features (pointers, features) that occur with them."""

    def __init__(self, n_labels: int, n_features: int, n_weights: int, kind: str, scale: float) -> None:
        super().__init__()
        self.n_features, self.kind, self.scale = n_features, kind, scale
        self.register_buffer("pointers", torch.zeros(n_labels + 1, dtype=torch.int64))
        self.register_buffer("features", torch.zeros(n_weights, dtype=torch.int32))
        self.register_buffer("waiting", torch.zeros(n_weights, dtype=torch.bool))
        self.weights = nn.Parameter(torch.zeros(n_weights))
        if kind == "mean_field":
            self.log_var = nn.Parameter(torch.full((n_weights,), 2 * log(_SPREAD)))
            self.log_scale = nn.Parameter(torch.full((), log(scale)))
        self._all: tuple[Tensor, list[_Layout]] | None = None  # of these features

    def fill(self, pattern: LabelFeatures) -> None:
        """Set which weights exist, and which of them wait.

        A weight whose feature occurs with the label only in held-out rows would learn from all other rows that the
        label does not hold, and the held-out rows would make the model look worse than it is. Such weights stay 0 until
        these rows join.
        """
        for name in ("pointers", "features", "waiting"):
            self.get_buffer(name).copy_(torch.from_numpy(getattr(pattern, name)))
        self._all = None

    def release(self) -> None:
        """Let all weights learn."""
        self.get_buffer("waiting").zero_()

    @torch.no_grad()
    def pruned(self, tolerance: float) -> LabelLinear:
        """Return this point estimate without the smallest weights of each label, together of norm `tolerance` at most.

        By the Cauchy-Schwarz inequality no utility of a row of norm 1 changes by more than that.
        """
        assert self.kind == "point"
        pointers, features = self.get_buffer("pointers"), self.get_buffer("features")
        squares = self.weights.double().square()
        label = entry_rows(pointers, features.numel())
        order = squares.sort(stable=True).indices
        order = order[label[order].sort(stable=True).indices]
        # The sum of squares up to each weight within its label, smallest first.
        sums = squares[order].cumsum(0)
        before = torch.cat([sums.new_zeros(1), sums])[pointers[:-1]]
        kept = order[sums - before[label[order]] > tolerance**2].sort().values
        result = LabelLinear(len(pointers) - 1, self.n_features, kept.numel(), self.kind, self.scale)
        result.to(self.weights)
        sizes = torch.bincount(label[kept], minlength=len(pointers) - 1)
        result.get_buffer("pointers")[1:] = sizes.cumsum(0)
        result.get_buffer("features").copy_(features[kept])
        result.weights.copy_(self.weights[kept])
        return result

    @torch.no_grad()
    def of_labels(self, labels: slice) -> LabelLinear:
        """Return a copy with these labels alone."""
        pointers = self.get_buffer("pointers")[labels.start : labels.stop + 1]
        own = slice(int(pointers[0]), int(pointers[-1]))
        result = LabelLinear(len(pointers) - 1, self.n_features, own.stop - own.start, self.kind, self.scale)
        result.to(self.weights.device)
        result.get_buffer("pointers").copy_(pointers - own.start)
        for name, value in [*self.named_buffers(), *self.named_parameters()]:
            if name != "pointers":
                (result.get_parameter if isinstance(value, nn.Parameter) else result.get_buffer)(name).copy_(
                    value[own] if value.dim() else value
                )
        return result

    def select(self, labels: Tensor | slice | None = None) -> LabelLinearSubset:
        """Return the weights of these labels, or of all. Labels given by number alone get a gradient, a sparse one."""
        pointers, features, waiting = (self.get_buffer(name) for name in ("pointers", "features", "waiting"))
        log_var: Tensor | None = self.log_var if self.kind == "mean_field" else None
        weights: Tensor = self.weights
        if labels is None or (isinstance(labels, slice) and labels == slice(0, len(pointers) - 1)):
            return LabelLinearSubset(self, weights, log_var, waiting, pointers.diff(), features, is_all=True)
        if isinstance(labels, slice):
            chosen: Tensor | slice = slice(int(pointers[labels.start]), int(pointers[labels.stop]))
            sizes = pointers[labels.start : labels.stop + 1].diff()
            weights, log_var = weights[chosen], None if log_var is None else log_var[chosen]
        else:
            sizes = pointers[labels + 1] - pointers[labels]
            column = torch.repeat_interleave(torch.arange(labels.numel(), device=labels.device), sizes)
            offsets = pointers[labels] - sizes.cumsum(0) + sizes
            chosen = torch.arange(column.numel(), device=labels.device) + offsets[column]
            weights, log_var = take(weights, chosen), None if log_var is None else take(log_var, chosen)
        return LabelLinearSubset(self, weights, log_var, waiting[chosen], sizes, features[chosen])

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the layout, which is computed again when needed."""
        return self.__dict__ | {"_all": None}

    def layouts_of_all(self) -> list[_Layout]:
        """Return the layouts of all labels, which are kept."""
        pointers, features = self.get_buffer("pointers"), self.get_buffer("features")
        if self._all is None or self._all[0] is not features:
            self._all = features, self.lay_out(pointers.diff(), features)
        return self._all[1]

    def lay_out(self, sizes: Tensor, features: Tensor) -> list[_Layout]:
        """Return the layouts of labels with these numbers of weights, on these features, one label after another."""
        width = max(16, _SCRATCH[sizes.device.type] // max(self.n_features, 1) // 16 * 16)  # whole vector registers
        ends = [0, *sizes.cumsum(0)[width - 1 :: width].tolist()]
        if sizes.numel() % width:
            ends.append(features.numel())
        layouts = []
        for number, (start, stop) in enumerate(pairwise(ends)):
            some = sizes[number * width : (number + 1) * width]
            column = torch.repeat_interleave(torch.arange(len(some), device=some.device), some)
            cells = features[start:stop].long() * len(some) + column
            columns = slice(number * width, number * width + len(some))
            layouts.append(_Layout(columns, slice(start, stop), cells))
        return layouts


class LabelLinearSubset(NamedTuple):
    """The weights of the labels in one step."""

    process: LabelLinear
    weights: Tensor
    log_var: Tensor | None
    waiting: Tensor
    sizes: Tensor  # the number of weights per label
    features: Tensor
    is_all: bool = False

    def means(self, X: Tensor) -> Tensor:
        """Return the means of w_kᵀ x (B, labels)."""
        is_plain = self.log_var is None and not torch.is_grad_enabled() and X.layout == torch.sparse_csr
        if is_plain and X.device.type == "cpu" and has_numba():
            return self._sparse_product(X)
        return self._product(self.weights, X)

    def _sparse_product(self, X: Tensor) -> Tensor:
        """Return the means without laying out weights, which takes D numbers for each label."""
        csr = X.values().numpy(), X.col_indices().numpy(), X.crow_indices().numpy()
        pointers = np.concatenate([[0], self.sizes.cumsum(0).numpy()])
        own = Weights(self.weights.detach().numpy(), self.features.numpy(), pointers)
        return torch.from_numpy(products(sparse.csr_array(csr, shape=X.shape), own, torch.get_num_threads()))

    def variances(self, X: Tensor) -> Tensor | None:
        """Return their variances, or None for a point estimate."""
        if self.log_var is None:
            return None
        # Weights that wait have no effect on their label yet, and so no variance either.
        return self._product(self.log_var.exp().masked_fill(self.waiting, 0), squared(X))

    def _product(self, weights: Tensor, X: Tensor) -> Tensor:
        process = self.process
        layouts = process.layouts_of_all() if self.is_all else process.lay_out(self.sizes, self.features)
        return apply(_SparseWeightProduct, weights, X, layouts, process.n_features, self.waiting)

    def kl(self, label_weight: Tensor | None = None) -> Tensor:
        """Return KL(q(w) ‖ p(w)) in float64, labels weighted; for a point estimate -log p(w), up to a constant."""
        squares = self.weights.square()
        if self.log_var is None:
            each = 0.5 / self.process.scale**2 * squares
        else:
            log_scale = self.process.log_scale
            ratio = (squares + self.log_var.exp()) * (-2 * log_scale).exp()
            each = (0.5 * (ratio - 1 - self.log_var + 2 * log_scale)).masked_fill(self.waiting, 0)
        if label_weight is not None:
            each = each * torch.repeat_interleave(label_weight, self.sizes, output_size=each.numel())
        return each.sum(dtype=torch.float64)


class _SparseWeightProduct(torch.autograd.Function):
    """X W for the weights of some labels, laid out densely for a few labels at a time."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, X: Tensor, layouts: list[_Layout], n_features: int, waiting: Tensor
    ) -> Tensor:
        ctx.X, ctx.layouts, ctx.waiting = X, layouts, waiting
        n_labels = layouts[-1].columns.stop if layouts else 0
        result = weights.new_empty(X.shape[0], n_labels)
        for columns, chosen, cells in layouts:
            scratch = weights.new_zeros(n_features * (columns.stop - columns.start))
            scratch.scatter_(0, cells, weights[chosen])  # twice as fast as an assignment
            result[:, columns] = dot(X, scratch.view(n_features, -1))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        found = gradients[0].new_zeros(ctx.waiting.numel())
        turned = transposed(ctx.X)
        for columns, chosen, cells in ctx.layouts:
            found[chosen] = dot(turned, gradients[0][:, columns].contiguous()).flatten().index_select(0, cells)
        return found.masked_fill_(ctx.waiting, 0), None, None, None, None
