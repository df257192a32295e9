"""Gibbs sampling of the topic model: draws of V, W, r, λ, η and u from their posterior [BMLPL 12-16].

A sweep, at the cost of the positives alone; c_kn is the weight in topic k of the labels observed in row n, t = log c:

    1  m_ln ~ Poisson(Σ_k v_lk u_kn), not 0, at positives; (m_lkn)_k ~ Multinomial(m_ln, ∝ v_lk u_kn)
       u is integrated out: m_kn ~ NB(r_k, σ(ψ_kn + t_kn))
    2  ω_kn ~ PG(m_kn + r_k, ψ_kn + t_kn);  w_k ~ N(A⁻¹ Xᵀ(κ_k - Ω_k t_k), A⁻¹),  A = XᵀΩ_k X + Λ,  κ = (m - r)/2
       λ_d ~ Gamma(1 + K/2, (K s² + Σ_k w_dk²)/2)
    3  l_kn ~ CRT(m_kn, r_k);  r_k ~ Gamma(gN + Σ_n l_kn, gN + Σ_n log(1 + c_kn e^{ψ_kn}))
    4  u_kn ~ Gamma(r_k + m_kn, c_kn + e^{-ψ_kn})
    5  M_lk ~ Poisson(v_lk Σ_{n where l is missing} u_kn);  η given m + M, V integrated out
       v_k ~ Dirichlet(η + m_lk + M_lk)

M, the counts of unobserved labels, are drawn for V alone: with them all labels have the same exposure, and V is
Dirichlet. What is integrated out is drawn again before anything depends on it, so the posterior is preserved. A
departure from the paper: the zero-truncated variable is m_ln, not each m_lkn.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from labelfield.linalg.cholesky import cholesky
from labelfield.memory import row_blocks
from labelfield.topics.draws import polya_gamma, split_counts, table_counts, zero_truncated_poisson
from labelfield.topics.em import first_counts, shifted
from labelfield.topics.rows import SparsePattern, TopicRows
from labelfield.topics.state import Priors, Topics
from labelfield.topics.weights import Quadratic, conjugate_gradients, matrices

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The most float64 numbers formed at once, beside arrays of the size of the state.
_CHUNK = 1 << 20
# η ~ Gamma(1, 1).
_ETA_SHAPE, _ETA_RATE = 1.0, 1.0
# Beyond this e^{-ψ} overflows float64; u is 0 long before.
_LARGEST_EXPONENT = 700.0
# Conjugate gradients take at most this many steps, until residuals are below this share of the initial ones.
_N_GRADIENT_STEPS, _TOLERANCE = 1000, 1e-5
# Rounding error in the exposure of a label that was missing nowhere, as a share of the total.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class GibbsOptions:
    """What is drawn besides V and W. Up to `exact_below` weights per topic W is drawn through factors of A; beyond, by
    conjugate gradients."""

    priors: Priors = field(default_factory=Priors)
    learns_shapes: bool = True
    learns_precision: bool = True
    learns_eta: bool = True
    exact_below: int = 32


@dataclass(frozen=True, eq=False)
class GibbsState:
    """One draw: the topics, u (N, K), and ψ = XW (N, K), which follows from W."""

    topics: Topics
    U: Tensor
    psi: Tensor


def start_gibbs(topics: Topics, data: TopicRows, rng: Generator) -> GibbsState:
    """Return the state before the first sweep, with u drawn given the expected counts under these topics."""
    psi, weight = data.design.times(topics.W), data.observed_weight(topics.V)
    counts = first_counts(topics, data, psi).double().cpu().numpy()
    return GibbsState(topics, _draw_intensities(counts, topics, psi, weight, rng), psi)


def gibbs_step(state: GibbsState, data: TopicRows, options: GibbsOptions, rng: Generator) -> tuple[GibbsState, float]:
    """Run one sweep, which draws everything once given the rest. Return also log p(Y | V, u) of the observed labels
    before it."""
    topics = state.topics
    weight = data.observed_weight(topics.V)
    fit, row_counts, counts = draw_counts(state.U, topics.V, data.positives, rng)
    exposed = state.U if weight is None else state.U * weight
    objective = fit - float(exposed.sum(dtype=torch.float64))
    t = None if weight is None else weight.log()
    W, psi = draw_weights(_quadratic(row_counts, topics, state.psi, t, data, rng), topics.W, state.psi, options, rng)
    topics = replace(topics, W=W)
    if options.learns_precision:
        topics = replace(topics, precision=_draw_precision(topics, options.priors, rng))
    if options.learns_shapes:
        strength = options.priors.shape_strength * data.n_rows
        topics = replace(topics, r=_draw_shapes(row_counts, topics.r, psi, t, strength, rng))
    U = _draw_intensities(row_counts, topics, psi, weight, rng)
    unseen, unseen_rest = _draw_unseen(topics, U, data, rng)
    counts += unseen
    if options.learns_eta:
        topics = replace(topics, eta=draw_eta(counts, unseen_rest, topics.n_rest, topics.eta, rng))
    V, rest = draw_labels(counts, unseen_rest, topics.n_rest, topics.eta, rng)
    topics = replace(topics, V=_floored(V, topics.V), rest=_floored(rest, topics.rest))
    return GibbsState(topics, U, psi), objective


def draw_counts(U: Tensor, V: Tensor, positives: SparsePattern, rng: Generator) -> tuple[float, Integers, Integers]:
    """Run step 1: return Σ log(e^λ - 1) over positives, m_kn = Σ_l m_lkn (N, K) and m_lk = Σ_n m_lkn (A, K)."""
    of_rows, of_labels = _numpy(U), _numpy(V)
    row, label = _numpy(positives.row), _numpy(positives.label)
    n_topics, fit = of_rows.shape[1], 0.0
    row_counts, counts = (torch.zeros(part.size, dtype=torch.int64) for part in (of_rows, of_labels))
    for some in row_blocks(len(row), n_topics, entries=_CHUNK, most=_CHUNK):
        # In float64, where a product of two float32 numbers does not underflow.
        weights = of_rows[row[some]].astype(np.float64) * of_labels[label[some]]
        rate = weights.sum(axis=1)
        fit += float((rate + np.log(-np.expm1(-rate))).sum())
        split = split_counts(zero_truncated_poisson(rate, rng), weights, rng)
        # Most entries are 0: one or two topics account for a label.
        entry, topic = np.nonzero(split)
        found = torch.from_numpy(split[entry, topic])
        for total, owner in ((row_counts, row[some]), (counts, label[some])):
            total.index_add_(0, torch.from_numpy(owner[entry] * n_topics + topic), found)
    return fit, row_counts.numpy().reshape(of_rows.shape), counts.numpy().reshape(of_labels.shape)


# W, λ and r, with u integrated out


def _quadratic(
    row_counts: Integers, topics: Topics, psi: Tensor, t: Tensor | None, data: TopicRows, rng: Generator
) -> Quadratic:
    """Run step 2: draw ω, which makes the log density of w_k quadratic."""
    r, m = _numpy(topics.r), torch.from_numpy(row_counts).to(psi)
    omega = _draw_rows(lambda counts, z: polya_gamma(counts + r, z, rng), psi, row_counts, shifted(psi, t))
    target = (m - topics.r.to(psi.dtype)).mul_(0.5)
    if t is not None:
        target = torch.addcmul(target, omega, t, value=-1)
    return Quadratic(data.design, omega, target, topics.precision)


def draw_weights(
    problem: Quadratic, W: Tensor, psi: Tensor, options: GibbsOptions, rng: Generator
) -> tuple[Tensor, Tensor]:
    """Draw w_k ~ N(A⁻¹ Xᵀg, A⁻¹), A = XᵀΩ_k X + Λ, and return it with ψ = XW. Without a factor of A the draw is

        w = δ + A⁻¹ Xᵀ(g + Ω^½ ε - Ω X δ),   δ ~ N(0, Λ⁻¹),  ε ~ N(0, I)

    which is A⁻¹(Xᵀg + Xᵀ Ω^½ ε + Λ δ): the noise in brackets has covariance A. The solver starts from W and ψ.
    """
    design, omega, target, precision, scale = problem
    assert scale == 1
    noise = torch.from_numpy(rng.standard_normal(W.shape)).to(W.device)
    if len(W) <= options.exact_below:
        right, drawn = design.transposed_times(target).double(), []
        for k, matrix in enumerate(matrices(problem)):
            L = cholesky(matrix, "XᵀΩX + Λ", jitter=0.0)
            half = torch.linalg.solve_triangular(L, right[:, k : k + 1], upper=False)
            drawn.append(torch.linalg.solve_triangular(L.T, half + noise[:, k : k + 1], upper=True))
        W = torch.cat(drawn, 1).to(W.dtype)
        return W, design.times(W)
    prior = (noise / precision.double().sqrt().unsqueeze(1)).to(W.dtype)
    of_prior = design.times(prior)
    of_rows = torch.from_numpy(rng.standard_normal(omega.shape, dtype=np.float32)).to(omega)
    target = (of_rows * omega.sqrt()).add_(target).addcmul_(omega, of_prior, value=-1)
    problem = problem._replace(target=target)
    W = conjugate_gradients(problem, W - prior, psi - of_prior, _N_GRADIENT_STEPS, _TOLERANCE)[0] + prior
    return W, design.times(W)


def _draw_precision(topics: Topics, priors: Priors, rng: Generator) -> Tensor:
    """Draw λ_d for all features but the constant."""
    K, squares = topics.n_topics, _numpy(topics.W.double().square().sum(1))
    drawn = rng.standard_gamma(1 + K / 2, len(squares)) * 2 / (K * priors.least_variance() + squares)
    precision = torch.from_numpy(drawn).to(topics.precision)
    precision[-1] = topics.precision[-1]
    return precision


def _draw_shapes(
    row_counts: Integers, r: Tensor, psi: Tensor, t: Tensor | None, strength: float, rng: Generator
) -> Tensor:
    """Run step 3: draw r_k through the tables of customers m_kn."""
    above = below = np.full(len(r), strength)
    shape, z = _numpy(r), shifted(psi, t)
    for rows in row_blocks(*row_counts.shape, entries=_CHUNK, most=_CHUNK):
        above = above + table_counts(row_counts[rows], shape, rng).sum(axis=0)
        below = below + np.logaddexp(0, _numpy(z[rows]).astype(np.float64)).sum(axis=0)
    return torch.from_numpy(rng.standard_gamma(above) / below).to(r)


def _draw_intensities(
    row_counts: Integers | Floats, topics: Topics, psi: Tensor, weight: Tensor | None, rng: Generator
) -> Tensor:
    """Run step 4: draw u_kn (N, K)."""
    r = _numpy(topics.r)

    def draw(counts: Floats, log_odds: Floats, observed: Floats) -> Floats:
        rate = observed + np.exp(np.minimum(-log_odds, _LARGEST_EXPONENT))
        return np.asarray(rng.standard_gamma(counts + r) / rate)

    observed = psi.new_ones(1).expand_as(psi) if weight is None else weight
    return _draw_rows(draw, psi, row_counts, psi, observed).clamp_min_(torch.finfo(psi.dtype).tiny)


# V and η


def _draw_unseen(topics: Topics, U: Tensor, data: TopicRows, rng: Generator) -> tuple[Integers, Integers]:
    """Draw M_lk (A, K), and the total (K,) for all inactive labels, which are missing everywhere or nowhere."""
    if data.mask is None:
        return np.zeros(topics.V.shape, np.int64), np.zeros(topics.n_topics, np.int64)
    total = U.sum(0, dtype=torch.float64)
    missing, of_rest = data.mask.sum_of_rows(None, U.double()), torch.zeros_like(total)
    if not data.is_missing:
        missing, of_rest = total - missing, total
        missing[missing < _ROUNDING * total] = 0
    unseen = rng.poisson(_numpy(missing * topics.V))
    return unseen, rng.poisson(_numpy(of_rest * topics.rest * topics.n_rest))


def draw_eta(counts: Integers, rest_counts: Integers, n_rest: int, eta: float, rng: Generator) -> float:
    """Draw η ~ p(η | counts), V integrated out, through auxiliary variables that make it gamma [Escobar and West 1995]:

        p(counts | η) ∝ ∏_k Γ(Lη)/Γ(Lη + n_k) ∏_l Γ(η + n_lk)/Γ(η),   n_k = Σ_l n_lk
        q_k ~ Beta(Lη, n_k),  l_lk ~ CRT(n_lk, η):   η ~ Gamma(a + Σ l_lk, b - L Σ_k log q_k)

    Inactive labels count as one label with n_rest η, which is the distribution of the sum of their counts.
    """
    L = len(counts) + n_rest
    tables = int(table_counts(counts, eta, rng).sum())
    if n_rest:
        tables += int(table_counts(rest_counts, n_rest * eta, rng).sum())
    in_topics = counts.sum(axis=0) + rest_counts
    in_topics = in_topics[in_topics > 0]  # q is 1 for the others
    mine, others = _log_gamma(np.full(len(in_topics), L * eta), rng), _log_gamma(in_topics.astype(np.float64), rng)
    rate = _ETA_RATE + L * float((np.logaddexp(mine, others) - mine).sum())
    return max(float(rng.standard_gamma(_ETA_SHAPE + tables)) / rate, np.finfo(np.float64).tiny)


def draw_labels(
    counts: Integers, rest_counts: Integers, n_rest: int, eta: float, rng: Generator
) -> tuple[Floats, Floats]:
    """Draw v_k ~ Dirichlet(η + counts): V (A, K), and (K,) for each inactive label. Of the latter only the sum is
    drawn, since nothing observed depends on more; each gets an equal share, its mean given the sum."""
    logs = _log_gamma(counts + eta, rng)
    of_rest = _log_gamma(rest_counts + n_rest * eta, rng) if n_rest else np.full(len(rest_counts), -np.inf)
    total = np.logaddexp(np.logaddexp.reduce(logs, axis=0), of_rest)
    return np.exp(logs - total), np.exp(of_rest - total) / max(n_rest, 1)


def _log_gamma(shape: NDArray[np.floating[Any]], rng: Generator) -> Floats:
    """Draw log g, g ~ Gamma(shape, 1), as g' p^(1/shape) with g' ~ Gamma(shape + 1, 1) and p uniform: for a shape as
    small as η often is, g itself underflows float64."""
    return np.asarray(np.log(rng.standard_gamma(shape + 1)) - rng.standard_exponential(shape.shape) / shape)


# Arrays


def _floored(drawn: Floats, like: Tensor) -> Tensor:
    """Return the draws, at least the tiniest number above 0, so that some topic can explain every label."""
    return torch.from_numpy(drawn).to(like).clamp_min_(torch.finfo(like.dtype).tiny)


def _draw_rows(draw: Callable[..., Floats], like: Tensor, *arrays: Tensor | Integers | Floats) -> Tensor:
    """Draw (N, K) from arrays (N, K), in blocks of rows and in float64."""
    result = torch.empty_like(like)
    for rows in row_blocks(*like.shape, entries=_CHUNK, most=_CHUNK):
        parts = [_numpy(part[rows]).astype(np.float64) if isinstance(part, Tensor) else part[rows] for part in arrays]
        result[rows] = torch.from_numpy(draw(*parts)).to(like)
    return result


def _numpy(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.cpu().numpy()
    return array
