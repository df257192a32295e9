"""CSV with a label column: rows of numbers and one class, separated by commas, quoted as in RFC 4180.

NumPy parses ordinary blocks of lines. Any other block is read cell by cell, which is slower and exact, and explains
what is wrong.
"""

import csv
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import from_counts
from labelfield.data.classes import FIX_CLASS, INTEGER, class_columns
from labelfield.data.dataset import Dataset, Names
from labelfield.data.reading import FileContents, Options, is_not_finite, line_blocks, no_data, parse_number
from labelfield.errors import DataError, locating
from labelfield.mapped import Growing

# A cell whose quotes make no difference.
_QUOTED = re.compile(rb'(^|,)"([^",\r\n]*)"(?=[,\r\n])', re.MULTILINE)
# Usual names of a label column, the most certain first: beside a column `class`, `y` is a coordinate.
_LABEL_NAMES = ("label", "class", "target", "y")
_SHOWN = 8
_FIX_ROW = "Correct the row; quote a cell that contains commas."


def read_csv(path: Path, options: Options) -> FileContents:
    """Read a table; the first line tells whether it has a header, and which column holds the classes.

    With `unlabelled`, a class may be missing, and a table of `n_features` columns without the usual name of a label
    column has no label.
    """
    with line_blocks(path, options.progress) as blocks:
        pieces = _whole_records(blocks)
        line, head, rest = _first_record(pieces)
        cells = next(_records(head, line), (line, [""]))[1]
        with locating(None, line):
            columns = _columns_of(cells, options.label_column, options.n_features if options.unlabelled else None)
        table = _Table(columns, options.unlabelled, options.scratch)
        if columns.names is None:
            table.add(head, line)
        table.add(rest, line + head.count(b"\n"))
        for first_line, block in pieces:
            table.add(block, first_line)
    return table.finish()


class _Columns(NamedTuple):
    """The columns of a table: how many, which one is the label, if any, and their names if there is a header."""

    n_columns: int
    label: int | None
    names: tuple[str, ...] | None

    def called(self, column: int) -> str:
        """Name a column in an error message."""
        return f"column {column + 1}" if self.names is None else f"column {self.names[column]!r}"


def _columns_of(cells: list[str], label_column: str | int | None, bare_width: int | None) -> _Columns:
    """Find the columns from the first line, which is a header if none of its cells, except the label's, is a number.

    The label is `label_column`, a name or a number from 0; otherwise the column with a usual name; otherwise the last
    column, except in a table of `bare_width` columns, which has no label.
    """
    names = tuple(cell.strip() for cell in cells)
    lower = [name.lower() for name in names]
    usual = next((lower.index(name) for name in _LABEL_NAMES if name in lower), None)
    last = None if len(names) == bare_width else len(names) - 1
    if label_column is not None:
        label: int | None = _chosen(label_column, names)
    else:
        label = last if usual is None else usual
    are_values = [parse_number(name) is not None or is_not_finite(name) for name in names]
    is_header = isinstance(label_column, str) and label_column in names
    is_header = is_header or not any(is_value for i, is_value in enumerate(are_values) if i != label)
    if not is_header and label_column is None and usual is not None:
        if lower[usual] != "y":  # which is a class of its own in many tables
            found = f"the first line contains numbers, but also {names[usual]!r}, as a header would"
            fix = f"Name the columns, or pass --label-column {names[usual]} for a header, {usual} for a row of data."
            raise DataError(found, "a header that names all columns, or no header", fix)
        label = last
    if len(names) - (label is not None) < 1:
        raise DataError("one column", "a label and at least one feature", "Separate columns by commas.")
    if is_header and len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataError(f"two columns are called {twice!r}", "different names", "Rename one.")
    return _Columns(len(names), label, names if is_header else None)


def _chosen(label_column: str | int, names: tuple[str, ...]) -> int:
    """Return the column of this name or else of this number, counted from 0, or from -1 backwards."""
    n = len(names)
    if isinstance(label_column, str) and label_column in names:
        return names.index(label_column)
    if isinstance(label_column, int) or INTEGER.fullmatch(label_column):
        number = int(label_column)
        if -n <= number < n:
            return number % n
    shown = ", ".join(names[:_SHOWN]) + (", …" if n > _SHOWN else "")
    expected = f"one of {shown}, or a number from 0 to {n - 1}"
    raise DataError(f"there is no column {label_column!r}", expected, "Correct --label-column.")


