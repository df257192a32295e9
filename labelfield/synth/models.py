"""Data drawn from the multi-label GP factor model and from the Bernoulli-Poisson topic model, and rings.

rows    tf-idf vectors of unit norm: each row mixes two topics and a background, which are power laws over words
h_p     ~ GP(0, k), k linear or squared-exponential (drawn through R random Fourier features), p = 1 … P
f       = Φ h + b,  rows of Φ of norm `signal`, b such that label frequencies follow a power law
y_k     ~ Bernoulli(σ(f_k)), or in the topic model as `TopicTruth` says
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts
from labelfield.data import Dataset, Names
from labelfield.progress import Progress, ignore
from labelfield.synth.words import Labels, Words, draw_features, draw_labels, mean_sizes, pilot_rows

_DENSE_BLOCK = 1 << 18
_N_FOURIER = 256


@dataclass(frozen=True, eq=False)
class Truth:
    """The truth that a synthetic data set was drawn from. Letters as in docs/NOTATION.md."""

    weights: NDArray[np.float32]  # (D, P) for the linear kernel, (D, R) frequencies for the squared-exponential one
    phases: NDArray[np.float32] | None  # (R,)
    amplitudes: NDArray[np.float32] | None  # (R, P)
    Phi: NDArray[np.float32]  # (K, P)
    b: NDArray[np.float32]  # (K,)

    def latent(self, X: sparse.csr_array) -> NDArray[np.float32]:
        """Return h (N, P) at rows X."""
        h = np.asarray(X @ self.weights, np.float32)
        if self.phases is not None and self.amplitudes is not None:
            h = np.cos(h + self.phases) @ self.amplitudes
        return h

    def utilities(self, X: sparse.csr_array) -> NDArray[np.float32]:
        """Return f = Φ h + b (N, K) at rows X."""
        return self.latent(X) @ self.Phi.T + self.b

    def probabilities(self, X: sparse.csr_array) -> NDArray[np.float32]:
        """Return σ(f) (N, K) at rows X: the predictions of the best possible model."""
        return _sigmoid(self.utilities(X))

    def draw(self, X: sparse.csr_array, rng: np.random.Generator) -> Labels:
        """Draw the labels of rows X: the number of labels per row, and all of them."""
        k, step = self.b.size, max(1, _DENSE_BLOCK // self.b.size)
        blocks = np.split(self.latent(X), range(step, X.shape[0], step))
        hits = [np.divmod(self._draw_few(h, rng), k) for h in blocks]
        counts = [np.bincount(row, minlength=len(h)) for (row, _), h in zip(hits, blocks, strict=True)]
        return np.concatenate(counts), np.concatenate([label for _, label in hits]).astype(np.int32)

    def _draw_few(self, h: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw row * K + label of a few rows: y = 1 if u (1 + e^-f) < 1 for uniform u, which is u < σ(f)."""
        odds = h @ -self.Phi.T
        odds -= self.b
        np.minimum(odds, 80, out=odds)  # e^80 still fits float32, and u e^80 < 1 never happens
        np.exp(odds, out=odds)
        odds += 1
        u = rng.random(odds.shape, np.float32)
        u += np.float32(2**-25)  # the middle of its 2^-24 step: rare labels are drawn without bias
        odds *= u
        return np.flatnonzero(odds < 1)


