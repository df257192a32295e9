"""The multi-label Gaussian-process factor model [MLJ 1–4].

    h_p ~ GP(0, k),  p = 1 … P            f = Φ h + b            p(y | f) = Π_k σ(f_k)^y_k (1 - σ(f_k))^(1 - y_k)

Under q the utilities are Gaussian: q(f_ik) = N(Σ_p φ_kp m_ip + b_k, Σ_p φ_kp² s_ip). Where each label
also has its own linear process, that adds a mean and a variance (models/mlgpf/label_linear.py). With a squared
hinge in place of the Bernoulli (likelihoods/squared_hinge.py) each b_k also has a prior N(b_mean_k, 1).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from labelfield.inducing import Free, Subspace
from labelfield.kernels import Kernel, Points
from labelfield.likelihoods import Bernoulli, MultiLabel
from labelfield.likelihoods.multilabel import Mixing
from labelfield.linalg.partial import PartialLabels
from labelfield.linalg.rows import Projected, Rows, n_rows, take
from labelfield.models.calibration import Calibration
from labelfield.models.elbo import Elbo
from labelfield.models.mlgpf.label_linear import LabelLinear, LabelLinearSubset
from labelfield.models.mlgpf.shares import Shares
from labelfield.models.sampling import choose_labels
from labelfield.variational.families import Family, Moments, Prior


class InducingState(NamedTuple):
    """The inducing inputs as the kernel sees them, and the prior of their variables."""

    points: Points
    prior: Prior


class MLGPF(nn.Module):
    """The model: it is given its parts, and owns the mixing Φ (K, P) and the bias b (K,)."""

    b_mean: Tensor | None

    def __init__(
        self,
        kernel: Kernel,
        inducing: Free | Subspace,
        family: Family,
        Phi: Tensor,
        b: Tensor,
        *,
        label_linear: LabelLinear | None = None,
        likelihood: MultiLabel | None = None,
        b_mean: Tensor | None = None,
        jitter: float = 1e-6,
    ) -> None:
        super().__init__()
        self.kernel, self.inducing, self.family = kernel, inducing, family
        self.Phi = nn.Parameter(Phi)
        self.b, self.n_labels = nn.Parameter(b), len(b)
        # The mean of the prior of b, if it has one.
        self.register_buffer("b_mean", b_mean)
        self.label_linear = label_linear
        self.calibration = Calibration()
        self.likelihood = likelihood or Bernoulli()
        self.jitter = jitter

    def inducing_state(self) -> InducingState:
        """Compute what is the same for all rows: the inducing inputs as points, and the prior of their variables."""
        points = self.inducing.points()
        return InducingState(points, Prior(self.kernel.gram(points), self.jitter))

    def latent(self, X: Rows, state: InducingState | None = None) -> tuple[Moments, Prior]:
        """Return q(h) at rows (B, P) and the prior of the inducing variables that it was formed with."""
        points, prior = state or self.inducing_state()
        return self.family.moments(prior, self.kernel.cross(X, points).mT, self.kernel.diag(X)), prior

    def utilities(self, h: Moments, X: Rows, labels: slice | None = None) -> Moments:
        """Return q(f) of rows X for these labels, or for all (B, K)."""
        return self._labels(labels).utilities(h, X)

    def means(self, h: Moments, X: Rows, labels: slice | None = None) -> Tensor:
        """Return only the means of q(f)."""
        return self._labels(labels).means(h, X)

    def variances(self, h: Moments, X: Rows, labels: slice | None = None) -> Tensor:
        """Return only the variances of q(f)."""
        return self._labels(labels).variances(h, X)

    def kl(self, prior: Prior) -> Tensor:
        """Return the divergence from the prior of everything that is learned, in float64."""
        return self._kl(prior, self._labels(None), None)

    def _labels(self, labels: Tensor | slice | None) -> _Labels:
        """Select labels. Those given by number alone get a gradient, so the cost of a step does not grow with K."""
        linear = None if self.label_linear is None else self.label_linear.select(labels)
        if labels is None:
            return _Labels(self.Phi, self.b, linear, self.b_mean)
        b_mean = None if self.b_mean is None else self.b_mean[labels]
        if isinstance(labels, Tensor):
            return _Labels(take(self.Phi, labels), take(self.b, labels), linear, b_mean)
        return _Labels(self.Phi[labels], self.b[labels], linear, b_mean)

    def _kl(self, prior: Prior, labels: _Labels, weight: Tensor | None, has_shared: bool = True) -> Tensor:
        """Return the divergence of these labels, with that of the shared processes unless others count it."""
        total = self.family.kl(prior).sum() * has_shared
        if labels.label_linear is not None:
            total = total + labels.label_linear.kl(weight)
        if labels.b_mean is not None:  # -log p(b), up to a constant
            each = 0.5 * (labels.b - labels.b_mean).square()
            total = total + (each if weight is None else each * weight).sum(dtype=torch.float64)
        return total

    def elbo(
        self,
        X: Rows,
        Y: Tensor | PartialLabels,
        n_data: int,
        *,
        n_negatives: int | None = None,
        n_points: int | None = None,
        positive_weight: Tensor | None = None,
        generator: Generator | None = None,
        shares: Shares | None = None,
    ) -> Elbo:
        """Estimate the bound on n_data rows, without bias, from a batch of rows X and their labels Y (sparse CSR).

        With `n_negatives`, labels that hold in some row of the batch count exactly. From the others `n_negatives` are
        drawn and shared by all rows, each standing for its share [FSGP 23], also in the divergence. Without it all
        labels count exactly. A label that holds counts `positive_weight` (K,) times. Of
        partial labels, those that were not observed are ignored, whether they are drawn or not.

        Of several processes with `shares` of the labels each returns its part of the estimate; their sum is the whole.
        """
        partial, Y = (Y, Y.Y) if isinstance(Y, PartialLabels) else (None, Y)
        choice = choose_labels(Y.col_indices().long(), n_negatives, self.n_labels, generator)
        if shares is None:
            h, prior = self.latent(X)
        else:
            h, prior = shares.latent(self, X)
            choice, Y = shares.own_labels(choice, Y)
        chosen, weight, column = choice
        weight = None if weight is None else weight.to(self.b.dtype)
        labels = self._labels(chosen)
        likelihood = self.likelihood if n_points is None else self.likelihood.for_training(n_points)
        hidden = None if partial is None else partial.hidden(chosen)
        fit = likelihood.mixed_log_prob(labels.mixing(h, X), Y, column, weight, positive_weight, hidden)
        kl = self._kl(prior, labels, weight, has_shared=shares is None or shares.cluster.is_first)
        return Elbo(fit * (n_data / n_rows(X)), kl)


class _Labels(NamedTuple):
    """The parameters of all or some labels: Φ (K, P), b (K,), their linear processes, and the prior mean of b."""

    Phi: Tensor
    b: Tensor
    label_linear: LabelLinearSubset | None
    b_mean: Tensor | None

    def utilities(self, h: Moments, X: Rows) -> Moments:
        return Moments(self.means(h, X), self.variances(h, X))

    def mixing(self, h: Moments, X: Rows) -> Mixing:
        own_mean = own_var = None
        if self.label_linear is not None:
            rows = _with_features(X)
            own_mean, own_var = self.label_linear.means(rows), self.label_linear.variances(rows)
        return Mixing(*h, self.Phi, self.b, own_mean, own_var)

    def means(self, h: Moments, X: Rows) -> Tensor:
        if self.label_linear is None:
            return torch.addmm(self.b, h.mean, self.Phi.T)
        # In place: allocating an array of this size is slow.
        return self.label_linear.means(_with_features(X)).add_(self.b).addmm_(h.mean, self.Phi.T)

    def variances(self, h: Moments, X: Rows) -> Tensor:
        var = h.var @ self.Phi.square().T
        own = None if self.label_linear is None else self.label_linear.variances(_with_features(X))
        return var if own is None else var.add_(own)


def _with_features(X: Rows) -> Tensor:
    if isinstance(X, Projected):
        raise ValueError("projected rows no longer have the features that the labels' linear processes need")
    return X
