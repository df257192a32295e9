"""The grammar of rows in text, parsed line by line: the slow and exact twin of `scan`, which explains what is wrong.

    row     = [labels] { blank feature }          labels = index { "," index }
    feature = index ":" number                    blank  = spaces, tabs, carriage returns

A row that is empty, or whose first token contains a colon, has no labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isinf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import MAX_COLUMNS
from labelfield.data.reading import is_not_finite, parse_number
from labelfield.errors import DataError, locating

_SHOWN = 40


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

    Indices in the file start at `first_column` and `first_label`; parsed ones start at 0. Zeros are dropped unless
    `keep_zeros` (a score may be 0).
    """

    n_columns: int = MAX_COLUMNS
    n_labels: int = MAX_COLUMNS
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

    def parse(self, tokens: list[bytes]) -> tuple[list[int], dict[int, float]]:
        """Return the labels and the value of each feature of a row, both in ascending order."""
        labels = set()
        if tokens and b":" not in tokens[0]:
            if not self.has_labels:
                raise DataError(f"{_show(tokens[0])} without a colon", "label:score", "Write label:score pairs.")
            parts, tokens = tokens[0].split(b","), tokens[1:]
            labels = {_parse_index(part, "label", self.first_label, self.n_labels) for part in parts}
        features: dict[int, float] = {}
        for token in tokens:
            index, value = self._parse_feature(token)
            if index in features:
                found = f"{self.column} {index + self.first_column} occurs twice in this row"
                raise DataError(found, f"each {self.column} once", "Remove or add up the repeated entries.")
            features[index] = value
        return sorted(labels), {i: v for i, v in sorted(features.items()) if v != 0 or self.keep_zeros}

    def _parse_feature(self, token: bytes) -> tuple[int, float]:
        left, colon, right = token.partition(b":")
        if not colon:
            fix = "Separate labels by commas without spaces and write features as index:value."
            raise DataError(f"{_show(token)} without a colon after the first column", f"{self.column}:value", fix)
        index = _parse_index(left, self.column, self.first_column, self.n_columns)
        text = right.decode("latin-1")
        value = parse_number(text, self.value_type)
        if value is None or isinf(value):
            flaw, expected = "not a number", "a finite number"
            if value is not None:
                flaw, expected = "too large", f"at most {np.finfo(self.value_type).max:.1e}"
            elif is_not_finite(text):
                flaw = "not finite"
            found = f"the value {_show(right)} of {self.column} {index + self.first_column} is {flaw}"
            raise DataError(found, expected, "Correct or remove this entry.")
        return index, value


def parse_lines(block: bytes, grammar: Grammar, first_line: int) -> Rows:
    """Parse a block of whole lines, or raise a DataError that names the first bad line."""
    columns: tuple[list[Any], ...] = ([], [], [], [], [], [])
    label_counts, labels, counts, indices, values, blank = columns
    for number, line in enumerate(block.split(b"\n")[:-1], first_line):
        tokens = [token for token in re.split(rb"[ \t\r\v\f]+", line) if token]
        with locating(None, number):
            row_labels, features = grammar.parse(tokens)
        label_counts.append(len(row_labels))
        labels += row_labels
        counts.append(len(features))
        indices += features
        values += features.values()
        blank.append(not tokens)
    return Rows(*(np.array(column, dtype) for column, dtype in zip(columns, grammar.row_types, strict=True)))


def _parse_index(token: bytes, what: str, first: int, n: int) -> int:
    end = first + n
    expected = f"an integer from {first} to {end - 1}"
    if not token.isdigit():
        if token.removeprefix(b"-").isdigit():
            raise DataError(f"the {what} index {_show(token)} is negative", expected, f"Number {what}s from {first}.")
        fix = "Write a row as label,label index:value index:value."
        raise DataError(f"{_show(token)} instead of a {what} index", expected, fix)
    # A number of more than 18 digits is out of every range; Python refuses to convert very long ones.
    index = int(token) if len(token) <= 18 else 10**18
    if index < first:
        fix = f"Number {what}s from {first}, or read it as zero-based."
        raise DataError(f"the {what} index {index}", expected, fix)
    if index >= end:
        fix = f"Correct the {what} index or the header."
        if index == end and first == 0 and end < MAX_COLUMNS:
            fix = f"If the file numbers {what}s from 1, read it as one-based; else correct the header."
        raise DataError(f"the {what} index {_show(token)}", expected, fix)
    return index - first


def _show(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
