"""E softplus(f) and its derivatives under Gaussians, in one pass over float32 arrays that stay in the cache.

With t = exp(-|f|) in (0, 1]: softplus(f) = max(f, 0) + log(1 + t), σ(|f|) = 1 / (1 + t), σ' = t / (1 + t)². Both
functions are polynomials here, so that the loops run on whole vector registers; their relative errors are below 1e-7.
"""

import numba
import numpy as np

from labelfield.compiled import compiled

# exp(r) = Σ c_i r^i for |r| ≤ ½ log 2, and log(1 + t) = t Σ c_i t^i for 0 ≤ t ≤ 1: least relative errors.
_E0, _E1, _E2, _E3, _E4, _E5 = (
    np.float32(c)
    for c in (1.0000000716546558, 0.9999996919902624, 0.4999889485139974, 0.16667574733017146, 0.04191538197638659,
              0.008297654792825331)
)  # fmt: skip
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = (
    np.float32(c)
    for c in (0.9999999698793607, -0.49999493137931494, 0.33319096754431754, -0.24842981790923646,
              0.19106005106347995, -0.1366324227632651, 0.07822591040172337, -0.029505213308061214,
              0.005232687908650985)
)  # fmt: skip
_PER_LOG_2 = np.float32(1.4426950408889634)
# log 2 in two parts, the first of which has few bits, so that its product with a small integer is exact.
_LOG_2_HIGH, _LOG_2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_LEAST = np.float32(-87.0)  # exp of anything less is not a normal number
_ROUNDING = np.float32(12582912.0)  # 1.5 · 2^23: adding and subtracting it rounds to an integer
_ONE, _HALF, _ZERO = np.float32(1), np.float32(0.5), np.float32(0)


@numba.njit(inline="always")
def _exp(x):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return exp(x) for x ≤ 0; NaN stays NaN."""
    x = _LEAST if x < _LEAST else x
    n = (x * _PER_LOG_2 + _ROUNDING) - _ROUNDING
    r = (x - n * _LOG_2_HIGH) - n * _LOG_2_LOW
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return power * (_E0 + r * (_E1 + r * (_E2 + r * (_E3 + r * (_E4 + r * _E5)))))


@numba.njit(inline="always")
def _log1p(t):  # type: ignore[no-untyped-def]
    """Return log(1 + t) for 0 ≤ t ≤ 1."""
    high = _L4 + t * (_L5 + t * (_L6 + t * (_L7 + t * _L8)))
    return t * (_L0 + t * (_L1 + t * (_L2 + t * (_L3 + t * high))))


# Sums may be reordered and products fused. Nothing assumes that numbers are finite: a step must notice if they are not.
@compiled(fastmath={"contract", "reassoc"}, error_model="numpy")
def softplus_in_place(mean, var, weight, nodes, node_weights):  # type: ignore[no-untyped-def]
    """Return Σ_bk c_k E softplus(N(mean_bk, var_bk)), and replace means and variances (B, K) by its derivatives."""
    n, width = mean.shape
    deviation, by_mean, by_var = np.empty((3, width), np.float32)
    total = 0.0
    for row in range(n):
        m, v = mean[row], var[row]
        for k in range(width):
            deviation[k] = np.sqrt(v[k])
            by_mean[k] = _ZERO
            by_var[k] = _ZERO
        for q in range(nodes.size):
            node, node_weight = nodes[q], node_weights[q]
            value = _ZERO
            for k in range(width):
                f = m[k] + node * deviation[k]
                t = _exp(-abs(f))
                inverse = _ONE / (_ONE + t)
                value += weight[k] * ((f if f > _ZERO else _ZERO) + _log1p(t))
                by_mean[k] += node_weight * (inverse if f > _ZERO else t * inverse)
                by_var[k] += node_weight * (t * inverse * inverse)
            total += np.float64(node_weight) * np.float64(value)
        for k in range(width):
            m[k] = weight[k] * by_mean[k]
            v[k] = _HALF * weight[k] * by_var[k]
    return total
