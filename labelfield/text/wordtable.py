"""A set of words that numbers them as they come: a hash table in arrays, for compiled loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FEW_WORDS = 1 << 15
_LETTERS_PER_WORD = 8
_AT_ONCE = 4096


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return an array with room for at least `size` entries: itself, or a copy of twice the size with zeros."""
    if array.size >= size:
        return array
    larger = np.zeros(max(size, 2 * array.size), array.dtype)
    larger[: array.size] = array
    return larger


class Packed(NamedTuple):
    """Words in arrays: word i has the letters (code points) from `starts[i]` to `starts[i + 1]`, perhaps a hash.

    An empty word is the end of a text.
    """

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

    def part(self, first: int, last: int) -> Packed:
        """Return the words from a number up to another."""
        hashes = None if self.hashes is None else self.hashes[first:last]
        return Packed(self.letters, self.starts[first : last + 1], hashes)

    def words(self) -> list[str]:
        """Return the words as they were."""
        text = self.letters.tobytes().decode("utf-32-le", "surrogatepass")
        return [text[first:last] for first, last in itertools.pairwise(self.starts.tolist())]


class WordTable:
    """Words by number, in the order in which they came. Word i has the hash `hashes[i]` and its letters in `arena`."""

    def __init__(self) -> None:
        self.slots = np.zeros(4 * _FEW_WORDS, np.uint64)
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
            self.slots = np.zeros(1 << (2 * most).bit_length(), np.uint64)
            place_words(self.slots, self.hashes, self.n_words)

    def add(self, words: Packed) -> NDArray[np.int32]:
        """Return the numbers of words; new ones get the next numbers. An empty word has none: -1."""
        numbers = np.empty(words.starts.size - 1, np.int32)
        # A few at a time, since there must be room for all, and most are known.
        for first in range(0, numbers.size, _AT_ONCE):
            some = words.part(first, first + _AT_ONCE)
            self.make_room(some.starts.size - 1, int(some.starts[-1] - some.starts[0]))
            self._number(some, numbers[first : first + _AT_ONCE], adds=True)
        return numbers

    def find(self, words: Packed) -> NDArray[np.int32]:
        """Return the numbers of words, -1 for those that are not here."""
        numbers = np.empty(words.starts.size - 1, np.int32)
        self._number(words, numbers, adds=False)
        return numbers

    def _number(self, words: Packed, numbers: NDArray[np.int32], *, adds: bool) -> None:
        from labelfield.compiled.tokens import hash_words, number_words

        table, hashes = (self.slots, self.hashes, self.starts, self.arena), words.hashes
        if hashes is None:
            hashes = np.empty(numbers.size, np.uint64)
            hash_words(words.letters, words.starts, hashes)
        self.n_words = number_words(words.letters, words.starts, hashes, *table, self.n_words, adds, numbers)

    def since(self, first: int) -> Packed:
        """Return the words from a number on."""
        starts = self.starts[first : self.n_words + 1]
        return Packed(self.arena[starts[0] : starts[-1]], starts - starts[0], self.hashes[first : self.n_words])

    def names(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return some words as texts."""
        text = self.arena[: self.starts[self.n_words]].tobytes().decode("utf-32-le", "surrogatepass")
        places = zip(self.starts[numbers].tolist(), self.starts[numbers + 1].tolist(), strict=True)
        return [text[first:last] for first, last in places]
