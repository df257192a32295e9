"""The most probable labels of rows, found exactly but without integrating over every label."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from labelfield.linalg.gaussian import LEAST_VARIANCE
from labelfield.linalg.rows import Rows, entry_places
from labelfield.models.mlgpf.model import MLGPF
from labelfield.models.mlgpf.weighting import Weighting
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


class _Ranked(NamedTuple):
    """Labels of rows (B, n), their raw probabilities, and what ranks them: a weighted probability, or p itself."""

    labels: Tensor
    p: Tensor
    score: Tensor

    def largest(self, k: int) -> "_Ranked":
        """Return the k labels with the largest scores, largest first; the smaller label first among equal scores."""
        order = self.labels.sort(dim=1).indices
        place = self.score.gather(1, order).sort(dim=1, descending=True, stable=True).indices[:, :k]
        order = order.gather(1, place)
        return _Ranked(*(part.gather(1, order) for part in self))

    def joined(self, *others: Tensor) -> "_Ranked":
        """Return these labels and others, with their raw probabilities and scores."""
        return _Ranked(*(torch.cat(parts, 1) for parts in zip(self, others, strict=True)))


def top_k(model: MLGPF, h: Moments, X: Rows, k: int, weighting: Weighting | None = None) -> tuple[Tensor, Tensor]:
    """Return the k labels of each row with the largest E σ(scale f), or weighted probability, largest first.

    With them come their raw probabilities. In each block of labels those with the largest means are candidates, and
    quadrature decides between them and the best so far. A bound then proves for nearly every other label that it is not
    among the best; the rest are decided by quadrature. So variances, which cost as much as means, are computed for few
    labels.
    """
    k = min(k, model.n_labels)
    none = h.mean.new_empty(h.mean.shape[0], 0)
    best = _Ranked(none.long(), none, none if weighting is None else none.double())
    for labels in label_slices(model, h):
        with torch.no_grad():
            mean = model.means(h, X, labels)
            n_candidates = min(mean.shape[1], max(_CANDIDATES * k, _LEAST_CANDIDATES))
            var = _Variances(model, h, X, labels, n_candidates)
            likely = mean if weighting is None else weighting.likely(mean * model.likelihood.scale, labels)
            chosen = likely.topk(n_candidates, dim=1).indices
            p = model.likelihood.predict_proba(mean.gather(1, chosen), var.select(chosen))
            numbers = chosen + labels.start
            best = best.joined(numbers, p, p if weighting is None else weighting.score(numbers, p)).largest(k)
            if n_candidates < mean.shape[1]:
                best = _with_overlooked(model, mean, var, labels, chosen, best, weighting)
    return best.labels, best.p


def top_k_by_mean(model: MLGPF, h: Moments, X: Rows, k: int) -> tuple[Tensor, Tensor]:
    """Return the k labels of each row with the largest mean utilities [TH 4.36], and σ(scale mean) of these."""
    none = h.mean.new_empty(h.mean.shape[0], 0)
    best = _Ranked(none.long(), none, none)
    for labels in label_slices(model, h):
        mean, place = model.means(h, X, labels).topk(min(k, labels.stop - labels.start), dim=1)
        best = best.joined(place + labels.start, mean, mean).largest(k)
    return best.labels, torch.sigmoid(best.score * model.likelihood.scale)


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

    def plus_half_bound(self, mean: Tensor, rows: slice, scale: float) -> Tensor:
        """Return E g + Var g / 2 of g = scale f for these rows, with the variance at its bound, which is not formed."""
        own = mean[rows] if scale == 1 else mean[rows] * scale
        if self.full is not None:
            return torch.add(own, self.full[rows], alpha=0.5 * scale**2)
        largest, norms = self._factors
        return torch.addr(own, largest[rows], norms, alpha=0.5 * scale**2)

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor]:
        """The two factors whose outer product is the bound."""
        return self.h.var.amax(1), self.squares.sum(1) * (1 + 1e-5)  # with a margin for rounding


def _with_overlooked(
    model: MLGPF,
    mean: Tensor,
    var: _Variances,
    labels: slice,
    chosen: Tensor,
    best: _Ranked,
    weighting: Weighting | None,
) -> _Ranked:
    """Add labels of a block that were not candidates but belong to the best.

    With g = scale f, σ(g) ≤ e^λg for every λ in [0, 1], so E σ(g) ≤ exp(λ E g + λ² Var g / 2). With λ = 1 this excludes
    nearly all labels, and with the best λ most of the others; the rest are integrated.
    """
    scale, group = model.likelihood.scale, None
    if weighting is None:
        least = best.score[:, -1:].log()  # at most 0, since probabilities are at most 1
    else:
        least, group = weighting.least(best.score[:, -1:], labels)
    least = least.to(mean.dtype)
    found = []
    for start in range(0, mean.shape[0], _SUSPECT_ROWS):  # allocating an array for all rows is slow
        part = slice(start, start + _SUSPECT_ROWS)
        limit = least[part] if group is None else least[part].index_select(1, group)
        suspect = (var.plus_half_bound(mean, part, scale) >= limit).scatter_(1, chosen[part], False)
        found.append(suspect.nonzero() + torch.tensor([start, 0], device=mean.device))
    rows, columns = torch.cat(found).unbind(1)
    own, most = Moments(mean[rows, columns], var.bound_at(rows, columns)).scaled(scale)
    exponent = (-own / most.clamp_min(LEAST_VARIANCE)).clamp(0, 1)
    is_open = exponent * (own + 0.5 * exponent * most) >= least[rows, 0 if group is None else group[columns]]
    rows, columns = rows[is_open], columns[is_open]
    if rows.numel() == 0:
        return best
    # Rows have different numbers of these labels: each gets as many columns as the longest, with -1 in the empty ones.
    place, width = entry_places(rows, mean.shape[0])
    p = torch.full((mean.shape[0], width), -1.0, dtype=mean.dtype, device=mean.device)
    numbers = torch.zeros(p.shape, dtype=columns.dtype, device=mean.device)
    p[rows, place] = model.likelihood.predict_proba(mean[rows, columns], var.at(rows, columns))
    numbers[rows, place] = columns + labels.start
    score = p if weighting is None else torch.where(p < 0, -1.0, weighting.score(numbers, p))
    return best.joined(numbers, p, score).largest(best.labels.shape[1])


def top_k_of_mean(
    models: Sequence[MLGPF], f: Sequence[Moments], k: int, weighting: Weighting | None = None
) -> tuple[Tensor, Tensor]:
    """Return the k labels of each row with the largest mean probability over several models, or weighted one.

    With them come these means. Each model names candidates. E σ(g) ≤ exp(E g + Var g / 2) then proves that no other
    label is among the best; in rows where it does not, all labels are integrated.
    """
    n_labels = f[0].mean.shape[1]
    every = slice(0, n_labels)
    n_candidates = min(n_labels, max(_FIRST_CANDIDATES, 4 * k))
    logits = [one.scaled(model.likelihood.scale) for model, one in zip(models, f, strict=True)]
    # E σ(g) is close to σ(mean / √(1 + π v / 8)), so this ranks almost as the integral does.
    orders = [one.var.mul(torch.pi / 8).add_(1).rsqrt_().mul_(one.mean) for one in logits]
    if weighting is not None:
        orders = [weighting.likely(order, every) for order in orders]
    named = torch.cat([order.topk(n_candidates, dim=1).indices for order in orders], 1).sort(dim=1).values
    p = _mean_probability(models, [Moments(*(part.gather(1, named) for part in one)) for one in f])
    score = p.clone() if weighting is None else weighting.score(named, p)
    score[:, 1:][named[:, 1:] == named[:, :-1]] = -1  # named more than once
    best = _Ranked(named, p, score).largest(k)
    limit = best.score[:, -1:]
    if weighting is not None:
        least, group = weighting.least(limit, every)
        limit = least.exp().index_select(1, group)
    most = torch.stack([(one.mean + 0.5 * one.var).clamp_max(0).exp() for one in logits]).mean(0)
    is_open = (most.scatter_(1, named, -1) >= limit).any(1)
    if is_open.any():
        p = _mean_probability(models, [Moments(*(part[is_open] for part in one)) for one in f])
        numbers = torch.arange(n_labels, device=p.device).expand(p.shape)
        score = p if weighting is None else weighting.take(is_open).score(numbers, p)
        found = _Ranked(numbers, p, score).largest(k)
        best.labels[is_open], best.p[is_open] = found.labels, found.p
    return best.labels, best.p


def _mean_probability(models: Sequence[MLGPF], f: Sequence[Moments]) -> Tensor:
    parts = [model.likelihood.predict_proba(*one) for model, one in zip(models, f, strict=True)]
    return torch.stack(parts).mean(0)
