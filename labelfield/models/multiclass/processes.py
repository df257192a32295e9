"""The utilities of many classes: a Gaussian process or a linear function per class, and the part that a step uses."""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from labelfield.inducing import Free, PerClass
from labelfield.kernels import Kernel, Points
from labelfield.linalg.rows import Projected, Rows, dot, n_rows, take
from labelfield.models.sparse import unexplained_share
from labelfield.variational import Family, Moments, Prior

__all__ = ["ClassSubset", "LinearUtilities", "SparseUtilities", "select_processes"]

Module = TypeVar("Module", bound=nn.Module)


class SparseUtilities(nn.Module):
    """Sparse Gaussian processes, whose inducing inputs and kernel are either shared by all classes or per class."""

    def __init__(self, kernel: Kernel, inducing: Free | PerClass, family: Family, jitter: float = 1e-6) -> None:
        super().__init__()
        self.kernel, self.inducing, self.family, self.jitter = kernel, inducing, family, jitter

    def select(self, classes: Tensor | None = None) -> SparseSubset:
        """Return the processes of these classes, each named once, or of all."""
        kernel, inducing, family = self.kernel, self.inducing, self.family
        if classes is not None:
            kernel, family = select_processes(kernel, classes), select_processes(family, classes)
            inducing = select_processes(inducing, classes) if isinstance(inducing, PerClass) else inducing
        points = inducing.points()
        return SparseSubset(kernel, points, Prior(kernel.gram(points), self.jitter), family)


class SparseSubset(NamedTuple):
    """The processes of some classes, with what a step forms once for all its rows."""

    kernel: Kernel
    points: Points
    prior: Prior
    family: Family

    def moments(self, X: Rows) -> Moments:
        """Return q(f - b) at rows (B, C)."""
        return self.family.moments(self.prior, self.kernel.cross(X, self.points).mT, self.kernel.diag(X))

    def kl(self) -> Tensor:
        """Return the divergence of each process from its prior (C,), in float64."""
        return self.family.kl(self.prior)

    def unexplained_share(self, X: Rows) -> Tensor:
        """Return the share of the prior variance (B,) that the inducing inputs leave open, averaged over classes."""
        return unexplained_share(self.kernel, self.points, self.prior, X)


class LinearUtilities(nn.Module):
    """f_k = w_kᵀ x with a point estimate of w_k ~ N(0, τ² I) [TH 3.22–23]: no variance; -log p(w) as divergence."""

    per_process = ("weights",)

    def __init__(self, n_classes: int, n_features: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(n_classes, n_features))
        self.scale = scale

    def select(self, classes: Tensor | None = None) -> LinearSubset:
        """Return the weights of these classes, each named once, or of all."""
        return LinearSubset(self.weights if classes is None else take(self.weights, classes), self.scale)


class LinearSubset(NamedTuple):
    """The weights of some classes, with the same methods as `SparseSubset`."""

    weights: Tensor
    scale: float

    def moments(self, X: Rows) -> Moments:
        if isinstance(X, Projected):
            raise ValueError("projected rows have lost the features that linear utilities need")
        mean = dot(X, self.weights.T.contiguous())
        return Moments(mean, torch.zeros_like(mean))

    def kl(self) -> Tensor:
        return self.weights.double().square().sum(1) / (2 * self.scale**2)

    def unexplained_share(self, X: Rows) -> Tensor:
        """Return 0 for every row: a point estimate leaves nothing open."""
        return self.weights.new_zeros(n_rows(X))


ClassSubset = SparseSubset | LinearSubset


def select_processes(module: Module, processes: Tensor) -> Module:
    """Return the module for these processes alone, each named once, at a cost that does not depend on the others.

    Parameters that a module names in `per_process` keep only these rows, and their gradients are sparse; everything
    else is shared. The result serves for one step: it has no parameters of its own.
    """
    copies = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    for part in module.modules():
        for name in getattr(part, "per_process", ()):
            parameter = part.get_parameter(name)
            copies[id(parameter)] = take(parameter, processes)
    # A copy in which each tensor is replaced by the one given for it.
    return deepcopy(module, copies)
