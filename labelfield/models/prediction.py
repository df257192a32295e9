"""What a fitted model says of new rows, in blocks that bound the memory for any number of rows and labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import logsigmoid

from labelfield.csr import from_counts
from labelfield.linalg.rows import Rows, entry_places, entry_rows
from labelfield.models.mlgpf import MLGPF, Frame
from labelfield.variational import Moments
from labelfield.variational.base import SMALLEST_VARIANCE

__all__ = [
    "Latent",
    "condition",
    "credible_interval",
    "expected_log_likelihood",
    "label_blocks",
    "label_correlation",
    "to_csr",
    "to_indicator",
    "top_k",
    "unexplained_share",
]

# Rows times labels whose utilities exist at once.
_BLOCK_ENTRIES = 1 << 23
# How many candidates a cheap look at the utilities keeps for each label asked for.
_CANDIDATES = 4
_LEAST_CANDIDATES = 24
# How much longer a variance takes that is asked for by itself.
_GATHERED = 48
# Rows whose other labels are looked at together.
_SUSPECT_ROWS = 256
_HALVINGS = 8
# Newton's method ends when no row gains more than this share of its log-density.
_SETTLED = 1e-6


class Latent(NamedTuple):
    """Means and variances of the latent processes (N, P) and of the utilities (N, K)."""

    h_mean: NDArray[np.float32]
    h_var: NDArray[np.float32]
    f_mean: NDArray[np.float32]
    f_var: NDArray[np.float32]


def label_blocks(model: MLGPF, h: Moments, X: Rows) -> Iterator[tuple[slice, Moments]]:
    """q(f) of all labels, some at a time: no more than a few million entries exist at once, whatever K."""
    for labels in _label_slices(model, h):
        with torch.no_grad():  # not around the yield, which would leave gradients off in whoever asks
            f = model.utilities(h, X, labels)
        yield labels, f


def _label_slices(model: MLGPF, h: Moments) -> Iterator[slice]:
    step = max(1, _BLOCK_ENTRIES // max(h.mean.shape[0], 1))
    for start in range(0, model.n_labels, step):
        yield slice(start, min(start + step, model.n_labels))


def probit_order(f: Moments) -> Tensor:
    """mean / √(1 + π v / 8): E σ(f) is close to σ of this, so it ranks almost as the integral does."""
    return f.var.mul(torch.pi / 8).add_(1).rsqrt_().mul_(f.mean)


def top_k(model: MLGPF, h: Moments, X: Rows, k: int) -> tuple[Tensor, Tensor]:
    """The k most probable labels of each row and their probabilities E σ(f), most probable first.

    Of each block of labels those with the largest means are candidates, and the quadrature decides among them and the
    best so far. A bound then proves of every other label that it is not among the best; where it does not, the
    quadrature decides. So variances, which cost as much as means, are formed for few labels.
    """
    k = min(k, model.n_labels)
    best = torch.empty(h.mean.shape[0], 0, dtype=torch.long, device=h.mean.device)
    values = h.mean.new_empty(h.mean.shape[0], 0)
    for labels in _label_slices(model, h):
        with torch.no_grad():
            mean = model.means(h, X, labels)
            n_candidates = min(mean.shape[1], max(_CANDIDATES * k, _LEAST_CANDIDATES))
            var = _Variances(model, h, X, labels, n_candidates)
            chosen = mean.topk(n_candidates, dim=1).indices
            p = model.likelihood.predict_proba(mean.gather(1, chosen), var.of(chosen))
            best, values = _largest(torch.cat([best, chosen + labels.start], 1), torch.cat([values, p], 1), k)
            if n_candidates < mean.shape[1]:
                best, values = _with_overlooked(model, mean, var, labels.start, chosen, best, values)
    return best, values


class _Variances:
    """The variances of the utilities of a block: exact where asked for, and bounded everywhere.

    Σ_p φ_kp² s_ip ≤ max_p s_ip ‖φ_k‖². Processes share a kernel, so that their variances s_ip are much alike, and the
    bound is a few percent above.
    """

    def __init__(self, model: MLGPF, h: Moments, X: Rows, labels: slice, n_asked: int) -> None:
        self.h, self.all = h, partial(model.variances, h, X, labels)
        self.squares = model.Phi[labels].square()
        has_own = model.private is not None and model.private.kind == "mean_field"
        # For many labels of a row one product for all is cheaper.
        is_full = has_own or _GATHERED * n_asked > len(self.squares) or self._is_large(n_asked * h.mean.shape[0])
        self.full = self.all() if is_full else None

    def _is_large(self, n_entries: int) -> bool:
        """Whether the loadings of so many entries are too much for memory."""
        return n_entries * self.squares.shape[1] > 4 * _BLOCK_ENTRIES

    def of(self, columns: Tensor) -> Tensor:
        """Of these labels of each row (B, n)."""
        if self.full is not None:
            return self.full.gather(1, columns)
        return torch.bmm(self.squares[columns], self.h.var.unsqueeze(2)).squeeze(2)

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Of single entries."""
        if self.full is None and self._is_large(rows.numel()):
            self.full = self.all()
        if self.full is not None:
            return self.full[rows, columns]
        return (self.h.var[rows] * self.squares[columns]).sum(1)

    def bound_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """No variance of these entries is above this."""
        if self.full is not None:
            return self.full[rows, columns]
        largest, norms = self._factors
        return largest[rows] * norms[columns]

    def plus_half_bound(self, mean: Tensor, rows: slice) -> Tensor:
        """mean + v / 2 of these rows with the bound of each v, which is not formed."""
        if self.full is not None:
            return torch.add(mean[rows], self.full[rows], alpha=0.5)
        largest, norms = self._factors
        return torch.addr(mean[rows], largest[rows], norms, alpha=0.5)

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor]:
        """The bound is their outer product."""
        return self.h.var.amax(1), self.squares.sum(1) * (1 + 1e-5)  # and a little for rounding


