"""Data drawn from the Bernoulli-Poisson topic model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.data import Dataset
from labelfield.progress import Progress, ignore
from labelfield.synth.words import Labels, Words, draw_features, draw_labels, mean_sizes, pilot_rows


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
