"""CSV with a label column: rows of numbers and one class, separated by commas, quoted as in RFC 4180.

A block of lines of one width without quotes is cut and parsed without a loop. Any other block is read cell by cell,
which is slower and exact, and explains what is wrong.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import from_counts
from labelfield.data.classes import FIX_CLASS, class_columns
from labelfield.data.contents import FileContents, ReadOptions, no_data
from labelfield.data.csv_header import Columns, columns_of
from labelfield.data.dataset import Dataset
from labelfield.data.growing import Growing
from labelfield.data.names import Names
from labelfield.data.numbers import is_not_finite, parse_many, parse_number
from labelfield.data.streams import line_blocks
from labelfield.errors import DataError

__all__ = ["read_csv"]

_COMMA, _NEWLINE = b",\n"
_BLANKS = (b" ", b"\t", b"\n", b"\r", b"\v", b"\f")
_BLANK_CELL = re.compile(rb"(?:\A|,)\s+,")
_FIX_ROW = "Correct the row; quote a cell that contains commas."


def read_csv(path: Path, options: ReadOptions) -> FileContents:
    """Read a table; the first line tells whether it has a header, and which column holds the classes.

    With `unlabelled`, a class may be missing, and a table of `n_features` columns, none of which is named as the label,
    has no label.
    """
    with line_blocks(path, options.progress) as blocks:
        pieces = _whole_records(path, blocks)
        line, head, rest = _first_record(path, pieces)
        cells = next(_records(path, head, line), (line, [""]))[1]
        bare_width = options.n_features if options.unlabelled else None
        columns = columns_of(cells, path, line, options.label_column, bare_width)
        table = _Table(path, columns, options.unlabelled)
        if columns.names is None:
            table.add(head, line)
        table.add(rest, line + head.count(b"\n"))
        for first_line, block in pieces:
            table.add(block, first_line)
    try:
        return table.finish()
    except DataError as error:
        raise error.at(path) from None


def _whole_records(path: Path, blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
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
        raise DataError(
            "a quote that is never closed",
            path=path,
            line=line + odd[-1],
            expected="quotes in pairs",
            fix="Close or remove it; the file may be truncated.",
        )


def _first_record(path: Path, pieces: Iterator[tuple[int, bytes]]) -> tuple[int, bytes, bytes]:
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
    raise no_data(path, "the file is empty" if is_empty else "the file contains no rows")


def _records(path: Path, block: bytes, first_line: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each row, without blank lines."""
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        line = first_line + block.count(b"\n", 0, error.start)
        raise DataError("not UTF-8 text", path=path, line=line, expected="UTF-8", fix="Save it as UTF-8.") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    line = first_line
    try:
        for cells in reader:
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield line, cells
            line = first_line + reader.line_num
    except csv.Error as error:
        found = f"not CSV ({error})"
        raise DataError(found, path=path, line=line, expected="cells as in RFC 4180", fix=_FIX_ROW) from None


