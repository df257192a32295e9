"""Counts of documents: how many each unit is in, and each pair of neighbouring words, batch after batch."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from labelfield.text.lexicon import Lexicon, UnitsOf
from labelfield.text.wordtable import Packed, WordTable, grown

# Pairs that are listed before they are counted, and pairs that are counted at most: beyond that the rarest so far are
# forgotten, until there are half as many.
_LISTED, _MOST_PAIRS = 1 << 20, 1 << 22
_FEW_UNITS, _FEW_SLOTS = 1 << 16, 1 << 12


class DocumentCounter:
    """Counts the documents of units and pairs. Units are numbered as they come, so the result is always the same.

    `names_of` returns the names of a word's units, or is None where each word is its own unit.
    """

    def __init__(self, names_of: Callable[[list[str]], tuple[list[int], list[str]]] | None, n_fields: int) -> None:
        self.lexicon = Lexicon(self._own if names_of is None else self._numbered(names_of), keeps_all=True)
        self.units = self.lexicon.words if names_of is None else WordTable()
        self.n_fields, self.n_documents, self.n_entries = n_fields, 0, 0
        self._counts = np.zeros(_FEW_UNITS, np.uint64)

    def _own(self, words: Packed) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        n = len(self.lexicon.words)
        numbers = np.arange(n - words.starts.size + 1, n, dtype=np.int32)
        return np.ones(numbers.size, np.int64), numbers

    def _numbered(self, names_of: Callable[[list[str]], tuple[list[int], list[str]]]) -> UnitsOf:
        def units_of(words: Packed) -> tuple[list[int], NDArray[np.int32]]:
            counts, names = names_of(words.words())
            return counts, self.units.add(Packed.of(names))

        return units_of

    def count(self, words: Packed) -> NDArray[np.int32]:
        """Count the units of some documents; return their words by number."""
        from labelfield.compiled.tokens import count_documents, count_entries

        tokens, lexicon = self.lexicon.tokens(words), self.lexicon
        self._counts = grown(self._counts, len(self.units))
        # Documents are numbered from 1, because 0 means not seen.
        parts = self.n_fields, lexicon.pointers, lexicon.units, self._counts
        self.n_documents = count_documents(tokens, *parts, self.n_documents + 1) - 1
        self.n_entries += count_entries(tokens, lexicon.pointers)
        return tokens

    @property
    def frequency(self) -> NDArray[np.int64]:
        """The number of documents that each unit is in."""
        return (self._counts[: len(self.units)] & np.uint64(0xFFFFFFFF)).astype(np.int64)


class PairCounter:
    """Counts the documents that pairs of neighbouring words are in: lists pairs, sorts them, adds them up."""

    def __init__(self, lexicon: Lexicon, n_fields: int) -> None:
        self.lexicon, self.n_fields, self.n_listed, self.n_documents, self.n_units = lexicon, n_fields, 0, 0, 0
        self.pairs, self.counts = np.zeros(0, np.uint64), np.zeros(0, np.int32)
        self.listed, self.recent = np.empty(_LISTED, np.uint64), np.zeros((_FEW_SLOTS, 2), np.uint64)

    def count(self, tokens: NDArray[np.int32], n_units: int) -> None:
        """Count the pairs of some documents, whose units are numbered below `n_units`."""
        from labelfield.compiled.tokens import END, list_pairs

        self.n_units = n_units
        if self.n_listed + tokens.size > self.listed.size:
            self._add_listed()
            self.listed = grown(self.listed, tokens.size)
        ends = np.flatnonzero(tokens == END)[self.n_fields - 1 :: self.n_fields]
        longest = int(np.diff(ends, prepend=-1).max(initial=0))
        if 2 * longest > len(self.recent):
            self.recent = np.zeros((1 << (2 * longest).bit_length(), 2), np.uint64)
        room, lexicon = self.listed[self.n_listed :], self.lexicon
        parts = lexicon.pointers, lexicon.units, self.recent, self.n_documents + 1, room
        self.n_listed += list_pairs(tokens, self.n_fields, *parts)
        self.n_documents += ends.size

    def result(self, least: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the pairs that are in at least so many documents, in order, and in how many."""
        self._add_listed()
        is_kept = self.counts >= least
        return self.pairs[is_kept], self.counts[is_kept].astype(np.int64)

    def _add_listed(self) -> None:
        from labelfield.compiled.tokens import merge_pairs, sort_pairs

        more = self.listed[: self.n_listed]
        sort_pairs(more, np.empty_like(more), max(1, self.n_units.bit_length()))
        pairs, counts = (
            np.empty(self.pairs.size + more.size, np.uint64),
            np.empty(self.pairs.size + more.size, np.int32),
        )
        n = merge_pairs(self.pairs, self.counts, more, pairs, counts)
        self.pairs, self.counts, self.n_listed = pairs[:n], counts[:n], 0
        least = 1
        while n > _MOST_PAIRS and self.pairs.size > _MOST_PAIRS // 2:
            is_kept = self.counts > least
            self.pairs, self.counts, least = self.pairs[is_kept], self.counts[is_kept], least + 1
