"""The multi-label Gaussian-process factor model [MLJ 1–4].

    h_p ~ GP(0, k),  p = 1 … P            f = Φ h + b            p(y | f) = Π_k σ(f_k)^y_k (1 - σ(f_k))^(1 - y_k)

Under q the utilities are Gaussian: q(f_ik) = N(Σ_p φ_kp m_ip + b_k, Σ_p φ_kp² s_ip). A private process of each label,
if there is one, adds its own mean and variance (models/private.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labelfield.inducing import Free, Subspace
from labelfield.kernels import Kernel, Points
from labelfield.likelihoods import Bernoulli
from labelfield.linalg.rows import Projected, Rows, n_rows, take
from labelfield.models.calibration import Calibration
from labelfield.models.private import PrivatePart, PrivateProcess
from labelfield.models.sampling import choose_labels
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
        self._kept: tuple[tuple[tuple[int, int], ...], Frame] | None = None

    @property
    def n_labels(self) -> int:
        return int(self.b.shape[0])

    def frame(self) -> Frame:
        """What is the same for all rows, formed once for as many as there are.

        Where no gradient is asked for it is kept, until anything changes that it was formed from.
        """
        if torch.is_grad_enabled():
            return self._form_frame()
        parts = (*self.kernel.parameters(), *self.inducing.parameters(), *self.inducing.buffers())
        if any(part.is_inference() for part in parts):  # these do not tell whether they have changed
            return self._form_frame()
        state = tuple((part.data_ptr(), part._version) for part in parts)
        if self._kept is None or self._kept[0] != state:
            self._kept = (state, self._form_frame())
        return self._kept[1]

    def warm_up(self) -> None:
        """Form what is the same for all rows, and kept, before the first of them comes."""
        self.frame()
        if self.private is not None:
            self.private.of()

    def __getstate__(self) -> dict[str, Any]:
        """Without what is kept, which is formed anew where it is needed."""
        return self.__dict__ | {"_kept": None}

    def _form_frame(self) -> Frame:
        points = self.inducing.points()
        return Frame(points, Prior(self.kernel.gram(points), self.jitter))

    def latent(self, X: Rows, frame: Frame | None = None) -> tuple[Moments, Prior]:
        """q(h) at rows (B, P), and the prior of the inducing variables it was formed with."""
        points, prior = frame or self.frame()
        return self.family.moments(prior, self.kernel.cross(X, points).mT, self.kernel.diag(X)), prior

    def utilities(self, h: Moments, X: Rows, labels: slice | None = None) -> Moments:
        """q(f) of rows X for these labels, or all (B, K)."""
        part = self._labels(labels)
        return Moments(_means(h, X, part), _variances(h, X, part))

    def means(self, h: Moments, X: Rows, labels: slice | None = None) -> Tensor:
        """The means of q(f) alone."""
        return _means(h, X, self._labels(labels))

    def variances(self, h: Moments, X: Rows, labels: slice | None = None) -> Tensor:
        """The variances of q(f) alone."""
        return _variances(h, X, self._labels(labels))

    def kl(self, prior: Prior) -> Tensor:
        """The divergence of all that is learned from its prior, in float64."""
        return self._kl(prior, self._labels(None), None)

    def _labels(self, labels: Tensor | slice | None) -> _Labels:
        """What is the labels' own. Of labels by number only these get a gradient, so that a step costs as much for any
        K."""
        private = None if self.private is None else self.private.of(labels)
        if isinstance(labels, Tensor):
            return _Labels(take(self.Phi, labels), take(self.b, labels), private)
        return (
            _Labels(self.Phi, self.b, private) if labels is None else _Labels(self.Phi[labels], self.b[labels], private)
        )

    def _kl(self, prior: Prior, labels: _Labels, weight: Tensor | None) -> Tensor:
        shared = self.family.kl(prior).sum()
        return shared if labels.private is None else shared + labels.private.kl(weight)

    def elbo(
        self,
        X: Rows,
        Y: Tensor,
        n_data: int,
        *,
        n_negatives: int | None = None,
        n_points: int | None = None,
        positive_weight: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """An unbiased estimate of the bound on n_data rows from a batch: rows X and their labels Y (sparse CSR).

        With `n_negatives`, the labels that hold in some row of the batch count exactly, and of the others so many are
        drawn, shared by all rows, each standing for its share [FSGP 23], in the divergence too. Without, all labels
        count: exact over labels. A label that holds counts `positive_weight` (K,) times.
        """
        h, prior = self.latent(X)
        chosen, weight, column = choose_labels(Y.col_indices().long(), n_negatives, self.n_labels, generator)
        weight = None if weight is None else weight.to(self.b.dtype)
        labels = self._labels(chosen)
        f = Moments(_means(h, X, labels), _variances(h, X, labels))
        likelihood = self.likelihood if n_points is None else Bernoulli(n_points)
        fit = likelihood.expected_log_prob(f.mean, f.var, Y, column, weight, positive_weight)
        return Elbo(fit * (n_data / n_rows(X)), self._kl(prior, labels, weight))


class _Labels(NamedTuple):
    """What is the labels' own: Φ (K, P), b (K,) and their private processes, of all labels or of some."""

    Phi: Tensor
    b: Tensor
    private: PrivatePart | None


def _means(h: Moments, X: Rows, labels: _Labels) -> Tensor:
    """The means of f (B, K) for these labels."""
    if labels.private is None:
        return torch.addmm(labels.b, h.mean, labels.Phi.T)
    # In place: an array of this size is slow to get.
    return labels.private.means(_with_features(X)).add_(labels.b).addmm_(h.mean, labels.Phi.T)


def _variances(h: Moments, X: Rows, labels: _Labels) -> Tensor:
    """The variances of f (B, K) for these labels."""
    var = h.var @ labels.Phi.square().T
    own = None if labels.private is None else labels.private.variances(_with_features(X))
    return var if own is None else var.add_(own)


def _with_features(X: Rows) -> Tensor:
    if isinstance(X, Projected):
        raise ValueError("projected rows have lost the features that private processes see")
    return X
