"""What a row of text means, line by line: the slow and exact twin of `scan`, which explains what is wrong.

    row     = [labels] { blank feature }          labels = index { "," index }
    feature = index ":" number                    blank  = spaces, tabs, carriage returns

A row whose first token holds a colon, or that is empty, has no labels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import MAX_COLUMNS
from labelfield.errors import DataError

__all__ = ["Grammar", "Rows", "parse_lines"]

_INTEGER = re.compile(rb"[0-9]+\Z")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")
_SHOWN = 40


class Rows(NamedTuple):
    """Parsed rows: two ragged arrays, sorted within each row, and which rows came from blank lines."""

    label_counts: NDArray[np.int64]
    labels: NDArray[np.int32]
    counts: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    blank: NDArray[np.bool_]


@dataclass(frozen=True)
class Grammar:
    """What a file promises about its rows.

    Indices in the file start at `first_column` / `first_label`; parsed ones start at 0. Without a bound
    (None) any index up to 2^31 - 1 is taken. Zeros are dropped unless `keep_zeros` (a score may be 0).
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
        """One past the largest column index a file may write."""
        return self.first_column + (MAX_COLUMNS if self.n_columns is None else self.n_columns)

    @property
    def label_end(self) -> int:
        """One past the largest label index a file may write."""
        return self.first_label + (MAX_COLUMNS if self.n_labels is None else self.n_labels)


def parse_lines(block: bytes, grammar: Grammar, path: Path, first_line: int) -> Rows:
    """Parse a block of whole lines, or raise a DataError that names the first bad line."""
    label_counts, counts, blank = [], [], []
    labels: list[int] = []
    indices: list[int] = []
    values: list[float] = []
    for number, line in enumerate(block.split(b"\n")[:-1], first_line):
        row = _Line(line, grammar, path, number)
        row_labels, row_indices, row_values = row.parse()
        label_counts.append(len(row_labels))
        labels += row_labels
        counts.append(len(row_indices))
        indices += row_indices
        values += row_values
        blank.append(row.is_blank)
    columns = (label_counts, labels, counts, indices, values, blank)
    return Rows(*(np.array(column, dtype) for column, dtype in zip(columns, grammar.row_types, strict=True)))


class _Line:
    """One line of a file, with what is needed to say where and why it is wrong."""

    def __init__(self, line: bytes, grammar: Grammar, path: Path, number: int) -> None:
        self.tokens = re.split(rb"[ \t\r\v\f]+", line.strip(b" \t\r\v\f"))
        if self.tokens == [b""]:
            self.tokens = []
        self.is_blank = not self.tokens
        self.grammar, self.path, self.number = grammar, path, number

    def fail(self, found: str, expected: str, fix: str) -> NoReturn:
        raise DataError(found, path=self.path, line=self.number, expected=expected, fix=fix)

    def parse(self) -> tuple[list[int], list[int], list[float]]:
        labels: list[int] = []
        tokens: Sequence[bytes] = self.tokens
        if tokens and b":" not in tokens[0]:
            if not self.grammar.has_labels:
                self.fail(f"{_show(tokens[0])} without a colon", "label:score", "Write label:score pairs.")
            labels = self.parse_labels(tokens[0])
            tokens = tokens[1:]
        features: dict[int, float] = {}
        for token in tokens:
            index, value = self.parse_feature(token)
            if index in features:
                what = self.grammar.column
                self.fail(
                    f"{what} {index + self.grammar.first_column} occurs twice in this row",
                    f"each {what} once",
                    "Remove or add up the repeated entries.",
                )
            features[index] = value
        kept = sorted((i, v) for i, v in features.items() if v != 0 or self.grammar.keep_zeros)
        return labels, [i for i, _ in kept], [v for _, v in kept]

    def parse_labels(self, token: bytes) -> list[int]:
        end, first = self.grammar.label_end, self.grammar.first_label
        return sorted({self.parse_index(part, "label", first, end) for part in token.split(b",")})

    def parse_feature(self, token: bytes) -> tuple[int, float]:
        column = self.grammar.column
        left, colon, right = token.partition(b":")
        if not colon:
            self.fail(
                f"{_show(token)} without a colon after the first column",
                f"{column}:value",
                "Separate labels by commas without spaces and write features as index:value.",
            )
        index = self.parse_index(left, column, self.grammar.first_column, self.grammar.column_end)
        named = index + self.grammar.first_column
        if not _NUMBER.match(right):
            kind = "is not finite" if right.strip(b"+-").lower() in _NOT_FINITE else "is not a number"
            self.fail(f"the value {_show(right)} of {column} {named} {kind}", "a finite number", _FIX_VALUE)
        with np.errstate(over="ignore"):
            value = float(self.grammar.value_type(float(right)))
        if not np.isfinite(value):
            largest = f"at most {np.finfo(self.grammar.value_type).max:.1e}"
            self.fail(f"the value {_show(right)} of {column} {named} is too large", largest, _FIX_VALUE)
        return index, value

    def parse_index(self, token: bytes, what: str, first: int, end: int) -> int:
        expected = f"an integer from {first} to {end - 1}"
        if not _INTEGER.match(token):
            if _INTEGER.match(token.removeprefix(b"-")) and token:
                self.fail(f"the {what} index {_show(token)} is negative", expected, f"Number {what}s from {first}.")
            self.fail(f"{_show(token)} where a {what} index should be", expected, _FIX_INDEX)
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


_NOT_FINITE = (b"nan", b"inf", b"infinity")
_FIX_VALUE = "Correct or remove this entry."
_FIX_INDEX = "Write a row as label,label index:value index:value."


def _show(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
