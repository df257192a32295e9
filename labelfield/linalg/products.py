"""Products of dense matrices. On a CPU, large ones in float32 go to oneDNN, as torch's products in bfloat16 do.

torch gives float32 to MKL, which has no code for the wide registers (AVX-512) of processors that are not Intel's: there
oneDNN is twice as fast, with the same precision (docs/LAB.md).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from labelfield.linalg.autograd import apply

# Multiplications from which oneDNN saves more than asking for it costs.
_WORTH_ASKING = 1 << 19


def product(A: Tensor, B: Tensor) -> Tensor:
    """Return A B for A (M, N) and B (N, P), or (…, M, N) and (…, N, P)."""
    is_plain = A.dim() == B.dim() == 2 and A.dtype == B.dtype == torch.float32 and A.device.type == "cpu"
    # A vector needs no fast product: its time is that of reading the matrix.
    is_large = is_plain and min(len(A), B.shape[1]) > 1 and A.numel() * B.shape[1] >= _WORTH_ASKING
    if not (is_large and _has_wide_registers()):
        return A @ B
    if torch.is_grad_enabled() and (A.requires_grad or B.requires_grad):
        return apply(_ByOneDNN, A, B)
    return _multiply(A, B)


def _multiply(A: Tensor, B: Tensor) -> Tensor:
    rows_by_weights = _onednn()
    assert rows_by_weights is not None
    return rows_by_weights(A, B.T, None, "none", [], "")


@cache
def _has_wide_registers() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and _onednn() is not None


@cache
def _onednn() -> Callable[..., Tensor] | None:
    """Return oneDNN's product of rows and transposed weights; torch's public way to it copies what goes in and out."""
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


class _ByOneDNN(torch.autograd.Function):
    """A B, with the gradients G Bᵀ and Aᵀ G."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor) -> Tensor:
        ctx.save_for_backward(A, B)
        return _multiply(A, B)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        A, B = ctx.saved_tensors
        needs_A, needs_B = ctx.needs_input_grad
        return product(gradients[0], B.T) if needs_A else None, product(A.T, gradients[0]) if needs_B else None
