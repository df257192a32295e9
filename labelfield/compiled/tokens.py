"""Words of text, counted: from code points to word numbers, document frequencies, and sparse rows.

A word is found by a hash table with open addressing, and then compared letter by letter, so that no two words are ever
taken for one. A pair of words is the pair of their numbers, which needs no comparison.
"""

import numpy as np
from numpy.typing import NDArray

from labelfield.compiled import compiled

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
# In tables of pairs: a pair of units is (first · 2³² + second) + 1, so that an array of zeros is an empty table.
_FREE = np.uint64(0)
_32, _LOW, _ONE = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(1)
# Columns per entry of a batch up to which counting all columns is faster than sorting row by row.
_SPARSER = 32
_ALONE, _LETTERS = np.uint32(ALONE), np.uint32(ALONE - 1)


@compiled()
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
        while word >= 0 and not (
            hashes[word] == code
            and starts[word + 1] - starts[word] == length
            and _is_same(arena, starts[word], arena, first, length)
        ):
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


@compiled()
def _is_same(one: U4, first: int, other: U4, second: int, length: int) -> bool:
    same = 0
    while same < length and one[first + same] == other[second + same]:
        same += 1
    return bool(same == length)


@compiled()
def hash_words(letters: U4, ends: I8, codes: U8) -> None:
    """Write the hashes of words, as `split_words` has them; word i has the letters `ends[i]` to `ends[i + 1]`."""
    for at in range(codes.shape[0]):
        code = _START
        for place in range(ends[at], ends[at + 1]):
            code = (code ^ np.uint64(letters[place])) * _PRIME
        codes[at] = code ^ (code >> _32)


@compiled()
def number_words(
    letters: U4,
    ends: I8,
    codes: U8,
    slots: I4,
    hashes: U8,
    starts: I8,
    arena: U4,
    n_words: int,
    adds: bool,
    numbers: I4,
) -> int:
    """Write the numbers of words, -1 for unknown ones, or add these; return how many words there are then.

    Word i has the letters from `ends[i]` to `ends[i + 1]` and the hash `codes[i]`. The table has room for all.
    """
    mask = slots.shape[0] - 1
    for at in range(numbers.shape[0]):
        first, length, code = ends[at], ends[at + 1] - ends[at], codes[at]
        slot = np.int64(code) & mask
        word = slots[slot]
        while word >= 0 and not (
            hashes[word] == code
            and starts[word + 1] - starts[word] == length
            and _is_same(arena, starts[word], letters, first, length)
        ):
            slot = (slot + 1) & mask
            word = slots[slot]
        if word < 0 and adds:
            word = np.int32(n_words)
            begin = starts[word]
            arena[begin : begin + length] = letters[first : first + length]
            slots[slot], hashes[word], starts[word + 1] = word, code, begin + length
            n_words += 1
        numbers[at] = word
    return n_words


@compiled()
def place_words(slots: I4, hashes: U8, n_words: int) -> None:
    """Fill an empty table of slots."""
    mask = slots.shape[0] - 1
    for word in range(n_words):
        slot = np.int64(hashes[word]) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = word


@compiled()
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


@compiled()
def count_pairs(tokens: I4, n_fields: int, pointers: I8, units: I4, table: U8, state: I8, document: int) -> bool:
    """Count the documents that each pair of neighbouring words occurs in.

    `table` (slots, 2) has open addressing: a pair, and beside it the last document that it was seen in, times 2³², plus
    the number of documents. `state` is where to go on: the next token, the field, how many documents of these tokens
    are done, the unit before, and how many pairs there are. Return False if the table is full.
    """
    mask, most = table.shape[0] - 1, table.shape[0] // 2
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
            key = ((np.uint64(before) << _32) | np.uint64(unit)) + _ONE
            slot = _slot_of(table, key, mask)
            number = np.uint64(document + done)
            if table[slot, 0] != key:
                table[slot, 0], table[slot, 1] = key, np.uint64(0)
                n_pairs += 1
            if table[slot, 1] >> _32 != number:
                table[slot, 1] = (number << _32) | ((table[slot, 1] & _LOW) + _ONE)
        before = unit
    state[0], state[1], state[2], state[3], state[4] = at, field, done, before, n_pairs
    return bool(at >= tokens.shape[0])


