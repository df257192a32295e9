"""Words of text, counted: from code points to word numbers, document frequencies, and sparse rows.

A word is found by a hash table with open addressing, and then compared letter by letter, so that no two words are ever
taken for one. A pair of words is the pair of their numbers, which needs no comparison.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

U4 = NDArray[np.uint32]
U8 = NDArray[np.uint64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F4 = NDArray[np.float32]

# Why `split_words` stopped: at the end, at a character that is not in the table of letters, or at a full table.
DONE, NEW_LETTER, FULL = 0, 1, 2
# In the table of letters: not looked up yet, no letter, and the flag of a letter that is a word of its own.
UNKNOWN, SEPARATOR, ALONE = 0, 1, 1 << 31
# Longer runs of letters are no words.
LONGEST = 64
# Between two texts.
END = -1

_PRIME, _START = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xCBF29CE484222325)
_FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
_32 = np.uint64(32)
_ALONE, _LETTERS = np.uint32(ALONE), np.uint32(ALONE - 1)


@njit(cache=True, nogil=True)
def split_words(codes: U4, letters: U4, slots: I4, hashes: U8, starts: I8, arena: U4, state: I8, tokens: I4) -> int:
    """Write the words of `codes` to `tokens` by number, and END for each code point 0; new words join the table.

    `letters` maps a code point to its lower case, SEPARATOR, or UNKNOWN. Word i has the hash `hashes[i]` and the
    letters from `starts[i]` to `starts[i + 1]` in `arena`. `state` is where to go on: the next code point, and how many
    words and tokens there are.
    """
    at, n_words, n_tokens = state[0], state[1], state[2]
    mask, reason = slots.shape[0] - 1, DONE
    most_words = min(hashes.shape[0] - 1, slots.shape[0] // 2)
    while at < codes.shape[0]:
        letter = letters[codes[at]]
        if letter == UNKNOWN:
            reason = NEW_LETTER
            break
        if letter == SEPARATOR:
            if codes[at] == 0:
                tokens[n_tokens] = END
                n_tokens += 1
            at += 1
            continue
        first, end, length, code = starts[n_words], at, 0, _START
        if first + LONGEST > arena.shape[0] or n_words >= most_words:
            reason = FULL
            break
        is_alone = letter >= _ALONE
        while end < codes.shape[0]:
            letter = letters[codes[end]]
            if letter <= SEPARATOR or (end > at and (is_alone or letter >= _ALONE)):
                break
            letter &= _LETTERS
            if length < LONGEST:
                arena[first + length] = letter
            code = (code ^ np.uint64(letter)) * _PRIME
            length += 1
            end += 1
        if end < codes.shape[0] and letter == UNKNOWN:
            reason = NEW_LETTER
            break
        at = end
        if length > LONGEST or (length < 2 and not is_alone):
            continue
        code ^= code >> _32
        slot = np.int64(code) & mask
        word = slots[slot]
        while word >= 0:
            if hashes[word] == code and starts[word + 1] - starts[word] == length:
                place = starts[word]
                same = 0
                while same < length and arena[place + same] == arena[first + same]:
                    same += 1
                if same == length:
                    break
            slot = (slot + 1) & mask
            word = slots[slot]
        if word < 0:
            word = np.int32(n_words)
            slots[slot], hashes[word], starts[word + 1] = word, code, first + length
            n_words += 1
        tokens[n_tokens] = word
        n_tokens += 1
    state[0], state[1], state[2] = at, n_words, n_tokens
    return reason


@njit(cache=True, nogil=True)
def place_words(slots: I4, hashes: U8, n_words: int) -> None:
    """Fill an empty table of slots."""
    mask = slots.shape[0] - 1
    for word in range(n_words):
        slot = np.int64(hashes[word]) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = word


@njit(cache=True, nogil=True)
def count_documents(tokens: I4, n_fields: int, pointers: I8, units: I4, seen: I4, frequency: I4, document: int) -> int:
    """Add to `frequency` the number of documents that each unit occurs in; return the number of the next document.

    Word w has the units from `pointers[w]` to `pointers[w + 1]`. `seen` is the last document of each unit.
    """
    field = 0
    for token in tokens:
        if token == END:
            field += 1
            if field == n_fields:
                field = 0
                document += 1
            continue
        for at in range(pointers[token], pointers[token + 1]):
            unit = units[at]
            if unit >= 0 and seen[unit] != document:
                seen[unit] = document
                frequency[unit] += 1
    return document


@njit(cache=True, nogil=True)
def count_pairs(
    tokens: I4, n_fields: int, pointers: I8, units: I4, keys: U8, seen: I4, frequency: I4, state: I8, document: int
) -> bool:
    """Add to `frequency` the number of documents that each pair of neighbouring words occurs in.

    `keys` are the pairs, in a table with open addressing. `state` is where to go on: the next token, the field, how
    many documents of these tokens are done, the unit before, and how many pairs there are. Return False if the table is
    full.
    """
    mask, most = keys.shape[0] - 1, keys.shape[0] // 2
    at, field, done, before, n_pairs = state[0], state[1], state[2], state[3], state[4]
    while at < tokens.shape[0] and n_pairs < most:
        token = tokens[at]
        at += 1
        if token == END:
            before = -1
            field += 1
            if field == n_fields:
                field = 0
                done += 1
            continue
        unit = units[pointers[token]]
        if before >= 0 and unit >= 0:
            key = (np.uint64(before) << _32) | np.uint64(unit)
            slot = _slot_of(keys, key, mask)
            if keys[slot] != key:
                keys[slot], seen[slot], frequency[slot] = key, -1, 0
                n_pairs += 1
            if seen[slot] != document + done:
                seen[slot] = document + done
                frequency[slot] += 1
        before = unit
    state[0], state[1], state[2], state[3], state[4] = at, field, done, before, n_pairs
    return bool(at >= tokens.shape[0])


@njit(cache=True, nogil=True)
def _slot_of(keys: U8, key: np.uint64, mask: int) -> np.int64:
    """Return where a key is, or where it would be."""
    code = key * _PRIME
    slot = np.int64(code ^ (code >> _32)) & mask
    while keys[slot] != key and keys[slot] != _FREE:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
def place_pairs(keys: U8, values: I8, into_keys: U8, into_values: I8) -> None:
    """Copy pairs with their values into a table."""
    mask = into_keys.shape[0] - 1
    for at in range(keys.shape[0]):
        if keys[at] != _FREE:
            slot = _slot_of(into_keys, keys[at], mask)
            into_keys[slot], into_values[slot] = keys[at], values[at]


@njit(cache=True, nogil=True)
def add_pairs(keys: U8, frequency: I4, into_keys: U8, into_frequency: I8) -> None:
    """Add the frequencies of pairs to those in a table."""
    mask = into_keys.shape[0] - 1
    for at in range(keys.shape[0]):
        slot = _slot_of(into_keys, keys[at], mask)
        into_keys[slot] = keys[at]
        into_frequency[slot] += frequency[at]


@njit(cache=True, nogil=True)
def write_rows(
    tokens: I4,
    weights: F4,
    pointers: I8,
    units: I4,
    keys: U8,
    columns: I8,
    total: F4,
    counts: I8,
    indices: I4,
    values: F4,
) -> int:
    """Write the rows of documents: how many entries each has, their columns, and how often each occurs.

    Units are columns here. `weights` says how much a word counts in each field; `total` (columns) is 0 before and
    after. Return the number of entries.
    """
    mask, field, document, before, first, last = keys.shape[0] - 1, 0, 0, -1, 0, 0
    for token in tokens:
        if token == END:
            before = -1
            field += 1
            if field < weights.shape[0]:
                continue
            indices[first:last].sort()
            for at in range(first, last):
                values[at] = total[indices[at]]
                total[indices[at]] = 0
            counts[document] = last - first
            document += 1
            field, first = 0, last
            continue
        weight = weights[field]
        for at in range(pointers[token], pointers[token + 1]):
            unit = units[at]
            if unit >= 0:
                if total[unit] == 0:
                    indices[last] = unit
                    last += 1
                total[unit] += weight
        unit = units[pointers[token]]
        if before >= 0 and unit >= 0 and mask > 0:
            key = (np.uint64(before) << _32) | np.uint64(unit)
            slot = _slot_of(keys, key, mask)
            if keys[slot] == key:
                pair = columns[slot]
                if total[pair] == 0:
                    indices[last] = np.int32(pair)
                    last += 1
                total[pair] += weight
        before = unit
    return last
