"""The random draws that a Gibbs sampler for the Bernoulli-Poisson topic model needs [BMLPL 3].

Every function takes and returns NumPy arrays, and is random only through the generator it is given.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from scipy.special import rgamma

from labelfield.memory import row_blocks

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The most numbers formed at once beside the result: a core's cache holds a few temporaries of this size.
_CHUNK = 1 << 16
# For J*(h, 0), h ≤ 1: below the cut the first term of a series bounds the density; beyond it, an exponential times the
# excess does. The excess is 1.019 at most (h = 1/2).
_CUT, _EXCESS = 2.8, 1.02


def zero_truncated_poisson(rate: ArrayLike, rng: Generator) -> Integers:
    """Draw m ≥ 1 with p(m) ∝ rate^m / m!, the distribution of m_ln given y_ln = 1; at rate 0 the limit m = 1.

    Exact: given that a Poisson process has an arrival before time `rate`, the first arrival is at t with p(t) ∝ e^-t,
    and a Poisson number of further arrivals follows in the remaining time.
    """
    rate = _at_least_zero(rate, "rate")
    # log1p and expm1 keep t exact where e^-rate is close to 1. Rounding may take t beyond the end.
    first = -np.log1p(rng.random(rate.shape) * np.expm1(-rate))
    return np.asarray(1 + rng.poisson(np.maximum(rate - first, 0)), np.int64)


def split_counts(counts: ArrayLike, weights: ArrayLike, rng: Generator) -> Integers:
    """Draw (m_1 … m_K) ~ Multinomial(m, w / Σw) for each count m of (n,) and its weights w ≥ 0 of (n, K), which need
    not be normalised: (n, K), whose rows sum to the counts. This splits m_ln among topics, with w_k = v_lk u_kn."""
    counts, weights = _integers(counts), np.asarray(weights)
    if counts.ndim != 1 or weights.ndim != 2 or len(counts) != len(weights) or weights.shape[1] == 0:
        raise ValueError(f"counts of shape {counts.shape}, weights {weights.shape}; expected (n,) and (n, K), K ≥ 1")
    result = np.zeros(weights.shape, np.int64)
    for rows in row_blocks(len(counts), weights.shape[1], entries=_CHUNK, most=_CHUNK):
        m, w, part = counts[rows], _at_least_zero(weights[rows], "weights"), result[rows]
        largest = w.max(axis=1)
        if np.any(m[largest == 0] > 0):
            row = rows.start + np.flatnonzero((largest == 0) & (m > 0))[0]
            raise ValueError(f"row {row} has a count of {counts[row]} to split, but no weight above 0")
        # Divided by the largest, weights of any size can be summed.
        w = w / np.where(largest > 0, largest, 1)[:, None]
        ones, several = np.flatnonzero(m == 1), np.flatnonzero(m > 1)
        part[ones, _categories(w[ones], rng)] = 1
        part[several] = _multinomial(m[several], w[several], rng)
    return result


def _categories(weights: Floats, rng: Generator) -> NDArray[np.intp]:
    """Draw one category for each row of weights with a largest weight of 1: the first whose cumulative weight exceeds a
    uniform point. It exists and has a weight above 0, since u < 1 times the total does not round up to the total."""
    cumulative = np.cumsum(weights, axis=1)
    point = rng.random(len(weights)) * cumulative[:, -1]
    return np.asarray(np.argmax(cumulative > point[:, None], axis=1))


def _multinomial(counts: Integers, weights: Floats, rng: Generator) -> Integers:
    """Draw from NumPy's multinomial, which draws categories in turn and gives the rest to the last one. With the
    largest weight last, rounding can neither exhaust the remaining probability nor give a count to a weight of 0."""
    p = weights / weights.sum(axis=1, keepdims=True)
    rows, largest = np.arange(len(p)), p.argmax(axis=1)

    def swap_with_last(array: NDArray[Any]) -> None:
        array[rows, largest], array[:, -1] = array[:, -1].copy(), array[rows, largest]

    swap_with_last(p)
    result = rng.multinomial(counts, p)
    swap_with_last(result)
    return np.asarray(result, np.int64)


def table_counts(counts: ArrayLike, concentration: ArrayLike, rng: Generator) -> Integers:
    """Draw l ~ CRT(m, r) = Σ_{t=1..m} Bernoulli(r / (r + t - 1)), the tables of a Chinese restaurant with m customers,
    which make the conditional of r_k a gamma. Counts m ≥ 0 and concentrations r > 0 broadcast; the work is Σm."""
    r = _at_least_zero(concentration, "concentration")
    if np.any(r == 0):
        raise ValueError("concentration=0; expected numbers above 0")
    m, r = np.broadcast_arrays(_integers(counts), r)
    tables = np.asarray(m > 0, np.int64)  # the first customer opens a table
    is_open = m > 1
    r, later = r[is_open], m[is_open] - 1
    more = np.zeros(len(later), np.int64)
    for here, owner, place in _units(later):
        mine = r[here][owner]
        opens = rng.random(len(owner)) * (mine + place + 1) < mine  # place + 1 customers are seated already
        more[here] += np.bincount(owner[opens], minlength=len(more[here]))
    tables[is_open] += more
    return tables


def polya_gamma(h: ArrayLike, z: ArrayLike, rng: Generator) -> Floats:
    """Draw ω ~ PG(h, z) for real h ≥ 0, exactly; h = 0 gives 0. With h = m + r it makes p(m | ψ) Gaussian in ψ = z.

    PG(h, z) is a sum of ⌈h⌉ draws with h / ⌈h⌉ each, and PG(h, z) = J*(h, |z| / 2) / 4 [Polson, Scott and Windle 2013].
    h and z broadcast; the work is Σ⌈h⌉.
    """
    shapes, tilts = np.broadcast_arrays(_at_least_zero(h, "h"), np.abs(np.asarray(z, np.float64)))
    if not np.isfinite(tilts).all():
        raise ValueError("z has infinite or undefined entries; expected finite numbers")
    parts = np.ceil(shapes).astype(np.int64).ravel()
    share, y = shapes.ravel() / np.maximum(parts, 1), tilts.ravel() / 2
    result = np.zeros(len(parts))
    for here, owner, _ in _units(parts):
        x = _jacobi(share[here][owner], y[here][owner], rng)
        result[here] += np.bincount(owner, x / 4, minlength=len(result[here]))
    return result.reshape(shapes.shape)


def _jacobi(h: Floats, y: Floats, rng: Generator) -> Floats:
    """Draw x ~ J*(h, y) for 0 < h ≤ 1, with density ∝ e^(-y² x / 2) Σ_n (-1)^n a_n(x), by rejection.

    Up to the cut the sum is below a_0 [Windle, Polson and Scott 2014], and e^(-y² x / 2) a_0 is an inverse Gaussian
    density times 2^h e^(-hy). Beyond it the sum is below a multiple of x^(h-1) e^(-π² x / 8), and x^(h-1) is largest at
    the cut: a shifted exponential density times a number. These factors say how often to propose from each density.
    Half of the proposals are accepted at h = 1 and y = 0, nearly all for small h or large y; the rest are drawn again.
    """
    # Smaller values give the same draws, or 0, and their reciprocals might not be finite.
    h, y = np.maximum(h, 1e-70), np.maximum(y, 1e-70)
    rate = np.pi**2 / 8 + y * y / 2
    ratio = _EXCESS / _CUT * rgamma(h) * np.exp(h * (y + np.log(_CUT * np.pi / 4)) - _CUT * rate) / rate
    chance_beyond = ratio / (1 + ratio)
    result = np.empty(len(h))
    waiting = np.arange(len(h))
    while len(waiting):
        is_beyond = rng.random(len(waiting)) < chance_beyond[waiting]
        within, beyond = waiting[~is_beyond], waiting[is_beyond]
        x = np.concatenate([_within(h[within], y[within], rng), _beyond(h[beyond], rate[beyond], rng)])
        waiting = np.concatenate([within, beyond])
        result[waiting] = x
        waiting = waiting[np.isnan(x)]
    return result


def _within(h: Floats, y: Floats, rng: Generator) -> Floats:
    """Propose draws of J*(h, y) up to the cut; NaN where a proposal is rejected."""
    x = _inverse_gaussian(h / y, 1 / (h * y), rng)
    u = rng.random(len(x))
    # Two terms bound the sum from below, which is enough for most draws.
    unsure = np.flatnonzero((x >= _CUT) | (u >= _alternating(x, h, 1)))
    far = x[unsure]
    x[unsure] = np.where((far < _CUT) & (u[unsure] < _alternating(far, h[unsure], 6)), far, np.nan)
    return x


def _beyond(h: Floats, rate: Floats, rng: Generator) -> Floats:
    """Propose draws of J*(h, y) beyond the cut; NaN where a proposal is rejected."""
    x = _CUT + rng.standard_exponential(len(h)) / rate
    bound = _EXCESS / _CUT * np.sqrt(2 * np.pi) * (_CUT * np.pi / 4) ** h * rgamma(h + 1)
    a_0 = x**-1.5 * np.exp(np.pi**2 / 8 * x - h * h / (2 * x))
    return np.asarray(np.where(rng.random(len(h)) * bound < a_0 * _alternating(x, h, 25), x, np.nan))


def _alternating(x: Floats, h: Floats, n_terms: int) -> Floats:
    """Return Σ_n (-1)^n a_n(x) / a_0(x), a_n(x) ∝ Γ(n + h) (2n + h) / n! exp(-(2n + h)² / 2x), 0 once n² > 18 x."""
    reciprocal = -2 / np.maximum(x, 1e-3)  # below 1e-3 the sum is 1
    total, binomial = np.ones(len(x)), np.ones(len(x))
    for n in range(1, n_terms + 1):
        total += (-1) ** n * (2 + h / n) * binomial * np.exp(n * (n + h) * reciprocal)
        binomial *= 1 + h / n
    return total


def _inverse_gaussian(mean: Floats, squared_variation: Floats, rng: Generator) -> Floats:
    """Draw with these means and variances / means² (Michael, Schucany and Haas 1976), without the difference that loses
    all digits where the variation is large."""
    w = squared_variation * np.square(rng.standard_normal(len(mean))) / 2
    ratio = 1 + w + np.sqrt(w * (w + 2))
    return np.asarray(np.where(rng.random(len(mean)) * (1 + ratio) < ratio, mean / ratio, mean * ratio))


def _units(counts: Integers) -> Iterator[tuple[slice, NDArray[np.intp], Integers]]:
    """Yield the units of counts (n,) in pieces that may end anywhere, so that a large count takes no more memory than
    many small ones: the slice of counts in a piece and, per unit, its count's place in the slice and its own in the
    count."""
    ends = np.cumsum(counts)
    for units in row_blocks(int(ends[-1]) if len(ends) else 0, 1, entries=_CHUNK, most=_CHUNK):
        first, last = np.searchsorted(ends, [units.start, units.stop - 1], side="right")
        here = slice(int(first), int(last) + 1)
        begins = ends[here] - counts[here]
        n_here = np.minimum(ends[here], units.stop) - np.maximum(begins, units.start)
        owner = np.repeat(np.arange(len(begins)), n_here)
        yield here, owner, np.arange(units.start, units.stop) - begins[owner]


def _at_least_zero(values: ArrayLike, name: str) -> Floats:
    array = np.asarray(values, np.float64)
    if not np.all((array >= 0) & (array < np.inf)):
        raise ValueError(f"{name} has negative, infinite or undefined entries; expected finite numbers of at least 0")
    return array


def _integers(counts: ArrayLike) -> Integers:
    array = np.asarray(counts)
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0):
        raise ValueError(f"counts of dtype {array.dtype}, the least {array.min()}; expected integers of at least 0")
    return array.astype(np.int64, copy=False)