@compiled()
def _slot_of(table: U8, key: np.uint64, mask: int) -> np.int64:
    """Return where a key is, or where it would be."""
    code = key * _PRIME
    slot = np.int64(code ^ (code >> _32)) & mask
    while table[slot, 0] != key and table[slot, 0] != _FREE:
        slot = (slot + 1) & mask
    return slot


@compiled()
def place_pairs(pairs: U8, table: U8) -> None:
    """Copy pairs with what is beside them (n, 2), or those of another table, into a table."""
    mask = table.shape[0] - 1
    for at in range(pairs.shape[0]):
        if pairs[at, 0] == _FREE:
            continue
        slot = _slot_of(table, pairs[at, 0], mask)
        table[slot, 0], table[slot, 1] = pairs[at, 0], pairs[at, 1]


@compiled()
def add_pairs(pairs: U8, table: U8) -> None:
    """Add the numbers of documents of the pairs in one table to those in another, which is larger."""
    mask = table.shape[0] - 1
    for at in range(pairs.shape[0]):
        if pairs[at, 0] == _FREE:
            continue
        slot = _slot_of(table, pairs[at, 0], mask)
        table[slot, 0] = pairs[at, 0]
        table[slot, 1] += pairs[at, 1] & _LOW


@compiled()
def write_rows(
    tokens: I4,
    weights: F4,
    pointers: I8,
    units: I4,
    table: U8,
    total: F4,
    counts: I8,
    indices: I4,
    values: F4,
) -> int:
    """Write the rows of documents: how many entries each has, their columns, and how often each occurs.

    Units are columns here; `table` has the column beside each pair. `weights` says how much a word counts in each
    field; `total` (columns) is 0 before and after. Return the number of entries.
    """
    mask, field, document, before, first, last = table.shape[0] - 1, 0, 0, -1, 0, 0
    for token in tokens:
        if token == END:
            before = -1
            field += 1
            if field < weights.shape[0]:
                continue
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
            key = ((np.uint64(before) << _32) | np.uint64(unit)) + _ONE
            slot = _slot_of(table, key, mask)
            if table[slot, 0] == key:
                pair = np.int64(table[slot, 1])
                if total[pair] == 0:
                    indices[last] = np.int32(pair)
                    last += 1
                total[pair] += weight
        before = unit
    if last * _SPARSER > total.shape[0]:
        _sort_all(counts, total.shape[0], indices[:last], values[:last])
    else:
        _sort_each(counts, indices, values)
    return last


@compiled()
def _sort_each(counts: I8, indices: I4, values: F4) -> None:
    """Put the columns of each row in order, one row after another."""
    first = 0
    for count in counts:
        last = first + count
        order = np.argsort(indices[first:last])
        indices[first:last], values[first:last] = indices[first:last][order], values[first:last][order]
        first = last


@compiled()
def _sort_all(counts: I8, n_columns: int, indices: I4, values: F4) -> None:
    """Put the columns of all rows in order by counting: first all entries by column, and then these by row."""
    n = indices.shape[0]
    starts = np.zeros(n_columns + 1, np.int32)
    for at in range(n):
        starts[indices[at] + 1] += 1
    for column in range(n_columns):
        starts[column + 1] += starts[column]
    rows, columns, numbers = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    places = np.zeros(counts.shape[0] + 1, np.int64)
    at = 0
    for row in range(counts.shape[0]):
        places[row + 1] = places[row] + counts[row]
        for _ in range(counts[row]):
            column = indices[at]
            place = starts[column]
            starts[column] += 1
            rows[place], columns[place], numbers[place] = row, column, values[at]
            at += 1
    for at in range(n):
        place = places[rows[at]]
        places[rows[at]] += 1
        indices[place], values[place] = columns[at], numbers[at]
