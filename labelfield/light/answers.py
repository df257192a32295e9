"""Predictions of linear machines, factor models and mixes of the two, from the arrays of their folder.

These are the formulas of `models/linear`, `models/mlgpf`, `models/stack.py` and `models/calibration.py`, explained in
those files: without torch, for a model that is not trained further. A test holds both to the same answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.models.linear.scores import ByFeature, Weights, products

Arrays = dict[str, NDArray[Any]]
F4 = NDArray[np.float32]
# As in the files named above.
_NEVER, _LEAST_ODDS, _LEAST_TREE, _MOST_TREE = -30.0, -25.0, -10.0, 0.9999
_LEAST_VARIANCE, _SMALLEST, _LARGEST = 1e-6, 1e-37, 1 - 6e-8
_RAISES = 4


def small(arrays: Arrays) -> Arrays:
    """Return what mixes and calibrates, apart from the weights of members, which need much memory."""
    return {name: own for name, own in arrays.items() if name.startswith(("stack.", "calibration."))}


def expit(odds: F4) -> F4:
    """Return σ(odds); importing SciPy's functions of such names takes a fifth of a second."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-odds)))


def logit(P: F4) -> F4:
    """Return log P / (1 - P)."""
    return np.asarray(np.log(P) - np.log1p(-P))


# Probabilities beyond which none is taken to be certain, and their log-odds.
_SURE = np.array([1e-7, 1 - 1e-7], np.float32)
_SURE_ODDS = logit(_SURE)


class LightLinear:
    """Linear machines: log-odds of labels for rows as the machines see them."""

    def __init__(self, arrays: Arrays, spec: dict[str, Any], n_threads: int) -> None:
        self.n_trees, self.has_own = spec["n_trees"], spec.get("has_own", True)
        self.machines: Weights | None = Weights(*(arrays[name] for name in ("weights", "features", "pointers")))
        self.groups, self.intercepts, self.n_threads = arrays["groups"], arrays["intercepts"], n_threads
        self.stack = LightStack(arrays)
        self.by_feature: ByFeature | None = None

    def prepare(self, n_features: int) -> None:
        """Put weights in the order in which a few rows at a time are answered fastest, and forget the other order."""
        if self.machines is not None:
            self.by_feature, self.machines = ByFeature(self.machines, n_features), None

    def __call__(self, X: sparse.csr_array) -> F4:
        """Return the log-odds of labels (N, K)."""
        if self.by_feature is not None:
            scores = self.by_feature.scores(X)
        else:
            assert self.machines is not None
            scores = products(X, self.machines, self.n_threads)
        scores += self.intercepts
        return self.stack(self._parts(scores))

    def _parts(self, scores: F4) -> list[F4]:
        if not self.n_trees:
            return [scores]
        n_labels = self.groups.shape[1]
        first = self.has_own * n_labels
        n_before = first + self.n_trees * n_labels
        of_groups, total = _rho(scores[:, n_before:]), np.zeros((len(scores), n_labels), np.float32)
        for tree, groups in enumerate(np.split(self.groups, self.n_trees)):
            path = _rho(scores[:, first + tree * n_labels : first + (1 + tree) * n_labels])
            for group in groups:
                path += of_groups[:, group - n_before]
            total += np.exp(path)
        p = np.clip(total / np.float32(self.n_trees), np.float32(np.exp(_LEAST_TREE)), None)
        return [scores[:, :n_labels], np.log(p)] if self.has_own else [logit(np.minimum(p, np.float32(_MOST_TREE)))]


def _rho(scores: F4) -> F4:
    return -np.square(np.maximum(2 - scores, 0))


