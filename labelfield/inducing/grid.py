"""Inducing inputs on a regular grid that follows the features, which are squashed into it and never leave it [DKL 3].

    s = (h - centre) / scale
    z = s where |s| ≤ c, and beyond it ±(c + (1 - c) x / (1 + x)) with x = (|s| - c) / (1 - c)

So -1 < z < 1. Almost all features lie in the part where z is linear in h; those far away come close to the edge. The
grid has n points per dimension: n - 2 from -1 to 1 and one beyond each end, so that every z has two neighbours on both
sides, as local cubic interpolation requires.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelfield.linalg.autograd import apply
from labelfield.linalg.interpolation import locate

# With fewer points a cubic does not have four within the grid.
LEAST_GRID = 5
# c: beyond this features are squashed.
_LINEAR = 0.8
# Features beyond this many times the scale lie at the edge.
_FAR = 1e30
# All but this share of the features, on each side, lies in the linear part.
_TAIL = 0.005
# The least scale, as a share of the size of features that hardly vary.
_LEAST_SHARE = 1e-3


class Grid(nn.Module):
    """A grid of n points per dimension for J processes, the j-th on the d features `subsets[j]`."""

    centre: Tensor
    scale: Tensor
    subsets: Tensor

    def __init__(self, n_points: int, subsets: tuple[tuple[int, ...], ...], n_features: int) -> None:
        super().__init__()
        self.n_points, self.n_processes, self.n_dimensions = n_points, len(subsets), len(subsets[0])
        self.step = 2 / (n_points - 3)  # the distance of two neighbours
        # Subsets of one feature each, in order, need no gathering.
        self._is_in_order = subsets == tuple((feature,) for feature in range(n_features))
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        # A copy that keeps its values while a model is built on the meta device, to be loaded.
        self._subsets = torch.from_numpy(np.array(subsets, np.int64))
        self.register_buffer("subsets", self._subsets, persistent=False)

    def lags(self, device: torch.device) -> Tensor:
        """Return the distances (n,) of the points from the first, in float64."""
        return _lags(self.n_points, self.step, device)

    def follow(self, h: Tensor) -> None:
        """Centre and scale the grid on features (N, Q)."""
        low, high = np.quantile(h.double().cpu().numpy(), (_TAIL, 1 - _TAIL), axis=0)
        centre, half = (high + low) / 2, (high - low) / 2
        least = _LEAST_SHARE * np.maximum(np.abs(centre), 1e-3)
        self.centre.copy_(torch.from_numpy(centre))
        self.scale.copy_(torch.from_numpy(np.maximum(half, least) / _LINEAR))

    def squash(self, h: Tensor) -> Tensor:
        """Return z (B, Q); features that are not finite become NaN."""
        return apply(_Squash, h, self.centre, self.scale)

    def locate(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cell (B, J, d) that features (B, Q) lie in, and the position in it."""
        z = self.squash(h)
        z = z.unsqueeze(-1) if self._is_in_order else z[:, self.subsets]
        # Squashing keeps coordinates within 1 and n - 2, as `locate` requires.
        return locate((z + 1) * (0.5 * (self.n_points - 3)) + 1, self.n_points)

    def check(self) -> None:
        """Check a grid read from a file, and restore what is not saved."""
        self.subsets = self._subsets.to(self.centre.device)
        if not (self.scale > 0).all():
            raise ValueError("the scales of the grid are not all positive")

    def features(self) -> Tensor:
        """Return the features (Q, n) at the points of the grid, as if z were linear everywhere."""
        z = torch.from_numpy(np.linspace(-1 - self.step, 1 + self.step, self.n_points)).to(self.centre)
        return self.centre.unsqueeze(1) + self.scale.unsqueeze(1) * z


class _Squash(torch.autograd.Function):
    """z as defined at the top, with ∂h = g / (scale (1 + |x|)²), where x = 0 in the linear part."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
        s = (h - centre).div_(scale)
        inner = s.clamp(-_LINEAR, _LINEAR)
        # The distance beyond c, limited where z is at the edge anyway. 0 h is NaN if h is not finite.
        x = s.sub_(inner).div_(1 - _LINEAR).clamp_(-_FAR, _FAR).add_(0 * h)
        one = x.abs().add_(1)
        ctx.save_for_backward(one, scale)
        return inner.add_(x.div_(one), alpha=1 - _LINEAR)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        one, scale = ctx.saved_tensors
        return gradients[0] / (one * one).mul_(scale), None, None


# Cached, since creating them takes as long as many other parts of a step.
@lru_cache(maxsize=16)
def _lags(n_points: int, step: float, device: torch.device) -> Tensor:
    return torch.arange(n_points, dtype=torch.float64, device=device) * step