def make_multilabel(
    n_rows: int = 3000,
    n_features: int = 2000,
    n_labels: int = 200,
    *,
    n_nonzeros: float | None = None,
    labels_per_row: float | None = None,
    n_factors: int = 16,
    n_topics: int | None = None,
    kernel: Literal["se", "linear"] = "se",
    length_scale: float = 1.0,
    signal: float = 8.0,
    power: float = 1.0,
    seed: int = 0,
    return_truth: bool = False,
    progress: Progress = ignore,
) -> Any:
    """Draw a data set; with `return_truth`, return (data set, `Truth`), which it was drawn from.

    `n_nonzeros` (default 50, at most D/4) and `labels_per_row` (default 4, at most K/4) are means. The k-th most
    frequent label has a frequency proportional to k^-power, up to a maximum; `signal` is the standard deviation of f;
    `n_topics` (default 24, or K/8 if that is more) is the number of topics that rows mix. `progress` is called with
    (rows done, twice the number of rows), because X and Y are drawn one after the other.
    """
    n_topics = max(24, n_labels // 8) if n_topics is None else n_topics
    sizes = {"n_rows": n_rows, "n_features": n_features, "n_labels": n_labels}
    sizes |= {"n_factors": n_factors, "n_topics": n_topics}
    n_nonzeros, labels_per_row = mean_sizes(sizes, n_nonzeros, labels_per_row)
    if kernel not in ("se", "linear"):
        raise ValueError(f"kernel={kernel!r}; expected 'se' or 'linear'")
    seeds = np.random.SeedSequence(seed).spawn(4)
    words = Words(n_features, n_topics, n_nonzeros, np.random.default_rng(seeds[0]))
    X = draw_features(words, n_rows, seeds[1], progress)
    truth = _draw_truth(X, n_labels, labels_per_row, n_factors, kernel, length_scale, signal, power, seeds[2])
    dataset = Dataset(X, draw_labels(X, n_labels, truth.draw, seeds[3], progress), trusted=True)
    return (dataset, truth) if return_truth else dataset


def _draw_truth(
    X: sparse.csr_array,
    n_labels: int,
    labels_per_row: float,
    n_factors: int,
    kernel: str,
    length_scale: float,
    signal: float,
    power: float,
    seed: np.random.SeedSequence,
) -> Truth:
    rng, d = np.random.default_rng(seed), X.shape[1]
    phases = amplitudes = None
    if kernel == "linear":
        weights = rng.standard_normal((d, n_factors), np.float32)
    else:
        weights = rng.standard_normal((d, _N_FOURIER), np.float32) / np.float32(length_scale)
        phases = rng.uniform(0, 2 * np.pi, _N_FOURIER).astype(np.float32)
        amplitudes = rng.standard_normal((_N_FOURIER, n_factors), np.float32) * np.float32(np.sqrt(2 / _N_FOURIER))
    weights *= _relevance(X)[:, None]
    Phi = rng.standard_normal((n_labels, n_factors), np.float32)
    Phi *= np.float32(signal) / np.linalg.norm(Phi, axis=1, keepdims=True)
    truth = Truth(weights, phases, amplitudes, Phi, np.zeros(n_labels, np.float32))
    pilot = pilot_rows(X, rng)
    frequency = rng.permutation(_power_law(n_labels, labels_per_row, power))
    return replace(truth, b=_biases(truth.latent(pilot), Phi, frequency))


def _relevance(X: sparse.csr_array) -> NDArray[np.float32]:
    """Return ARD weights (D,) that grow with the frequency of a word, for a mean squared row norm of 1.

    Rows of one topic share its frequent words, so they are close together, and a model can generalise.
    """
    frequency, mass, step = np.zeros(X.shape[1]), np.zeros(X.shape[1]), 1 << 22
    for start in range(0, X.nnz, step):
        indices, data = X.indices[start : start + step], X.data[start : start + step]
        frequency += np.bincount(indices, minlength=X.shape[1])
        mass += np.bincount(indices, data * data, X.shape[1])
    return np.asarray(frequency / np.sqrt(np.square(frequency) @ mass / X.shape[0]), np.float32)


def _power_law(n_labels: int, total: float, power: float) -> NDArray[np.float64]:
    """Return frequencies proportional to k^-power with this total, up to a maximum: no label is in most rows."""
    shape = np.arange(1, n_labels + 1) ** -float(power)
    most = max(0.15, 1.8 * total / n_labels)
    low, high = 0.0, total / shape.min()
    for _ in range(100):
        scale = (low + high) / 2
        low, high = (scale, high) if np.minimum(scale * shape, most).sum() < total else (low, scale)
    return np.asarray(np.minimum(low * shape, most))


def _biases(h: NDArray[np.float32], Phi: NDArray[np.float32], frequency: NDArray[np.float64]) -> NDArray[np.float32]:
    """Find b with mean σ(φ_k h + b_k) = frequency_k over the pilot rows, by bisection for blocks of labels."""
    b = np.empty(Phi.shape[0], np.float32)
    step = max(1, (1 << 21) // h.shape[0])
    for start in range(0, b.size, step):
        labels = slice(start, start + step)
        f = h @ Phi[labels].T
        low = np.full(f.shape[1], -60.0, np.float32)
        high = -low
        for _ in range(30):
            middle = (low + high) / 2
            too_rare = _sigmoid(f + middle).mean(axis=0) < frequency[labels]
            low, high = np.where(too_rare, middle, low), np.where(too_rare, high, middle)
        b[labels] = (low + high) / 2
    return b


def _sigmoid(f: NDArray[Any]) -> NDArray[Any]:
    return 0.5 * (1 + np.tanh(0.5 * f))


@dataclass(frozen=True, eq=False)
class TopicTruth:
    """The topics that a synthetic data set was drawn from. Letters as in labelfield/topics/state.py."""

    V: NDArray[np.float64]  # (L, K), columns sum to one
    W: NDArray[np.float64]  # (D + 1, K), the last row is that of the constant
    r: NDArray[np.float64]  # (K,)

    def log_odds(self, X: sparse.csr_array) -> NDArray[np.float64]:
        """Return ψ (N, K) at rows X."""
        return np.asarray(X @ self.W[:-1] + self.W[-1], np.float64)

    def probabilities(self, X: sparse.csr_array) -> NDArray[np.float64]:
        """Return 1 - ∏_k (1 + v_lk e^{ψ_kn})^{-r_k} (N, L) at rows X: the predictions of the best possible model."""
        odds = np.exp(self.log_odds(X))
        logs = np.zeros((len(odds), len(self.V)))
        for k, r in enumerate(self.r):
            logs -= r * np.log1p(np.outer(odds[:, k], self.V[:, k]))
        return -np.expm1(logs)

    def draw(self, X: sparse.csr_array, rng: np.random.Generator) -> Labels:
        """Draw the labels of rows X: the number of labels per row, and all of them.

        Topic k of row n has Poisson(u_kn) counts, each of a label drawn by v_k; the row has all labels with counts.
        """
        psi, n_labels = self.log_odds(X), len(self.V)
        totals = rng.poisson(rng.gamma(self.r, np.exp(psi)))
        keys = []
        for m, cdf in zip(totals.T, np.cumsum(self.V, axis=0).T, strict=True):
            row = np.repeat(np.arange(len(psi)), m)
            keys.append(row * n_labels + np.searchsorted(cdf, rng.random(row.size) * cdf[-1], side="right"))
        key = np.unique(np.concatenate(keys))
        return np.bincount(key // n_labels, minlength=len(psi)), (key % n_labels).astype(np.int32)


def make_topics(
    n_rows: int = 3000,
    n_features: int = 500,
    n_labels: int = 100,
    n_topics: int = 8,
    *,
    n_nonzeros: float | None = None,
    labels_per_row: float | None = None,
    signal: float = 5.0,
    overlap: float = 0.05,
    seed: int = 0,
    return_truth: bool = False,
    progress: Progress = ignore,
) -> Any:
    """Draw a data set from the Bernoulli-Poisson topic model; with `return_truth`, return (data set, `TopicTruth`).

    Rows are like those of `make_multilabel`: each mixes one or two kinds of words, one kind per topic. In rows of its
    kind, the log-odds of a topic are higher by about `signal`. A topic has its own labels, with weights 1, 1/2, 1/3, …,
    which have all of its weight except `overlap`, which the other labels share. `n_nonzeros` (default 50, at most D/4)
    is a mean. `labels_per_row` (default 4, at most L/4) is a mean of counts: a row has fewer labels than counts if one
    is drawn twice. `progress` is called with (rows done, twice the number of rows), because X and Y are drawn one after
    the other.
    """
    sizes = {"n_rows": n_rows, "n_features": n_features, "n_labels": n_labels, "n_topics": n_topics}
    n_nonzeros, labels_per_row = mean_sizes(sizes, n_nonzeros, labels_per_row)
    if n_topics > n_labels:
        raise ValueError(f"n_topics={n_topics} for {n_labels} labels; expected at least one label per topic")
    if not 0 <= overlap < 1:
        raise ValueError(f"overlap={overlap}; expected a share of at least 0 and below 1")
    seeds = np.random.SeedSequence(seed).spawn(4)
    words = Words(n_features, n_topics, n_nonzeros, np.random.default_rng(seeds[0]))
    X = draw_features(words, n_rows, seeds[1], progress)
    rng = np.random.default_rng(seeds[2])
    V, r = _topics_of_labels(n_labels, n_topics, overlap, rng), np.exp(rng.uniform(np.log(0.5), np.log(2), n_topics))
    truth = TopicTruth(V, _topics_of_words(words, pilot_rows(X, rng), r, labels_per_row, signal), r)
    dataset = Dataset(X, draw_labels(X, n_labels, truth.draw, seeds[3], progress), trusted=True)
    return (dataset, truth) if return_truth else dataset


def _topics_of_labels(n_labels: int, n_topics: int, overlap: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return V (L, K)."""
    place = rng.permutation(n_labels)
    weight = 1.0 / (1 + place // n_topics)
    is_own = place[:, None] % n_topics == np.arange(n_topics)
    own, others = np.where(is_own, weight[:, None], 0), np.where(is_own, 0, weight[:, None])
    share = overlap if n_topics > 1 else 0.0
    return np.asarray((1 - share) * own / own.sum(axis=0) + share * others / np.maximum(others.sum(axis=0), 1e-300))


def _topics_of_words(
    words: Words, pilot: sparse.csr_array, r: NDArray[np.float64], labels_per_row: float, signal: float
) -> NDArray[np.float64]:
    """Return W (D + 1, K), with equal weights on the words that make up half of a topic.

    ψ_k is `signal` above its median in two of a hundred rows, or in fewer if there are many topics. The mean of
    Σ_k r_k e^{ψ_k} is `labels_per_row`, to which all topics contribute equally.
    """
    n_topics = r.size
    frequent = np.arange(1 + np.searchsorted(words.cdf, 0.5))
    W = np.zeros((words.n_features + 1, n_topics))
    for k in range(n_topics):
        W[(frequent * words.steps[k + 1] + words.shifts[k + 1]) % words.n_features, k] = 1
    psi = np.asarray(pilot @ W[:-1])
    median = np.median(psi, axis=0)
    above = np.quantile(psi, max(0.98, 1 - 0.5 / n_topics), axis=0) - median
    above = np.maximum(above, 0.3 * (psi.max(axis=0) - median))  # with few rows, most or all of them may be alike
    scale = signal / np.where(above > 1e-6, above, np.inf)
    W[:-1] *= scale
    W[-1] = np.log(labels_per_row / n_topics / r / np.exp(psi * scale).mean(axis=0))
    return W


def make_rings(n_rows: int = 1000, n_rings: int = 5, *, noise: float = 0.25, seed: int = 0) -> Dataset:
    """Draw points on concentric rings in the plane, one class per ring, with equally many rows in each class.

    Ring k = 0, 1, … has radius k + 1 + `noise` · N(0, 1) and a uniform angle, so only the radius tells the class. The
    best rule chooses the nearest ring, with an error rate of 2 (1 - 1 / rings) Q(1 / (2 noise)): 3.6 % for 5 rings and
    the default noise. All classes have the same mean, so linear models that are fitted by their likelihood
    are at chance.
    """
    if not 1 <= n_rings <= n_rows:
        raise ValueError(f"n_rows={n_rows} and n_rings={n_rings}; expected at least one row per ring")
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise={noise}; expected a standard deviation of at least 0")
    rng = np.random.default_rng(seed)
    ring = rng.permutation(np.arange(n_rows) % n_rings)
    radius = ring + 1 + noise * rng.standard_normal(n_rows)
    angle = rng.uniform(0, 2 * np.pi, n_rows)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    names = Names(f"ring {k + 1}" for k in range(n_rings))
    return Dataset(X, from_counts(np.ones(n_rows, np.int64), ring.astype(np.int32), None, n_rings), names)
