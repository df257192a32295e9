"""Kronecker products A_j1 ⊗ … ⊗ A_jd of n × n matrices (J, d, n, n), of m = n^d rows each, through their factors."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor


def kronecker_multiply(factors: Tensor, V: Tensor) -> Tensor:
    """Return (⊗_d A_jd) V_j (J, m, T) for V (J, m, T), at a cost of d n m T; all j may share one (1, d, n, n)."""
    return _by_modes(torch.matmul, factors, V)


def kronecker_solve(factors: Tensor, V: Tensor) -> Tensor:
    """Return (⊗_d L_jd)⁻¹ V_j (J, m, T) for lower triangles L_jd, one mode at a time as in `kronecker_multiply`."""
    return _by_modes(partial(torch.linalg.solve_triangular, upper=False), factors, V)


def kronecker_logdet(logdets: Tensor, n: int) -> Tensor:
    """Return log |⊗_d A_jd| = Σ_d (m / n) log |A_jd| (J,) for log-determinants (J, d)."""
    copies: int = n ** (logdets.shape[1] - 1)
    return logdets.sum(1) * copies


def kronecker_trace(traces: Tensor) -> Tensor:
    """Return tr ⊗_d A_jd = ∏_d tr A_jd (J,) for traces (J, d)."""
    product = traces[:, 0]
    for k in range(1, traces.shape[1]):
        product = product * traces[:, k]
    return product


def _by_modes(act: Callable[[Tensor, Tensor], Tensor], factors: Tensor, V: Tensor) -> Tensor:
    """Apply each factor to the mode in front and move that mode to the end; after the last factor, T is in front."""
    (d, n), (m, T) = factors.shape[1:3], V.shape[1:]
    if m != n**d:
        raise ValueError(f"V has {m} rows; a product of {d} matrices of {n} rows needs {n**d}")
    if d == 1:
        return act(factors[:, 0], V)
    for k in range(d):
        V = act(factors[:, k], V.reshape(V.shape[0], n, -1)).mT
    return V.reshape(V.shape[0], T, m).mT
