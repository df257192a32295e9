"""Tests that hold for any number of rows: p-values of "the mean is at most 0", and bounds that follow from them.

Rows are independent of each other; labels within a row are not, and so every test is about one number per row.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, betaincinv  # scipy.stats alone takes half a second to import

# The share of the largest bet that could lose everything which is dared at the most.
_MOST_BET = 0.9


def betting_p_value(values: NDArray[np.floating], least: float, level: float) -> float:
    """Return a p-value of the hypothesis that independent values ≥ `least` (< 0) have a mean of at most 0.

    The wealth Π (1 + λ_i z_i) of a gambler is a non-negative supermartingale under the hypothesis, if each λ_i depends
    on earlier values alone and 1 + λ_i z_i ≥ 0: by Ville's inequality it reaches 1/α with probability α at the most
    (Waudby-Smith and Ramdas, 2024). Bets are the best ones for a mean that this many values can just tell from 0 at
    this level. Values are taken in an order of their own, which depends on their number alone.
    """
    z = np.asarray(values, np.float64)
    z = z[np.random.default_rng(z.size).permutation(z.size)]
    z = z[z != 0]  # which change no wealth
    if not z.size:
        return 1.0
    count = np.arange(z.size)
    before = np.r_[0, np.cumsum(np.square(z))[:-1]]
    # One value of the size that the first bet has to reckon with.
    spread = (before + 0.1 * least**2) / (count + 1)
    bets = np.minimum(np.sqrt(2 * np.log(1 / level) / (z.size * spread)), _MOST_BET / -least)
    wealth = np.cumsum(np.log1p(bets * z))
    return float(np.exp(-max(wealth.max(), 0.0)))


def share_p_value(n_hits: int, n: int, share: float) -> float:
    """Return a p-value of "at most this share of draws are hits" from hits among n independent draws: exact."""
    return float(bdtrc(n_hits - 1, n, share)) if n and n_hits else 1.0


def share_bounds(n_hits: float, n: float, level: float) -> tuple[float, float]:
    """Return the ends of a confidence interval of a share at this level (Jeffreys): its coverage is near the level for
    any share, rather than above it for all."""
    outside = (1 - level) / 2
    low = 0.0 if n_hits <= 0 else float(betaincinv(n_hits + 0.5, n - n_hits + 0.5, outside))
    high = 1.0 if n_hits >= n else float(betaincinv(n_hits + 0.5, n - n_hits + 0.5, 1 - outside))
    return low, high


def largest(is_certain: Callable[[float], bool], low: float, high: float, step: float) -> float | None:
    """Return the largest of low, low + step, … high that is certain, by bisection; None if the least one is not."""
    places = np.arange(round((high - low) / step) + 1)
    if not places.size or not is_certain(low):
        return None
    first, last = 0, int(places[-1])
    while first < last:
        middle = (first + last + 1) // 2
        first, last = (middle, last) if is_certain(low + middle * step) else (first, middle - 1)
    return round(low + first * step, 9)  # 0.41, not 0.41000000000000003
