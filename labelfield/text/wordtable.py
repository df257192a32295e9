"""A set of words that numbers them as they come: a hash table in arrays, for compiled loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FEW_WORDS = 1 << 15
_LETTERS_PER_WORD = 8


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return an array with room for at least `size` entries: itself, or a copy of twice the size with zeros."""
    if array.size >= size:
        return array
    larger = np.zeros(max(size, 2 * array.size), array.dtype)
    larger[: array.size] = array
    return larger


class Packed(NamedTuple):
    """Words in arrays: word i has the letters (code points) from `starts[i]` to `starts[i + 1]`, perhaps a hash."""

    letters: NDArray[np.uint32]
    starts: NDArray[np.int64]
    hashes: NDArray[np.uint64] | None = None

    @classmethod
    def of(cls, words: Sequence[str]) -> Packed:
        """Pack words."""
        letters = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
        starts = np.zeros(len(words) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, words), np.int64, len(words)), out=starts[1:])
        return cls(letters, starts)

    def words(self) -> list[str]:
        """Return the words as they were."""
        text = self.letters.tobytes().decode("utf-32-le", "surrogatepass")
        return [text[first:last] for first, last in itertools.pairwise(self.starts.tolist())]


class WordTable:
    """Words by number, in the order in which they came. Word i has the hash `hashes[i]` and its letters in `arena`."""

    def __init__(self) -> None:
        self.slots = np.full(4 * _FEW_WORDS, -1, np.int32)
        self.hashes, self.starts = np.zeros(_FEW_WORDS, np.uint64), np.zeros(_FEW_WORDS + 1, np.int64)
        self.arena = np.zeros(_FEW_WORDS * _LETTERS_PER_WORD, np.uint32)
        self.n_words = 0

    def __len__(self) -> int:
        return self.n_words

    def make_room(self, n_words: int, n_letters: int) -> None:
        """Make room for as many words and letters more."""
        from labelfield.compiled.tokens import place_words

        self.arena = grown(self.arena, int(self.starts[self.n_words]) + n_letters)
        most = self.n_words + n_words
        self.hashes, self.starts = grown(self.hashes, most + 1), grown(self.starts, most + 2)
        if 2 * most > self.slots.size:
            self.slots = np.full(1 << (4 * most - 1).bit_length(), -1, np.int32)
            place_words(self.slots, self.hashes, self.n_words)

    def add(self, words: Packed) -> NDArray[np.int32]:
        """Return the numbers of words; new ones get the next numbers."""
        self.make_room(words.starts.size - 1, words.letters.size)
        return self._numbers(words, adds=True)

    def find(self, words: Packed) -> NDArray[np.int32]:
        """Return the numbers of words, -1 for those that are not here."""
        return self._numbers(words, adds=False)

    def _numbers(self, words: Packed, *, adds: bool) -> NDArray[np.int32]:
        from labelfield.compiled.tokens import hash_words, number_words

        numbers = np.empty(words.starts.size - 1, np.int32)
        table, codes = (self.slots, self.hashes, self.starts, self.arena), words.hashes
        if codes is None:
            codes = np.empty(numbers.size, np.uint64)
            hash_words(words.letters, words.starts, codes)
        self.n_words = number_words(words.letters, words.starts, codes, *table, self.n_words, adds, numbers)
        return numbers

    def since(self, first: int) -> Packed:
        """Return the words from a number on."""
        starts = self.starts[first : self.n_words + 1]
        return Packed(self.arena[starts[0] : starts[-1]], starts - starts[0], self.hashes[first : self.n_words])

    def names(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return some words as texts."""
        text = self.arena[: self.starts[self.n_words]].tobytes().decode("utf-32-le", "surrogatepass")
        places = zip(self.starts[numbers].tolist(), self.starts[numbers + 1].tolist(), strict=True)
        return [text[first:last] for first, last in places]
