"""What a fitted model says of new rows, in blocks that bound the memory for any number of rows and labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import logsigmoid

from labelfield.csr import from_counts
from labelfield.linalg.gaussian import LEAST_VARIANCE
from labelfield.linalg.rows import Rows, entry_places, entry_rows
from labelfield.models.mlgpf.model import MLGPF, InducingState
from labelfield.variational import Moments


class Latent(NamedTuple):
    """Means and variances of the latent processes (N, P) and of the utilities (N, K)."""

    h_mean: NDArray[np.float32]
    h_var: NDArray[np.float32]
    f_mean: NDArray[np.float32]
    f_var: NDArray[np.float32]


def expected_log_likelihood(model: MLGPF, h: Moments, X: Rows, Y: Tensor) -> float:
    """Σ_ik E log p(y_ik | f_ik) exactly over all labels, for Y sparse CSR."""
    rows, columns = entry_rows(Y.crow_indices()), Y.col_indices().long()
    total = float(_means_at(model, h, X, rows, columns).sum(dtype=torch.float64))
    for _, f in label_blocks(model, h, X):
        total -= float(model.likelihood.expected_softplus(f.mean, f.var))
    return total


def to_indicator(parts: Iterable[tuple[slice, slice, Tensor]], shape: tuple[int, int]) -> sparse.csr_array:
    """A CSR indicator (N, K) from blocks of it: their rows, their labels, and whether these hold there."""
    found = [(np.zeros(0, np.int64),) * 2]
    for rows, labels, holds in parts:
        row, column = (part.cpu().numpy() for part in holds.nonzero(as_tuple=True))
        found.append((row + rows.start, column + labels.start))
    row, column = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((column, row))
    return from_counts(np.bincount(row, minlength=shape[0]), column[order].astype(np.int32), None, shape[1])


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


def credible_interval(f: Moments, z: float) -> tuple[Tensor, Tensor]:
    """The interval of σ(f) between the normal quantiles -z and z of f: σ is monotone, so σ(mean ± z sd)."""
    deviation = f.var.sqrt()
    return torch.sigmoid(f.mean - z * deviation), torch.sigmoid(f.mean + z * deviation)


def unexplained_share(model: MLGPF, X: Rows, state: InducingState) -> Tensor:
    """ν_i = (k_ii - k_iZ K_Z⁻¹ k_Zi) / k_ii (B,), the mean over processes where each has a kernel of its own.

    The inducing inputs say nothing about this share of the prior variance of h at a row: no q(u), however sure of u, is
    surer of h. The posterior's variance adds A_iᵀ S A_i, the larger the more a row is like the inducing inputs; on
    EUR-Lex the two cancel, and rows with permuted features come out no more uncertain than others.
    """
    kxx = model.kernel.diag(X)
    explained = state.prior.whiten(model.kernel.cross(X, state.points).mT).square().sum(-2)
    # Where the prior itself has no variance (an empty row under a linear kernel) nothing is explained.
    share = (kxx - explained).clamp_min(LEAST_VARIANCE) / kxx.clamp_min(LEAST_VARIANCE)
    return share if share.dim() == 1 else share.mean(0)


def label_correlation(model: MLGPF, labels: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """Correlation of utilities under the prior, from ΦΦᵀ, between these labels (default: all)."""
    Phi = model.Phi.detach().cpu()
    if labels is not None:
        Phi = Phi[torch.from_numpy(np.asarray(labels, np.int64))]
    Phi = Phi / Phi.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return np.asarray((Phi @ Phi.T).numpy(), np.float32)
