"""Rows of words and their labels, drawn in blocks, each with its own random stream."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from math import gcd
from os import cpu_count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts
from labelfield.progress import Progress

Result = TypeVar("Result")
# The number of labels per row, and all of them.
Labels = tuple[NDArray[np.int64], NDArray[np.int32]]
DrawLabels = Callable[[sparse.csr_array, np.random.Generator], Labels]
_ROW_BLOCK = 8192
_PILOT_ROWS = 2048
_TOPIC_SHARE = (0.5, 0.75)  # of the words of a row: from the first topic, and from both topics


def mean_sizes(sizes: dict[str, int], n_nonzeros: float | None, labels_per_row: float | None) -> tuple[float, float]:
    """Return the mean numbers of words and labels per row, with defaults; refuse sizes that cannot be drawn."""
    if min(sizes.values()) < 1:
        *first, last = sizes
        raise ValueError(f"{', '.join(first)} and {last} must be at least 1")
    d, k = sizes["n_features"], sizes["n_labels"]
    n_nonzeros = min(50.0, d / 4) if n_nonzeros is None else n_nonzeros
    labels_per_row = min(4.0, k / 4) if labels_per_row is None else labels_per_row
    if not 0 < n_nonzeros <= d / 2:
        raise ValueError(f"n_nonzeros={n_nonzeros}; expected more than 0 and at most half of the {d} features")
    if not 0 < labels_per_row <= k / 2:
        raise ValueError(f"labels_per_row={labels_per_row}; expected more than 0 and at most half of the {k} labels")
    return n_nonzeros, labels_per_row


class Words:
    """A source of random rows of word counts."""

    def __init__(self, n_features: int, n_topics: int, n_nonzeros: float, rng: np.random.Generator) -> None:
        self.n_features = n_features
        frequency = (np.arange(n_features) + 3.0) ** -1.3
        self.cdf = np.cumsum(frequency / frequency.sum())
        # Each topic has its own order of words: word = (rank * step + shift) mod D, with a step that is coprime to D.
        # Topic 0 is the background, in the plain order.
        starts = rng.integers(1, n_features + 1, n_topics).tolist()
        self.steps = np.array([1, *(next(s for s in count(start) if gcd(s, n_features) == 1) for start in starts)])
        self.shifts = np.append(0, rng.integers(n_features, size=n_topics))
        # Repeated words make fewer non-zeros than words: find on a pilot block how many words to draw.
        self.n_words = n_nonzeros
        for _ in range(6):
            counts = self.draw(_PILOT_ROWS, np.random.default_rng(0))[0]
            self.n_words *= n_nonzeros / max(counts.mean(), 1e-9)

    def draw(
        self, n_rows: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Draw rows: the number of non-zeros per row, their words in order, and how often each occurs."""
        lengths = np.maximum(rng.poisson(self.n_words, n_rows), 1)
        row = np.repeat(np.arange(n_rows), lengths)
        topics = rng.integers(1, self.steps.size, (n_rows, 2))
        share = rng.random(row.size, np.float32)
        topic = np.where(share < _TOPIC_SHARE[0], topics[row, 0], np.where(share < _TOPIC_SHARE[1], topics[row, 1], 0))
        rank = np.minimum(np.searchsorted(self.cdf, rng.random(row.size)), self.n_features - 1)
        word = (rank * self.steps[topic] + self.shifts[topic]) % self.n_features
        key = np.sort(row * self.n_features + word)
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        times = np.diff(np.append(first, key.size))
        key = key[first]
        counts = np.bincount(key // self.n_features, minlength=n_rows)
        return counts, (key % self.n_features).astype(np.int32), times.astype(np.float32)


def pilot_rows(X: sparse.csr_array, rng: np.random.Generator) -> sparse.csr_array:
    """Return some rows, which set the scale of what is drawn for all rows."""
    return X[np.sort(rng.choice(X.shape[0], min(X.shape[0], _PILOT_ROWS), replace=False))]


def draw_features(words: Words, n_rows: int, seed: np.random.SeedSequence, progress: Progress) -> sparse.csr_array:
    """Draw X: (1 + log tf) idf, in rows of unit norm. `progress` goes up to half of its total."""
    parts = list(_in_blocks(n_rows, seed, lambda rows, rng: words.draw(rows.stop - rows.start, rng), progress, 0))
    frequency = sum(np.bincount(indices, minlength=words.n_features) for _, indices, _ in parts)
    idf = np.log((1 + n_rows) / (1 + frequency)).astype(np.float32) + 1
    for part in parts:  # in place; no row is empty
        counts, indices, values = part
        np.log(values, out=values)
        values += 1
        values *= idf[indices]
        starts = np.append(0, np.cumsum(counts)[:-1])
        values /= np.repeat(np.sqrt(np.add.reduceat(values * values, starts)), counts)
    counts, indices, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return from_counts(counts, indices, values, words.n_features)


def draw_labels(
    X: sparse.csr_array, n_labels: int, draw: DrawLabels, seed: np.random.SeedSequence, progress: Progress
) -> sparse.csr_array:
    """Draw Y by `draw`. `progress` starts at one half."""
    parts = list(_in_blocks(X.shape[0], seed, lambda rows, rng: draw(X[rows], rng), progress, X.shape[0]))
    counts, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    return from_counts(counts, labels, None, n_labels)


def _in_blocks(
    n_rows: int, seed: np.random.SeedSequence, draw: Callable[..., Result], progress: Progress, n_done: int
) -> Iterator[Result]:
    """Yield `draw(rows, rng)` of blocks of rows in order, from one thread per core.

    `n_done` rows of 2 * n_rows have been reported to `progress` before.
    """
    blocks = [slice(start, min(start + _ROW_BLOCK, n_rows)) for start in range(0, n_rows, _ROW_BLOCK)]
    streams = map(np.random.default_rng, seed.spawn(len(blocks)))
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        for rows, drawn in zip(blocks, pool.map(draw, blocks, streams), strict=True):
            yield drawn
            progress(n_done + rows.stop, 2 * n_rows)