class _Table:
    """The rows that have been read so far."""

    def __init__(self, path: Path, columns: Columns, unlabelled: bool) -> None:
        self.path, self.columns, self.unlabelled = path, columns, unlabelled
        self.counts, self.indices, self.values = Growing(np.int64), Growing(np.int32), Growing(np.float32)
        self.labels = Growing(np.int64)
        self.numbers: dict[bytes, int] = {}

    def fail(self, line: int, found: str, expected: str, fix: str) -> NoReturn:
        raise DataError(found, path=self.path, line=line, expected=expected, fix=fix)

    def add(self, block: bytes, first_line: int) -> None:
        labels, rest = self.cut(block) or ([], None)
        values = None if rest is None else _parse(rest)
        if values is None:
            labels, values = self.exact(block, first_line)
        width = self.columns.n_features
        if self.columns.label is None:
            labels = [b""] * (values.size // width)
        dense = values.reshape(len(labels), width)
        filled = dense != 0
        self.counts.extend(np.count_nonzero(filled, axis=1))
        self.indices.extend(np.nonzero(filled)[1].astype(np.int32))
        self.values.extend(dense[filled])
        numbers = self.numbers
        self.labels.extend(np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64))

    def cut(self, block: bytes) -> tuple[list[bytes], bytes] | None:
        """Cut rows into their labels and the text of all other cells, with a comma after each cell.

        Return None for a block with quotes, blank lines, rows of another width, or a row without a class.
        """
        # Text that is not ASCII might not be UTF-8, and a carriage return alone also ends a line.
        is_plain = block.isascii() and block.count(b"\r") == block.count(b"\r\n")
        if b'"' in block or b"\0" in block or not is_plain:
            return None
        text = np.frombuffer(block, np.uint8)
        marks = np.flatnonzero((text == _COMMA) | (text == _NEWLINE))
        if marks.size % self.columns.n_columns:
            return None
        end = marks.reshape(-1, self.columns.n_columns)
        is_last = text[end] == _NEWLINE
        if not is_last[:, -1].all() or is_last[:, :-1].any():
            return None
        label = self.columns.label
        if label is None:
            return [], block.replace(b"\n", b",")
        start = (end[:, label - 1] if label else np.append(-1, end[:-1, -1])) + 1
        labels = [block[a:b] for a, b in zip(start.tolist(), end[:, label].tolist(), strict=True)]
        if not all(each.strip() for each in set(labels)):
            return None
        # Each label is removed with the mark after it, so that a mark remains after every other cell.
        inside = np.zeros(text.size + 1, np.int8)
        inside[start] = 1
        inside[end[:, label] + 1] -= 1
        rest = text[~np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)]
        return labels, rest.tobytes().replace(b"\n", b",")

    def exact(self, block: bytes, first_line: int) -> tuple[list[bytes], NDArray[np.float32]]:
        """Read any block, or raise a DataError that names the first cell that is wrong."""
        rows, labels = [], []
        n = self.columns.n_columns
        for line, cells in _records(self.path, block, first_line):
            if len(cells) != n:
                self.fail(line, f"{len(cells)} cells", f"{n} as in the first line", _FIX_ROW)
            if self.columns.label is not None:
                labels.append(self.label_of(cells.pop(self.columns.label), line))
            rows.append((line, cells))
        values = _parse("".join(f"{cell}," for _, cells in rows for cell in cells).encode())
        if values is None or values.size != len(rows) * self.columns.n_features:
            numbers = [self.number(cell, i, line) for line, cells in rows for i, cell in enumerate(cells)]
            values = np.array(numbers, np.float32)
        return labels, values

    def label_of(self, cell: str, line: int) -> bytes:
        label = cell.strip()
        if not label and not self.unlabelled:
            where = self.columns.called(self.columns.label or 0)
            self.fail(line, f"no class in {where}", "one class per row", FIX_CLASS)
        if re.search(r"[\n\r\0]", label):
            self.fail(line, f"the class {label[:40]!r}", "a class on one line", "Rename it.")
        return label.encode()

    def number(self, cell: str, feature: int, line: int) -> float:
        text = cell.strip()
        value = parse_number(text)
        if value is not None and np.isfinite(value):
            return value
        where = self.columns.called(feature + (self.columns.label is not None and feature >= self.columns.label))
        found = f"{text[:40]!r} in {where} is"
        if not text:
            fix = "Fill in missing values, or encode them as numbers."
            self.fail(line, f"an empty cell in {where}", "a number", fix)
        if is_not_finite(text):
            self.fail(line, f"{found} not finite", "a finite number", "Fill in or remove such values.")
        if value is None:
            self.fail(line, f"{found} not a number", "a number", "Encode it as a number, or remove the column.")
        self.fail(line, f"{found} too large", f"at most {np.finfo(np.float32).max:.1e}", "Correct or scale it.")

    def finish(self) -> FileContents:
        counts, labels = self.counts.finish(), self.labels.finish()
        if counts.size == 0:
            raise no_data(self.path, "the file contains no rows")
        X = from_counts(counts, self.indices.finish(), self.values.finish(), self.columns.n_features)
        found = [text.decode().strip() for text in self.numbers]
        if blank := [number for number, text in enumerate(found) if not text]:
            has_class = labels != blank[0]
            # The numbers after that of the missing class move up.
            labels = labels[has_class] - (labels[has_class] > blank[0])
            del found[blank[0]]
        else:
            has_class = np.ones(labels.size, np.bool_)
        names, columns = class_columns(found, labels)
        Y = from_counts(has_class.astype(np.int64), columns, None, len(names))
        features = None if self.columns.names is None else Names(self.columns.feature_names)
        dataset = Dataset(X, Y, names, features, trusted=True)
        return FileContents(dataset, True, holds_names=features is not None, has_classes=True)


def _parse(text: bytes) -> NDArray[np.float32] | None:
    """Return the numbers of a text with a comma after each; None if anything else occurs in it."""
    if any(blank in text for blank in _BLANKS) and _BLANK_CELL.search(text):  # which NumPy reads as -1
        return None
    values = parse_many(text + b"0", ",")  # with a number after the last comma, an empty last cell is found like others
    if values is None:
        return None
    with np.errstate(over="ignore"):
        rounded = values[:-1].astype(np.float32)
    return rounded if np.isfinite(rounded).all() else None
