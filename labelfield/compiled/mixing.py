"""The best labels of a mix that has a factor model, averaged over q(f) only where a label can be among them."""

import math

import numba
import numpy as np
from numpy.typing import NDArray

from labelfield.compiled import compiled
from labelfield.compiled.scores import best_of

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]

# exp(z) is above its own log-odds z by at most these where z is at most -1, and -3.
_NEAR, _FAR = -math.log1p(-math.exp(-1)), -math.log1p(-math.exp(-3))
# More than rounding can move log-odds of up to 30.
_SLACK = 1e-3


@numba.njit(inline="always")
def _log_odds(mean, deviation, nodes, shares, least, most):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return logit E σ(N(mean, deviation²)), of probabilities between `least` and `most`."""
    p = 0.0
    for at in range(nodes.size):
        p += shares[at] / (1 + math.exp(-(mean + nodes[at] * deviation)))
    p = min(max(p, least), most)
    return math.log(p) - math.log1p(-p)


@compiled(error_model="numpy")
def best_of_mix(
    others: F4, mean: F4, var: F4, squares: F4, norms: F4, slopes: F4, least: F4,
    nodes: F8, shares: F8, sure: F8, labels: I8, odds: F4,
) -> None:  # fmt: skip
    """Write the labels of the largest log-odds of each row into `labels` (N, k), best first, and these into `odds`.

    Log-odds are others + slope · logit E σ(N(m, s²)), at least `least`, where s² = Σ_p var_p Φ²_kp. As E σ(N(m, s²)) is
    at most exp(m + s²/2) and at most σ(max(m, 0)), and s² at most Σ_p Φ²_kp · max var, most labels are ruled out
    without their s or E σ.
    """
    n_labels, k = others.shape[1], labels.shape[1]
    bounds = np.empty(n_labels, np.float32)
    lowest = math.log(sure[0]) - math.log1p(-sure[0])
    for row in range(others.shape[0]):
        rest, m, found, kept = others[row], mean[row], labels[row], odds[row]
        half = np.float32(0.5) * var[row].max()
        for label in range(n_labels):
            z = m[label] + half * norms[label]
            z = max(m[label], np.float32(0)) if z > -1 else z + (np.float32(_NEAR) if z > -3 else np.float32(_FAR))
            bound = max(rest[label] + slopes[label] * max(z, np.float32(lowest)), least[label])
            bounds[label] = np.float32(np.inf) if slopes[label] < 0 else bound + np.float32(_SLACK)
        best_of(bounds, found)
        first, n = found.copy(), 0
        for at in range(-k, n_labels):
            label = first[at + k] if at < 0 else at
            if n == k and bounds[label] < kept[k - 1]:
                continue
            s = 0.0
            for p in range(var.shape[1]):
                s += np.float64(var[row, p]) * squares[label, p]
            own = _log_odds(m[label], math.sqrt(s), nodes, shares, sure[0], sure[1])
            z = max(rest[label] + slopes[label] * np.float32(own), least[label])  # in float32, for equals stay equal
            bounds[label] = -np.float32(np.inf)  # once is enough
            place = min(n, k - 1)
            if n == k and (kept[place] > z or (kept[place] == z and found[place] < label)):
                continue
            while place > 0 and (kept[place - 1] < z or (kept[place - 1] == z and found[place - 1] > label)):
                found[place], kept[place] = found[place - 1], kept[place - 1]
                place -= 1
            found[place], kept[place] = label, z
            n = min(n + 1, k)
