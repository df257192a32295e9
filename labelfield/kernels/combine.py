"""Kernels composed of kernels, and white noise."""

from functools import reduce

import torch
from torch import Tensor, nn

from labelfield.kernels.base import Kernel, Points, as_points, over_matrices, over_rows, positive, shape_of
from labelfield.linalg.rows import Rows, n_rows


class Scaled(Kernel):
    """variance · k, with a learned variance."""

    def __init__(self, kernel: Kernel, variance: float = 1.0, *, n_processes: int | None = None) -> None:
        super().__init__()
        self.kernel = kernel
        self.per_process = () if n_processes is None else ("log_variance",)
        self.log_variance = positive(variance, shape_of(n_processes))

    def feature_relevance(self) -> Tensor | None:
        relevance = self.kernel.feature_relevance()
        return None if relevance is None else over_rows(self.log_variance.exp()) * relevance

    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        return over_matrices(self.log_variance.exp()) * self.kernel.cross(X, Z)

    def gram(self, Z: Tensor | Points) -> Tensor:
        return over_matrices(self.log_variance.double().exp()) * self.kernel.gram(Z)

    def diag(self, X: Rows) -> Tensor:
        return over_rows(self.log_variance.exp()) * self.kernel.diag(X)


class Sum(Kernel):
    """k_1 + k_2 + …"""

    def __init__(self, *kernels: Kernel) -> None:
        super().__init__()
        if not kernels:
            raise ValueError("a sum needs at least one kernel")
        self.kernels = nn.ModuleList(kernels)

    def _parts(self) -> list[Kernel]:
        return [kernel for kernel in self.kernels if isinstance(kernel, Kernel)]

    def feature_relevance(self) -> Tensor | None:
        parts = [relevance for kernel in self._parts() if (relevance := kernel.feature_relevance()) is not None]
        return torch.stack(parts).sum(0) if parts else None

    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        return reduce(torch.add, [kernel.cross(X, Z) for kernel in self._parts()])

    def gram(self, Z: Tensor | Points) -> Tensor:
        return reduce(torch.add, [kernel.gram(Z) for kernel in self._parts()])

    def diag(self, X: Rows) -> Tensor:
        return reduce(torch.add, [kernel.diag(X) for kernel in self._parts()])


class White(Kernel):
    """White noise with a learned variance: the variance where a point meets itself, 0 elsewhere.

    A row is never the same point as an inducing input, so `cross` is 0. In the gram matrix it acts as learned jitter.
    """

    def __init__(self, variance: float = 1e-3) -> None:
        super().__init__()
        self.log_variance = positive(variance)

    def cross(self, X: Rows, Z: Tensor | Points) -> Tensor:
        m = as_points(Z).norms(None).shape[-1]
        return torch.zeros(n_rows(X), m, dtype=self.log_variance.dtype, device=self.log_variance.device)

    def gram(self, Z: Tensor | Points) -> Tensor:
        m = as_points(Z).norms(None).shape[-1]
        return self.log_variance.double().exp() * torch.eye(m, dtype=torch.float64, device=self.log_variance.device)

    def diag(self, X: Rows) -> Tensor:
        return self.log_variance.exp().expand(n_rows(X))
