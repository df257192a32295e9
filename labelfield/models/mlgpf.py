"""The multi-label Gaussian-process factor model [MLJ 1–4].

    h_p ~ GP(0, k),  p = 1 … P            f = Φ h + b            p(y | f) = Π_k σ(f_k)^y_k (1 - σ(f_k))^(1 - y_k)

Under q the utilities are Gaussian: q(f_ik) = N(Σ_p φ_kp m_ip + b_k, Σ_p φ_kp² s_ip). A private process of each label,
if there is one, adds its own mean and variance (models/private.py).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from labelfield.inducing import Free, Subspace
from labelfield.kernels import Kernel, Points
from labelfield.likelihoods import Bernoulli
from labelfield.linalg.rows import Projected, Rows, entry_rows, n_rows
from labelfield.models.calibration import Calibration
from labelfield.models.private import PrivateProcess
from labelfield.variational import Family, Moments, Prior

__all__ = ["MLGPF", "Elbo"]


class Elbo(NamedTuple):
    """The two sides of the evidence lower bound of the whole data set, in nats."""

    fit: Tensor
    kl: Tensor

    def bound(self, kl_weight: float = 1.0) -> Tensor:
        """fit - kl; another weight of the divergence makes it a tempered bound."""
        return self.fit - kl_weight * self.kl


class Frame(NamedTuple):
    """The inducing inputs as the kernel sees them, and the prior of their variables."""

    points: Points
    prior: Prior


class MLGPF(nn.Module):
    """The model: parts are given, the mixing Φ (K, P) and the bias b (K,) are its own."""

    def __init__(
        self,
        kernel: Kernel,
        inducing: Free | Subspace,
        family: Family,
        Phi: Tensor,
        b: Tensor,
        *,
        private: PrivateProcess | None = None,
        likelihood: Bernoulli | None = None,
        jitter: float = 1e-6,
    ) -> None:
        super().__init__()
        self.kernel, self.inducing, self.family = kernel, inducing, family
        self.Phi = nn.Parameter(Phi)
        self.b = nn.Parameter(b)
        self.private = private
        self.calibration = Calibration()
        self.likelihood = likelihood or Bernoulli()
        self.jitter = jitter

    @property
    def n_labels(self) -> int:
        return int(self.b.shape[0])

    def frame(self) -> Frame:
        """What is the same for all rows, formed once for as many as there are."""
        points = self.inducing.points()
        return Frame(points, Prior(self.kernel.gram(points), self.jitter))

    def latent(self, X: Rows, frame: Frame | None = None) -> tuple[Moments, Prior]:
        """q(h) at rows (B, P), and the prior of the inducing variables it was formed with."""
        points, prior = frame or self.frame()
        return self.family.moments(prior, self.kernel.cross(X, points).mT, self.kernel.diag(X)), prior

    def utilities(self, h: Moments, X: Rows, labels: Tensor | slice | None = None) -> Moments:
        """q(f) of rows X for these labels, or all (B, K)."""
        Phi, b = (self.Phi, self.b) if labels is None else (self.Phi[labels], self.b[labels])
        mean, var = torch.addmm(b, h.mean, Phi.T), h.var @ Phi.square().T
        if self.private is not None:
            if isinstance(X, Projected):
                raise ValueError("projected rows have lost the features that private processes see")
            own_mean, own_var = self.private.utilities(X, labels)
            mean, var = mean + own_mean, var if own_var is None else var + own_var
        return Moments(mean, var)

    def kl(self, prior: Prior) -> Tensor:
        """The divergence of all that is learned from its prior, in float64."""
        shared = self.family.kl(prior)
        return shared if self.private is None else shared + self.private.kl()

    def elbo(
        self,
        X: Rows,
        Y: Tensor,
        n_data: int,
        *,
        n_negatives: int | None = None,
        n_points: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """An unbiased estimate of the bound on n_data rows from a batch: rows X and their labels Y (sparse CSR).

        With `n_negatives`, the labels that hold in some row of the batch count exactly, and of the others so many are
        drawn, shared by all rows, each standing for its share [FSGP 23]. Without, all labels count: exact over labels.
        """
        h, prior = self.latent(X)
        labels, weight = self._choose_labels(Y, n_negatives, generator)
        f = self.utilities(h, X, labels)
        row, column = _positives(Y, labels)
        likelihood = self.likelihood if n_points is None else Bernoulli(n_points)
        softplus = likelihood.expected_softplus(f.mean, f.var, weight)
        fit = f.mean[row, column].sum(dtype=torch.float64) - softplus
        return Elbo(fit * (n_data / n_rows(X)), self.kl(prior))

    def _choose_labels(
        self, Y: Tensor, n_negatives: int | None, generator: torch.Generator | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """The labels of a step and how much each counts; (None, None) for all labels."""
        if n_negatives is None:
            return None, None
        held = torch.unique(Y.col_indices().long())
        n_others = self.n_labels - held.numel()
        if n_negatives >= n_others:
            return None, None
        is_held = torch.zeros(self.n_labels, dtype=torch.bool, device=held.device)
        is_held[held] = True
        others = (~is_held).nonzero().squeeze(1)
        drawn = others[
            torch.randperm(n_others, generator=generator, device=_device(generator))[:n_negatives].to(held.device)
        ]
        weight = torch.ones(held.numel() + n_negatives, dtype=self.b.dtype, device=self.b.device)
        weight[held.numel() :] = n_others / n_negatives
        return torch.cat([held, drawn]), weight


def _device(generator: torch.Generator | None) -> torch.device:
    return generator.device if generator is not None else torch.device("cpu")


def _positives(Y: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Row and column, among the labels of this step, of each positive."""
    row, column = entry_rows(Y.crow_indices()), Y.col_indices().long()
    if labels is not None:
        # The labels that hold come first and in order.
        n_held = int(torch.unique(column).numel())
        column = torch.searchsorted(labels[:n_held], column)
    return row, column
