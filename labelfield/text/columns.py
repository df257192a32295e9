"""The columns of the encoder "words": which words, pairs of words and character n-grams are worth one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# What begins the name of a character n-gram, and what stands for the end of a word in it: no word has these.
GRAM, EDGE = "#", "·"


class Found(NamedTuple):
    """What the training documents showed: units and the number of documents each is in, and the same of pairs.

    Units are numbered in the order of their first occurrence; `names` returns what they are called, and `is_gram` says
    which are n-grams. A pair is first · 2³² + second; pairs are in order. `n_entries` is how many units all words of
    all documents have.
    """

    names: Callable[[NDArray[np.int64]], list[str]]
    is_gram: NDArray[np.bool_]
    frequency: NDArray[np.int64]
    pairs: NDArray[np.uint64]
    pair_frequency: NDArray[np.int64]
    n_documents: int
    n_entries: int

    def without_grams(self) -> Found:
        """Return the same with n-grams that occur in no document."""
        return self._replace(frequency=np.where(self.is_gram, 0, self.frequency))


class Vocabulary(NamedTuple):
    """The columns: words, then pairs, then character n-grams; and the number of documents each is in.

    `pairs` (n, 2) are the columns of the words of each pair.
    """

    words: list[str]
    pairs: NDArray[np.int64]
    grams: list[str]
    frequency: NDArray[np.int64]
    n_documents: int

    @property
    def first_gram(self) -> int:
        return len(self.words) + len(self.pairs)

    @property
    def names(self) -> list[str]:
        words = self.words
        return [*words, *(f"{words[first]} {words[second]}" for first, second in self.pairs.tolist()), *self.grams]


def choose_vocabulary(found: Found, min_documents: int, max_features: int) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Choose the columns, which keep the order of the units; return with them the column of each unit, -1 for none."""
    is_kept, is_kept_pair = found.frequency >= min_documents, found.pair_frequency >= min_documents
    everything = np.concatenate([found.frequency[is_kept], found.pair_frequency[is_kept_pair]])
    if everything.size > max_features:
        boundary = np.partition(everything, -max_features - 1)[-max_features - 1]
        room = max_features - int(np.count_nonzero(everything > boundary))
        # Of those at the boundary the words that came first.
        ties = np.flatnonzero(found.frequency == boundary)[:room]
        is_kept, is_kept_pair = found.frequency > boundary, found.pair_frequency > boundary
        is_kept[ties] = True
    words, grams = np.flatnonzero(is_kept & ~found.is_gram), np.flatnonzero(is_kept & found.is_gram)
    columns = np.full(found.frequency.size, -1, np.int32)
    columns[words] = np.arange(words.size)
    pairs = found.pairs[is_kept_pair]
    first, second = (columns[(pairs >> np.uint64(shift)).astype(np.int64) & 0xFFFFFFFF] for shift in (32, 0))
    has_both = (first >= 0) & (second >= 0)
    pair_frequency = found.pair_frequency[is_kept_pair][has_both]
    vocabulary = Vocabulary(
        found.names(words),
        np.stack([first[has_both], second[has_both]], 1).astype(np.int64),
        found.names(grams),
        np.concatenate([found.frequency[words], pair_frequency, found.frequency[grams]]),
        found.n_documents,
    )
    columns[grams] = vocabulary.first_gram + np.arange(grams.size)
    return vocabulary, columns
