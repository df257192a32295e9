"""The weights of the features: the M-step of w_k, which a bound of the negative binomial makes quadratic [BMLPL 17-18].

    -(m + r) log(1 + e^ψ) ≥ -(m + r) ψ/2 - ½ ω ψ² + const,   ω = (m + r) tanh(ψ/2) / (2ψ),   equal at the ψ of ω
    (s XᵀΩ_k X + Λ) w_k = s Xᵀ(κ_k - Ω_k t_k),   κ = (m - r)/2

for rows that count s times and whose log-odds are ψ + t: t = log c where not everything was observed, else 0.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from labelfield.linalg.cholesky import cholesky
from labelfield.linalg.rows import dot
from labelfield.topics.rows import DesignMatrix

# Residuals below this share of the first ones are rounding.
_ROUNDING = 1e-10


def omega_of(total: Tensor, psi: Tensor) -> Tensor:
    """Return ω = (m + r) tanh(ψ/2) / (2ψ), the mean of PG(m + r, ψ); (m + r)/4 at ψ = 0."""
    half = psi.abs().mul(0.5).clamp_min_(1e-4)
    return torch.tanh(half).div_(half).mul_(total).mul_(0.25)


class Quadratic(NamedTuple):
    """½ wᵀ(s XᵀΩX + Λ)w - s wᵀXᵀg, for each topic."""

    design: DesignMatrix
    omega: Tensor  # (N, K)
    target: Tensor  # g = κ - Ω t (N, K)
    precision: Tensor  # λ (D + 1,)
    scale: float = 1.0


def conjugate_gradients(
    problem: Quadratic, W: Tensor, psi: Tensor, n_steps: int, tolerance: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return W (D + 1, K) and ψ = XW (N, K) after n_steps, for all topics at once; each step lowers the quadratic.

    Steps end early when all residuals are below `tolerance` times the initial ones. The preconditioner is the diagonal
    of the matrix for a constant ω per topic.
    """
    design, omega, target, precision, scale = problem
    precision = precision.unsqueeze(1)
    mean = design.over_all(omega.sum(0, dtype=torch.float64)).div(design.n_rows).to(omega.dtype)
    diagonal = scale * design.squares.unsqueeze(1) * mean + precision
    residual = design.transposed_times(torch.addcmul(target, omega, psi, value=-1)).mul_(scale) - precision * W
    z = residual / diagonal
    direction, size = z, _dots(residual, z)
    enough, settled = max(tolerance, _ROUNDING) ** 2 * size, _ROUNDING**2 * size
    for step in range(n_steps):
        along = design.times(direction)
        curved = design.transposed_times(omega * along).mul_(scale).add_(precision * direction)
        # A topic that has arrived stays: its residual is rounding, and a quotient of two such numbers may be anything.
        length = torch.where(size > settled, size / _dots(direction, curved).clamp_min_(1e-300), 0.0).to(W.dtype)
        W, psi = torch.addcmul(W, direction, length), torch.addcmul(psi, along, length)
        if step == n_steps - 1:
            break
        residual = torch.addcmul(residual, curved, length, value=-1)
        z = residual / diagonal
        before, size = size, _dots(residual, z)
        if bool((size <= enough).all()):
            break
        direction = torch.addcmul(z, direction, (size / before.clamp_min(1e-300)).to(W.dtype))
    return W, psi


def _dots(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(0, dtype=torch.float64)


def inverse_diagonals(problem: Quadratic, is_exact: bool) -> Tensor:
    """Return the diagonals (D + 1, K) of (s XᵀΩ_k X + Λ)⁻¹, the variances of the weights under the quadratic.

    Without `is_exact`, which is for small D, those of the inverse diagonal: the variances given all other weights.
    """
    if is_exact:
        factors = (cholesky(matrix, "XᵀΩX + Λ", jitter=0.0) for matrix in matrices(problem))
        return torch.stack([torch.cholesky_inverse(factor).diagonal() for factor in factors], 1)
    X = problem.design.transposed
    squared = torch.sparse_csr_tensor(
        X.crow_indices(), X.col_indices(), X.values().square(), size=X.shape, check_invariants=False
    )
    curved = torch.cat([dot(squared, problem.omega), problem.omega.sum(0, keepdim=True)]).double()
    return (problem.scale * curved + problem.precision.double().unsqueeze(1)).reciprocal_()


def solve_exactly(problem: Quadratic, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the W (D + 1, K) that minimises the quadratic, by a float64 factor of each topic's matrix; for small D."""
    right = problem.scale * problem.design.transposed_times(problem.target).double()
    found = [
        torch.cholesky_solve(right[:, k : k + 1], cholesky(matrix, "XᵀΩX + Λ", jitter=0.0))
        for k, matrix in enumerate(matrices(problem))
    ]
    return torch.cat(found, 1).to(dtype)


def matrices(problem: Quadratic) -> Iterator[Tensor]:
    """Yield s XᵀΩ_k X + Λ (D + 1, D + 1) for each topic in turn, in float64."""
    ridge = problem.precision.double()
    for matrix in curvatures(problem):
        matrix.diagonal().add_(ridge)
        yield matrix


def curvatures(problem: Quadratic) -> Iterator[Tensor]:
    """Yield s XᵀΩ_k X (D + 1, D + 1) for each topic in turn, in float64; X stays sparse."""
    X = problem.design.X
    parts = [part.cpu().numpy() for part in (X.values(), X.col_indices(), X.crow_indices())]
    rows = sparse.csr_array((parts[0].astype(np.float64), parts[1], parts[2]), shape=tuple(X.shape))
    rows = sparse.csr_array(sparse.hstack([rows, np.ones((rows.shape[0], 1))]))
    turned = rows.T.tocsr()
    for weight in problem.omega.T.double().cpu().numpy():
        matrix = torch.from_numpy((turned @ (rows * weight[:, None]).tocsr()).toarray())
        yield matrix.mul_(problem.scale).to(X.device)


def solve_dense(curvature: Tensor, pull: Tensor, precision: Tensor) -> Tensor:
    """Return W (D + 1, K) with (S_k + Λ) w_k = d_k, from S (K, D + 1, D + 1) and d (D + 1, K) in float64."""
    found = []
    for matrix, right in zip(curvature, pull.T, strict=True):
        factor = cholesky(matrix + precision.double().diag(), "S + Λ", jitter=0.0)
        found.append(torch.cholesky_solve(right.unsqueeze(1), factor))
    return torch.cat(found, 1)
