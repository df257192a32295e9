"""A Gaussian process for each class [TH 3].

    f_k = b_k + GP(0, k_k),  k = 1 … K            p(y | f): one-vs-each, robustmax or softmax (labelfield.likelihoods)

The bound is Σ_i E log p(y_i | f_i) - Σ_k KL_k. One-vs-each makes its first term a sum over the rivals of a row's class,
so that a step may use some classes alone [TH 3.36].
"""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from labelfield.inducing import Free, PerClass
from labelfield.kernels import Kernel, Points
from labelfield.likelihoods import MultiClass
from labelfield.linalg.rows import Projected, Rows, dot, first_columns, n_rows, take
from labelfield.models.calibration import Temperature
from labelfield.models.elbo import Elbo
from labelfield.models.sampling import Choice, Rivals, choose_labels
from labelfield.variational.families import Family, Moments, Prior

Module = TypeVar("Module", bound=nn.Module)


class MultiClassGP(nn.Module):
    """The model: it is given its parts, and owns the bias b (K,). With `rivals`, rivals are drawn by their scores."""

    def __init__(
        self,
        utilities: SparseUtilities | LinearUtilities,
        b: Tensor,
        likelihood: MultiClass,
        *,
        rivals: Rivals | None = None,
    ) -> None:
        super().__init__()
        self.utilities = utilities
        self.b, self.n_classes = nn.Parameter(b), len(b)
        self.likelihood, self.rivals = likelihood, rivals
        self.calibration = Temperature()

    def moments(self, X: Rows, classes: Tensor | None = None, part: ClassSubset | None = None) -> Moments:
        """Return q(f) of rows for these classes, or for all (B, C)."""
        f = (part or self.utilities.select(classes)).moments(X)
        return Moments(f.mean + (self.b if classes is None else take(self.b, classes)), f.var)

    def elbo(
        self,
        X: Rows,
        Y: Tensor,
        n_data: int,
        *,
        n_negatives: int | None = None,
        row_weight: Tensor | None = None,
        likelihood: MultiClass | None = None,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """Estimate the bound on n_data rows, without bias, from a batch with one class per row, Y in CSR.

        With `n_negatives` a step uses only the classes of the batch and this many drawn rivals. A row counts n_data / B
        times, or `row_weight` times where rows were not drawn with equal probability.
        """
        classes, weight, target = self._choose(first_columns(Y), n_negatives, generator)
        part = self.utilities.select(classes)
        f = self.moments(X, classes, part)
        if weight is not None:
            weight = weight.to(f.mean.dtype)
        if classes is not None and self.rivals is not None:
            self.rivals.learn(classes, f.mean.detach(), target)
        each = (likelihood or self.likelihood).expected_log_prob(f.mean, f.var, target, weight, generator)
        counted = n_data / n_rows(X) if row_weight is None else row_weight
        kl = part.kl()
        return Elbo((each * counted).sum(dtype=torch.float64), (kl if weight is None else kl * weight).sum())

    def _choose(self, column: Tensor, n_negatives: int | None, generator: torch.Generator | None) -> Choice:
        if n_negatives is None or self.rivals is None:
            return choose_labels(column, n_negatives, self.n_classes, generator)
        return self.rivals.choose(column, n_negatives, generator)


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
            raise ValueError("projected rows no longer have the features that linear utilities need")
        mean = dot(X, self.weights.T.contiguous())
        return Moments(mean, torch.zeros_like(mean))

    def kl(self) -> Tensor:
        return self.weights.double().square().sum(1) / (2 * self.scale**2)


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
