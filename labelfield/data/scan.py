"""Parsing rows of text into arrays, a block at a time and without a loop: the quick twin of `grammar`.

Every byte that is not a digit is a mark; between two marks there is a (possibly empty) run of digits. Runs become
integers eight bytes at a time by multiplication (three steps join neighbouring digits, pairs and fours), and the marks
around a run tell what it is: an element of a label list, an index, the digits before or after a point. `scan` never
guesses: it returns None for anything that the marks do not settle, which is left to `grammar.parse_lines`.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelfield.data.grammar import Grammar, Rows

_PAD = b" " * 15 + b"\n"
_NEWLINE, _COMMA, _COLON, _POINT, _MINUS, _PLUS = b"\n,:.-+"

# The kind of each byte.
_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[list(b" \t\r\v\f\n")] = True
_IS_KNOWN = _IS_BLANK.copy()
_IS_KNOWN[list(b",:.-+eE")] = True

# Clears the bytes in front of a run of L digits in the eight bytes that end with it (L = 0..8).
_KEEP = np.array([0] + [((1 << 64) - 1) ^ ((1 << (64 - 8 * n)) - 1) for n in range(1, 9)], np.uint64)
_MOST_DIGITS = 16
_POWER = 10.0 ** np.arange(_MOST_DIGITS + 1)
_INTEGER_POWER = np.array([10**n for n in range(_MOST_DIGITS + 1)], np.uint64)
_EXACT = np.uint64(2**53)


def _join(eight: NDArray[np.uint64], length: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the integers written by the last `length` (at most 8) of eight little-endian digit bytes."""
    x = eight & _KEEP[length]
    x &= np.uint64(0x0F0F0F0F0F0F0F0F)
    x *= np.uint64(2561)  # 10 * left + right, in every second byte
    x >>= np.uint64(8)
    x &= np.uint64(0x00FF00FF00FF00FF)
    x *= np.uint64(6553601)
    x >>= np.uint64(16)
    x &= np.uint64(0x0000FFFF0000FFFF)
    x *= np.uint64(42949672960001)
    x >>= np.uint64(32)
    return x


