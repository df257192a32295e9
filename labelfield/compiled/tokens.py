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

# In the table of letters: not looked up yet, no letter, and the flag of a letter that is a word of its own.
UNKNOWN, SEPARATOR, ALONE = 0, 1, 1 << 31
# Longer runs of letters are no words, and neither are single letters, unless they are words of their own.
LONGEST, SHORTEST = 64, 2
# Between two texts.
END = -1

_PRIME, _START = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xCBF29CE484222325)
# In tables of words: a slot has half of the hash above, and the number of the word plus 1 below, so that 0 is free.
# In tables of pairs: a pair of units is (first · 2³² + second) + 1, for the same reason.
_FREE = np.uint64(0)
_6, _32, _63, _LOW, _ONE = np.uint64(6), np.uint64(32), np.uint64(63), np.uint64(0xFFFFFFFF), np.uint64(1)
_HIGH = ~_LOW
# Columns per entry of a batch up to which counting all columns is faster than sorting row by row.
_SPARSER = 32
# Words that are looked up at a time.
_BLOCK = 64
# Bits that pairs are sorted by at a time.
_DIGIT = 11
_ALONE, _LETTERS = np.uint32(ALONE), np.uint32(ALONE - 1)


@compiled()
def split_words(codes: U4, folding: U4, letters: U4, ends: I8, hashes: U8) -> int:
    """Write the words of `codes` in lower case one after another, and an empty word for each code point 0.

    `folding` maps a code point to its lower case, SEPARATOR, or UNKNOWN. Word i has the letters from `ends[i]` to
    `ends[i + 1]` and the hash `hashes[i]`. `codes` ends with 0. Return the number of words, or -1 if a code point is
    unknown.
    """
    at, n_words, last = 0, 0, 0
    while at < codes.shape[0]:
        letter, first, code = folding[codes[at]], last, _START
        at += 1
        if letter >= _ALONE:
            letters[last] = letter & _LETTERS
            code = (code ^ np.uint64(letters[last])) * _PRIME
            last += 1
        elif letter > SEPARATOR:
            while SEPARATOR < letter < _ALONE:
                letters[last] = letter
                code = (code ^ np.uint64(letter)) * _PRIME
                last += 1
                letter = folding[codes[at]]
                at += 1
            if letter == UNKNOWN:
                return -1  # another thread may fill its page before it is looked at again
            at -= 1  # what ended the word is looked at again
            if not SHORTEST <= last - first <= LONGEST:
                last = first
                continue
        elif letter == UNKNOWN:
            return -1
        elif codes[at - 1] != 0:
            continue
        hashes[n_words] = code ^ (code >> _32)
        n_words += 1
        ends[n_words] = last
    return n_words


@compiled()
def hash_words(letters: U4, ends: I8, hashes: U8) -> None:
    """Write the hashes of words, as `split_words` has them; word i has the letters `ends[i]` to `ends[i + 1]`."""
    for at in range(hashes.shape[0]):
        code = _START
        for place in range(ends[at], ends[at + 1]):
            code = (code ^ np.uint64(letters[place])) * _PRIME
        hashes[at] = code ^ (code >> _32)


@compiled()
def number_words(
    letters: U4,
    ends: I8,
    codes: U8,
    slots: U8,
    hashes: U8,
    starts: I8,
    arena: U4,
    n_words: int,
    adds: bool,
    numbers: I4,
) -> int:
    """Write the numbers of words, -1 for unknown ones, or add these; return how many words there are then.

    Word i has the letters from `ends[i]` to `ends[i + 1]` and the hash `codes[i]`; an empty one is an END. The table
    has room for all.
    """
    mask = slots.shape[0] - 1
    for begin in range(0, numbers.shape[0], _BLOCK):
        end = min(begin + _BLOCK, numbers.shape[0])
        _touch(codes[begin:end], slots, starts, arena, numbers[begin:end])
        for at in range(begin, end):
            first, length, code = ends[at], ends[at + 1] - ends[at], codes[at]
            if length == 0:
                numbers[at] = END
                continue
            slot = np.int64(code) & mask
            entry = slots[slot]
            while entry != _FREE and not (
                entry & _HIGH == code & _HIGH
                and _is_same(arena, starts, np.int64(entry & _LOW) - 1, letters, first, length)
            ):
                slot = (slot + 1) & mask
                entry = slots[slot]
            if entry == _FREE and adds:
                place = starts[n_words]
                for letter in range(length):
                    arena[place + letter] = letters[first + letter]
                hashes[n_words], starts[n_words + 1] = code, place + length
                n_words += 1
                entry = (code & _HIGH) | np.uint64(n_words)
                slots[slot] = entry
            numbers[at] = np.int64(entry & _LOW) - 1
    return n_words


