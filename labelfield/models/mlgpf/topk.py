"""The most probable labels of rows, found exactly but without integrating over every label."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor

from labelfield.linalg.gaussian import LEAST_VARIANCE
from labelfield.linalg.rows import Rows, entry_places
from labelfield.models.mlgpf.model import MLGPF
from labelfield.variational.families import Moments

# The most rows times labels whose utilities exist at once.
BLOCK_ENTRIES = 1 << 23
# The number of candidates, chosen by their means, per requested label.
_CANDIDATES = 4
_LEAST_CANDIDATES = 24
# The least number of labels per row that each of several models names.
_FIRST_CANDIDATES = 64
# How much longer a single variance takes than one of a whole block.
_GATHERED = 48
# The number of rows whose remaining labels are checked together.
_SUSPECT_ROWS = 256


def label_blocks(model: MLGPF, h: Moments, X: Rows) -> Iterator[tuple[slice, Moments]]:
    """Yield q(f) for blocks of labels, so that only a few million entries exist at once for any K."""
    for labels in label_slices(model, h):
        with torch.no_grad():  # not around the yield, which would disable gradients in the caller
            f = model.utilities(h, X, labels)
        yield labels, f


def label_slices(model: MLGPF, h: Moments) -> Iterator[slice]:
    """Yield slices of the labels, each small enough for these rows."""
    step = max(1, BLOCK_ENTRIES // max(h.mean.shape[0], 1))
    for start in range(0, model.n_labels, step):
        yield slice(start, min(start + step, model.n_labels))


def top_k(model: MLGPF, h: Moments, X: Rows, k: int) -> tuple[Tensor, Tensor]:
    """Return the k most probable labels of each row and their probabilities E σ(f), most probable first.

    In each block of labels those with the largest means are candidates, and quadrature decides between them and the
    best so far. A bound then proves for nearly every other label that it is not among the best; the rest are decided by
    quadrature. So variances, which cost as much as means, are computed for few labels.
    """
    k = min(k, model.n_labels)
    best = torch.empty(h.mean.shape[0], 0, dtype=torch.long, device=h.mean.device)
    values = h.mean.new_empty(h.mean.shape[0], 0)
    for labels in label_slices(model, h):
        with torch.no_grad():
            mean = model.means(h, X, labels)
            n_candidates = min(mean.shape[1], max(_CANDIDATES * k, _LEAST_CANDIDATES))
            var = _Variances(model, h, X, labels, n_candidates)
            chosen = mean.topk(n_candidates, dim=1).indices
            p = model.likelihood.predict_proba(mean.gather(1, chosen), var.select(chosen))
            best, values = _largest(torch.cat([best, chosen + labels.start], 1), torch.cat([values, p], 1), k)
            if n_candidates < mean.shape[1]:
                best, values = _with_overlooked(model, mean, var, labels.start, chosen, best, values)
    return best, values


class _Variances:
    """The variances of the utilities of a block: exact where requested, and bounded everywhere.

    Σ_p φ_kp² s_ip ≤ max_p s_ip ‖φ_k‖². Processes share a kernel, so their s_ip are similar, and the bound is close.
    """

    def __init__(self, model: MLGPF, h: Moments, X: Rows, labels: slice, n_asked: int) -> None:
        self.h, self.all = h, partial(model.variances, h, X, labels)
        self.squares = model.Phi[labels].square()
        has_own = model.label_linear is not None and model.label_linear.kind == "mean_field"
        # For many labels per row one product for all labels is cheaper.
        is_full = has_own or _GATHERED * n_asked > len(self.squares) or self._is_large(n_asked * h.mean.shape[0])
        self.full = self.all() if is_full else None

    def _is_large(self, n_entries: int) -> bool:
        """Return whether the loadings of this many entries take too much memory."""
        return n_entries * self.squares.shape[1] > 4 * BLOCK_ENTRIES

    def select(self, columns: Tensor) -> Tensor:
        """Return the variances of these labels of each row (B, n)."""
        if self.full is not None:
            return self.full.gather(1, columns)
        return torch.bmm(self.squares[columns], self.h.var.unsqueeze(2)).squeeze(2)

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the variances of single entries."""
        if self.full is None and self._is_large(rows.numel()):
            self.full = self.all()
        if self.full is not None:
            return self.full[rows, columns]
        return (self.h.var[rows] * self.squares[columns]).sum(1)

    def bound_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return upper bounds of the variances of single entries."""
        if self.full is not None:
            return self.full[rows, columns]
        largest, norms = self._factors
        return largest[rows] * norms[columns]

    def plus_half_bound(self, mean: Tensor, rows: slice) -> Tensor:
        """Return mean + v / 2 for these rows, with v at its bound, which is not formed."""
        if self.full is not None:
            return torch.add(mean[rows], self.full[rows], alpha=0.5)
        largest, norms = self._factors
        return torch.addr(mean[rows], largest[rows], norms, alpha=0.5)

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor]:
        """The two factors whose outer product is the bound."""
        return self.h.var.amax(1), self.squares.sum(1) * (1 + 1e-5)  # with a margin for rounding


def _largest(labels: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of each row, largest first; among equal values the smaller label comes first."""
    order = labels.sort(dim=1).indices
    labels, values = labels.gather(1, order), values.gather(1, order)
    order = values.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return labels.gather(1, order), values.gather(1, order)


