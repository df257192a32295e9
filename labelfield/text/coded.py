"""Labels and ids of documents as numbers: of many documents there is a text per label in memory, not per document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts
from labelfield.mapped import Growing, pieces, scratch_folder

# Numbers that are kept in memory; more are in a temporary file.
_IN_MEMORY = 1 << 22
# Documents that are taken at a time.
_DOCUMENTS = 1 << 14


def growing(dtype: type[np.generic]) -> Growing:
    """Return an array that grows in memory, and in a file once it is long."""
    return Growing(dtype, scratch_folder(), in_memory=_IN_MEMORY)


class LabelLists:
    """The labels of documents: the distinct ones by name, how many each document has, and their numbers."""

    def __init__(self, names: list[str], counts: NDArray[np.int32], codes: NDArray[np.int32]) -> None:
        self.names, self.counts, self.codes = names, counts, codes

    def __len__(self) -> int:
        return self.counts.size

    def __iter__(self) -> Iterator[list[str]]:
        """Yield the labels of each document by name."""
        for counts, codes in self._parts():
            ends = np.cumsum(counts).tolist()
            own = [self.names[code] for code in codes.tolist()]
            yield from (own[end - n : end] for n, end in zip(counts.tolist(), ends, strict=True))

    def _parts(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """Yield the counts and the numbers of some documents at a time."""
        end = 0
        for some in pieces(self.counts, size=_DOCUMENTS):
            counts = np.asarray(self.counts[some])
            first, end = end, end + int(counts.sum(dtype=np.int64))
            yield counts, np.asarray(self.codes[first:end])

    def renamed(self, name_of: Callable[[str], str]) -> LabelLists:
        """Return the labels by other names, each once per document."""
        numbers: dict[str, int] = {}
        place = np.array([numbers.setdefault(name_of(name), len(numbers)) for name in self.names], np.int32)
        all_counts, all_codes = growing(np.int32), growing(np.int32)
        for counts, codes in self._parts():
            row, column = np.repeat(np.arange(counts.size), counts), place[codes]
            if len(numbers) < place.size:  # some labels have become one
                kept = np.sort(np.unique(row * len(numbers) + column, return_index=True)[1])
                row, column = row[kept], column[kept]
            all_counts.extend(np.bincount(row, minlength=counts.size))
            all_codes.extend(column)
        return LabelLists(list(numbers), all_counts.finish(), all_codes.finish())

    def positives(self, names: Sequence[str]) -> sparse.csr_array:
        """Return the labels as positives (CSR) in columns of these names, which are all that documents have."""
        column_of = {name: column for column, name in enumerate(names)}
        place = np.array([column_of[name] for name in self.names], np.int32)
        columns = growing(np.int32)
        for counts, codes in self._parts():
            row = np.repeat(np.arange(counts.size), counts)
            columns.extend(np.sort(row * len(names) + place[codes]) % max(len(names), 1))
        return from_counts(self.counts, columns.finish(), None, len(names))


class LabelCoder:
    """Turns the labels of documents into numbers, as they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._counts, self._codes = growing(np.int32), growing(np.int32)
        self._waiting: list[list[int]] = []

    def add(self, labels: Iterable[str]) -> None:
        numbers = self._numbers
        self._waiting.append([numbers.setdefault(label, len(numbers)) for label in labels])
        if len(self._waiting) >= _DOCUMENTS:
            self._flush()

    def _flush(self) -> None:
        self._counts.extend(np.array([len(own) for own in self._waiting], np.int32))
        self._codes.extend(np.fromiter(chain.from_iterable(self._waiting), np.int32))
        self._waiting = []

    def finish(self) -> LabelLists:
        """Return the labels of all documents."""
        self._flush()
        return LabelLists(list(self._numbers), self._counts.finish(), self._codes.finish())


class IdCounter:
    """Counts ids that occur more than once, by a hash of each."""

    def __init__(self) -> None:
        self._hashes, self._sizes, self._texts = growing(np.int64), growing(np.int64), growing(np.uint8)
        self._waiting: list[str] = []

    def add(self, ids: Iterable[str]) -> None:
        self._waiting.extend(ids)
        if len(self._waiting) >= _DOCUMENTS:
            self._flush()

    def _flush(self) -> None:
        texts = [one.encode(errors="replace") for one in self._waiting]
        self._hashes.extend(np.fromiter(map(hash, self._waiting), np.int64))
        self._sizes.extend(np.fromiter(map(len, texts), np.int64))
        self._texts.extend(np.frombuffer(b"".join(texts), np.uint8))
        self._waiting = []

    def repeated(self) -> tuple[int, str]:
        """Return how many ids occur more than once, and the first of them."""
        self._flush()
        hashes, sizes, texts = (part.finish() for part in (self._hashes, self._sizes, self._texts))
        ordered = np.sort(hashes)
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if repeated.size:
            start = 0
            for some in pieces(hashes, sizes):
                if (found := np.flatnonzero(np.isin(hashes[some], repeated))).size:
                    own = sizes[some]
                    start += int(own[: found[0]].sum())
                    return repeated.size, bytes(texts[start : start + int(own[found[0]])]).decode()
                start += int(sizes[some].sum())
        return 0, ""
