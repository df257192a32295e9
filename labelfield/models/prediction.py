"""What a fitted model says of new rows, in blocks that bound the memory for any number of rows and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import logsigmoid

from labelfield.csr import from_counts
from labelfield.models.mlgpf import MLGPF
from labelfield.variational import Moments

__all__ = ["Latent", "condition", "top_k"]

_BLOCK_ENTRIES = 1 << 22
# How many candidates a cheap look at the utilities keeps for each label asked for.
_CANDIDATES = 8
_LEAST_CANDIDATES = 64
_HALVINGS = 8


class Latent(NamedTuple):
    """Means and variances of the latent processes (N, P) and of the utilities (N, K)."""

    h_mean: NDArray[np.float32]
    h_var: NDArray[np.float32]
    f_mean: NDArray[np.float32]
    f_var: NDArray[np.float32]


def _probit_order(f: Moments) -> Tensor:
    """mean / √(1 + π v / 8): E σ(f) is close to σ of this, so it ranks almost as the integral does."""
    return f.mean / (1 + (torch.pi / 8) * f.var).sqrt()


def top_k(model: MLGPF, h: Moments, k: int) -> tuple[Tensor, Tensor]:
    """The k most probable labels of each row and their probabilities E σ(f), most probable first.

    A cheap look picks candidates among all labels; the quadrature, which decides, sees only those.
    """
    n_labels = model.n_labels
    k = min(k, n_labels)
    n_candidates = min(n_labels, max(_CANDIDATES * k, _LEAST_CANDIDATES))
    step = max(1, _BLOCK_ENTRIES // n_labels)
    labels, values = [], []
    for start in range(0, h.mean.shape[0], step):
        part = Moments(h.mean[start : start + step], h.var[start : start + step])
        f = model.utilities(part)
        chosen = _probit_order(f).topk(n_candidates, dim=1).indices.sort(dim=1).values
        p = model.likelihood.predict_proba(f.mean.gather(1, chosen), f.var.gather(1, chosen))
        # A stable sort: of equal probabilities the smaller label comes first.
        order = p.sort(dim=1, descending=True, stable=True).indices[:, :k]
        labels.append(chosen.gather(1, order))
        values.append(p.gather(1, order))
    return torch.cat(labels), torch.cat(values)


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


def credible_interval(f: Moments, level: float, quantile: Callable[[float], float]) -> tuple[Tensor, Tensor]:
    """The central interval of σ(f) that holds a share `level` of its posterior: σ is monotone, so σ(mean ± z sd)."""
    z = quantile(0.5 + level / 2)
    deviation = f.var.sqrt()
    return torch.sigmoid(f.mean - z * deviation), torch.sigmoid(f.mean + z * deviation)


def condition(model: MLGPF, h: Moments, observed: Tensor, n_steps: int = 8) -> Moments:
    """q(h) sharpened by labels that are known for these rows [TH 4.37].

    `observed` (B, K) is sparse CSR with +1 where a label is known to hold and -1 where it is known not to. The mode of
    q(h) p(y_o | h) is found by Newton's method. The variances are those of each h_p given all others at the mode, from
    the diagonal of the curvature: a little smaller than the marginal ones, at a cost that does not grow with P².
    """
    rows, columns, signs = _observed_entries(observed)
    Phi, b = model.Phi[columns], model.b[columns]
    precision = 1 / h.var

    def utility(estimate: Tensor) -> Tensor:
        return (estimate[rows] * Phi).sum(1) + b

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
        best = torch.where(gains, value, best)
    wrong = torch.sigmoid(-signs * utility(estimate))
    curvature = (wrong * (1 - wrong)).unsqueeze(1) * Phi.square()
    return Moments(estimate, 1 / precision.index_add(0, rows, curvature))


def _observed_entries(observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    counts = observed.crow_indices().diff().long()
    rows = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    return rows, observed.col_indices().long(), observed.values().sign()


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
        Phi = Phi[torch.from_numpy(np.asarray(labels))]
    Phi = Phi / Phi.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return np.asarray((Phi @ Phi.T).numpy(), np.float32)
