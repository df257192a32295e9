"""Words as numbers: texts split into words, a table of those seen so far, and the units that each word stands for."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from labelfield.text import letters
from labelfield.text.wordtable import Packed, WordTable, grown

# From words to their units (stems, character n-grams): how many each has, at least one, and all of them.
UnitsOf = Callable[[Packed], tuple[Sequence[int] | NDArray[np.int64], NDArray[np.int32]]]
# Words beyond which a lexicon forgets them all, since a stream of documents never runs out of new ones.
_MOST_WORDS = 1 << 20


def split(texts: Sequence[str]) -> Packed:
    """Return the words of all texts, with an empty word after each text. Any number of threads may do this."""
    from labelfield.compiled.tokens import split_words

    codes = letters.codes_of(texts)
    found, ends, hashes = (
        np.empty(codes.size, np.uint32),
        np.zeros(codes.size + 1, np.int64),
        np.empty(codes.size, "u8"),
    )
    while (n := split_words(codes, letters.table, found, ends, hashes)) < 0:
        letters.add_pages(codes)
    return Packed(found[: ends[n]], ends[: n + 1], hashes[:n])


class Lexicon:
    """Words by number, in the order in which texts showed them. One thread at a time."""

    def __init__(self, units_of: UnitsOf, *, keeps_all: bool = False) -> None:
        self.units_of, self.keeps_all = units_of, keeps_all
        self.forget()

    def forget(self) -> None:
        """Empty the table."""
        self.words = WordTable()
        self.pointers, self.units = np.zeros(1, np.int64), np.zeros(0, np.int32)

    def tokens(self, words: Packed) -> NDArray[np.int32]:
        """Return words by number, with -1 after each text."""
        if len(self.words) > _MOST_WORDS and not self.keeps_all:
            self.forget()
        first = len(self.words)
        try:
            found = self.words.add(words)
            if len(self.words) > first:
                self._add_units(first)
        except BaseException:  # words without units would be read beyond the end of the arrays
            self.forget()
            raise
        return found

    def _add_units(self, first: int) -> None:
        """Look up the units of the words from this number on."""
        counts, units = self.units_of(self.words.since(first))
        begin = int(self.pointers[first])
        self.pointers, self.units = grown(self.pointers, len(self.words) + 1), grown(self.units, begin + len(units))
        self.pointers[first + 1 : len(self.words) + 1] = begin + np.cumsum(counts)
        self.units[begin : begin + len(units)] = units
