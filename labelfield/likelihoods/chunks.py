"""Rows processed in chunks, with derivatives computed in the same pass."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from labelfield.memory import row_blocks

# Rows times labels that are processed at once: a core's cache holds a few temporaries of this size, or a GPU is busy.
CHUNK = {"cpu": 1 << 18, "cuda": 1 << 26}


def chunks(shape: Sequence[int], device: torch.device) -> Iterator[slice]:
    """Yield consecutive slices of the rows of a matrix of this shape, each small enough for this device."""
    return row_blocks(*shape, entries=CHUNK[device.type], most=CHUNK[device.type])


class RowSums(torch.autograd.Function):
    """A number for each row (B,), from `moments(mean, var, rows)`: for some rows, the numbers and their derivatives by
    the means and variances (B, K). Nothing is read from the device, so a GPU can capture it."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, var: Tensor, moments: Callable[[Tensor, Tensor, slice], tuple[Tensor, Tensor, Tensor]]
    ) -> Tensor:
        total, d_mean, d_var = mean.new_empty(mean.shape[0]), torch.empty_like(mean), torch.empty_like(var)
        for rows in chunks(mean.shape, mean.device):
            total[rows], d_mean[rows], d_var[rows] = moments(mean[rows], var[rows], rows)
        ctx.save_for_backward(d_mean, d_var)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        d_mean, d_var = ctx.saved_tensors
        scale = gradients[0].unsqueeze(1)
        return d_mean.mul(scale), d_var.mul(scale), None


class WeightedSum(torch.autograd.Function):
    """Σ_bk c_k g(m_bk, v_bk) in float64, from `moments(mean, var)`: the values g of some rows (B, K) and, found in the
    same pass, their derivatives by the means and variances."""

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        var: Tensor,
        column_weight: Tensor,
        moments: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]],
    ) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=mean.device)
        d_mean, d_var = torch.empty_like(mean), torch.empty_like(var)
        for rows in chunks(mean.shape, mean.device):
            value, d_mean[rows], d_var[rows] = moments(mean[rows], var[rows])
            total += (value @ column_weight).sum(dtype=torch.float64)
        ctx.save_for_backward(d_mean.mul_(column_weight), d_var.mul_(column_weight))
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_mean, d_var = ctx.saved_tensors
        scale = gradients[0].to(d_mean.dtype)
        return d_mean.mul(scale), d_var.mul(scale), None, None