@compiled()
def _touch(codes: U8, slots: U8, starts: I8, arena: U4, numbers: I4) -> None:
    """Read what finding some words will need, so that the processor waits for all of it at once, not word by word.

    `numbers` is scratch here.
    """
    mask = slots.shape[0] - 1
    for at in range(codes.shape[0]):
        numbers[at] = max(np.int64(slots[np.int64(codes[at]) & mask] & _LOW) - 1, np.int64(0))
    for at in range(codes.shape[0]):
        numbers[at] = np.int32(arena[starts[numbers[at]]])


@compiled()
def _is_same(arena: U4, starts: I8, word: int, letters: U4, first: int, length: int) -> bool:
    begin = starts[word]
    if starts[word + 1] - begin != length:
        return False
    # To the end even if a letter differs, which is rare: how long the loop takes is then known before what it reads.
    difference = np.uint32(0)
    for place in range(length):
        difference |= arena[begin + place] ^ letters[first + place]
    return bool(difference == 0)


@compiled()
def place_words(slots: U8, hashes: U8, n_words: int) -> None:
    """Fill an empty table of slots."""
    mask = slots.shape[0] - 1
    for word in range(n_words):
        slot = np.int64(hashes[word]) & mask
        while slots[slot] != _FREE:
            slot = (slot + 1) & mask
        slots[slot] = (hashes[word] & _HIGH) | np.uint64(word + 1)


@compiled()
def count_documents(tokens: I4, n_fields: int, pointers: I8, units: I4, counts: U8, document: int) -> int:
    """Count the documents that each unit occurs in; return the number of the next document.

    Word w has the units from `pointers[w]` to `pointers[w + 1]`. The count of a unit is its last document times 2³²,
    plus the number of documents.
    """
    field, number = 0, np.uint64(document)
    for token in tokens:
        if token == END:
            field += 1
            if field == n_fields:
                field = 0
                number += _ONE
            continue
        for at in range(pointers[token], pointers[token + 1]):
            count = counts[units[at]]
            if count >> _32 != number:
                counts[units[at]] = (number << _32) | ((count & _LOW) + _ONE)
    return int(number)


@compiled()
def list_pairs(tokens: I4, n_fields: int, pointers: I8, units: I4, recent: U8, document: int, pairs: U8) -> int:
    """Write the pairs of neighbouring words, each once per document; return how many there are.

    A pair is first · 2³² + second. `recent` (slots, 2) has more slots than a document has words: pairs, and beside them
    the last document they were seen in. `document`, the number of the first one, rises from call to call.
    """
    mask, field, before, n_pairs = recent.shape[0] - 1, 0, -1, 0
    for token in tokens:
        if token == END:
            before = -1
            field += 1
            if field == n_fields:
                field = 0
                document += 1
            continue
        unit = units[pointers[token]]
        if before >= 0 and unit >= 0:
            pair, number = (np.uint64(before) << _32) | np.uint64(unit), np.uint64(document)
            code = pair * _PRIME
            slot = np.int64(code ^ (code >> _32)) & mask
            while recent[slot, 1] == number and recent[slot, 0] != pair:
                slot = (slot + 1) & mask
            if recent[slot, 1] != number:
                recent[slot, 0], recent[slot, 1] = pair, number
                pairs[n_pairs] = pair
                n_pairs += 1
        before = unit
    return n_pairs


