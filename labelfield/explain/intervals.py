"""Credible intervals of the probabilities of a few rows, for every method that is unsure of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri
from torch import Tensor

from labelfield.estimators.deep import DeepKernelClassifier
from labelfield.estimators.gp import GPClassifier
from labelfield.estimators.topics import TopicClassifier
from labelfield.likelihoods.monte_carlo import normal_draws
from labelfield.models.calibration import N_RANKS, Calibration, places
from labelfield.models.prediction import credible_interval
from labelfield.topics.prediction import Drawn, label_probabilities
from labelfield.variational import Moments

__all__ = ["intervals"]

_N_DRAWS = 1024
# Of fewer draws the outermost say little about how far others would go.
_LEAST_DRAWS = 5
Ends = tuple[NDArray[np.float32], NDArray[np.float32]]


def intervals(estimator: Any, X: sparse.csr_array, level: float = 0.9) -> Ends | None:
    """Lower and upper ends (N, K) of the central credible intervals of the calibrated probabilities, or None for a
    method that has none.

    Of one class a row they are quantiles over draws of the utilities, whose softmax is calibrated as probabilities are;
    of topics that were sampled, over the draws that are kept. Under robustmax a draw makes one class almost certain,
    and a point estimate has no draws: no interval would say more.
    """
    if hasattr(estimator, "predict_interval"):
        low, high = estimator.predict_interval(X, level)
        return low, high
    if isinstance(estimator, DeepKernelClassifier) and estimator.model_.is_multilabel:
        return None if estimator.model_.is_plain else _of_labels(estimator, X, level)
    parts = [_draws(estimator, X[first : first + 1]) for first in range(X.shape[0])]
    if not parts or parts[0] is None:
        return None
    levels = torch.tensor([0.5 - level / 2, 0.5 + level / 2], dtype=torch.float64)
    found = [part.double().cpu().quantile(levels, dim=0).float().numpy() for part in parts if part is not None]
    low, high = np.stack(found, 1)
    return low, high


def _draws(estimator: Any, x: sparse.csr_array) -> Tensor | None:
    """Draws (T, K) of the calibrated probabilities of one row."""
    if isinstance(estimator, TopicClassifier):
        # A run that was ended early counts its few draws several times.
        n_draws = len(torch.unique(estimator.model_.r, dim=0))
        return _draws_of_topics(estimator, x) if n_draws >= _LEAST_DRAWS else None
    if isinstance(estimator, GPClassifier):
        if estimator.spec_.likelihood == "robustmax" or estimator.spec_.posterior == "point":
            return None
        f = _normal(*estimator.predict_latent(x))
    elif isinstance(estimator, DeepKernelClassifier) and not estimator.model_.is_plain:
        latent = estimator.predict_latent(x)
        A, b = (part.detach().cpu() for part in (estimator.model_.A, estimator.model_.b))
        f = _normal(latent.f_mean, latent.f_var) @ A.T + b
    else:
        return None
    with torch.no_grad():
        P: Tensor = estimator.model_.calibration(f.softmax(1).to(estimator.model_.b.device))
    return P


def _normal(mean: NDArray[np.float32], var: NDArray[np.float32]) -> Tensor:
    """Draws (T, n) of one row's."""
    m, v = torch.from_numpy(mean), torch.from_numpy(var)
    return m + v.sqrt() * normal_draws(_N_DRAWS, m.shape[1], m.dtype, m.device)


def _draws_of_topics(estimator: TopicClassifier, x: sparse.csr_array) -> Tensor:
    model = estimator.model_
    drawn = []
    (_, X), *_ = estimator._blocks(estimator._rows(x))
    with torch.no_grad():
        for parts in zip(*model.drawn(), strict=True):
            placed, rest = label_probabilities(X, Drawn(*(part.unsqueeze(0) for part in parts)))
            P = rest.repeat(model.n_labels).index_copy_(0, model.labels, placed[0])
            drawn.append(P / P.sum().clamp_min(1e-30) if estimator.label_kind_ == "classes" else P)
        calibration = getattr(model, "calibration", None)
        if calibration is None or isinstance(calibration, Calibration):
            return _mapped(estimator, calibration, x, torch.stack(drawn))
        mapped: Tensor = calibration(torch.stack(drawn))
    return mapped


def _of_labels(estimator: DeepKernelClassifier, X: sparse.csr_array, level: float) -> Ends:
    """Of several labels a row: σ of the quantiles of g, mapped as the probability of the same label is."""
    latent, model = estimator.predict_latent(X), estimator.model_
    g = Moments(torch.from_numpy(latent.g_mean), torch.from_numpy(latent.g_var))
    ends = credible_interval(g, float(ndtri(0.5 + level / 2)))
    calibration = model.calibration if isinstance(model.calibration, Calibration) else None
    low, high = (_mapped(estimator, calibration, X, end.to(model.b.device)).cpu().numpy() for end in ends)
    return low, high


def _mapped(estimator: Any, calibration: Calibration | None, X: sparse.csr_array, values: Tensor) -> Tensor:
    """Possible probabilities of the labels of rows X, or several (T, K) of one row, each calibrated by the place that
    its label has in the row's ranking."""
    if calibration is None or calibration.is_identity():
        return values
    P = torch.from_numpy(estimator.predict_proba(X, calibrated=False)).to(values.device)
    best = P.sort(dim=1, descending=True, stable=True).indices[:, :N_RANKS]
    with torch.no_grad():
        result: Tensor = calibration(values, places(best, slice(0, P.shape[1])).expand_as(values))
    return result
