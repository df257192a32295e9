"""The encoder "words": tf-idf of stems, of pairs of neighbouring stems, and of character n-grams.

    value of a unit in a document = log(1 + tf) (log((1 + N) / (1 + n)) + 1)

for a unit that occurs in n of N training documents, half of that for a pair, and then norm 1. Documents are processed
in batches by a few lanes, each with its own thread and tables: the memory is that of the vocabulary and of the batches,
and the result does not depend on the number of cores.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, chain, cycle, islice, pairwise
from statistics import median
from threading import Lock
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.compiled import has_numba, usable_threads
from labelfield.constraints import Constraint, Flag, Integer, OneOf, Word, check_options
from labelfield.csr import from_counts, row_norms
from labelfield.errors import DataError
from labelfield.text.lane import Lane, UnitsOf
from labelfield.text.languages import STEMMERS, Stem, detect_language, normalise, stemmer
from labelfield.text.letters import words_of
from labelfield.text.wordtable import Packed, WordTable, grown

# A document: its text, or the texts of its fields.
Document = str | Sequence[str]
Result = TypeVar("Result")
# Lanes that count are fixed, so that the same documents give the same vocabulary on any machine.
_COUNT_LANES, _MOST_LANES = 2, 8
_BATCH_LETTERS, _BATCH_DOCUMENTS = 1 << 18, 1024
# Documents that are taken at a time where they have fewer letters each, on average, than a long one.
_MANY_DOCUMENTS, _LONG_DOCUMENT = 256, 1000
# Lengths of character n-grams, within words and their ends.
_SHORTEST, _LONGEST = 3, 5
# What begins the name of a character n-gram, and what stands for the end of a word in it: no word has these.
_GRAM, _EDGE = "#", "·"
_AFTER_GRAMS = chr(ord(_GRAM) + 1)
# Slots for pairs in a lane beyond which pairs seen once so far are forgotten.
_MOST_SLOTS, _FEW_SLOTS = 1 << 22, 1 << 16
_SAMPLE = 1000
# Documents and their letters that plain loops are fast enough for.
_FEW_DOCUMENTS, _FEW_LETTERS = 20, 100_000
# Mean letters per document up to which character n-grams are used by default: on longer ones they say little more than
# words do, and make rows several times as long.
_SHORT_DOCUMENTS = 600
# A pair says little more than its two words.
_PAIR_WEIGHT = 0.5
AUTO, NONE = "auto", "none"


class Found(NamedTuple):
    """What the training documents showed: units and the number of documents each is in, and the same of pairs.

    `names` returns what units are called.
    """

    names: Callable[[NDArray[np.int64]], list[str]]
    frequency: NDArray[np.int64]
    pairs: NDArray[np.uint64]
    pair_frequency: NDArray[np.int64]
    n_documents: int


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


class _Kept(NamedTuple):
    """Lanes, and the words of each batch as the lanes in turn number them."""

    lanes: list[Lane]
    tokens: list[NDArray[np.int32]]


@dataclass(kw_only=True)
class WordEncoder:
    """Turn documents into rows: tf-idf of stems, of pairs of neighbouring stems, and of character n-grams.

    Parameters
    ----------
    language : str
        Whose Snowball stems are used: a code such as fi, auto to detect it, or none for words as they are.
    pairs : bool
        Whether pairs of neighbouring words are columns.
    characters : str
        Whether character n-grams of 3 to 5 letters within words are columns: on, off, or auto, for short documents.
    min_documents : int
        Training documents that a column must occur in.
    max_features : int
        Columns at most; those in most documents are kept.
    """

    language: str = AUTO
    pairs: bool = True
    characters: str = AUTO
    min_documents: int = 2
    max_features: int = 1 << 19

    constraints: ClassVar[dict[str, Constraint]] = {
        "language": Word(),
        "pairs": Flag(),
        "characters": OneOf((AUTO, "on", "off")),
        "min_documents": Integer(1),
        "max_features": Integer(1),
    }

    def __post_init__(self) -> None:
        self._lanes: list[Lane] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the tables of lanes, which fill again."""
        return self.__dict__ | {"_lanes": None}

    def fit(self, documents: Iterable[Document], weights: Sequence[float] = (1.0,)) -> WordEncoder:
        """Learn the vocabulary. A document is a text, or a sequence of texts of its fields, which have `weights`."""
        self._learn(documents, weights, keeps_tokens=False)
        return self

    def fit_transform(self, documents: Iterable[Document], weights: Sequence[float] = (1.0,)) -> sparse.csr_array:
        """Learn the vocabulary and return the rows of the same documents, which are split into words only once."""
        documents = documents if has_numba() else list(documents)
        kept = self._learn(documents, weights, keeps_tokens=True)
        if kept is None:
            return self.transform(documents)
        return self._assembled(_in_lanes(kept.lanes, iter(kept.tokens), self._rows))

    def transform(self, documents: Iterable[Document]) -> sparse.csr_array:
        """Return a row for each document (CSR float32)."""
        return self._assembled(self.transform_batches(documents))

    def transform_batches(self, documents: Iterable[Document]) -> Iterator[_Rows]:
        """Yield rows in batches, as counts per row, columns and values: for documents that do not fit into memory."""
        stream = iter(documents)
        head = list(islice(stream, _FEW_DOCUMENTS + 1))
        n_letters = sum(len(text) for document in head for text in _fields(document))
        # Loading compiled loops takes longer than a few documents do.
        are_few = self._lanes is None and len(head) <= _FEW_DOCUMENTS and n_letters <= _FEW_LETTERS
        documents = chain(head, stream)
        if are_few or not has_numba():
            yield from (self._plain_rows(batch) for batch in self._batches(documents))
            return
        # Lanes keep the words they know, unless another thread is using them.
        lanes = self._lanes or self._new_lanes()
        self._lanes = None
        try:
            yield from _in_lanes(lanes, self._batches(documents), lambda lane, own: self._rows(lane, lane.tokens(own)))
        finally:
            self._lanes = lanes

    def _new_lanes(self) -> list[Lane]:
        return [Lane(self._units(self._known)) for _ in range(min(usable_threads(), _MOST_LANES))]

    def _assembled(self, parts: Iterable[_Rows]) -> sparse.csr_array:
        counts, indices, values = (np.concatenate(column) for column in zip(_NO_ROWS, *parts, strict=True))
        return from_counts(counts, indices, values, self.n_features_)

    @property
    def n_features_(self) -> int:
        return self.vocabulary_.frequency.size

    def feature_names(self) -> list[str]:
        """Return what each column is: a stem, two stems, or #letters of an n-gram, with · for the end of a word."""
        return self.vocabulary_.names

    # Fitting

    def _learn(self, documents: Iterable[Document], weights: Sequence[float], *, keeps_tokens: bool) -> _Kept | None:
        """Learn the vocabulary, and return what `fit_transform` needs to make rows without splitting words again."""
        check_options(vars(self), self.constraints)
        self.weights_ = np.asarray(weights, np.float32)
        stream = iter(documents)
        head = list(islice(stream, _SAMPLE))
        self.language_ = self._choose_language(head)
        lengths = [sum(map(len, _fields(document))) for document in head]
        is_short = median(lengths or [0]) <= _SHORT_DOCUMENTS
        self.has_characters_ = self.characters == "on" or (self.characters == AUTO and is_short)
        found, kept = self._count(chain(head, stream), keeps_tokens)
        vocabulary, columns = _choose(found, self.min_documents, self.max_features)
        self._take(vocabulary)
        if kept is not None:
            for lane in kept.lanes:  # which from now on make rows
                used = lane.units[: lane.pointers[len(lane.words)]]
                used[:] = columns[used]
                lane.units_of, lane.keeps_all = self._units(self._known), False
        return kept

    def _choose_language(self, documents: list[Document]) -> str | None:
        if self.language == NONE:
            return None
        if self.language != AUTO:
            return normalise(self.language)
        return detect_language(text for document in documents for text in _fields(document))

    def _batches(self, documents: Iterable[Document]) -> Iterator[list[str]]:
        """Yield the texts of some documents at a time, field after field."""
        batch: list[str] = []
        n_letters, n_fields, stream, n_at_once = 0, self.weights_.size, iter(documents), _FEW_DOCUMENTS
        while some := list(islice(stream, n_at_once)):
            texts = self._texts(some)
            batch += texts
            n_new = sum(map(len, texts))
            n_letters += n_new
            # Short documents are taken by the hundred: a loop over a few at a time would hold up the lanes.
            n_at_once = _FEW_DOCUMENTS if n_new > _LONG_DOCUMENT * len(some) else _MANY_DOCUMENTS
            if n_letters > _BATCH_LETTERS or len(batch) >= _BATCH_DOCUMENTS * n_fields:
                yield batch
                batch, n_letters = [], 0
        if batch:
            yield batch

    def _texts(self, documents: list[Document]) -> list[str]:
        """Return the texts of some documents, field after field."""
        if self.weights_.size == 1 and set(map(type, documents)) == {str}:
            return cast("list[str]", documents)
        fields = [_fields(document) for document in documents]
        for own in fields:
            if len(own) != self.weights_.size:
                raise DataError(f"a document with {len(own)} fields", expected=f"{self.weights_.size} as the others")
        return [text for own in fields for text in own]

    def _names(self, words: list[str]) -> tuple[list[int], list[str]]:
        """Return the units of words, by name: how many each has, and for each its stem first, then its n-grams."""
        stem: Stem = stemmer(self.language_)
        has_stems = self.language_ in STEMMERS
        stems = [found or word for found, word in zip(stem(words), words, strict=True)] if has_stems else words
        if not self.has_characters_:
            return [1] * len(words), stems
        names, counts = [], []
        for word, first in zip(words, stems, strict=True):
            grams = _grams(word)
            names.append(first)
            names += grams
            counts.append(1 + len(grams))
        return counts, names

    def _units(self, number: Callable[[Packed], NDArray[np.int32]]) -> UnitsOf:
        """Return a function from words to their units, which `number` numbers."""
        are_words = self.language_ not in STEMMERS and not self.has_characters_

        def units_of(words: Packed) -> tuple[Sequence[int] | NDArray[np.int64], NDArray[np.int32]]:
            if are_words:
                return np.ones(words.starts.size - 1, np.int64), number(words)
            counts, names = self._names(words.words())
            return counts, number(Packed.of(names))

        return units_of

    def _count(self, documents: Iterable[Document], keeps_tokens: bool) -> tuple[Found, _Kept | None]:
        if not has_numba():
            return self._plain_count(documents), None
        units, lock = WordTable(), Lock()

        def number(words: Packed) -> NDArray[np.int32]:
            with lock:
                return units.add(words)

        lanes = [_CountLane(self._units(number), self.weights_.size, self.pairs) for _ in range(_COUNT_LANES)]
        kept = [
            tokens
            for tokens in _in_lanes(lanes, self._batches(documents), lambda lane, batch: lane.count(batch))
            if keeps_tokens
        ]
        frequency = np.zeros(len(units), np.int64)
        for lane in lanes:
            known = min(lane.frequency.size, len(units))
            frequency[:known] += lane.frequency[:known]
        found = Found(
            units.names, frequency, *_joined_pairs(lanes, self.min_documents), sum(lane.document for lane in lanes)
        )
        return found, _Kept([lane.lane for lane in lanes], kept) if keeps_tokens else None

    def _plain_count(self, documents: Iterable[Document]) -> Found:
        """Count in plain Python: the twin of the compiled loops."""
        numbers: dict[str, int] = {}
        frequency: Counter[int] = Counter()
        pairs: Counter[int] = Counter()
        n_documents = 0
        for batch in self._batches(documents):
            for texts in _grouped(batch, self.weights_.size):
                seen: set[int] = set()
                seen_pairs: set[int] = set()
                for text in texts:
                    counts, names = self._names(words_of(text))
                    units = [numbers.setdefault(name, len(numbers)) for name in names]
                    seen.update(units)
                    firsts = _firsts(counts, units)
                    seen_pairs.update((a << 32) | b for a, b in pairwise(firsts))
                frequency.update(seen)
                pairs.update(seen_pairs if self.pairs else ())
                n_documents += 1
        keys, units_by_number = np.array(sorted(pairs), np.uint64), list(numbers)
        return Found(
            lambda numbers: [units_by_number[number] for number in numbers.tolist()],
            np.array([frequency[unit] for unit in range(len(numbers))], np.int64),
            keys,
            np.array([pairs[key] for key in keys.tolist()], np.int64),
            n_documents,
        )

    # Rows

    def _take(self, vocabulary: Vocabulary) -> None:
        """Keep a vocabulary, learned or loaded, and what follows from it."""
        self.vocabulary_ = vocabulary
        self._lanes = None
        self._columns: dict[str, int] | None = None
        self._words: WordTable | None = None
        idf = np.log((1 + vocabulary.n_documents) / (1 + vocabulary.frequency)) + 1
        idf[len(vocabulary.words) : vocabulary.first_gram] *= _PAIR_WEIGHT
        self._idf = idf.astype(np.float32)
        # Pairs as single numbers, which rise.
        self._pair_keys = vocabulary.pairs[:, 0] << 32 | vocabulary.pairs[:, 1]
        self._table: NDArray[np.uint64] | None = None

    def _pair_table(self) -> NDArray[np.uint64]:
        """Return a hash table of pairs and their columns; made when it is first needed."""
        from labelfield.compiled.tokens import place_pairs

        if self._table is None:
            keys = self._pair_keys
            columns = len(self.vocabulary_.words) + np.arange(keys.size)
            table = _empty_table(1 << int(2 * keys.size).bit_length())
            place_pairs(np.stack([keys + 1, columns], 1).astype(np.uint64), table)
            self._table = table  # only now that it is full: another lane may be waiting for it
        return self._table

    def _pairs(self, units: list[int]) -> list[int]:
        """Return the column of each pair of neighbouring units, -1 for none: the twin of the table of pairs."""
        first, second = np.array(units[:-1], np.int64), np.array(units[1:], np.int64)
        known, keys = self._pair_keys, first << 32 | np.maximum(second, 0)
        if not known.size or not keys.size:
            return [-1] * keys.size
        place = np.minimum(np.searchsorted(known, keys), known.size - 1)
        is_known = (known[place] == keys) & (first >= 0) & (second >= 0)
        found: list[int] = np.where(is_known, place + len(self.vocabulary_.words), -1).tolist()
        return found

    def _rows(self, lane: Lane, tokens: NDArray[np.int32]) -> _Rows:
        from labelfield.compiled.tokens import END, write_rows

        words = tokens[tokens != END]
        most = int((lane.pointers[words + 1] - lane.pointers[words]).sum()) + tokens.size
        indices, values = np.empty(most, np.int32), np.empty(most, np.float32)
        counts = np.zeros((tokens.size - words.size) // self.weights_.size, np.int64)
        if lane.total.size != self.n_features_:
            lane.total = np.zeros(self.n_features_, np.float32)
        parts = lane.pointers, lane.units, self._pair_table(), lane.total, counts, indices, values
        n = write_rows(tokens, self.weights_, *parts)
        return self._weighted(counts, indices[:n], values[:n])

    def _known(self, names: Packed) -> NDArray[np.int32]:
        """Return the columns of units, -1 for none."""
        vocabulary = self.vocabulary_
        if self._words is None:
            table = WordTable()
            table.add(Packed.of([*vocabulary.words, *vocabulary.grams]))
            self._words = table
        numbers = self._words.find(names)
        numbers[numbers >= len(vocabulary.words)] += len(vocabulary.pairs)
        return numbers

    def _plain_known(self, words: list[str]) -> tuple[list[int], list[int]]:
        """Return the units of words as columns, -1 for none, and how many each has: the twin of `_known`."""
        vocabulary = self.vocabulary_
        if self._columns is None:
            numbers = chain(range(len(vocabulary.words)), range(vocabulary.first_gram, self.n_features_))
            self._columns = dict(zip(chain(vocabulary.words, vocabulary.grams), numbers, strict=True))
        counts, names = self._names(words)
        get = self._columns.get
        return counts, [get(name, -1) for name in names]

    def _plain_rows(self, batch: list[str]) -> _Rows:
        """Make rows in plain Python: the twin of the compiled loop."""
        counts, indices, values = [], [], []
        for texts in _grouped(batch, self.weights_.size):
            total: Counter[int] = Counter()
            for text, weight in zip(texts, self.weights_.tolist(), strict=True):
                sizes, units = self._plain_known(words_of(text))
                for unit in chain(units, self._pairs(_firsts(sizes, units))):
                    if unit >= 0:
                        total[unit] += weight
            columns = sorted(total)
            counts.append(len(columns))
            indices += columns
            values += [total[column] for column in columns]
        found = np.array(counts, np.int64), np.array(indices, np.int32), np.array(values, np.float32)
        return self._weighted(*found)

    def _weighted(self, counts: NDArray[np.int64], indices: NDArray[np.int32], tf: NDArray[np.float32]) -> _Rows:
        """Return tf-idf in rows of norm 1."""
        values = np.log1p(tf) * self._idf[indices]
        values /= np.repeat(row_norms(values, counts), counts[counts > 0]).astype(np.float32)
        return counts, indices, values

    # Saving

    def describe(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the encoder in words and arrays; the names of its columns are saved beside them."""
        own = self.vocabulary_
        words = {name: getattr(self, name) for name in self.constraints}
        words |= {
            "language_": self.language_,
            "has_characters": self.has_characters_,
            "weights": self.weights_.tolist(),
            "n_documents": own.n_documents,
        }
        return words | {"n_words": len(own.words), "n_pairs": len(own.pairs)}, {"frequency": own.frequency}

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], names: list[str]) -> WordEncoder:
        """Return the encoder that `describe` described; raise a ValueError, KeyError or TypeError for nonsense."""
        encoder = cls(**{name: config[name] for name in cls.constraints})
        check_options(vars(encoder), cls.constraints)
        language, sizes = config["language_"], [config[name] for name in ("n_words", "n_pairs", "n_documents")]
        frequency, weights = arrays["frequency"], np.asarray(config["weights"], np.float32)
        if not (language is None or isinstance(language, str)) or not all(Integer(0).accepts(size) for size in sizes):
            raise ValueError("the language or a size of the encoder is not one")
        if weights.ndim != 1 or not weights.size or not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError("the weights of fields are not positive numbers")
        if frequency.shape != (len(names),) or frequency.dtype != np.int64 or sizes[0] + sizes[1] > len(names):
            raise ValueError(f"the encoder does not have {len(names)} columns")
        if frequency.size and not 0 <= int(frequency.min()) <= int(frequency.max()) <= sizes[2]:
            raise ValueError("columns occur in more documents than there were")
        encoder.language_, encoder.weights_, encoder.has_characters_ = (
            language,
            weights,
            config["has_characters"] is True,
        )
        words = {name: column for column, name in enumerate(names[: sizes[0]])}
        if len(words) < sizes[0] or len(set(names)) < len(names):
            raise ValueError("two columns of the encoder have the same name")
        if not all(name.startswith(_GRAM) for name in names[sizes[0] + sizes[1] :]):
            raise ValueError("a column of the encoder is neither a word nor a pair nor an n-gram")
        split = [name.partition(" ") for name in names[sizes[0] : sizes[0] + sizes[1]]]
        pairs = np.array([(words[first], words[second]) for first, _, second in split], np.int64).reshape(-1, 2)
        own = names[: sizes[0]], pairs, names[sizes[0] + sizes[1] :]
        encoder._take(Vocabulary(*own, frequency, sizes[2]))
        if (np.diff(encoder._pair_keys) <= 0).any():
            raise ValueError("the pairs of the encoder are not in order")
        return encoder


_Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]
_NO_ROWS = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)


def _fields(document: Document) -> Sequence[str]:
    return (document,) if isinstance(document, str) else document


def _grouped(texts: list[str], n_fields: int) -> Iterator[list[str]]:
    return (texts[at : at + n_fields] for at in range(0, len(texts), n_fields))


def _firsts(counts: list[int], units: list[int]) -> list[int]:
    """Return the first unit of each word."""
    return [units[last - count] for last, count in zip(accumulate(counts), counts, strict=True)]


def _grams(word: str) -> list[str]:
    """Return the names of the n-grams of a word with its two ends."""
    padded = f"{_EDGE}{word}{_EDGE}"
    return [
        f"{_GRAM}{padded[at : at + size]}"
        for size in range(_SHORTEST, min(_LONGEST, len(padded)) + 1)
        for at in range(len(padded) - size + 1)
    ]


def _in_lanes(lanes: list[Any], batches: Iterator[Any], work: Callable[[Any, Any], Result]) -> Iterator[Result]:
    """Yield what lanes make of batches, which they take in turn; each lane has a thread, and a batch in store."""
    few = list(islice(batches, 2))
    if len(few) < 2:  # threads would take longer to start than a few documents take
        yield from (work(lanes[0], batch) for batch in few)
        return
    batches = chain(few, batches)
    with ExitStack() as stack:
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in lanes]
        turns = cycle(zip(pools, lanes, strict=True))
        pending: deque[Future[Result]] = deque()
        for batch in batches:
            pool, lane = next(turns)
            pending.append(pool.submit(work, lane, batch))
            if len(pending) > 2 * len(lanes):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _choose(found: Found, min_documents: int, max_features: int) -> tuple[Vocabulary, NDArray[np.int64]]:
    """Choose the columns and put them in order: by name, so that threads have no say in it.

    Return with them the column of each unit, -1 for none.
    """
    order = np.flatnonzero(found.frequency >= min_documents)
    first, second = ((found.pairs >> np.uint64(shift)).astype(np.int64) & 0xFFFFFFFF for shift in (32, 0))
    is_kept = found.pair_frequency >= min_documents
    first, second, pair_frequency = first[is_kept], second[is_kept], found.pair_frequency[is_kept]
    if order.size + first.size > max_features:
        everything = np.concatenate([found.frequency[order], pair_frequency])
        boundary = np.partition(everything, -max_features - 1)[-max_features - 1]
        room = max_features - int(np.count_nonzero(everything > boundary))
        # Of those at the boundary the first words by name: the numbers of units are up to the threads.
        ties = order[found.frequency[order] == boundary]
        names = found.names(ties)
        ties = ties[sorted(range(ties.size), key=names.__getitem__)[:room]]
        order = np.concatenate([order[found.frequency[order] > boundary], ties])
        is_kept = pair_frequency > boundary
        first, second, pair_frequency = first[is_kept], second[is_kept], pair_frequency[is_kept]
    kept = found.names(order)
    places = sorted(range(len(kept)), key=kept.__getitem__)
    # What begins an n-gram comes before all letters and digits; words come first here.
    n_grams = bisect_left(places, _AFTER_GRAMS, key=kept.__getitem__)
    places = [*places[n_grams:], *places[:n_grams]]
    by_name, names = order[places] if places else order, [kept[place] for place in places]
    n_words = len(places) - n_grams
    column = np.full(found.frequency.size, -1, np.int64)
    column[by_name] = np.arange(len(by_name))
    is_kept = (column[first] >= 0) & (column[second] >= 0)
    pairs = np.stack([column[first[is_kept]], column[second[is_kept]]], 1)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, pair_frequency = pairs[order], pair_frequency[is_kept][order]
    frequency = found.frequency[by_name]
    vocabulary = Vocabulary(
        names[:n_words],
        pairs,
        names[n_words:],
        np.concatenate([frequency[:n_words], pair_frequency, frequency[n_words:]]),
        found.n_documents,
    )
    return vocabulary, np.where(column >= n_words, column + len(pairs), column)


def _joined_pairs(lanes: list[_CountLane], least: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the pairs of all lanes that are in at least so many documents, and in how many."""
    from labelfield.compiled.tokens import add_pairs

    table = _empty_table(1 << int(2 * sum(lane.n_pairs for lane in lanes)).bit_length())
    for lane in lanes:
        add_pairs(lane.table, table)
    keys, frequency = table[table[:, 1] >= least].T  # 0 beside free slots
    return keys - np.uint64(1), frequency.astype(np.int64)


def _empty_table(n_slots: int) -> NDArray[np.uint64]:
    """Return a table of pairs, each with a number beside it; `compiled.tokens` says how a pair is a number above 0."""
    return np.zeros((n_slots, 2), np.uint64)


class _CountLane:
    """A lane that counts in how many documents units and pairs occur."""

    def __init__(self, units_of: Any, n_fields: int, has_pairs: bool) -> None:
        self.lane, self.n_fields, self.has_pairs, self.document = Lane(units_of, keeps_all=True), n_fields, has_pairs, 0
        self.seen, self.frequency = np.zeros(1 << 16, np.int32), np.zeros(1 << 16, np.int32)
        self.table, self.n_pairs = _empty_table(_FEW_SLOTS), 0

    def count(self, batch: list[str]) -> NDArray[np.int32]:
        """Count the units and pairs of some documents; return their words by number."""
        from labelfield.compiled.tokens import count_documents, count_pairs

        tokens, lane = self.lane.tokens(batch), self.lane
        n_units = int(lane.units[: lane.pointers[len(lane.words)]].max(initial=-1)) + 1
        self.seen, self.frequency = grown(self.seen, n_units), grown(self.frequency, n_units)
        first = self.document  # documents are numbered from 1, because 0 means not seen
        self.document = (
            count_documents(tokens, self.n_fields, lane.pointers, lane.units, self.seen, self.frequency, first + 1) - 1
        )
        state = np.array([0, 0, 0, -1, self.n_pairs], np.int64)
        while self.has_pairs:
            is_done = count_pairs(tokens, self.n_fields, lane.pointers, lane.units, self.table, state, first + 1)
            self.n_pairs = int(state[4])
            if is_done:
                break
            self._make_room()
            state[4] = self.n_pairs
        return tokens

    def _make_room(self) -> None:
        """Enlarge the table of pairs, or forget those that were seen once so far."""
        from labelfield.compiled.tokens import place_pairs

        kept, n_slots, least = self.table, len(self.table), 1
        while n_slots >= _MOST_SLOTS and 4 * self.n_pairs > n_slots:
            kept = kept[kept[:, 1] & np.uint64(0xFFFFFFFF) > least]
            self.n_pairs, least = len(kept), least + 1
        self.table = _empty_table(max(n_slots, min(4 * n_slots, _MOST_SLOTS)))
        place_pairs(kept, self.table)
