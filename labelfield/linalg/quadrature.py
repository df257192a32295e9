"""Gauss–Hermite quadrature for expectations under a Gaussian."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

__all__ = ["gauss_hermite"]


@lru_cache
def gauss_hermite(n_points: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return z and w with E g(m + √v ε) ≈ Σ_q w_q g(m + √v z_q), exact for polynomials up to degree 2Q - 1."""
    if n_points < 1:
        raise ValueError(f"n_points={n_points}; expected at least 1")
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_points)
    return tuple(nodes.tolist()), tuple((weights / weights.sum()).tolist())