class LightFactors:
    """A factor model with the kernel a exp(-r² / 2) + b xᵀ W² z and a diagonal whitened q(u)."""

    def __init__(self, arrays: Arrays, spec: dict[str, Any]) -> None:
        self.arrays = arrays
        self.a, self.b = (float(np.exp(arrays[f"kernel.{name}"])) for name in ("log_variance", "log_slope"))
        self.relevance = np.exp(2 * arrays["kernel.log_weights"])
        Zt = arrays["inducing.transposed"]
        if spec["unit_norm"]:
            Zt = Zt / np.maximum(np.linalg.norm(Zt, axis=0), 1e-12)
        support = arrays["inducing.support"] if spec["n_support"] else np.arange(spec["n_features"])
        self.place = np.full(spec["n_features"], -1, np.int32)
        self.place[support] = np.arange(len(support))
        weights = self.relevance[support]
        self.weighted, self.norms = Zt * weights[:, None], weights @ np.square(Zt)
        factor = _factor(self._covariance((self.weighted.T @ Zt).astype(np.float64)), spec["jitter"])
        self.whitening = np.linalg.inv(factor)
        with np.errstate(over="ignore"):  # what is no number then is told with the answer
            self.squares, self.shrinkage = np.square(arrays["Phi"]), np.expm1(arrays["family.log_var"])
            self.norms_of_labels = self.squares.sum(axis=1)
        self.nodes, shares = np.polynomial.hermite_e.hermegauss(spec["n_points"])
        self.shares = shares / shares.sum()

    def _covariance(self, products: NDArray[np.float64]) -> NDArray[np.float64]:
        norms = np.diagonal(products)
        squared = np.maximum(norms[:, None] + norms - products - products.T, 0)
        np.fill_diagonal(squared, 0)
        return np.asarray(self.a * np.exp(-0.5 * squared) + self.b * products)

    def __call__(self, X: sparse.csr_array) -> F4:
        """Return the log-odds of labels (N, K)."""
        f_mean, var = self._moments(X)
        f_std = var @ self.squares.T
        np.sqrt(f_std, out=f_std)
        size = np.abs(f_mean)
        P, term = np.zeros_like(f_mean), np.empty_like(f_mean)
        with np.errstate(over="ignore"):
            for node, share in zip(self.nodes, self.shares, strict=True):  # in place: new arrays take longer
                np.multiply(f_std, np.float32(-node), out=term)
                term += size
                np.exp(term, out=term)
                term += 1
                P += np.divide(np.float32(share), term, out=term)
        # Of -|f|, because what a probability near 1 lacks is lost to rounding.
        odds = logit(np.maximum(P, _SURE[0]))
        return np.clip(np.copysign(odds, f_mean, out=odds), *_SURE_ODDS)

    def best_with(self, X: sparse.csr_array, others: F4, slopes: F4, least: F4, k: int) -> tuple[NDArray[np.int64], F4]:
        """Return the labels (N, k) of the largest log-odds max(least, others + slopes · ours), best first, and these.

        Averages are taken only for labels that can be among them: the same as of all, in a third of the time.
        """
        from labelfield.compiled.mixing import best_of_mix

        f_mean, var = self._moments(X)
        labels, odds = np.empty((len(others), k), np.int64), np.empty((len(others), k), np.float32)
        if np.isfinite(f_mean).all() and np.isfinite(var).all():
            sure = _SURE.astype(np.float64)
            own = self.squares, self.norms_of_labels, slopes, least, self.nodes, self.shares, sure
            best_of_mix(others, f_mean, var, *own, labels, odds)
        else:
            odds[:] = np.nan
        return labels, odds

    def _moments(self, X: sparse.csr_array) -> tuple[F4, F4]:
        """Return the means of utilities (N, K), and the variances of latent processes (N, P)."""
        place = self.place[X.indices]
        inside = np.where(place >= 0, X.data, np.float32(0))
        shape = (X.shape[0], len(self.weighted))
        rows = sparse.csr_array((inside, np.maximum(place, 0), X.indptr), shape=shape)
        cross = np.asarray(rows @ self.weighted)
        squares = sparse.csr_array((np.square(X.data), X.indices, X.indptr), shape=X.shape)
        norms = squares @ self.relevance
        squared = np.maximum(norms[:, None] + self.norms - 2 * cross, 0)
        Kzx = (self.a * np.exp(-0.5 * squared) + self.b * cross).T
        kxx = self.a + self.b * norms
        A = (self.whitening @ Kzx.astype(np.float64)).astype(np.float32)
        mean = A.T @ self.arrays["family.mean"].T
        var = kxx[:, None] + np.square(A).T @ self.shrinkage.T
        f_mean = mean @ self.arrays["Phi"].T
        f_mean += self.arrays["b"]
        return f_mean, np.maximum(var, _LEAST_VARIANCE)


def _factor(K: NDArray[np.float64], jitter: float) -> NDArray[np.float64]:
    """Return the Cholesky factor, with as much jitter as the model would take."""
    scale = max(float(np.diagonal(K).mean()), np.finfo(np.float64).tiny)
    for _ in range(_RAISES):
        try:
            return np.asarray(np.linalg.cholesky(K + jitter * scale * np.eye(len(K))))
        except np.linalg.LinAlgError:
            jitter = 10 * max(jitter, 1e-9)
    raise ValueError("the covariance of the inducing inputs is not positive definite")


class LightStack:
    """The log-odds of labels from the scores of parts: a sum for each label, with weights that are looked up once."""

    def __init__(self, arrays: Arrays) -> None:
        places, is_unseen = arrays["stack.places"], arrays["stack.unseen"] < 0
        # Labels that were never seen are the constant NEVER.
        self.least = np.where(is_unseen, np.float32(_NEVER), np.float32(_LEAST_ODDS))
        self.offsets = np.where(is_unseen, np.float32(_NEVER), places @ arrays["stack.offsets"])
        self.slopes = [np.where(is_unseen, np.float32(0), places @ slopes) for slopes in arrays["stack.slopes"]]

    def __call__(self, parts: list[F4]) -> F4:
        """Return the log-odds (N, K)."""
        result = self.sums(parts, self.slopes)
        return np.maximum(result, self.least, out=result)

    def sums(self, parts: list[F4], slopes: list[F4]) -> F4:
        """Return the sums (N, K) of some parts, before they are limited."""
        result = parts[0] * slopes[0]
        result += self.offsets
        for part, own in zip(parts[1:], slopes[1:], strict=True):
            result += part * own
        return result


def unsure(odds: F4) -> F4:
    """Return log-odds of which none is taken to be certain."""
    return np.clip(odds, *_SURE_ODDS)


def calibrated(arrays: Arrays, P: F4) -> F4:
    """Return the calibrated probabilities of the best labels of rows (N, k), the best first."""
    knots, slopes, offsets = (arrays[f"calibration.{name}"] for name in ("knots", "slopes", "offsets"))
    lead = arrays.get("calibration.lead")
    if (slopes == 1).all() and not offsets.any() and (lead is None or not lead[1]):
        return P
    z = logit(np.clip(P, np.float32(_SMALLEST), np.float32(_LARGEST)))
    result = slopes[0] * z
    for knot, change in zip(knots, np.diff(slopes), strict=True):
        result = result + change * np.maximum(z - knot, 0)
    if lead is not None:
        result[:, 0] += lead[1] * np.maximum(z[:, 0] - lead[0], 0)
    ranks = np.minimum(np.arange(P.shape[1]), len(offsets) - 1)
    return np.asarray(expit(result + offsets[ranks]))
