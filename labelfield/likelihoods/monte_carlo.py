"""E softmax(f) by Monte Carlo, for predictions of likelihoods that are the softmax or bound it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from labelfield.likelihoods.chunks import chunks

__all__ = ["expected_mixed_softmax", "expected_softmax", "normal_draws"]

_SEED = 0
# This many classes get the columns of a Sobol sequence; using one for all classes gives the same errors.
_N_LEADING = 32


@torch.no_grad()
def expected_softmax(mean: Tensor, var: Tensor, n_samples: int) -> Tensor:
    """Return E softmax(f) (B, K) under ∏_k N(mean_k, var_k), the mean over draws f = mean + √var ε; rows sum to one.

    All rows share the same ε (T, K), so that rows do not affect each other. Column j belongs to the class with the j-th
    largest E exp(f): the best columns go where the probability is, and permuted classes have permuted probabilities.
    """
    draws = normal_draws(n_samples, mean.shape[1], mean.dtype, mean.device)
    result = torch.empty_like(mean)
    for rows in chunks(mean.shape, mean.device):
        # log E exp(f) = mean + ½ var. Ties keep their order, which makes the order the same on every device.
        order = torch.add(mean[rows], var[rows], alpha=0.5).argsort(dim=1, descending=True, stable=True)
        m, deviation = mean[rows].gather(1, order), var[rows].gather(1, order).sqrt_()
        total = torch.zeros_like(m)
        for draw in draws:
            total += torch.addcmul(m, deviation, draw).softmax(1)
        result[rows] = torch.empty_like(m).scatter_(1, order, total)
    return result.div_(result.sum(1, keepdim=True))  # the sum is T, up to rounding


@torch.no_grad()
def expected_mixed_softmax(mean: Tensor, var: Tensor, A: Tensor, b: Tensor, n_samples: int) -> Tensor:
    """Return E softmax(A f + b) (B, K) for f ~ ∏_j N(mean_j, var_j) (B, J); A correlates the utilities [DKL 1].

    The draws are of f, with the same ε (T, J) for all rows.
    """
    draws = normal_draws(n_samples, mean.shape[1], mean.dtype, mean.device)
    result = mean.new_empty(mean.shape[0], A.shape[0])
    for rows in chunks(result.shape, mean.device):
        m, deviation = mean[rows], var[rows].sqrt()
        total = torch.zeros_like(result[rows])
        for draw in draws:
            total += torch.addmm(b, torch.addcmul(m, deviation, draw), A.T).softmax(1)
        result[rows] = total
    return result.div_(result.sum(1, keepdim=True))  # the sum is T, up to rounding


# Cached: prediction goes batch by batch, and on a GPU drawing takes longer than using the draws.
@lru_cache(maxsize=2)
def normal_draws(n_samples: int, n_classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return fixed standard normal draws (T, K): a Latin hypercube whose leading columns follow a Sobol sequence.

    Each column has the midpoint of each of T equally likely intervals exactly once; only their order is random.
    """
    # Root mean square error of the probabilities of a row, for T = 256 and variances of about 1, over rows and seeds:
    #                                 K = 2      10     100    1000
    #   independent                  0.0176  0.0213  0.0167  0.0138
    #   antithetic pairs             0.0070  0.0105  0.0117  0.0099
    #   Latin hypercube              0.0045  0.0054  0.0037  0.0027
    #   Sobol                        0.0006  0.0021  0.0032  0.0029
    #   both, largest classes first  0.0006  0.0014  0.0018  0.0014
    # The last is used here; independent draws would need to be a hundred times as many or more. With variances of
    # about 4 their error is 6 times as large for K = 10 and 3 times as large for K = 100.
    if n_samples < 1:
        raise ValueError(f"n_samples={n_samples}; expected at least 1")
    n_leading = min(n_classes, _N_LEADING)
    engine: Any = torch.quasirandom.SobolEngine  # torch's is untyped
    sobol: Tensor = engine(n_leading, scramble=True, seed=_SEED).draw(n_samples, dtype=torch.float64)
    generator = torch.Generator().manual_seed(_SEED)
    others = torch.rand(n_classes - n_leading, n_samples, generator=generator, dtype=torch.float64).argsort(1).T
    place = torch.cat([sobol.argsort(0).argsort(0), others], 1)
    level: Tensor = torch.special.ndtri((torch.arange(n_samples, dtype=torch.float64) + 0.5) / n_samples)
    return level.to(dtype)[place].to(device)
