"""The grammar of rows in text, parsed line by line: the slow and exact twin of `scan`, which explains what is wrong.

    row     = [labels] { blank feature }          labels = index { "," index }
    feature = index ":" number                    blank  = spaces, tabs, carriage returns

A row that is empty, or whose first token contains a colon, has no labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isinf
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import MAX_COLUMNS
from labelfield.data.reading import is_not_finite, parse_number
from labelfield.errors import DataError

__all__ = ["Grammar", "Rows", "parse_lines"]

_INTEGER = re.compile(rb"[0-9]+\Z")
_SHOWN = 40
_FIX_VALUE = "Correct or remove this entry."


class Rows(NamedTuple):
    """Parsed rows: two ragged arrays, sorted within each row, and which rows came from blank lines."""

    label_counts: NDArray[np.int64]
    labels: NDArray[np.int32]
    counts: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    blank: NDArray[np.bool_]

    def without_zeros(self) -> Rows:
        """Return the rows without values that are 0."""
        if self.values.all():
            return self
        kept = self.values != 0
        row = np.repeat(np.arange(self.counts.size), self.counts)[kept]
        counts = np.bincount(row, minlength=self.counts.size)
        return self._replace(counts=counts, indices=self.indices[kept], values=self.values[kept])


@dataclass(frozen=True)
class Grammar:
    """The rules that the rows of a file follow, known before they are parsed.

    Indices in the file start at `first_column` and `first_label`; parsed ones start at 0. Without a bound (None), any
    index up to 2^31 - 1 is accepted. Zeros are dropped unless `keep_zeros` (a score may be 0).
    """

    n_columns: int | None = None
    n_labels: int | None = None
    first_column: int = 0
    first_label: int = 0
    has_labels: bool = True
    keep_zeros: bool = False
    column: str = "feature"
    value_type: type[np.floating[Any]] = np.float32

    @property
    def row_types(self) -> tuple[type[np.generic], ...]:
        """The types of the fields of Rows."""
        return np.int64, np.int32, np.int64, np.int32, self.value_type, np.bool_

    @property
    def column_end(self) -> int:
        """One past the largest column index in the file."""
        return self.first_column + (MAX_COLUMNS if self.n_columns is None else self.n_columns)

    @property
    def label_end(self) -> int:
        """One past the largest label index in the file."""
        return self.first_label + (MAX_COLUMNS if self.n_labels is None else self.n_labels)


def parse_lines(block: bytes, grammar: Grammar, path: Path, first_line: int) -> Rows:
    """Parse a block of whole lines, or raise a DataError that names the first bad line."""
    columns: tuple[list[Any], ...] = ([], [], [], [], [], [])
    label_counts, labels, counts, indices, values, blank = columns
    parser = _Parser(grammar, path, first_line)
    for line in block.split(b"\n")[:-1]:
        tokens = [token for token in re.split(rb"[ \t\r\v\f]+", line) if token]
        row_labels, features = parser.parse(tokens)
        label_counts.append(len(row_labels))
        labels += row_labels
        counts.append(len(features))
        indices += features
        values += features.values()
        blank.append(not tokens)
        parser.line += 1
    return Rows(*(np.array(column, dtype) for column, dtype in zip(columns, grammar.row_types, strict=True)))


class _Parser:
    """A parser of lines, with all that an error message has to say."""

    def __init__(self, grammar: Grammar, path: Path, line: int) -> None:
        self.grammar, self.path, self.line = grammar, path, line

    def fail(self, found: str, expected: str, fix: str) -> NoReturn:
        raise DataError(found, path=self.path, line=self.line, expected=expected, fix=fix)

    def parse(self, tokens: list[bytes]) -> tuple[list[int], dict[int, float]]:
        """Return the labels and the value of each feature, both in ascending order."""
        grammar, labels = self.grammar, set()
        if tokens and b":" not in tokens[0]:
            if not grammar.has_labels:
                self.fail(f"{_show(tokens[0])} without a colon", "label:score", "Write label:score pairs.")
            parts, tokens = tokens[0].split(b","), tokens[1:]
            labels = {self.parse_index(part, "label", grammar.first_label, grammar.label_end) for part in parts}
        features: dict[int, float] = {}
        for token in tokens:
            index, value = self.parse_feature(token)
            if index in features:
                what = grammar.column
                found = f"{what} {index + grammar.first_column} occurs twice in this row"
                self.fail(found, f"each {what} once", "Remove or add up the repeated entries.")
            features[index] = value
        return sorted(labels), {i: v for i, v in sorted(features.items()) if v != 0 or grammar.keep_zeros}

    def parse_feature(self, token: bytes) -> tuple[int, float]:
        column, dtype = self.grammar.column, self.grammar.value_type
        left, colon, right = token.partition(b":")
        if not colon:
            fix = "Separate labels by commas without spaces and write features as index:value."
            self.fail(f"{_show(token)} without a colon after the first column", f"{column}:value", fix)
        index = self.parse_index(left, column, self.grammar.first_column, self.grammar.column_end)
        text = right.decode("latin-1")
        value = parse_number(text, dtype)
        if value is None or isinf(value):
            found = f"the value {_show(right)} of {column} {index + self.grammar.first_column} is"
            if value is not None:
                self.fail(f"{found} too large", f"at most {np.finfo(dtype).max:.1e}", _FIX_VALUE)
            self.fail(f"{found} not {'finite' if is_not_finite(text) else 'a number'}", "a finite number", _FIX_VALUE)
        return index, value

    def parse_index(self, token: bytes, what: str, first: int, end: int) -> int:
        expected = f"an integer from {first} to {end - 1}"
        if not _INTEGER.match(token):
            if _INTEGER.match(token.removeprefix(b"-")):
                self.fail(f"the {what} index {_show(token)} is negative", expected, f"Number {what}s from {first}.")
            fix = "Write a row as label,label index:value index:value."
            self.fail(f"{_show(token)} where a {what} index should be", expected, fix)
        # A number of more than 18 digits is out of every range; Python refuses to convert very long ones.
        index = int(token) if len(token) <= 18 else 10**18
        if index < first:
            self.fail(f"the {what} index {index}", expected, f"Number {what}s from {first}, or read it as zero-based.")
        if index >= end:
            fix = f"Correct the {what} index or the header."
            if index == end and first == 0 and end < MAX_COLUMNS:
                fix = f"If the file numbers {what}s from 1, read it as one-based; else correct the header."
            self.fail(f"the {what} index {_show(token)}", expected, fix)
        return index - first


def _show(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
