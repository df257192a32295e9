"""Lower-triangular factors (P, M, M), one per process, used in blocks so that no copy of all of them is made.

Entries above the diagonals are never read and get a gradient of 0.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from labelfield.linalg.autograd import apply

# Blocks of columns: more blocks skip more of the products with zeros above the diagonal, all but one part in this many.
# A GPU is slower with many small products.
_N_BLOCKS = {"cpu": 8, "cuda": 2}
_SMALLEST_BLOCK = 32
# The most numbers in one temporary, which limits how many processes are handled at once: a core's cache holds a few.
_SCRATCH = {"cpu": 1 << 18, "cuda": 1 << 26}
# The size of one array of what is kept for the gradient: more than 32 MiB, so that freeing it returns it to the system.
_KEPT = 9 << 20
# The largest factor that is inverted by one solve.
_LARGEST_SOLVED = 128


def projected_square_norms(factor: Tensor, A: Tensor) -> Tensor:
    """Return ‖L_pᵀ a_i‖² (P, B) for the lower triangles L_p of factors (P, M, M) and A (M, B) or (P, M, B)."""
    is_kept = torch.is_grad_enabled() and (factor.requires_grad or A.requires_grad)
    return apply(_ProjectedSquareNorms, factor, A, is_kept)


def trace_minus_log_det(factor: Tensor) -> Tensor:
    """Return tr S - log |S| (…) in float64, where S = L Lᵀ for the lower triangles L of factors (…, M, M)."""
    return apply(_TraceMinusLogDet, factor)


def tril_log_det(L: Tensor) -> Tensor:
    """Return log |L Lᵀ| (…) in float64 for a lower-triangular factor (…, M, M)."""
    return 2 * L.diagonal(dim1=-2, dim2=-1).double().abs().log().sum(-1)


def tril_inverse(L: Tensor) -> Tensor:
    """Return L⁻¹ for lower-triangular L (…, M, M), without a gradient: most of the work is products, not solves."""
    result = torch.zeros_like(L)
    _invert(L.detach(), result)
    return result


def _invert(L: Tensor, result: Tensor) -> None:
    """Write L⁻¹ by halves: [[A, 0], [B, C]]⁻¹ = [[A⁻¹, 0], [-C⁻¹ B A⁻¹, C⁻¹]]."""
    half = L.shape[-1] // 2
    if L.shape[-1] <= _LARGEST_SOLVED:
        eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device).expand_as(L)
        result.copy_(torch.linalg.solve_triangular(L, eye, upper=False))
        return
    first, last = (slice(half), slice(half)), (slice(half, None), slice(half, None))
    for own in (first, last):
        _invert(L[..., *own], result[..., *own])
    result[..., half:, :half] = (result[..., *last] @ (L[..., half:, :half] @ result[..., *first])).neg_()


class _ProjectedSquareNorms(torch.autograd.Function):
    """With C_p = L_pᵀ A and gradients g (P, B): ∂L_p = 2 tril(A diag(g_p) C_pᵀ), ∂A = 2 Σ_p L_p C_p diag(g_p).

    C is kept for the gradient, since forming it again would cost a third more, and released as it is used: a second
    gradient of the same graph forms it again.
    """

    @staticmethod
    def forward(ctx: Any, factor: Tensor, A: Tensor, is_kept: bool) -> Tensor:
        result = A.new_zeros(factor.shape[0], A.shape[-1])
        room, ctx.kept = A.new_empty(0), []
        left = factor.shape[0] * factor.shape[1] * A.shape[-1]
        for processes, columns in _pieces(factor, A.shape[-1]):
            upper, part = _upper_rows(factor, processes, columns), _select(A, processes)[..., columns.start :, :]
            size = upper.shape[0] * upper.shape[1] * A.shape[-1]
            if is_kept and room.numel() < size:
                room = A.new_empty(max(size, min(left, _KEPT)))
            C = _product(upper, part, room[:size] if is_kept else A.new_empty(size))
            result[processes] += C.square().sum(1)
            if is_kept:
                ctx.kept.append(C)
                room, left = room[size:], left - size
        ctx.save_for_backward(factor, A)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        factor, A = ctx.saved_tensors
        doubled = 2 * gradients[0]
        needs_factor, needs_A, _ = ctx.needs_input_grad
        d_factor = torch.empty_like(factor) if needs_factor else None
        d_A = torch.zeros_like(A) if needs_A else None
        for processes, columns in reversed(list(_pieces(factor, A.shape[-1]))):
            upper, part = _upper_rows(factor, processes, columns), _select(A, processes)[..., columns.start :, :]
            weighted = (ctx.kept.pop() if ctx.kept else upper @ part).mul_(doubled[processes].unsqueeze(1))
            if d_factor is not None:
                d_upper = weighted @ part.mT
                d_factor[processes, : columns.start, columns] = 0
                d_factor[processes, columns.start :, columns] = _without_lower(d_upper).mT
            if d_A is not None:
                target = _select(d_A, processes)[..., columns.start :, :]
                if A.dim() == 2:
                    target.addmm_(upper.flatten(0, 1).T, weighted.flatten(0, 1))
                else:
                    target.baddbmm_(upper.mT, weighted)
        return d_factor, d_A, None


def _pieces(factor: Tensor, n_rows: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of processes and of columns that are handled together."""
    count, size, _ = factor.shape
    block = max(-(-size // _for_device(_N_BLOCKS, factor)), _SMALLEST_BLOCK)
    step = max(1, _for_device(_SCRATCH, factor) // (block * max(size, n_rows)))
    for first in range(0, count, step):
        for start in range(0, size, block):
            yield slice(first, min(first + step, count)), slice(start, min(start + block, size))


def _for_device(numbers: dict[str, int], tensor: Tensor) -> int:
    return numbers.get(tensor.device.type, numbers["cuda"])


def _product(upper: Tensor, A: Tensor, room: Tensor) -> Tensor:
    """Return (processes, columns, M') times (M', B) or (processes, M', B), written into `room`."""
    result = room.view(*upper.shape[:2], A.shape[-1])
    if A.dim() == 2:
        torch.mm(upper.flatten(0, 1), A, out=result.flatten(0, 1))
    else:
        torch.bmm(upper, A, out=result)
    return result


def _select(A: Tensor, processes: slice) -> Tensor:
    return A if A.dim() == 2 else A[processes]


def _upper_rows(factor: Tensor, processes: slice, columns: slice) -> Tensor:
    """Return these columns of L_p as rows of L_pᵀ, from the diagonal on: (processes, columns, M - first column)."""
    return _without_lower(factor[processes, columns.start :, columns].mT.clone(memory_format=torch.contiguous_format))


def _without_lower(rows: Tensor) -> Tensor:
    """Set the entries below the diagonal, which begins at the first entry, to zero in place."""
    rows[..., : rows.shape[-2]].triu_()
    return rows


class _TraceMinusLogDet(torch.autograd.Function):
    """Σ_ij L_ij² - Σ_i log L_ii², with the gradient 2 (L - diag(1 / L_ii)): squares as L is, sums in float64."""

    @staticmethod
    def forward(ctx: Any, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        traces = [part.tril().square_().sum((-2, -1), dtype=torch.float64) for part in _split(factor)]
        log_det = tril_log_det(factor)
        return torch.cat(traces).view(log_det.shape) - log_det

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (factor,) = ctx.saved_tensors
        scale = (2 * gradients[0]).to(factor.dtype)[..., None, None]
        result = torch.empty_like(factor, memory_format=torch.contiguous_format)
        for target, part, own in zip(_split(result), _split(factor), _split(scale, factor), strict=True):
            torch.mul(part, own, out=target).tril_()
        result.diagonal(dim1=-2, dim2=-1).sub_(scale[..., 0] / factor.diagonal(dim1=-2, dim2=-1))
        return result


def _split(values: Tensor, like: Tensor | None = None) -> list[Tensor]:
    """Return views (…, n, n) of a few factors each; values of other sizes are split like the factors `like`."""
    size = (values if like is None else like).shape[-1]
    flat = values.reshape(-1, *values.shape[-2:])
    step = max(1, _for_device(_SCRATCH, values) // max(1, size * size))
    return [flat[start : start + step] for start in range(0, len(flat), step)]
