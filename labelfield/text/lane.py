"""One worker's words: a table that grows, and the units (stems, character n-grams) that each word stands for."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from labelfield.text import letters
from labelfield.text.wordtable import Packed, WordTable, grown

# From words to their units: how many each has, at least one, and all of them.
UnitsOf = Callable[[Packed], tuple[Sequence[int] | NDArray[np.int64], NDArray[np.int32]]]
# Words beyond which a lane forgets them all, since a stream of documents never runs out of new ones.
_MOST_WORDS = 1 << 20


class Lane:
    """Words by number, in the order in which texts showed them. One thread at a time."""

    def __init__(self, units_of: UnitsOf, *, keeps_all: bool = False) -> None:
        self.units_of, self.keeps_all = units_of, keeps_all
        # Columns of the document that is being counted: zeros between documents, kept because there may be many.
        self.total = np.zeros(0, np.float32)
        self.forget()

    def forget(self) -> None:
        """Empty the table."""
        self.words = WordTable()
        self.pointers, self.units = np.zeros(1, np.int64), np.zeros(0, np.int32)

    def tokens(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Return the words of all texts by number, with -1 after each text."""
        from labelfield.compiled.tokens import FULL, NEW_LETTER, split_words

        if len(self.words) > _MOST_WORDS and not self.keeps_all:
            self.forget()
        words, first = self.words, len(self.words)
        codes = letters.codes_of(texts)
        found, state = np.empty(codes.size, np.int32), np.array([0, first, 0], np.int64)
        while True:
            reason = split_words(
                codes, letters.table, words.slots, words.hashes, words.starts, words.arena, state, found
            )
            words.n_words = int(state[1])
            if reason == NEW_LETTER:
                letters.add_page(_first_unknown(codes[state[0] :]))
            elif reason == FULL:
                words.make_room(max(words.n_words, 1), 2 * letters.LONGEST)
            else:
                break
        if len(words) > first:
            self._add_units(first)
        return found[: state[2]]

    def _add_units(self, first: int) -> None:
        """Look up the units of the words from this number on."""
        counts, units = self.units_of(self.words.since(first))
        begin = int(self.pointers[first])
        self.pointers, self.units = grown(self.pointers, len(self.words) + 1), grown(self.units, begin + len(units))
        self.pointers[first + 1 : len(self.words) + 1] = begin + np.cumsum(counts)
        self.units[begin : begin + len(units)] = units


def _first_unknown(codes: NDArray[np.uint32]) -> int:
    return int(codes[np.argmax(letters.table[codes] == 0)])
