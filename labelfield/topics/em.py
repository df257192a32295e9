"""Expectation maximisation of the topic model, on all rows or on batches [BMLPL 3.2].

Steps on all rows never decrease a lower bound of the log posterior of V, W, r and λ,

    F = Σ_{positives} log(e^{λ̃_ln} - 1)
        + Σ_kn [(r_k - a_kn) ψ(a_kn) + log Γ(a_kn) - log Γ(r_k) - r_k log(1 + c_kn e^{ψ_kn})]
        + log p(V | η) + log p(W | λ) + log p(λ) + log p(r),     λ̃_ln = Σ_k v_lk ũ_kn,  ũ_kn = exp(E log u_kn)

for q(u_kn) = Gamma(a_kn, rate c_kn + e^{-ψ_kn}) and the q(m) that is best for these. c_kn is the weight in topic k of
the labels observed in row n, which is 1 where all were. η, where it is learned, follows another objective (`best_eta`),
so F may fall when η changes. Departures from the paper: it uses E u in place of exp(E log u), for which there is no
such bound; and the zero-truncated variable is m_ln, not each m_lkn.

λ is at its mode under a prior, together with W, or (`precision_by` "evidence") where the evidence is highest, W
integrated out: type-II maximum likelihood [BMLPL 3.1; Tipping 2004], for which F is no bound. Online, W moves towards
what the rows of a step ask for, or (`online_weights` "statistics") is solved for from decayed S_k and d_k [BMLPL 3.2].
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from labelfield.memory import row_blocks
from labelfield.topics.label_weights import best_eta, dirichlet_log_density, normalised
from labelfield.topics.rows import SparsePattern, TopicRows
from labelfield.topics.state import Priors, Topics
from labelfield.topics.weights import (
    Quadratic,
    conjugate_gradients,
    curvatures,
    inverse_diagonals,
    omega_of,
    solve_dense,
    solve_exactly,
)

# The most numbers formed at once for the products of two rows at each positive.
_CHUNK = 1 << 22
# The number of rounds that bring counts and intensities of new rows into agreement.
_N_FIRST = 4
_SHAPES = (1e-3, 1e3)
# The steps at which η is learned: by then topics differ enough to show how sparse they are. At a random start η would
# come out large, which would keep topics alike for good.
_WHEN_ETA = (20, 25, 30)
ONLINE_WEIGHTS = ("interpolate", "statistics")
PRECISION_BY = ("mode", "evidence")


@dataclass(frozen=True)
class EMOptions:
    """`n_gradient_steps` of conjugate gradients per step for W, or None to solve for it; what is learned beside V,
    W."""

    n_gradient_steps: int | None = 2
    priors: Priors = field(default_factory=Priors)
    learns_shapes: bool = True
    learns_precision: bool = True
    learns_eta: bool = True
    online_weights: str = "interpolate"
    precision_by: str = "mode"


class RowState(NamedTuple):
    """The shapes a (N, K) of q(u) and ψ (N, K) of rows that recur in every step."""

    shape: Tensor
    psi: Tensor


class Sums(NamedTuple):
    """Statistics summed over rows: Σ_n m_lkn (A, K), the expected tables of r_k (K,), Σ_n log(1 + c e^ψ) (K,); where
    labels were missing exposures (A, K) and (K,); and where W is solved for from them, S (K, D + 1, D + 1) and d
    (D + 1, K)."""

    counts: Tensor
    tables: Tensor
    softplus: Tensor
    exposure: Tensor | None = None
    exposure_rest: Tensor | None = None
    curvature: Tensor | None = None
    pull: Tensor | None = None


@dataclass(frozen=True, eq=False)
class EMState:
    """The state of EM. `rows` belong to `rows_of`, the rows of the last step; a step on these continues from there."""

    topics: Topics
    sums: Sums | None = None
    rows: RowState | None = None
    rows_of: TopicRows | None = None
    n_steps: int = 0


def em_step(
    state: EMState, data: TopicRows, options: EMOptions, *, rate: float = 1.0, n_data: int | None = None
) -> tuple[EMState, float]:
    """Take a step on rows that represent n_data rows; with a rate below 1, earlier ones keep the rest (online EM).

    On all rows and with rate 1 this is EM. Return also F before the step, estimated for all rows from these.
    """
    topics, n_data = state.topics, n_data or data.n_rows
    scale = n_data / data.n_rows
    rows, t = state.rows, _log_observed(topics, data)
    if rows is None or state.rows_of is not data:
        psi = data.design.times(topics.W)
        rows = RowState(first_counts(topics, data, psi) + topics.r.to(psi.dtype), psi)
    # The E-step, and F of the state before it.
    fit, row_counts, counts = expected_counts(_intensities(rows, t), topics.V, data.positives)
    over_all, of_rows = data.design.over_all, torch.tensor(fit + _row_terms(topics, rows, t), dtype=torch.float64)
    counts = over_all(counts)
    objective = scale * float(over_all(of_rows)) + _log_prior(topics, options.priors, n_data)
    # W, for the best q(u) given the counts.
    r, psi = topics.r.to(row_counts.dtype), rows.psi
    total = row_counts + r
    omega = omega_of(total, shifted(psi, t))
    target = row_counts - 0.5 * total  # κ
    if t is not None:
        target = torch.addcmul(target, omega, t, value=-1)
    problem = Quadratic(data.design, omega, target, topics.precision, scale)
    is_online = rate < 1 or n_data != data.n_rows
    statistics: tuple[Tensor | None, Tensor | None] = None, None
    if is_online and options.online_weights == "statistics":
        decayed = _decayed(state.sums, problem, rate)
        W, statistics = solve_dense(*decayed, topics.precision).to(topics.W.dtype), decayed
        psi = data.design.times(W)
    elif options.n_gradient_steps is None:
        W = solve_exactly(problem, topics.W.dtype)
        psi = data.design.times(W)
    else:
        W, psi = conjugate_gradients(problem, topics.W, psi, options.n_gradient_steps)
    if rate < 1 and statistics[0] is None:
        W, psi = torch.lerp(topics.W, W, rate), torch.lerp(rows.psi, psi, rate)
    # r, by the expected number of tables (Zhou and Carin 2015); then q(u).
    tables = (torch.digamma(total) - torch.digamma(r)).mul_(r).sum(0, dtype=torch.float64)
    sums = Sums(counts, over_all(tables), over_all(softplus(shifted(psi, t)).sum(0, dtype=torch.float64)))
    topics = replace(topics, W=W)
    if options.learns_shapes:
        blended, strength = _blended(state.sums, sums, rate, scale), options.priors.shape_strength * n_data
        shapes = (strength + blended.tables) / (strength + blended.softplus)
        topics = replace(topics, r=shapes.clamp(*_SHAPES))
    rows = RowState(row_counts + topics.r.to(row_counts.dtype), psi)
    if (exposure := data.exposure(rows.shape / _rate(psi, t))) is not None:
        sums = sums._replace(exposure=exposure[0], exposure_rest=exposure[1])
    sums = _blended(state.sums, sums, rate, scale)
    sums = sums._replace(curvature=statistics[0], pull=statistics[1])
    spread = None
    if options.learns_precision and options.precision_by == "evidence":
        spread = inverse_diagonals(problem, is_exact=options.n_gradient_steps is None)
    best = _maximised(topics, sums, options, state.n_steps, spread)
    if state.sums is None and not bool(counts.any()):
        # Identical topics would stay identical; until there are labels, random weights tell them apart.
        best = replace(best, V=topics.V, rest=topics.rest)
    return EMState(best, sums, rows, data, state.n_steps + 1), objective


def _maximised(topics: Topics, sums: Sums, options: EMOptions, n_steps: int, spread: Tensor | None) -> Topics:
    """Set λ and V where F is highest, and at some steps η; λ by the evidence where the variances of weights are given.

    The evidence rises with λ_d = K / Σ_k E w_dk², as EM with W among what is integrated out has it.
    """
    if options.learns_precision:
        squares = topics.W.square().mean(1, dtype=torch.float64)
        learned = (1 + 2 / topics.n_topics) / (options.priors.least_variance() + squares)
        if spread is not None:
            learned = (squares + spread.mean(1)).reciprocal()
        precision = learned.to(topics.precision.dtype)
        precision[-1] = topics.precision[-1]
        topics = replace(topics, precision=precision)
    eta = topics.eta
    if options.learns_eta and n_steps in _WHEN_ETA:
        eta = best_eta(sums.counts, topics.n_rest, eta)
    V, rest = normalised(sums.counts, sums.exposure, sums.exposure_rest, topics.n_rest, eta)
    return replace(topics, V=V.to(topics.V.dtype), rest=rest.to(topics.rest.dtype), eta=eta)


def _decayed(before: Sums | None, problem: Quadratic, rate: float) -> tuple[Tensor, Tensor]:
    """Return (1 - rate) of the earlier S (K, D + 1, D + 1) and d (D + 1, K) plus rate of those of these rows."""
    curvature = torch.stack([*curvatures(problem)])
    pull = problem.scale * problem.design.transposed_times(problem.target).double()
    if before is None or before.curvature is None or before.pull is None or rate >= 1:
        return curvature, pull
    return torch.lerp(before.curvature, curvature, rate), torch.lerp(before.pull, pull, rate)


def _blended(before: Sums | None, now: Sums, rate: float, scale: float) -> Sums:
    """Return (1 - rate) of the earlier sums plus rate of those of these rows, both scaled to all rows."""
    new = [None if part is None else part * scale for part in now]
    if before is None or rate >= 1:
        return Sums(*new)  # type: ignore[arg-type]  # None: no exposures
    pairs = zip(before, new, strict=True)
    blended = (own if own is None or old is None else torch.lerp(old, own, rate) for old, own in pairs)
    return Sums(*blended)  # type: ignore[arg-type]


def is_settled(state: EMState, options: EMOptions) -> bool:
    """Return whether η no longer changes, so that F of later steps can be compared."""
    return not options.learns_eta or state.n_steps > max(_WHEN_ETA) + 2


# Rows


def first_counts(topics: Topics, data: TopicRows, psi: Tensor) -> Tensor:
    """Return Σ_l E m_lkn (N, K) for new rows: from the prior, then a few rounds of counts and intensities."""
    r, t, counts = topics.r.to(psi.dtype), _log_observed(topics, data), torch.zeros_like(psi)
    for _ in range(_N_FIRST):
        intensities = _intensities(RowState(counts + r, psi), t)
        _, counts, _ = expected_counts(intensities, topics.V, data.positives, needs_labels=False)
    return counts


def _log_observed(topics: Topics, data: TopicRows) -> Tensor | None:
    """Return t = log c (N, K), or None if everything was observed."""
    weight = data.observed_weight(topics.V)
    return None if weight is None else weight.log_()


def shifted(psi: Tensor, t: Tensor | None) -> Tensor:
    """Return the log-odds ψ + t."""
    return psi if t is None else psi + t


def _rate(psi: Tensor, t: Tensor | None) -> Tensor:
    """Return the rate of q(u), c + e^{-ψ}."""
    return torch.exp(-psi).add_(1 if t is None else t.exp())


def _intensities(rows: RowState, t: Tensor | None) -> Tensor:
    """Return ũ = exp(E log u)."""
    return torch.digamma(rows.shape).exp_().div_(_rate(rows.psi, t))


def expected_counts(
    U: Tensor, V: Tensor, positives: SparsePattern, needs_labels: bool = True
) -> tuple[float, Tensor, Tensor]:
    """Return Σ log(e^λ - 1) over positives, Σ_l E m_lkn (N, K) and Σ_n E m_lkn (A, K), for λ_ln = Σ_k v_lk u_kn.

    E m_lkn = v_lk u_kn / (1 - e^{-λ_ln}) at positives and 0 elsewhere, so observed zeros cost nothing.
    """
    rate = U.new_empty(positives.n_entries)
    for some in row_blocks(positives.n_entries, U.shape[1], entries=_CHUNK, most=_CHUNK):
        torch.sum(U[positives.row[some]] * V[positives.label[some]], 1, out=rate[some])
    rate.clamp_min_(torch.finfo(rate.dtype).tiny)
    share = torch.expm1(-rate).neg_()
    fit = float((rate.double() + share.double().log()).sum())
    share.reciprocal_()
    row_counts = positives.sum_of_labels(share, V).mul_(U)
    counts = positives.sum_of_rows(share, U).mul_(V) if needs_labels else V
    return fit, row_counts, counts


# F


def _row_terms(topics: Topics, rows: RowState, t: Tensor | None) -> float:
    """Return the sum over rows and topics in F."""
    r, a = topics.r.to(rows.shape.dtype), rows.shape
    each = (r - a).mul_(torch.digamma(a)).add_(torch.lgamma(a))
    each.addcmul_(r, softplus(shifted(rows.psi, t)), value=-1)
    return float(each.sum(dtype=torch.float64) - len(a) * torch.lgamma(topics.r).sum())


def _log_prior(topics: Topics, priors: Priors, n_data: int) -> float:
    """Return the log prior in the coordinates log v, log λ and log r, whose modes the steps find."""
    K, strength = topics.n_topics, priors.shape_strength * n_data
    precision, squares = topics.precision.double(), topics.W.square().sum(1, dtype=torch.float64)
    of_weights = 0.5 * (K * precision.log() - precision * squares)
    of_precision = precision.log() - 0.5 * K * priors.least_variance() * precision
    of_shapes = strength * (topics.r.log() - topics.r)
    return float(of_weights.sum() + of_precision[:-1].sum() + of_shapes.sum()) + dirichlet_log_density(topics)
