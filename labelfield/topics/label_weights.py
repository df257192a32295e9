"""The weights of labels in topics: the M-step of v_k on the simplex, and of η.

    v_lk = (η + m_lk) / (e_lk + ν_k),  e_lk = Σ_{n where l is observed} u_kn,  ν_k such that Σ_l v_lk = 1

Where everything was observed, e_lk is the same for all labels and v_lk ∝ η + m_lk [BMLPL 12]. The Dirichlet density is
taken in the coordinates log v, where it has its mode there for every η > 0.
"""

import torch
from scipy.special import gammaln
from torch import Tensor

from labelfield.topics.state import Topics

# η is learned within these bounds; with many labels, the least η adds one count in total.
_LEAST_ETA, _LARGEST_ETA = 1e-4, 0.05
_N_NEWTON, _N_MINKA = 60, 20


def normalised(
    counts: Tensor, exposure: Tensor | None, exposure_rest: Tensor | None, n_rest: int, eta: float
) -> tuple[Tensor, Tensor]:
    """Return V (A, K) and the weight (K,) of each of n_rest other labels, in float64, from expected counts m (A, K)."""
    above = counts.double() + eta
    rest = above.new_full(above.shape[1:], eta)
    if exposure is None or exposure_rest is None:
        total = above.sum(0) + n_rest * rest
        return above / total, rest / total
    of_labels, of_rest = exposure.double(), exposure_rest.double()
    least = (torch.cat([of_labels, of_rest.unsqueeze(0)]) if n_rest else of_labels).min(0).values
    if not n_rest:
        of_rest = least  # belongs to no label; any value that keeps the following positive
    # Σ_l v_lk decreases in ν_k, from above 1 where a single label alone has η / (e + ν) = 1. Newton's steps on 1 / Σ,
    # which is almost linear, do not overshoot.
    nu = eta - least
    for _ in range(_N_NEWTON):
        under, under_rest = of_labels + nu, of_rest + nu
        total = (above / under).sum(0) + n_rest * rest / under_rest
        slope = (above / under.square()).sum(0) + n_rest * rest / under_rest.square()
        change = (total - 1) * total / slope
        nu = torch.maximum(nu + change, 1e-12 - least)
        if bool((change.abs() <= 1e-12 * (nu + least)).all()):
            break
    V, of_others = above / (of_labels + nu), rest / (of_rest + nu)
    total = V.sum(0) + n_rest * of_others
    return V / total, of_others / total


def dirichlet_log_density(topics: Topics) -> float:
    """Return Σ_k log Dirichlet(v_k; η) in the coordinates log v."""
    K, L, eta = topics.n_topics, topics.n_labels, topics.eta
    tiny = torch.finfo(topics.V.dtype).tiny
    logs = topics.V.double().clamp_min(tiny).log().sum()
    logs += topics.n_rest * topics.rest.double().clamp_min(tiny).log().sum()
    return float(K * (gammaln(L * eta) - L * gammaln(eta)) + eta * logs)


def best_eta(counts: Tensor, n_rest: int, eta: float) -> float:
    """Return the η that makes these counts (A, K) most probable, V integrated out, by Minka's iteration from `eta`.

    V has to be integrated out: the joint density of V and η is highest for flat topics.
    """
    counts = counts.double()
    in_topics, L = counts.sum(0), counts.shape[0] + n_rest
    for _ in range(_N_MINKA):
        start = counts.new_tensor(eta)
        above = (torch.digamma(counts + eta) - torch.digamma(start)).sum()
        below = L * (torch.digamma(in_topics + L * eta) - torch.digamma(L * start)).sum()
        if not float(above) > 0:
            break
        eta = float((eta * above / below).clamp(min(_LEAST_ETA, 1 / L), _LARGEST_ETA))
    return eta