@compiled()
def sort_pairs(pairs: U8, spare: U8, n_bits: int) -> None:
    """Sort pairs of units below 2 ** `n_bits`, by some bits at a time from the lowest; `spare` is of the same size."""
    n_digits = (n_bits + _DIGIT - 1) // _DIGIT
    width = (n_bits + n_digits - 1) // n_digits
    for digit in range(2 * n_digits):  # an even number: the last pass writes to `pairs`
        shift = np.uint64(digit * width if digit < n_digits else 32 + (digit - n_digits) * width)
        mask = np.uint64((1 << width) - 1)
        places = np.zeros((1 << width) + 1, np.int64)
        for pair in pairs:
            places[np.int64((pair >> shift) & mask) + 1] += 1
        for at in range(1, places.shape[0]):
            places[at] += places[at - 1]
        for pair in pairs:
            value = np.int64((pair >> shift) & mask)
            spare[places[value]] = pair
            places[value] += 1
        pairs, spare = spare, pairs


@compiled()
def merge_pairs(pairs: U8, counts: I4, more: U8, merged: U8, totals: I4) -> int:
    """Merge pairs, in order, and their counts with more pairs, in order, which count once each time they occur.

    Return how many different pairs there are.
    """
    at, other, n = 0, 0, 0
    while at < pairs.shape[0] or other < more.shape[0]:
        if other == more.shape[0] or (at < pairs.shape[0] and pairs[at] <= more[other]):
            pair, count = pairs[at], counts[at]
            at += 1
        else:
            pair, count = more[other], np.int32(0)
        while other < more.shape[0] and more[other] == pair:
            count += np.int32(1)
            other += 1
        merged[n], totals[n] = pair, count
        n += 1
    return n


@compiled()
def place_pairs(pairs: U8, table: U8, filled: U8) -> None:
    """Put pairs with what is beside them (n, 2) into an empty table, and mark those that are there in `filled`.

    A table (slots, 2) has open addressing. `filled` has a bit for each value of some bits of a pair's hash: most pairs
    of a text are in no table, and one look at a small array says so.
    """
    mask, shift = table.shape[0] - 1, _shift_of(filled)
    for at in range(pairs.shape[0]):
        code = pairs[at, 0] * _PRIME
        slot, bit = np.int64(code ^ (code >> _32)) & mask, code >> shift
        while table[slot, 0] != _FREE:
            slot = (slot + 1) & mask
        table[slot, 0], table[slot, 1] = pairs[at, 0], pairs[at, 1]
        filled[np.int64(bit >> _6)] |= _ONE << (bit & _63)


@compiled()
def _shift_of(filled: U8) -> np.uint64:
    """Return how far to shift a hash to have the number of its bit."""
    shift, size = 58, filled.shape[0]
    while size > 1:
        shift, size = shift - 1, size >> 1
    return np.uint64(shift)


@compiled()
def _column_of(table: U8, filled: U8, shift: np.uint64, pair: np.uint64) -> np.int64:
    """Return what is beside a pair, -1 if it is not in the table."""
    code = pair * _PRIME
    bit = code >> shift
    if not (filled[np.int64(bit >> _6)] >> (bit & _63)) & _ONE:
        return np.int64(-1)
    mask = table.shape[0] - 1
    slot = np.int64(code ^ (code >> _32)) & mask
    while table[slot, 0] != pair and table[slot, 0] != _FREE:
        slot = (slot + 1) & mask
    return np.int64(table[slot, 1]) if table[slot, 0] == pair else np.int64(-1)


@compiled()
def count_entries(tokens: I4, pointers: I8) -> int:
    """Return how many units the words of documents have."""
    n = 0
    for token in tokens:
        if token != END:
            n += pointers[token + 1] - pointers[token]
    return n


@compiled()
def write_rows(
    tokens: I4,
    weights: F4,
    pointers: I8,
    units: I4,
    table: U8,
    filled: U8,
    total: F4,
    counts: I8,
    indices: I4,
    values: F4,
) -> int:
    """Write the rows of documents: how many entries each has, their columns, and how often each occurs.

    Units are columns here; `table` and `filled` have the column beside each pair. `weights` says how much a word counts
    in each field; `total` (columns) is 0 before and after. Return the number of entries.
    """
    shift, field, document, before, first, last = _shift_of(filled), 0, 0, -1, 0, 0
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
        if before >= 0 and unit >= 0:
            pair = ((np.uint64(before) << _32) | np.uint64(unit)) + _ONE
            column = _column_of(table, filled, shift, pair)
            if column >= 0:
                if total[column] == 0:
                    indices[last] = np.int32(column)
                    last += 1
                total[column] += weight
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