def _whole_records(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield blocks that begin and end outside of quoted cells, each with the number of its first line."""
    line, held, is_open = 1, [b""], False
    for block in blocks:
        held.append(block)
        is_open ^= block.count(b'"') % 2 == 1
        if not is_open:
            whole = b"".join(held)
            yield line, whole
            line += whole.count(b"\n")
            held = []
    if is_open:
        odd = [i for i, text in enumerate(b"".join(held).split(b"\n")) if text.count(b'"') % 2]
        fix = "Close or remove it; the file may be truncated."
        raise DataError("a quote that is never closed", "quotes in pairs", fix, line=line + odd[-1])


def _first_record(pieces: Iterator[tuple[int, bytes]]) -> tuple[int, bytes, bytes]:
    """Return the first record that is not blank: the number of its line, its text, and the rest of its block."""
    is_empty = True
    for line, block in pieces:
        is_empty = False
        head = b""
        for text in io.BytesIO(block):
            head += text
            if head.strip() and head.count(b'"') % 2 == 0:
                record = head.lstrip(b" \t\r\n")
                n_blank_lines = head[: len(head) - len(record)].count(b"\n")
                return line + n_blank_lines, record, block[len(head) :]
    raise no_data("the file is empty" if is_empty else "the file contains no rows")


def _records(block: bytes, first_line: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each row, without blank lines."""
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        line = first_line + block.count(b"\n", 0, error.start)
        raise DataError("not UTF-8 text", "UTF-8", "Save it as UTF-8.", line=line) from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    line = first_line
    try:
        for cells in reader:
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield line, cells
            line = first_line + reader.line_num
    except csv.Error as error:
        raise DataError(f"not CSV ({error})", "cells as in RFC 4180", _FIX_ROW, line=line) from None


class _Table:
    """The rows that have been read so far. Classes are numbered as they are met; -1 stands for a missing class."""

    def __init__(self, columns: _Columns, unlabelled: bool, scratch: Path | None) -> None:
        self.columns, self.unlabelled = columns, unlabelled
        types = (np.int64, np.int32, np.float32, np.int64)
        self.counts, self.indices, self.values, self.labels = (Growing(dtype, scratch) for dtype in types)
        self.numbers = {"": -1}

    def add(self, block: bytes, first_line: int) -> None:
        table = self.quick(block)
        if table is None:
            table = self.exact(block, first_line)
        label, labels = self.columns.label, np.full(len(table), -1)
        if label is not None:
            table, labels = np.delete(table, label, axis=1), table[:, label].astype(np.int64)
        dense = table.astype(np.float32)
        filled = dense != 0
        self.counts.extend(np.count_nonzero(filled, axis=1))
        self.indices.extend(np.nonzero(filled)[1].astype(np.int32))
        self.values.extend(dense[filled])
        self.labels.extend(labels)

    def quick(self, block: bytes) -> NDArray[np.float64] | None:
        """Parse a block of ordinary rows, with the number of its class in each; return None for any other block."""
        block = _QUOTED.sub(rb"\1\2", block) if b'"' in block else block
        # Text that is not ASCII might not be UTF-8, and a carriage return alone also ends a line.
        if b'"' in block or b"\0" in block or not block.isascii() or block.count(b"\r") != block.count(b"\r\n"):
            return None

        def number_of(cell: str) -> int:
            if not cell.strip():
                raise ValueError("no class")
            return self.number_of(cell)

        converters = None if self.columns.label is None else {self.columns.label: number_of}
        return _parse(io.BytesIO(block), self.columns.n_columns, converters)

    def exact(self, block: bytes, first_line: int) -> NDArray[np.float64]:
        """Parse any block, or raise a DataError that names the first cell that is wrong."""
        rows, n, label = [], self.columns.n_columns, self.columns.label
        for line, cells in _records(block, first_line):
            if len(cells) != n:
                raise DataError(f"{len(cells)} cells", f"{n} as in the first line", _FIX_ROW, line=line)
            if label is not None:
                name, where = cells[label].strip(), self.columns.called(label)
                if not name and not self.unlabelled:
                    raise DataError(f"no class in {where}", "one class per row", FIX_CLASS, line=line)
                if re.search(r"[\n\r\0]", name):
                    raise DataError(f"the class {name[:40]!r}", "a class on one line", "Rename it.", line=line)
                cells[label] = str(self.number_of(name))
            rows.append((line, cells))
        table = _parse((",".join(cells) for _, cells in rows), n)
        if table is not None and len(table) == len(rows):
            return table
        table = np.empty((len(rows), n))
        for row, (line, cells) in enumerate(rows):
            with locating(None, line):
                table[row] = [_number(cell, self.columns.called(column)) for column, cell in enumerate(cells)]
        return table

    def number_of(self, label: str) -> int:
        return self.numbers.setdefault(label.strip(), len(self.numbers) - 1)

    def finish(self) -> FileContents:
        counts, labels = self.counts.finish(), self.labels.finish()
        if counts.size == 0:
            raise no_data("the file contains no rows")
        n_columns, label, header = self.columns
        X = from_counts(counts, self.indices.finish(), self.values.finish(), n_columns - (label is not None))
        names, columns = class_columns(list(self.numbers)[1:], labels[labels >= 0])
        Y = from_counts((labels >= 0).astype(np.int64), columns, None, len(names))
        features = None if header is None else Names(name for i, name in enumerate(header) if i != label)
        dataset = Dataset(X, Y, names, features, trusted=True)
        return FileContents(dataset, True, holds_names=features is not None, has_classes=True)


def _number(cell: str, where: str) -> float:
    text = cell.strip()
    value = parse_number(text)
    if value is not None and np.isfinite(value):
        return value
    if not text:
        raise DataError(f"an empty cell in {where}", "a number", "Fill in missing values, or encode them as numbers.")
    flaw, expected, fix = "not a number", "a number", "Encode it as a number, or remove the column."
    if is_not_finite(text):
        flaw, expected, fix = "not finite", "a finite number", "Fill in or remove such values."
    elif value is not None:
        flaw, expected, fix = "too large", f"at most {np.finfo(np.float32).max:.1e}", "Correct or scale it."
    raise DataError(f"{text[:40]!r} in {where} is {flaw}", expected, fix)


def _parse(lines: Iterable[Any], n_columns: int, converters: Any = None) -> NDArray[np.float64] | None:
    """Parse rows of numbers that are finite in float32; return None if anything else occurs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about a block without rows
        try:
            table = np.loadtxt(lines, comments=None, delimiter=",", converters=converters, ndmin=2)
        except ValueError:
            return None
    with np.errstate(over="ignore"):
        are_finite = bool(np.isfinite(table.astype(np.float32)).all())
    return table if table.shape[1] == n_columns and are_finite else None