def _integers(text: NDArray[np.uint8], end: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the integers written by the `length` digits before each `end`; meaningless above 16 digits."""
    windows = np.ndarray((text.size - 7,), np.dtype("<u8"), text.data, strides=(1,))
    value = _join(windows[end - 8], np.minimum(length, 8))
    long = np.flatnonzero(length > 8)
    if long.size:
        high = _join(windows[end[long] - 16], np.minimum(length[long] - 8, 8))
        value[long] += high * np.uint64(10**8)
    return value


def scan(block: bytes, grammar: Grammar) -> Rows | None:
    """Parse a block of whole lines; return None if it contains anything unusual."""
    marks = _Marks(block)
    if not _IS_KNOWN[marks.kind].all():
        return None
    kind, blank, length, digits = marks.kind, marks.blank, marks.length, marks.digits
    colon = np.flatnonzero(kind == _COLON)
    # A run with a blank, comma or newline on both sides is a label.
    ends_label = blank | (kind == _COMMA)
    label = np.flatnonzero(ends_label[:-1] & ends_label[1:] & (length > 0))
    numbers = marks.numbers(colon, grammar.value_type)
    if numbers is None or not marks.labels_lead(label, grammar.has_labels):
        return None
    values, n_used = numbers
    column_length = length[colon - 1]
    if not (
        blank[colon - 1].all()
        and ((column_length > 0) & (column_length <= _MOST_DIGITS)).all()
        and (length[label] <= _MOST_DIGITS).all()
        and np.count_nonzero(ends_label) + colon.size + n_used == kind.size
    ):
        return None

    line_end = np.flatnonzero(kind == _NEWLINE)[1:]
    counts, label_counts = (np.diff(np.searchsorted(place, line_end), prepend=0) for place in (colon, label))
    empty = (counts == 0) & (label_counts == 0)
    columns = _in_range(digits[colon - 1], grammar.first_column, grammar.n_columns)
    labels = _in_range(digits[label], grammar.first_label, grammar.n_labels)
    if columns is None or labels is None:
        return None

    columns, order, is_repeated = _sorted(columns, counts)
    if is_repeated.any():
        return None
    values = values if order is None else values[order]
    labels, _, is_repeated = _sorted(labels, label_counts)
    if is_repeated.any():
        row = np.repeat(np.arange(label_counts.size), label_counts)
        labels, label_counts = labels[~is_repeated], np.bincount(row[~is_repeated], minlength=label_counts.size)
    rows = Rows(label_counts, labels, counts, columns, values, empty)
    return rows if grammar.keep_zeros else rows.without_zeros()


class _Marks:
    """The marks of a block: where and what they are, and the run of digits after each, its length and its integer."""

    def __init__(self, block: bytes) -> None:
        self.text = np.frombuffer(_PAD + block, np.uint8)
        self.mark = np.flatnonzero((self.text - np.uint8(48)) > 9)[len(_PAD) - 1 :]
        self.kind = self.text[self.mark]
        self.blank = _IS_BLANK[self.kind]
        self.length = np.diff(self.mark)
        self.length -= 1
        self.digits = _integers(self.text, self.mark[1:], self.length)

    def labels_lead(self, label: NDArray[np.int64], has_labels: bool) -> bool:
        """Return whether the labels of each line form one comma-separated list at its start."""
        mark, kind = self.mark, self.kind
        n_commas = np.count_nonzero(kind == _COMMA)
        if label.size == 0:
            return not n_commas
        first = label[kind[label] != _COMMA]
        newline = np.flatnonzero(kind == _NEWLINE)
        line_start = newline[np.searchsorted(newline, first, side="right") - 1]
        # Each comma has a label on both sides exactly if every label but the first of a list follows a comma, and every
        # label but the last of a list precedes one.
        return bool(
            has_labels
            and (mark[first] - mark[line_start] == first - line_start).all()  # nothing but blanks before it
            and label.size - first.size == n_commas == np.count_nonzero(kind[label + 1] == _COMMA)
        )

    def numbers(
        self, colon: NDArray[np.int64], value_type: type[np.floating[Any]]
    ) -> tuple[NDArray[np.floating[Any]], int] | None:
        """Return the number after each colon, and how many points, signs and exponents they contain."""
        kind, length, digits = self.kind, self.length, self.digits
        minus = kind[colon + 1] == _MINUS
        signed = minus | (kind[colon + 1] == _PLUS)
        whole = colon
        if signed.any():
            if length[colon[signed]].any():
                return None
            whole = colon + signed
        pointed = kind[whole + 1] == _POINT
        last = whole + pointed
        places, fraction = length[last], digits[last]
        if not pointed.all():
            places, fraction = np.where(pointed, places, 0), np.where(pointed, fraction, np.uint64(0))
        n_digits = length[whole] + places
        places = np.minimum(places, _MOST_DIGITS)
        mantissa = digits[whole] * _INTEGER_POWER[places] + fraction
        value = mantissa.astype(np.float64)
        # Mantissa and power of ten are exact doubles, so the quotient is the correctly rounded number.
        value /= _POWER[places]
        np.negative(value, out=value, where=minus)
        n_used = signed.astype(np.int64) + pointed

        ordinary = self.blank[last + 1] & (n_digits > 0) & (n_digits <= _MOST_DIGITS) & (mantissa < _EXACT)
        if not ordinary.all():
            hard = np.flatnonzero(~ordinary)
            parsed = self.hard_numbers(colon[hard])
            if parsed is None:
                return None
            value[hard], n_used[hard] = parsed
        with np.errstate(over="ignore"):
            rounded = value.astype(value_type, copy=False)
        return (rounded, int(n_used.sum())) if np.isfinite(rounded).all() else None

    def hard_numbers(self, colon: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
        """Parse numbers with an exponent or many digits by NumPy; return them and the number of marks in each."""
        stop = np.flatnonzero(self.blank)
        stop = stop[np.searchsorted(stop, colon)]
        start, end = self.mark[colon] + 1, self.mark[stop]
        if (start == end).any():
            return None
        inside = np.zeros(self.text.size + 1, np.int8)  # the number, with the blank after it
        inside[start] = 1
        inside[end + 1] -= 1
        cut = self.text[np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)]
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # how NumPy reports anything but numbers
            try:
                values = np.fromstring(cut.tobytes(), np.float64, sep=" ")
            except (DeprecationWarning, ValueError):
                return None
        # No token is empty, so if there are as many numbers as tokens, each token is one number.
        return (values, stop - colon - 1) if values.size == colon.size else None


def _in_range(written: NDArray[np.uint64], first: int, n: int) -> NDArray[np.int32] | None:
    if written.size and (written.max() >= first + n or written.min() < first):
        return None
    if first:
        written = written - np.uint64(first)
    return written.astype(np.int32)


def _sorted(
    index: NDArray[np.int32], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64] | None, NDArray[np.bool_]]:
    """Sort the entries of each row; return them, their order (None if it has not changed), and which are repeats."""
    ends = np.cumsum(counts)
    between_rows = ends[(ends > 0) & (ends < index.size)] - 1
    order = None
    steps = np.diff(index)
    steps[between_rows] = 1
    if (steps < 0).any():
        order = np.lexsort((index, np.repeat(np.arange(counts.size), counts)))
        index = index[order]
        steps = np.diff(index)
        steps[between_rows] = 1
    is_repeated = np.zeros(index.size, np.bool_)
    is_repeated[1:] = steps == 0
    return index, order, is_repeated
