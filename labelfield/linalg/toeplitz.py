"""Symmetric positive-definite Toeplitz matrices K_ij = c_|i-j|, given by their first columns c (…, n), in float64.

Levinson's recursion takes O(n²) time and O(n) memory for log |K| and for the first column of K⁻¹, which determines all
of K⁻¹ by the formula of Gohberg and Semencul. Each right-hand side then takes O(n log n).
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.fft import next_fast_len
from torch import Tensor

from labelfield.linalg.autograd import apply
from labelfield.linalg.cholesky import FactorisationError, cholesky

# The most numbers in one temporary, which limits the right-hand sides solved at once: a core's cache holds a few.
_SCRATCH = {"cpu": 1 << 18, "cuda": 1 << 24}


class Levinson(NamedTuple):
    """The first column of K⁻¹ (…, n) and log |K| (…)."""

    first: Tensor
    logdet: Tensor


def toeplitz(column: Tensor) -> Tensor:
    """Return K (…, n, n). Row i is the window of length n from n - 1 - i on in (c_{n-1}, …, c_1, c_0, …, c_{n-1})."""
    return torch.cat([column[..., 1:].flip(-1), column], -1).unfold(-1, column.shape[-1], 1).flip(-2)


def _diagonal_sums(d_K: Tensor) -> Tensor:
    """Return ∂c from ∂K: the sum of its two diagonals at each distance."""
    n = d_K.shape[-1]
    # With n zeros appended and read as rows that are one shorter, entries of one diagonal fall into one column.
    padded = torch.nn.functional.pad(d_K.flip(-2), (0, n)).flatten(-2)
    sums = padded[..., : n * (2 * n - 1)].reshape(*padded.shape[:-1], n, 2 * n - 1).sum(-2)
    result = sums[..., n - 1 :].clone()
    result[..., 1:] += sums[..., : n - 1].flip(-1)
    return result


def toeplitz_cholesky(column: Tensor, name: str, jitter: float) -> Tensor:
    """Return the lower R (…, n, n) with R Rᵀ = K + jitter c_0 I, as `cholesky` computes it. Its gradient costs two
    triangular solves and goes directly to the column.

    In training nothing is read from a GPU, which would stall: if K is not positive definite, R is NaN.
    """
    return apply(_Cholesky, column, name, jitter, may_synchronise(column))


def toeplitz_multiply(column: Tensor, V: Tensor) -> Tensor:
    """Return K V (…, n, T) for V (…, n, T), as part of a product with a circulant matrix."""
    n = column.shape[-1]
    size = _fft_size(n)
    gap = column.new_zeros(*column.shape[:-1], size - 2 * n + 1)
    circulant = torch.cat([column, gap, column[..., 1:].flip(-1)], -1)
    # The transform of a symmetric sequence is real, up to rounding.
    spectrum = torch.fft.rfft(V.mT, size) * torch.fft.rfft(circulant).real.unsqueeze(-2)
    product: Tensor = torch.fft.irfft(spectrum, size)[..., :n].mT
    return product


def levinson(column: Tensor, name: str = "a Toeplitz matrix") -> Levinson:
    """Run the recursion of Levinson and Durbin, without a gradient.

    Predicting row k from the rows before it has coefficients a and error E: K_k a = E e_0 and log |K| = Σ_k log E_k. A
    matrix that is not positive definite raises an error under this name, as in `cholesky`.
    """
    c = column.detach().double().reshape(-1, column.shape[-1])
    scaled = (c / c[:, :1]).flip(-1)
    a, errors = torch.zeros_like(c), torch.ones_like(c)
    a[:, 0] = 1
    if c.device.type == "cpu":
        # NumPy views of the same memory: in torch these small steps would take four times as long.
        with np.errstate(all="ignore"):
            _recursion(scaled.numpy(), a.numpy(), errors.numpy(), lambda part: part[:, ::-1], np.vecdot)
    else:
        _recursion(scaled, a, errors, lambda part: part.flip(-1), torch.linalg.vecdot)
    errors *= c[:, :1]
    is_good = (errors > 0).all(-1, keepdim=True)
    is_captured = c.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if not is_captured and not is_good.all():
        _refuse(c, errors, name)
    first = torch.where(is_good, a / errors[:, -1:], torch.nan)
    return Levinson(first.view(column.shape), errors.log().sum(-1).view(column.shape[:-1]))


def _recursion(reversed_column: Any, a: Any, errors: Any, flip: Callable[[Any], Any], dot: Callable[..., Any]) -> None:
    """Fill a and the errors (batch, n) in place, as tensors or arrays, for columns with c_0 = 1 in reverse."""
    n = a.shape[1]
    for k in range(1, n):
        part, error = a[:, : k + 1], errors[:, k - 1 : k]
        reflection = -dot(part[:, :k], reversed_column[:, n - 1 - k : n - 1])[:, None] / error
        part += reflection * flip(part)
        errors[:, k : k + 1] = error * (1 - reflection * reflection)


def toeplitz_solve(column: Tensor, V: Tensor, inverse: Levinson | None = None) -> Tensor:
    """Return K⁻¹ V (…, n, T), using the result of `levinson` for the column if it is known."""
    return apply(_Solve, column.double(), (inverse or levinson(column)).first, V.double())


def toeplitz_trace(column: Tensor, L: Tensor, inverse: Levinson | None = None) -> Tensor:
    """Return tr(K⁻¹ L Lᵀ) (…) for factors L (…, n, n), in O(n² log n). One solve serves the value and the gradients."""
    return apply(_Trace, column.double(), (inverse or levinson(column)).first, L.double())


def toeplitz_logdet(column: Tensor, inverse: Levinson | None = None) -> Tensor:
    """Return log |K| (…), using the result of `levinson` for the column if it is known."""
    return apply(_LogDet, column.double(), *(inverse or levinson(column)))


def _refuse(c: Tensor, errors: Tensor, name: str) -> None:
    size = f"{name} of {c.shape[-1]} rows"
    if not torch.isfinite(c).all():
        raise FactorisationError(f"{size} has entries that are not finite; lower the learning rate or check the data")
    row = int((~(errors > 0)).any(0).int().argmax())
    raise FactorisationError(
        f"{size} is not positive definite: given the rows before it, row {row} has a variance of "
        f"{errors[:, row].min().item():.3g}; use fewer points, a shorter length scale or a larger jitter"
    )


def _fft_size(n: int) -> int:
    """Return the length to pad sequences of n to, so that none of their products wraps around."""
    return int(next_fast_len(2 * n - 1, real=True))


def factorised(column: Tensor, name: str, jitter: float, may_read: bool) -> Tensor:
    """Return R as in `toeplitz_cholesky`, without a gradient."""
    jittered = column.clone()
    jittered[..., 0] *= 1 + jitter
    R: Tensor
    R, info = torch.linalg.cholesky_ex(toeplitz(jittered))
    if not may_read:
        return torch.where((info > 0)[..., None, None], torch.nan, R)
    # Try more jitter, or raise an error that explains.
    return cholesky(toeplitz(column), name, jitter) if info.any() else R


def column_gradient(R: Tensor, d_R: Tensor) -> Tensor:
    """Return ∂c from ∂R, through ∂K = R⁻ᵀ Φ(Rᵀ ∂R) R⁻¹, where Φ takes the lower triangle and halves its diagonal."""
    inner = (R.mT @ d_R).tril_()
    inner.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    left: Tensor = torch.linalg.solve_triangular(R.mT, inner, upper=True)
    whole: Tensor = torch.linalg.solve_triangular(R, left, upper=False, left=False)
    return _diagonal_sums(whole)


def may_synchronise(column: Tensor) -> bool:
    """Return whether the outcome of a factorisation may be read from the device: not in training, or a GPU stalls."""
    return column.device.type != "cuda" or not torch.is_grad_enabled()


class _Cholesky(torch.autograd.Function):
    """R, with ∂c by `column_gradient`."""

    @staticmethod
    def forward(ctx: Any, column: Tensor, name: str, jitter: float, may_read: bool) -> Tensor:
        R = factorised(column, name, jitter, may_read)
        ctx.save_for_backward(R)
        return R

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (R,) = ctx.saved_tensors
        return column_gradient(R, gradients[0]), None, None, None


class _LogDet(torch.autograd.Function):
    """log |K|, with ∂c_k = Σ_{|i-j|=k} (K⁻¹)_ij. By the formula of Gohberg and Semencul that is twice (once for k = 0)
    the sum Σ_s (n - k - 2s) x_s x_{s+k} / x_0 of a diagonal."""

    @staticmethod
    def forward(ctx: Any, column: Tensor, first: Tensor, logdet: Tensor) -> Tensor:  # noqa: ARG004  # for its gradient
        ctx.save_for_backward(first)
        return logdet.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        n = x.shape[-1]
        size = _fft_size(n)
        places = torch.arange(n, dtype=x.dtype, device=x.device)
        X, sX = torch.fft.rfft(x, size), torch.fft.rfft(places * x, size)
        plain = torch.fft.irfft(X.conj() * X, size)[..., :n]
        weighted = torch.fft.irfft(sX.conj() * X, size)[..., :n]
        sums = ((n - places) * plain - 2 * weighted) / x[..., :1]
        sums[..., 1:] *= 2
        return sums * gradients[0].unsqueeze(-1), None, None


class _Solve(torch.autograd.Function):
    """X = K⁻¹ V. With its gradient G: ∂V = K⁻¹ G and ∂c_k = -Σ_{|i-j|=k} ∂V_i · X_j."""

    @staticmethod
    def forward(ctx: Any, column: Tensor, first: Tensor, V: Tensor) -> Tensor:
        X = _solve(column, first, V)
        ctx.save_for_backward(column, first, X)
        ctx.size = V.shape
        return X

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor]:
        column, first, X = ctx.saved_tensors
        n = column.shape[-1]
        d_V, d_column = _solve(column, first, gradients[0]), None
        if ctx.needs_input_grad[0]:
            size = _fft_size(n)
            sums = X.new_zeros(*X.shape[:-2], size)
            for x, d in zip(_parts(X, size), _parts(d_V, size), strict=True):
                spectra = torch.fft.rfft(x.mT, size).conj() * torch.fft.rfft(d.mT, size)
                sums += torch.fft.irfft(spectra.sum(-2), size)
            d_column = sums[..., :n].neg()
            d_column[..., 1:] -= sums[..., size - n + 1 :].flip(-1)
            d_column = d_column.sum_to_size(column.shape)
        return d_column, None, d_V.sum_to_size(ctx.size)


class _Trace(torch.autograd.Function):
    """tr(K⁻¹ L Lᵀ). With G = K⁻¹ L: ∂L = 2 G and ∂c_k = -Σ_{|i-j|=k} G_i · G_j."""

    @staticmethod
    def forward(ctx: Any, column: Tensor, first: Tensor, L: Tensor) -> Tensor:
        # Without refinement, which single solutions need: a sum of squares loses fewer digits.
        G = _solve(None, first, L)
        ctx.save_for_backward(G)
        ctx.column_shape = column.shape
        return (G * L).sum((-2, -1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor]:
        (G,) = ctx.saved_tensors
        n, d_column = G.shape[-1], None
        if ctx.needs_input_grad[0]:
            size = _fft_size(n)
            power = sum(torch.fft.rfft(part.mT, size).abs().square().sum(-2) for part in _parts(G, size))
            sums: Tensor = torch.fft.irfft(power, size)[..., :n]
            sums[..., 1:] *= 2
            d_column = (-gradients[0].unsqueeze(-1) * sums).sum_to_size(ctx.column_shape)
        return d_column, None, 2 * gradients[0][..., None, None] * G


def _parts(V: Tensor, size: int) -> tuple[Tensor, ...]:
    """Split V into blocks of a few columns."""
    scratch = _SCRATCH.get(V.device.type, _SCRATCH["cuda"])
    return torch.split(V, max(1, scratch // (size * max(1, prod(V.shape[:-2])))), -1)


def _solve(column: Tensor | None, first: Tensor, V: Tensor) -> Tensor:
    """Return K⁻¹ V; given the column, with one step of refinement, which removes the transforms' rounding error in
    ill-conditioned systems."""
    size = _fft_size(first.shape[-1])
    solved = []
    for part in _parts(V, size):
        X = _gohberg_semencul(first, part, size)
        if column is not None:
            X = X + _gohberg_semencul(first, part - toeplitz_multiply(column, X), size)
        solved.append(X)
    return solved[0] if len(solved) == 1 else torch.cat(solved, -1)


def _gohberg_semencul(first: Tensor, V: Tensor, size: int) -> Tensor:
    """Return K⁻¹ V = (A Aᵀ - B Bᵀ) V / x_0, where A and B are lower-triangular Toeplitz matrices with the first columns
    (x_0, …, x_{n-1}) and (0, x_{n-1}, …, x_1)."""
    n = first.shape[-1]
    turned = torch.cat([torch.zeros_like(first[..., :1]), first[..., 1:].flip(-1)], -1)
    A, B = (torch.fft.rfft(part, size).unsqueeze(-2) for part in (first, turned))
    spectrum = torch.fft.rfft(V.mT, size)
    of_a, of_b = (torch.fft.irfft(part.conj() * spectrum, size)[..., :n] for part in (A, B))
    both = A * torch.fft.rfft(of_a, size) - B * torch.fft.rfft(of_b, size)
    solved: Tensor = torch.fft.irfft(both, size)[..., :n] / first[..., None, :1]
    return solved.mT