def _with_overlooked(
    model: MLGPF, mean: Tensor, var: _Variances, first_label: int, chosen: Tensor, best: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Add labels of a block that were not candidates but belong to the best.

    σ(f) ≤ e^λf for every λ in [0, 1], so E σ(f) ≤ exp(λ m + λ² v / 2). With λ = 1 this excludes nearly all labels, and
    with the best λ most of the others; the rest are integrated.
    """
    least = values[:, -1:].log()  # at most 0, since probabilities are at most 1
    found = []
    for start in range(0, mean.shape[0], _SUSPECT_ROWS):  # allocating an array for all rows is slow
        part = slice(start, start + _SUSPECT_ROWS)
        suspect = (var.plus_half_bound(mean, part) >= least[part]).scatter_(1, chosen[part], False)
        found.append(suspect.nonzero() + torch.tensor([start, 0], device=mean.device))
    rows, columns = torch.cat(found).unbind(1)
    own, most = mean[rows, columns], var.bound_at(rows, columns)
    exponent = (-own / most.clamp_min(LEAST_VARIANCE)).clamp(0, 1)
    is_open = exponent * (own + 0.5 * exponent * most) >= least[rows, 0]
    rows, columns = rows[is_open], columns[is_open]
    if rows.numel() == 0:
        return best, values
    p = model.likelihood.predict_proba(mean[rows, columns], var.at(rows, columns))
    # Rows have different numbers of these labels: each gets as many columns as the longest, with -1 in the empty ones.
    place, width = entry_places(rows, best.shape[0])
    extra = torch.full((best.shape[0], width), -1.0, dtype=values.dtype, device=values.device)
    numbers = torch.zeros(extra.shape, dtype=best.dtype, device=best.device)
    extra[rows, place], numbers[rows, place] = p, columns + first_label
    return _largest(torch.cat([best, numbers], 1), torch.cat([values, extra], 1), best.shape[1])


def top_k_of_mean(models: Sequence[MLGPF], f: Sequence[Moments], k: int) -> tuple[Tensor, Tensor]:
    """Return the k labels of each row whose mean probability over several models is largest, largest first.

    Each model names candidates. E σ(f) ≤ exp(m + v / 2) then proves that the mean of every other label is smaller; in
    rows where it does not, all labels are integrated.
    """
    n_labels = f[0].mean.shape[1]
    n_candidates = min(n_labels, max(_FIRST_CANDIDATES, 4 * k))
    # E σ(f) is close to σ(mean / √(1 + π v / 8)), so this ranks almost as the integral does.
    orders = [one.var.mul(torch.pi / 8).add_(1).rsqrt_().mul_(one.mean) for one in f]
    named = torch.cat([order.topk(n_candidates, dim=1).indices for order in orders], 1).sort(dim=1).values
    p = _mean_probability(models, [Moments(*(part.gather(1, named) for part in one)) for one in f])
    p[:, 1:][named[:, 1:] == named[:, :-1]] = -1  # named more than once
    order = p.sort(dim=1, descending=True, stable=True).indices[:, :k]
    best, values = named.gather(1, order), p.gather(1, order)
    most = torch.stack([(one.mean + 0.5 * one.var).clamp_max(0).exp() for one in f]).sum(0)
    is_open = most.div_(len(f)).scatter_(1, named, 0).amax(1) > values[:, -1]
    if is_open.any():
        p = _mean_probability(models, [Moments(*(part[is_open] for part in one)) for one in f])
        order = p.sort(dim=1, descending=True, stable=True).indices[:, :k]
        best[is_open], values[is_open] = order, p.gather(1, order)
    return best, values


def _mean_probability(models: Sequence[MLGPF], f: Sequence[Moments]) -> Tensor:
    parts = [model.likelihood.predict_proba(*one) for model, one in zip(models, f, strict=True)]
    return torch.stack(parts).mean(0)
