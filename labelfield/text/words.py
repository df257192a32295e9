"""The encoder "words": tf-idf of stems, of pairs of neighbouring stems, and of character n-grams.

    value of a unit in a document = log(1 + tf) (log((1 + N) / (1 + n)) + 1)

for a unit that occurs in n of N training documents, half of that for a pair, and then norm 1. Documents are processed
in batches: threads split them into words and make rows, and one thread in between numbers the words, batch after batch.
So the memory is that of the vocabulary and of a few batches, and the result does not depend on the number of cores.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.compiled import has_numba, usable_threads
from labelfield.constraints import Constraint, Flag, Integer, OneOf, Word, check_options
from labelfield.csr import from_counts, row_norms
from labelfield.errors import DataError
from labelfield.mapped import Growing, advise, scratch_folder
from labelfield.text.columns import EDGE, GRAM, Found, Vocabulary, choose_vocabulary
from labelfield.text.counting import DocumentCounter, PairCounter
from labelfield.text.languages import STEMMERS, Stem, detect_language, normalise, stemmer
from labelfield.text.letters import words_of
from labelfield.text.lexicon import Lexicon, split
from labelfield.text.wordtable import Packed, WordTable

# A document: its text, or the texts of its fields.
Document = str | Sequence[str]
Given = TypeVar("Given")
Result = TypeVar("Result")
_MOST_THREADS = 8
_BATCH_LETTERS, _BATCH_DOCUMENTS = 1 << 18, 1024
# Documents that are taken at a time where they have fewer letters each, on average, than a long one.
_MANY_DOCUMENTS, _LONG_DOCUMENT = 256, 1000
# Lengths of character n-grams, within words and their ends.
_SHORTEST, _LONGEST = 3, 5
_SAMPLE = 1000
# Documents and their letters that plain loops are fast enough for.
_FEW_DOCUMENTS, _FEW_LETTERS = 20, 100_000
# Mean letters per document up to which character n-grams are used by default: on longer ones they say little more than
# words do, and make rows several times as long.
_SHORT_DOCUMENTS = 600
# Entries of all rows beyond which n-grams are left out all the same: training takes about 25 bytes for each.
_MOST_ENTRIES = 1 << 27
# Entries beyond which rows of training documents are files that the system reads as they are needed: half a GB.
_MOST_IN_MEMORY = 1 << 26
# Words of training documents, by number, beyond which they are a file.
_MOST_WORDS_IN_MEMORY = 1 << 24
# A pair says little more than its two words.
_PAIR_WEIGHT = 0.5
AUTO, NONE = "auto", "none"


class _Kept(NamedTuple):
    """The words of all batches by number, how many each batch has, what the numbers mean, and how many entries their
    rows have at most."""

    lexicon: Lexicon
    tokens: NDArray[np.int32]
    sizes: list[int]
    n_entries: int = 0

    def batches(self) -> Iterator[NDArray[np.int32]]:
        """Yield the words of one batch after another."""
        end = 0
        for size in self.sizes:
            end += size
            advise(self.tokens, "MADV_DONTNEED", 0, end - size)
            yield np.asarray(self.tokens[end - size : end])


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
        Whether character n-grams of 3 to 5 letters within words are columns: on, off, or auto, for short documents
        unless there are very many.
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
        self._lexicon: Lexicon | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the table of words seen, which fills again."""
        return self.__dict__ | {"_lexicon": None}

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
        make_rows = partial(self._rows, kept.lexicon.pointers, kept.lexicon.units)
        with _Ahead(kept.batches()) as ahead:
            folder = scratch_folder() if kept.n_entries > _MOST_IN_MEMORY else None
            return self._assembled(ahead.map(make_rows, ahead.batches), folder)

    def transform(self, documents: Iterable[Document]) -> sparse.csr_array:
        """Return a row for each document (CSR float32)."""
        return self._assembled(self.transform_batches(documents))

    def transform_batches(self, documents: Iterable[Document]) -> Iterator[_Rows]:
        """Yield rows in batches, as counts per row, columns and values: for documents that do not fit into memory."""
        stream = iter(documents)
        head = list(islice(stream, _FEW_DOCUMENTS + 1))
        n_letters = sum(len(text) for document in head for text in _fields(document))
        # Loading compiled loops takes longer than a few documents do.
        are_few = self._lexicon is None and len(head) <= _FEW_DOCUMENTS and n_letters <= _FEW_LETTERS
        documents = chain(head, stream)
        if are_few or not has_numba():
            yield from (self._plain_rows(batch) for batch in self._batches(documents))
            return
        # The words seen are kept for the next call, unless another thread is using them.
        lexicon = self._lexicon or Lexicon(self._columns_of)
        self._lexicon = None
        try:
            with _Ahead(self._batches(documents)) as ahead:
                tokens = map(lexicon.tokens, ahead.map(split, ahead.batches))
                works = (partial(self._rows, lexicon.pointers, lexicon.units, own) for own in tokens)
                yield from ahead.map(lambda work: work(), works)
        finally:
            self._lexicon = lexicon

    def _assembled(self, parts: Iterable[_Rows], folder: Path | None = None) -> sparse.csr_array:
        """Return rows that are made part by part, in memory or in files of a folder."""
        counts, indices, values = (Growing(dtype, folder) for dtype in (np.int64, np.int32, np.float32))
        for own, columns, tf_idf in parts:
            counts.extend(own)
            indices.extend(columns)
            values.extend(tf_idf)
        return from_counts(counts.finish(), indices.finish(), values.finish(), self.n_features_)

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
        self.weights_ = _checked_weights(weights)
        stream = iter(documents)
        head = list(islice(stream, _SAMPLE))
        self.language_ = self._choose_language(head)
        lengths = [sum(map(len, _fields(document))) for document in head]
        is_short = median(lengths or [0]) <= _SHORT_DOCUMENTS
        self.has_characters_ = self.characters == "on" or (self.characters == AUTO and is_short)
        found, kept = self._count(chain(head, stream), keeps_tokens)
        # How many documents there are shows only now, when a stream has ended; rows then leave n-grams out.
        self.has_too_many_ = self.has_characters_ and self.characters == AUTO and found.n_entries > _MOST_ENTRIES
        if self.has_too_many_:
            self.has_characters_, found = False, found.without_grams()
        # Of words and n-grams; there are as many pairs as words.
        n_entries = found.n_entries + (kept.tokens.size if kept and self.pairs else 0)
        vocabulary, columns = choose_vocabulary(found, self.min_documents, self.max_features)
        self._take(vocabulary)
        if kept is not None:
            used = kept.lexicon.units[: kept.lexicon.pointers[len(kept.lexicon.words)]]
            used[:] = columns[used]
            return kept._replace(n_entries=n_entries)
        return None

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
            # Short documents are taken by the hundred: a loop over a few at a time would hold up the threads.
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

    @property
    def _are_words(self) -> bool:
        """Whether a word is its own and only unit."""
        return self.language_ not in STEMMERS and not self.has_characters_

    def _count(self, documents: Iterable[Document], keeps_tokens: bool) -> tuple[Found, _Kept | None]:
        if not has_numba():
            return self._plain_count(documents), None
        counter = DocumentCounter(None if self._are_words else self._names, self.weights_.size)
        kept, sizes = Growing(np.int32, scratch_folder(), in_memory=_MOST_WORDS_IN_MEMORY), list[int]()
        pairs = PairCounter(counter.lexicon, self.weights_.size)
        with _Ahead(self._batches(documents)) as ahead:
            for words in ahead.map(split, ahead.batches):
                tokens = counter.count(words)
                if self.pairs:
                    pairs.count(tokens, len(counter.units))
                if keeps_tokens:
                    kept.extend(tokens)
                    sizes.append(tokens.size)
        n, names = len(counter.units), counter.units
        is_gram = names.arena[names.starts[:n]] == ord(GRAM)
        pairs_found = pairs.result(self.min_documents)
        counted = counter.n_documents, counter.n_entries
        found = Found(names.names, is_gram, counter.frequency, *pairs_found, *counted)
        return found, _Kept(counter.lexicon, kept.finish(), sizes) if keeps_tokens else None

    def _plain_count(self, documents: Iterable[Document]) -> Found:
        """Count in plain Python: the twin of the compiled loops."""
        numbers: dict[str, int] = {}
        frequency: Counter[int] = Counter()
        pairs: Counter[int] = Counter()
        n_documents, n_entries = 0, 0
        for batch in self._batches(documents):
            for texts in _grouped(batch, self.weights_.size):
                seen: set[int] = set()
                seen_pairs: set[int] = set()
                for text in texts:
                    counts, names = self._names(words_of(text))
                    units = [numbers.setdefault(name, len(numbers)) for name in names]
                    seen.update(units)
                    n_entries += len(units)
                    firsts = _firsts(counts, units)
                    seen_pairs.update((a << 32) | b for a, b in pairwise(firsts))
                frequency.update(seen)
                pairs.update(seen_pairs if self.pairs else ())
                n_documents += 1
        keys, units_by_number = np.array(sorted(pairs), np.uint64), list(numbers)
        return Found(
            lambda numbers: [units_by_number[number] for number in numbers.tolist()],
            np.array([name.startswith(GRAM) for name in units_by_number], np.bool_),
            np.array([frequency[unit] for unit in range(len(numbers))], np.int64),
            keys,
            np.array([pairs[key] for key in keys.tolist()], np.int64),
            n_documents,
            n_entries,
        )

    # Rows

    def _take(self, vocabulary: Vocabulary) -> None:
        """Keep a vocabulary, learned or loaded, and what follows from it."""
        self.vocabulary_ = vocabulary
        self._lexicon = None
        self._columns: dict[str, int] | None = None
        self._words: WordTable | None = None
        idf = np.log((1 + vocabulary.n_documents) / (1 + vocabulary.frequency)) + 1
        idf[len(vocabulary.words) : vocabulary.first_gram] *= _PAIR_WEIGHT
        self._idf = idf.astype(np.float32)
        # Pairs as single numbers, which rise.
        self._pair_keys = vocabulary.pairs[:, 0] << 32 | vocabulary.pairs[:, 1]
        self._table: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None

    def _pair_table(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return a hash table of pairs and their columns, and which parts of it are filled; made when first needed."""
        from labelfield.compiled.tokens import place_pairs

        if self._table is None:
            keys = self._pair_keys
            columns = len(self.vocabulary_.words) + np.arange(keys.size)
            n_slots = 1 << int(2 * keys.size).bit_length()
            table, filled = np.zeros((n_slots, 2), np.uint64), np.zeros(max(n_slots // 8, 1), np.uint64)
            place_pairs(np.stack([keys + 1, columns], 1).astype(np.uint64), table, filled)
            self._table = table, filled  # only now that they are full: another thread may be waiting for them
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

    def _rows(self, pointers: NDArray[np.int64], units: NDArray[np.int32], tokens: NDArray[np.int32]) -> _Rows:
        """Return the rows of documents; word w has the columns from `pointers[w]` to `pointers[w + 1]` of `units`."""
        from labelfield.compiled.tokens import END, count_entries, write_rows

        most = count_entries(tokens, pointers) + tokens.size  # as many pairs as words
        indices, values = np.empty(most, np.int32), np.empty(most, np.float32)
        counts = np.zeros(np.count_nonzero(tokens == END) // self.weights_.size, np.int64)
        total = np.zeros(self.n_features_, np.float32)
        n = write_rows(tokens, self.weights_, pointers, units, *self._pair_table(), total, counts, indices, values)
        return self._weighted(counts, indices[:n], values[:n])

    def _columns_of(self, words: Packed) -> tuple[Sequence[int] | NDArray[np.int64], NDArray[np.int32]]:
        """Return the units of words as columns, -1 for none, and how many each has."""
        if self._are_words:
            return np.ones(words.starts.size - 1, np.int64), self._known(words)
        counts, names = self._names(words.words())
        return counts, self._known(Packed.of(names))

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
        """Return the units of words as columns, -1 for none, and how many each has: the twin of `_columns_of`."""
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
        frequency, weights = arrays["frequency"], _checked_weights(config["weights"])
        if not (language is None or isinstance(language, str)) or not all(Integer(0).accepts(size) for size in sizes):
            raise ValueError("the language or a size of the encoder is not one")
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
        if len(words) < sizes[0] or len(set(names)) < len(names) or "" in words:
            raise ValueError("two columns of the encoder have the same name, or one has none")
        if not all(name.startswith(GRAM) for name in names[sizes[0] + sizes[1] :]):
            raise ValueError("a column of the encoder is neither a word nor a pair nor an n-gram")
        split = [name.partition(" ") for name in names[sizes[0] : sizes[0] + sizes[1]]]
        pairs = np.array([(words[first], words[second]) for first, _, second in split], np.int64).reshape(-1, 2)
        own = names[: sizes[0]], pairs, names[sizes[0] + sizes[1] :]
        encoder._take(Vocabulary(*own, frequency, sizes[2]))
        if (np.diff(encoder._pair_keys) <= 0).any():
            raise ValueError("the pairs of the encoder are not in order")
        return encoder


_Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def _checked_weights(weights: Sequence[float]) -> NDArray[np.float32]:
    """Return the weights of fields; raise a ValueError if they are not positive numbers."""
    checked = np.asarray(weights, np.float32)
    if checked.ndim != 1 or not checked.size or not (np.isfinite(checked) & (checked > 0)).all():
        raise ValueError("the weights of fields are not positive numbers")
    return checked


def _fields(document: Document) -> Sequence[str]:
    return (document,) if isinstance(document, str) else document


def _grouped(texts: list[str], n_fields: int) -> Iterator[list[str]]:
    return (texts[at : at + n_fields] for at in range(0, len(texts), n_fields))


def _firsts(counts: list[int], units: list[int]) -> list[int]:
    """Return the first unit of each word."""
    return [units[last - count] for last, count in zip(accumulate(counts), counts, strict=True)]


def _grams(word: str) -> list[str]:
    """Return the names of the n-grams of a word with its two ends."""
    padded = f"{EDGE}{word}{EDGE}"
    return [
        f"{GRAM}{padded[at : at + size]}"
        for size in range(_SHORTEST, min(_LONGEST, len(padded)) + 1)
        for at in range(len(padded) - size + 1)
    ]


class _Ahead:
    """Threads that work on the next batches while the last ones are used; none of them for one core or one batch."""

    def __init__(self, batches: Iterator[Any]) -> None:
        few = list(islice(batches, 2))  # threads would take longer to start than one batch takes
        self.batches, self.n_threads = chain(few, batches), min(usable_threads(), _MOST_THREADS) if len(few) > 1 else 1

    def __enter__(self) -> _Ahead:
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(self.n_threads))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def map(self, work: Callable[[Given], Result], items: Iterable[Given]) -> Iterator[Result]:
        """Yield what becomes of each item, in order."""
        if self.n_threads == 1:
            yield from map(work, items)
            return
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(self._pool.submit(work, item))
            if len(pending) > self.n_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
