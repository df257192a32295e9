"""Synthetic data drawn from the multi-label GP factor model, with the truth known.

    rows    tf-idf vectors of unit norm: each row mixes two topics and a background, each a power law over words
    h_p     ~ GP(0, k), k linear or squared-exponential (drawn through R random Fourier features), p = 1 … P
    f       = Φ h + b,  rows of Φ of norm `signal`, b such that label frequencies follow a power law
    y_k     ~ Bernoulli(σ(f_k))

Everything is made in blocks of rows: no dense N x D or N x K exists. A block has its own random stream, so
the result depends on the seed alone and not on the number of threads.

`make_topics` draws from the Bernoulli-Poisson topic model instead, and `make_rings` another kind: one class a row, and
nothing that a line could separate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from math import gcd
from os import cpu_count
from typing import Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts
from labelfield.data import Dataset, Names
from labelfield.progress import Progress, ignore

__all__ = ["TopicTruth", "Truth", "make_multilabel", "make_rings", "make_topics"]

Result = TypeVar("Result")
_ROW_BLOCK = 8192
_DENSE_BLOCK = 1 << 18
_PILOT_ROWS = 2048
_N_FOURIER = 256
_TOPIC_SHARE = (0.5, 0.75)  # of a row's words: the first topic's, then both topics'


@dataclass(frozen=True, eq=False)
class Truth:
    """What a synthetic data set was drawn from. Letters as in docs/NOTATION.md."""

    weights: NDArray[np.float32]  # (D, P) for the linear kernel, (D, R) frequencies for the squared-exponential one
    phases: NDArray[np.float32] | None  # (R,)
    amplitudes: NDArray[np.float32] | None  # (R, P)
    Phi: NDArray[np.float32]  # (K, P)
    b: NDArray[np.float32]  # (K,)

    def latent(self, X: sparse.csr_array) -> NDArray[np.float32]:
        """h (N, P) at rows X."""
        h = np.asarray(X @ self.weights, np.float32)
        if self.phases is not None and self.amplitudes is not None:
            h = np.cos(h + self.phases) @ self.amplitudes
        return h

    def utilities(self, X: sparse.csr_array) -> NDArray[np.float32]:
        """f = Φ h + b (N, K) at rows X."""
        return self.latent(X) @ self.Phi.T + self.b

    def probabilities(self, X: sparse.csr_array) -> NDArray[np.float32]:
        """σ(f) (N, K) at rows X: what the best possible model would predict."""
        return _sigmoid(self.utilities(X))


@overload
def make_multilabel(
    n_rows: int = ...,
    n_features: int = ...,
    n_labels: int = ...,
    *,
    n_nonzeros: float | None = ...,
    labels_per_row: float | None = ...,
    n_factors: int = ...,
    n_topics: int | None = ...,
    kernel: Literal["se", "linear"] = ...,
    length_scale: float = ...,
    signal: float = ...,
    power: float = ...,
    seed: int = ...,
    return_truth: Literal[False] = ...,
    progress: Progress = ...,
) -> Dataset: ...
@overload
def make_multilabel(
    n_rows: int = ...,
    n_features: int = ...,
    n_labels: int = ...,
    *,
    n_nonzeros: float | None = ...,
    labels_per_row: float | None = ...,
    n_factors: int = ...,
    n_topics: int | None = ...,
    kernel: Literal["se", "linear"] = ...,
    length_scale: float = ...,
    signal: float = ...,
    power: float = ...,
    seed: int = ...,
    return_truth: Literal[True],
    progress: Progress = ...,
) -> tuple[Dataset, Truth]: ...
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
) -> Dataset | tuple[Dataset, Truth]:
    """Draw a data set, and with `return_truth` what it was drawn from.

    `n_nonzeros` (default 50, at most D/4) and `labels_per_row` (default 4, at most K/4) are means; the k-th most
    frequent label has a frequency proportional to k^-power, with the head cut off; `signal` is the standard deviation
    of f; `n_topics` (default 24, or K/8 if that is more) sets how many kinds of rows there are. `progress` is called
    with (rows done, twice the rows: once for X, once for Y).
    """
    n_nonzeros = min(50.0, n_features / 4) if n_nonzeros is None else n_nonzeros
    labels_per_row = min(4.0, n_labels / 4) if labels_per_row is None else labels_per_row
    n_topics = max(24, n_labels // 8) if n_topics is None else n_topics
    _check(n_rows, n_features, n_labels, n_factors, n_topics, n_nonzeros, labels_per_row, kernel)
    seeds = np.random.SeedSequence(seed).spawn(4)
    words = _Words(n_features, n_topics, n_nonzeros, np.random.default_rng(seeds[0]))
    X = _draw_features(words, n_rows, seeds[1], progress)
    truth = _draw_truth(X, n_labels, labels_per_row, n_factors, kernel, length_scale, signal, power, seeds[2])
    Y = _draw_labels(X, truth, seeds[3], progress)
    dataset = Dataset(X, Y)
    return (dataset, truth) if return_truth else dataset


def make_rings(n_rows: int = 1000, n_rings: int = 5, *, noise: float = 0.25, seed: int = 0) -> Dataset:
    """Points on concentric rings in the plane, one class a ring, as many rows of each class as of any other.

    Ring k = 0, 1, … has radius k + 1 + `noise` · N(0, 1) and a uniform angle, so radius alone tells the class. The best
    rule takes the nearest ring and errs in a share 2 (1 - 1 / rings) Q(1 / (2 noise)) of rows: 3.6 % for 5 rings and
    the default noise. The classes share their mean, so linear rules see next to nothing.
    """
    if not 1 <= n_rings <= n_rows:
        raise ValueError(f"n_rows={n_rows} and n_rings={n_rings}; expected at least one row for each ring")
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise={noise}; expected a standard deviation")
    rng = np.random.default_rng(seed)
    ring = rng.permutation(np.arange(n_rows) % n_rings)
    radius = ring + 1 + noise * rng.standard_normal(n_rows)
    angle = rng.uniform(0, 2 * np.pi, n_rows)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    names = Names(f"ring {k + 1}" for k in range(n_rings))
    return Dataset(X, from_counts(np.ones(n_rows, np.int64), ring.astype(np.int32), None, n_rings), names)


@dataclass(frozen=True, eq=False)
class TopicTruth:
    """The topics that a synthetic data set was drawn from. Letters as in labelfield/topics/state.py."""

    V: NDArray[np.float64]  # (L, K), columns sum to one
    W: NDArray[np.float64]  # (D + 1, K), the last row is that of the constant
    r: NDArray[np.float64]  # (K,)

    def log_odds(self, X: sparse.csr_array) -> NDArray[np.float64]:
        """ψ (N, K) at rows X."""
        return np.asarray(X @ self.W[:-1] + self.W[-1], np.float64)

    def probabilities(self, X: sparse.csr_array) -> NDArray[np.float64]:
        """1 - ∏_k (1 + v_lk e^{ψ_kn})^{-r_k} (N, L) at rows X: what the best possible model would predict."""
        odds = np.exp(self.log_odds(X))
        logs = np.zeros((len(odds), len(self.V)))
        for k, r in enumerate(self.r):
            logs -= r * np.log1p(np.outer(odds[:, k], self.V[:, k]))
        return -np.expm1(logs)


@overload
def make_topics(
    n_rows: int = ...,
    n_features: int = ...,
    n_labels: int = ...,
    n_topics: int = ...,
    *,
    n_nonzeros: float | None = ...,
    labels_per_row: float | None = ...,
    signal: float = ...,
    overlap: float = ...,
    seed: int = ...,
    return_truth: Literal[False] = ...,
    progress: Progress = ...,
) -> Dataset: ...
@overload
def make_topics(
    n_rows: int = ...,
    n_features: int = ...,
    n_labels: int = ...,
    n_topics: int = ...,
    *,
    n_nonzeros: float | None = ...,
    labels_per_row: float | None = ...,
    signal: float = ...,
    overlap: float = ...,
    seed: int = ...,
    return_truth: Literal[True],
    progress: Progress = ...,
) -> tuple[Dataset, TopicTruth]: ...
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
) -> Dataset | tuple[Dataset, TopicTruth]:
    """Draw a data set from the Bernoulli-Poisson topic model, and with `return_truth` what it was drawn from.

    Rows are as those of `make_multilabel`: each mixes one or two kinds of words, a kind for each topic. In rows of its
    kind the log-odds of a topic are higher, by `signal` or nearly so. A topic has labels of its own, with weights 1,
    1/2, 1/3 …, which share all but `overlap` of its weight; the rest is that of the other labels. `n_nonzeros` (default
    50, at most D/4) is a mean. So is `labels_per_row` (default 4, at most L/4), of counts: a row has fewer labels than
    counts where one is drawn twice. `progress` is called with (rows done, twice the rows: once for X, once for Y).
    """
    n_nonzeros = min(50.0, n_features / 4) if n_nonzeros is None else n_nonzeros
    labels_per_row = min(4.0, n_labels / 4) if labels_per_row is None else labels_per_row
    _check(n_rows, n_features, n_labels, 1, n_topics, n_nonzeros, labels_per_row, "linear")
    if n_topics > n_labels:
        raise ValueError(f"n_topics={n_topics} for {n_labels} labels; expected at least one label for each")
    if not 0 <= overlap < 1:
        raise ValueError(f"overlap={overlap}; expected a share of at least 0 and below 1")
    seeds = np.random.SeedSequence(seed).spawn(4)
    words = _Words(n_features, n_topics, n_nonzeros, np.random.default_rng(seeds[0]))
    X = _draw_features(words, n_rows, seeds[1], progress)
    rng = np.random.default_rng(seeds[2])
    V, r = _topics_of_labels(n_labels, n_topics, overlap, rng), np.exp(rng.uniform(np.log(0.5), np.log(2), n_topics))
    pilot = X[np.sort(rng.choice(n_rows, min(n_rows, _PILOT_ROWS), replace=False))]
    truth = TopicTruth(V, _topics_of_words(words, pilot, r, labels_per_row, signal), r)
    dataset = Dataset(X, _draw_counts(X, truth, seeds[3], progress))
    return (dataset, truth) if return_truth else dataset


def _check(
    n: int, d: int, k: int, n_factors: int, n_topics: int, n_nonzeros: float, labels_per_row: float, kernel: str
) -> None:
    if min(n, d, k, n_factors, n_topics) < 1:
        raise ValueError("n_rows, n_features, n_labels, n_factors and n_topics must be at least 1")
    if not 0 < n_nonzeros <= d / 2:
        raise ValueError(f"n_nonzeros={n_nonzeros}; expected at most half of the {d} features")
    if not 0 < labels_per_row <= k / 2:
        raise ValueError(f"labels_per_row={labels_per_row}; expected at most half of the {k} labels")
    if kernel not in ("se", "linear"):
        raise ValueError(f"kernel={kernel!r}; expected 'se' or 'linear'")


def _sigmoid(f: NDArray[Any]) -> NDArray[Any]:
    return 0.5 * (1 + np.tanh(0.5 * f))


def _in_order(work: Callable[[int], Result], n_blocks: int) -> Iterator[Result]:
    """work(0), work(1), … by as many threads as cores, never far ahead of what has been taken."""
    n_threads = cpu_count() or 1
    with ThreadPoolExecutor(n_threads) as pool:
        blocks = iter(range(n_blocks))
        waiting = [pool.submit(work, block) for block in islice(blocks, n_threads + 1)]
        while waiting:
            yield waiting.pop(0).result()
            waiting += [pool.submit(work, block) for block in islice(blocks, 1)]


class _Words:
    """Draws rows of word counts."""

    def __init__(self, n_features: int, n_topics: int, n_nonzeros: float, rng: np.random.Generator) -> None:
        self.n_features = n_features
        frequency = (np.arange(n_features) + 3.0) ** -1.3
        self.cdf = np.cumsum(frequency / frequency.sum())
        # A topic orders the words its own way: word = (rank * step + shift) mod D, with the step prime to D.
        # Topic 0 is the background, in the plain order.
        steps = np.array([_prime_to(n_features, int(s)) for s in rng.integers(1, n_features + 1, n_topics)])
        self.steps = np.append(1, steps)
        self.shifts = np.append(0, rng.integers(n_features, size=n_topics))
        # Repeated words make fewer non-zeros than words: find how many words to draw on a pilot block.
        self.n_words = n_nonzeros
        for _ in range(6):
            counts = self.draw(_PILOT_ROWS, np.random.default_rng(0))[0]
            self.n_words *= n_nonzeros / max(counts.mean(), 1e-9)

    def draw(
        self, n_rows: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Non-zeros a row, their words in order, and how often each occurs."""
        lengths = np.maximum(rng.poisson(self.n_words, n_rows), 1)
        row = np.repeat(np.arange(n_rows), lengths)
        topics = rng.integers(1, self.steps.size, (n_rows, 2))
        share = rng.random(row.size, np.float32)
        topic = np.where(share < _TOPIC_SHARE[0], topics[row, 0], np.where(share < _TOPIC_SHARE[1], topics[row, 1], 0))
        rank = np.minimum(np.searchsorted(self.cdf, rng.random(row.size)), self.n_features - 1)
        word = (rank * self.steps[topic] + self.shifts[topic]) % self.n_features
        key = np.sort(row * self.n_features + word)
        is_first = np.append(True, key[1:] != key[:-1])
        first = np.flatnonzero(is_first)
        times = np.diff(np.append(first, key.size))
        key = key[first]
        counts = np.bincount(key // self.n_features, minlength=n_rows)
        return counts, (key % self.n_features).astype(np.int32), times.astype(np.float32)


def _prime_to(n: int, start: int) -> int:
    while gcd(start, n) != 1:
        start += 1
    return start


def _row_blocks(n_rows: int) -> list[slice]:
    return [slice(start, min(start + _ROW_BLOCK, n_rows)) for start in range(0, n_rows, _ROW_BLOCK)]


def _draw_features(words: _Words, n_rows: int, seed: np.random.SeedSequence, progress: Progress) -> sparse.csr_array:
    blocks = _row_blocks(n_rows)
    seeds = seed.spawn(len(blocks))
    parts = []
    frequency = np.zeros(words.n_features, np.int64)

    def draw(block: int) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        return words.draw(blocks[block].stop - blocks[block].start, np.random.default_rng(seeds[block]))

    for rows, part in zip(blocks, _in_order(draw, len(blocks)), strict=True):
        parts.append(part)
        frequency += np.bincount(part[1], minlength=words.n_features)
        progress(rows.stop, 2 * n_rows)
    idf = np.log((1 + n_rows) / (1 + frequency)).astype(np.float32) + 1
    for counts, indices, values in parts:
        _weigh(counts, indices, values, idf)
    counts, indices, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return from_counts(counts, indices, values, words.n_features)


def _weigh(
    counts: NDArray[np.int64], indices: NDArray[np.int32], values: NDArray[np.float32], idf: NDArray[np.float32]
) -> None:
    """Turn counts into (1 + log tf) idf and give each row unit norm, in place. No row is empty."""
    np.log(values, out=values)
    values += 1
    values *= idf[indices]
    starts = np.append(0, np.cumsum(counts)[:-1])
    values /= np.repeat(np.sqrt(np.add.reduceat(values * values, starts)), counts)


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
    rng = np.random.default_rng(seed)
    d = X.shape[1]
    phases = amplitudes = None
    relevance = _relevance(X)
    if kernel == "linear":
        weights = rng.standard_normal((d, n_factors), np.float32)
    else:
        weights = rng.standard_normal((d, _N_FOURIER), np.float32) / np.float32(length_scale)
        phases = rng.uniform(0, 2 * np.pi, _N_FOURIER).astype(np.float32)
        amplitudes = rng.standard_normal((_N_FOURIER, n_factors), np.float32) * np.float32(np.sqrt(2 / _N_FOURIER))
    weights *= relevance[:, None]
    Phi = rng.standard_normal((n_labels, n_factors), np.float32)
    Phi *= np.float32(signal) / np.linalg.norm(Phi, axis=1, keepdims=True)
    truth = Truth(weights, phases, amplitudes, Phi, np.zeros(n_labels, np.float32))
    pilot = X[np.sort(rng.choice(X.shape[0], min(X.shape[0], _PILOT_ROWS), replace=False))]
    frequency = rng.permutation(_power_law(n_labels, labels_per_row, power))
    b = _biases(truth.latent(pilot), Phi, frequency)
    return Truth(weights, phases, amplitudes, Phi, b)


def _relevance(X: sparse.csr_array) -> NDArray[np.float32]:
    """ARD weights (D,) that grow with a word's frequency: rows of one topic share its frequent words and so lie near
    each other, and what is learned from one row holds for another. Scaled to a mean squared row norm of 1."""
    frequency = np.zeros(X.shape[1])
    mass = np.zeros(X.shape[1])
    step = 1 << 22
    for start in range(0, X.nnz, step):
        indices, data = X.indices[start : start + step], X.data[start : start + step]
        frequency += np.bincount(indices, minlength=X.shape[1])
        mass += np.bincount(indices, data * data, X.shape[1])
    return np.asarray(frequency / np.sqrt(np.square(frequency) @ mass / X.shape[0]), np.float32)


def _power_law(n_labels: int, total: float, power: float) -> NDArray[np.float64]:
    """Frequencies proportional to k^-power that add up to `total`; the head is cut so that no label is in most rows."""
    shape = np.arange(1, n_labels + 1) ** -float(power)
    most = max(0.15, 1.8 * total / n_labels)
    low, high = 0.0, total / shape.min()
    for _ in range(100):
        scale = (low + high) / 2
        low, high = (scale, high) if np.minimum(scale * shape, most).sum() < total else (low, scale)
    return np.asarray(np.minimum(low * shape, most))


def _biases(h: NDArray[np.float32], Phi: NDArray[np.float32], frequency: NDArray[np.float64]) -> NDArray[np.float32]:
    """b with mean σ(φ_k h + b_k) = frequency_k over the pilot rows, by bisection for all labels of a block at once."""
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


def _topics_of_labels(n_labels: int, n_topics: int, overlap: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """V (L, K)."""
    place = rng.permutation(n_labels)
    weight = 1.0 / (1 + place // n_topics)
    is_own = place[:, None] % n_topics == np.arange(n_topics)
    own, others = np.where(is_own, weight[:, None], 0), np.where(is_own, 0, weight[:, None])
    share = overlap if n_topics > 1 else 0.0
    return np.asarray((1 - share) * own / own.sum(axis=0) + share * others / np.maximum(others.sum(axis=0), 1e-300))


def _topics_of_words(
    words: _Words, pilot: sparse.csr_array, r: NDArray[np.float64], labels_per_row: float, signal: float
) -> NDArray[np.float64]:
    """W (D + 1, K): the words that make up half of a topic's weigh the same, so that ψ_k is `signal` above its median
    in two of a hundred rows, or in fewer where topics are many. The mean of Σ_k r_k e^{ψ_k} is `labels_per_row`, and
    topics have the same share in it."""
    n_topics = r.size
    frequent = np.arange(1 + np.searchsorted(words.cdf, 0.5))
    W = np.zeros((words.n_features + 1, n_topics))
    for k in range(n_topics):
        W[(frequent * words.steps[k + 1] + words.shifts[k + 1]) % words.n_features, k] = 1
    psi = np.asarray(pilot @ W[:-1])
    median = np.median(psi, axis=0)
    above = np.quantile(psi, max(0.98, 1 - 0.5 / n_topics), axis=0) - median
    above = np.maximum(above, 0.3 * (psi.max(axis=0) - median))  # of few rows all but some may be alike, or all
    scale = signal / np.where(above > 1e-6, above, np.inf)
    W[:-1] *= scale
    W[-1] = np.log(labels_per_row / n_topics / r / np.exp(psi * scale).mean(axis=0))
    return W


def _draw_counts(
    X: sparse.csr_array, truth: TopicTruth, seed: np.random.SeedSequence, progress: Progress
) -> sparse.csr_array:
    """Labels that are counted at least once: Poisson(u_kn) counts of topic k in row n, each of a label drawn by v_k."""
    n, n_labels = X.shape[0], len(truth.V)
    blocks = _row_blocks(n)
    seeds = seed.spawn(len(blocks))
    cumulative = np.cumsum(truth.V, axis=0).T

    def draw(block: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        rng = np.random.default_rng(seeds[block])
        psi = truth.log_odds(X[blocks[block]])
        totals = rng.poisson(rng.gamma(truth.r, np.exp(psi)))
        keys = []
        for m, cdf in zip(totals.T, cumulative, strict=True):
            row = np.repeat(np.arange(len(psi)), m)
            keys.append(row * n_labels + np.searchsorted(cdf, rng.random(row.size) * cdf[-1], side="right"))
        key = np.unique(np.concatenate(keys))
        return np.bincount(key // n_labels, minlength=len(psi)), (key % n_labels).astype(np.int32)

    parts = []
    for rows, part in zip(blocks, _in_order(draw, len(blocks)), strict=True):
        parts.append(part)
        progress(n + rows.stop, 2 * n)
    counts, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    return from_counts(counts, labels, None, n_labels)


def _draw_labels(
    X: sparse.csr_array, truth: Truth, seed: np.random.SeedSequence, progress: Progress
) -> sparse.csr_array:
    n, k = X.shape[0], truth.b.size
    blocks = _row_blocks(n)
    seeds = seed.spawn(len(blocks))
    step = max(1, _DENSE_BLOCK // k)

    def draw(block: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        rng = np.random.default_rng(seeds[block])
        h = truth.latent(X[blocks[block]])
        drawn = [_bernoulli(h[start : start + step], truth, rng) for start in range(0, h.shape[0], step)]
        return np.concatenate([counts for counts, _ in drawn]), np.concatenate([labels for _, labels in drawn])

    parts = []
    for rows, part in zip(blocks, _in_order(draw, len(blocks)), strict=True):
        parts.append(part)
        progress(n + rows.stop, 2 * n)
    counts, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    return from_counts(counts, labels, None, k)


def _bernoulli(
    h: NDArray[np.float32], truth: Truth, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Labels of a few rows: y = 1 where u (1 + e^-f) < 1 for uniform u, the same as u < σ(f)."""
    odds = h @ -truth.Phi.T
    odds -= truth.b
    np.minimum(odds, 80, out=odds)  # e^80 still fits float32, and u e^80 < 1 has no chance
    np.exp(odds, out=odds)
    odds += 1
    u = rng.random(odds.shape, np.float32)
    u += np.float32(2**-25)  # the middle of its 2^-24 step: rare labels are drawn without bias
    odds *= u
    hit = np.flatnonzero(odds < 1)
    k = truth.b.size
    return np.bincount(hit // k, minlength=h.shape[0]), (hit % k).astype(np.int32)
