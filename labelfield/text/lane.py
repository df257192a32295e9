"""One worker's words: a table that grows, and the units (stems, character n-grams) that each word stands for."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelfield.text import letters

# From words to their units: how many each has, at least one, and all of them.
UnitsOf = Callable[[list[str]], tuple[Sequence[int] | NDArray[np.int64], list[int]]]
# Words beyond which a lane forgets them all, since a stream of documents never runs out of new ones.
_MOST_WORDS = 1 << 20
_FEW_WORDS = 1 << 15
_LETTERS_PER_WORD = 8


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return an array with room for at least `size` entries: itself, or a copy of twice the size with zeros."""
    if array.size >= size:
        return array
    larger = np.zeros(max(size, 2 * array.size), array.dtype)
    larger[: array.size] = array
    return larger


class Lane:
    """Words by number, in the order in which texts showed them. One thread at a time."""

    def __init__(self, units_of: UnitsOf, *, keeps_all: bool = False) -> None:
        self.units_of, self.keeps_all = units_of, keeps_all
        self.forget()

    def forget(self) -> None:
        """Empty the table."""
        self.slots = np.full(4 * _FEW_WORDS, -1, np.int32)
        self.hashes, self.starts = np.zeros(_FEW_WORDS, np.uint64), np.zeros(_FEW_WORDS + 1, np.int64)
        self.arena = np.zeros(_FEW_WORDS * _LETTERS_PER_WORD, np.uint32)
        self.pointers, self.units = np.zeros(_FEW_WORDS + 1, np.int64), np.zeros(_FEW_WORDS, np.int32)
        self.n_words = 0

    def tokens(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Return the words of all texts by number, with -1 after each text."""
        from labelfield.compiled.tokens import FULL, NEW_LETTER, split_words

        if self.n_words > _MOST_WORDS and not self.keeps_all:
            self.forget()
        codes = np.frombuffer(letters.joined(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
        found, state = np.empty(codes.size, np.int32), np.array([0, self.n_words, 0], np.int64)
        while True:
            table = self.slots, self.hashes, self.starts, self.arena
            reason = split_words(codes, letters.table, *table, state, found)
            if reason == NEW_LETTER:
                letters.add_page(_first_unknown(codes[state[0] :]))
            elif reason == FULL:
                self._grow(int(state[1]))
            else:
                break
        first, self.n_words = self.n_words, int(state[1])
        self._add_units(first)
        return found[: state[2]]

    def _grow(self, n_words: int) -> None:
        from labelfield.compiled.tokens import place_words

        self.arena = grown(self.arena, int(self.starts[n_words]) + 2 * letters.LONGEST)
        if n_words >= min(self.hashes.size - 1, self.slots.size // 2):
            self.hashes, self.starts = grown(self.hashes, 2 * n_words), grown(self.starts, 2 * n_words + 1)
            self.slots = np.full(2 * self.slots.size, -1, np.int32)
            place_words(self.slots, self.hashes, n_words)

    def _add_units(self, first: int) -> None:
        """Look up the units of the words from this number on."""
        if first == self.n_words:
            return
        ends = self.starts[first : self.n_words + 1]
        text = self.arena[ends[0] : ends[-1]].tobytes().decode("utf-32-le", "surrogatepass")
        cuts = (ends - ends[0]).tolist()
        counts, units = self.units_of([text[a:b] for a, b in itertools.pairwise(cuts)])
        begin = int(self.pointers[first])
        self.pointers, self.units = grown(self.pointers, self.n_words + 1), grown(self.units, begin + len(units))
        self.pointers[first + 1 : self.n_words + 1] = begin + np.cumsum(counts)
        self.units[begin : begin + len(units)] = units


def _first_unknown(codes: NDArray[np.uint32]) -> int:
    return int(codes[np.argmax(letters.table[codes] == 0)])