def _largest(labels: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row, largest first; of equal ones the smaller label comes first."""
    order = labels.sort(dim=1).indices
    labels, values = labels.gather(1, order), values.gather(1, order)
    order = values.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return labels.gather(1, order), values.gather(1, order)


def _with_overlooked(
    model: MLGPF, mean: Tensor, var: _Variances, first_label: int, chosen: Tensor, best: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Let in the labels of a block that were no candidates and yet belong to the best.

    σ(f) ≤ e^λf for every λ in [0, 1], so E σ(f) ≤ exp(λ m + λ² v / 2). With λ = 1 that clears nearly all labels, with
    the best λ most of the others; what is left is integrated.
    """
    least = values[:, -1:].log()  # at most 0, since no probability is above 1
    found = []
    for start in range(0, mean.shape[0], _SUSPECT_ROWS):  # an array for all rows is slow to get
        part = slice(start, start + _SUSPECT_ROWS)
        suspect = (var.plus_half_bound(mean, part) >= least[part]).scatter_(1, chosen[part], False)
        found.append(suspect.nonzero() + torch.tensor([start, 0], device=mean.device))
    rows, columns = torch.cat(found).unbind(1)
    own, most = mean[rows, columns], var.bound_at(rows, columns)
    exponent = (-own / most.clamp_min(SMALLEST_VARIANCE)).clamp(0, 1)
    is_open = exponent * (own + 0.5 * exponent * most) >= least[rows, 0]
    rows, columns = rows[is_open], columns[is_open]
    if rows.numel() == 0:
        return best, values
    p = model.likelihood.predict_proba(mean[rows, columns], var.at(rows, columns))
    # Rows differ in how many they have: each gets as many columns as the longest, the empty ones at -1.
    place, width = entry_places(rows, best.shape[0])
    extra = torch.full((best.shape[0], width), -1.0, dtype=values.dtype, device=values.device)
    numbers = torch.zeros(extra.shape, dtype=best.dtype, device=best.device)
    extra[rows, place], numbers[rows, place] = p, columns + first_label
    return _largest(torch.cat([best, numbers], 1), torch.cat([values, extra], 1), best.shape[1])


def expected_log_likelihood(model: MLGPF, h: Moments, X: Rows, Y: Tensor) -> float:
    """Σ_ik E log p(y_ik | f_ik) exactly over all labels, for Y sparse CSR."""
    rows, columns = entry_rows(Y.crow_indices()), Y.col_indices().long()
    total = float(_means_at(model, h, X, rows, columns).sum(dtype=torch.float64))
    for _, f in label_blocks(model, h, X):
        total -= float(model.likelihood.expected_softplus(f.mean, f.var))
    return total


def _means_at(model: MLGPF, h: Moments, X: Rows, rows: Tensor, columns: Tensor) -> Tensor:
    """The mean utilities of these entries."""
    result = h.mean.new_empty(rows.numel())
    for labels in _label_slices(model, h):
        inside = ((columns >= labels.start) & (columns < labels.stop)).nonzero().squeeze(1)
        with torch.no_grad():
            result[inside] = model.means(h, X, labels)[rows[inside], columns[inside] - labels.start]
    return result


def to_indicator(parts: Iterable[tuple[slice, slice, Tensor]], shape: tuple[int, int]) -> sparse.csr_array:
    """A CSR indicator (N, K) from blocks of it: their rows, their labels, and whether these hold there."""
    found = [(np.zeros(0, np.int64),) * 2]
    for rows, labels, holds in parts:
        row, column = (part.cpu().numpy() for part in holds.nonzero(as_tuple=True))
        found.append((row + rows.start, column + labels.start))
    row, column = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((column, row))
    return from_counts(np.bincount(row, minlength=shape[0]), column[order].astype(np.int32), None, shape[1])


def to_csr(labels: NDArray[np.int64], values: NDArray[np.float32], n_labels: int) -> sparse.csr_array:
    """Lists (N, k) as CSR with sorted columns."""
    order = np.argsort(labels, axis=1)
    n, k = labels.shape
    return from_counts(
        np.full(n, k, np.int64),
        np.take_along_axis(labels, order, 1).ravel().astype(np.int32),
        np.take_along_axis(values, order, 1).ravel(),
        n_labels,
    )


def credible_interval(f: Moments, z: float) -> tuple[Tensor, Tensor]:
    """The interval of σ(f) between the normal quantiles -z and z of f: σ is monotone, so σ(mean ± z sd)."""
    deviation = f.var.sqrt()
    return torch.sigmoid(f.mean - z * deviation), torch.sigmoid(f.mean + z * deviation)


def unexplained_share(model: MLGPF, X: Rows, frame: Frame) -> Tensor:
    """ν_i = (k_ii - k_iZ K_Z⁻¹ k_Zi) / k_ii (B,), the mean over processes where each has a kernel of its own.

    The inducing inputs say nothing about this share of the prior variance of h at a row: no q(u), however sure of u, is
    surer of h. The posterior's variance adds A_iᵀ S A_i, the larger the more a row is like the inducing inputs; on
    EUR-Lex the two cancel, and rows with permuted features come out no more uncertain than others.
    """
    kxx = model.kernel.diag(X)
    explained = frame.prior.whiten(model.kernel.cross(X, frame.points).mT).square().sum(-2)
    # Where the prior itself has no variance (an empty row under a linear kernel) nothing is explained.
    share = (kxx - explained).clamp_min(SMALLEST_VARIANCE) / kxx.clamp_min(SMALLEST_VARIANCE)
    return share if share.dim() == 1 else share.mean(0)


def condition(model: MLGPF, h: Moments, X: Rows, observed: Tensor, n_steps: int = 50) -> Moments:
    """q(h) sharpened by labels that are known for these rows [TH 4.37].

    `observed` (B, K) is sparse CSR with +1 where a label is known to hold and -1 where it is known not to. The mode of
    q(h) p(y_o | h) is found by Newton's method; the variances are the marginal ones of the Gaussian that has the
    curvature of the mode (Laplace's approximation).
    """
    pointers, columns = observed.crow_indices().long(), observed.col_indices().long()
    means = _means_at(model, h, X, entry_rows(pointers), columns)
    widest = int(pointers.diff().max()) if len(pointers) > 1 else 0
    step = max(1, _BLOCK_ENTRIES // max(widest * h.mean.shape[1], 1))
    parts = []
    for start in range(0, h.mean.shape[0], step):
        part = slice(start, start + step)
        inside = slice(int(pointers[start]), int(pointers[min(start + step, h.mean.shape[0])]))
        rows = entry_rows(pointers[start : start + step + 1])
        known = _Known(rows, model.Phi[columns[inside]], means[inside], observed.values()[inside].sign())
        parts.append(_condition_rows(Moments(h.mean[part], h.var[part]), known, n_steps))
    if not parts:
        return h
    return Moments(*(torch.cat(moments) for moments in zip(*parts, strict=True)))


class _Known(NamedTuple):
    """Labels that are known: their rows, loadings, mean utilities under q(h), and signs."""

    rows: Tensor
    Phi: Tensor
    means: Tensor
    signs: Tensor


def _condition_rows(h: Moments, known: _Known, n_steps: int) -> Moments:
    """`condition` for so few rows that the loadings of all their known labels fit in memory."""
    rows, Phi, _, signs = known
    precision = 1 / h.var
    offsets = known.means - (h.mean[rows] * Phi).sum(1)  # the bias, and what private processes say

    def utility(estimate: Tensor) -> Tensor:
        return (estimate[rows] * Phi).sum(1) + offsets

    def log_density(estimate: Tensor) -> Tensor:
        """log q(h) p(y_o | h) of each row, up to a constant: concave in h."""
        prior = -0.5 * (precision * (estimate - h.mean).square()).sum(1)
        return prior.index_add(0, rows, logsigmoid(signs * utility(estimate)))

    estimate = h.mean.clone()
    best = log_density(estimate)
    for _ in range(n_steps):
        wrong = torch.sigmoid(-signs * utility(estimate))
        gradient = -precision * (estimate - h.mean)
        gradient = gradient.index_add(0, rows, (signs * wrong).unsqueeze(1) * Phi)
        direction = _solve_rows(precision, rows, wrong * (1 - wrong), Phi, gradient)
        # A full step may jump over the mode; each row takes the first halving that does not lose.
        share = torch.ones_like(best)
        for _ in range(_HALVINGS):
            trial = estimate + share.unsqueeze(1) * direction
            loses = log_density(trial) < best
            if not loses.any():
                break
            share = torch.where(loses, share / 2, share)
        trial = estimate + share.unsqueeze(1) * direction
        value = log_density(trial)
        gains = value > best
        estimate = torch.where(gains.unsqueeze(1), trial, estimate)
        is_settled = not (value - best > _SETTLED * (1 + best.abs())).any()
        best = torch.where(gains, value, best)
        if is_settled:
            break
    wrong = torch.sigmoid(-signs * utility(estimate))
    return Moments(estimate, _marginal_variances(h.var, rows, wrong * (1 - wrong), Phi))


def _marginal_variances(var: Tensor, rows: Tensor, curvature: Tensor, Phi: Tensor) -> Tensor:
    """The diagonal of (diag(1 / v_i) + Σ_o c_o φ_o φ_oᵀ)⁻¹ of each row i, by Woodbury's identity.

    With U = √c Φ_o and D = diag(v): D - D Uᵀ (I + U D Uᵀ)⁻¹ U D, factorised for some rows at once.
    """
    place, width = entry_places(rows, var.shape[0])
    if width == 0:
        return var
    result = var.clone()
    step = max(1, _BLOCK_ENTRIES // (width * max(var.shape[1], width)))
    for start in range(0, var.shape[0], step):
        inside = (rows >= start) & (rows < start + step)
        D = var[start : start + step].double()
        U = torch.zeros(D.shape[0], width, D.shape[1], dtype=torch.float64, device=var.device)
        U[rows[inside] - start, place[inside]] = (curvature[inside].sqrt().unsqueeze(1) * Phi[inside]).double()
        UD = U * D.unsqueeze(1)
        inner = torch.eye(width, dtype=torch.float64, device=var.device) + UD @ U.mT
        V = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), UD, upper=False)
        result[start : start + step] = (D - V.square().sum(1)).to(var.dtype)
    return result.clamp_min(SMALLEST_VARIANCE)


def _solve_rows(precision: Tensor, rows: Tensor, curvature: Tensor, Phi: Tensor, gradient: Tensor) -> Tensor:
    """(diag(precision_i) + Σ_o c_o φ_o φ_oᵀ)⁻¹ gradient_i for each row i, by conjugate gradients.

    They end after as many steps as a row has known labels, plus one: the matrix is a diagonal of that rank changed.
    """
    x = torch.zeros_like(gradient)
    residual = gradient
    scaled = residual / precision
    direction = scaled
    size = (residual * scaled).sum(1, keepdim=True)
    n_known = int(torch.bincount(rows).max()) if rows.numel() else 0
    for _ in range(min(gradient.shape[1], n_known) + 1):
        along = (direction[rows] * Phi).sum(1)
        product = (precision * direction).index_add(0, rows, (curvature * along).unsqueeze(1) * Phi)
        step = size / (direction * product).sum(1, keepdim=True).clamp_min(1e-30)
        x = x + step * direction
        residual = residual - step * product
        scaled = residual / precision
        smaller = (residual * scaled).sum(1, keepdim=True)
        direction = scaled + smaller / size.clamp_min(1e-30) * direction
        size = smaller
    return x


def label_correlation(model: MLGPF, labels: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """Correlation of utilities under the prior, from ΦΦᵀ, between these labels (default: all)."""
    Phi = model.Phi.detach().cpu()
    if labels is not None:
        Phi = Phi[torch.from_numpy(np.asarray(labels, np.int64))]
    Phi = Phi / Phi.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return np.asarray((Phi @ Phi.T).numpy(), np.float32)
