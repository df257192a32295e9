"""CSV with a label column: rows of numbers and one class, separated by commas, quoted as RFC 4180 has it.

A block of lines of one width without quotes is cut and parsed without a loop. What is out of the ordinary is read cell
by cell, which is slower, exact, and explains what is wrong.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import from_counts
from labelfield.data.classes import class_columns
from labelfield.data.csv_header import Columns, columns_of, is_number
from labelfield.data.dataset import Dataset, Part
from labelfield.data.growing import Growing
from labelfield.data.names import Names
from labelfield.data.streams import line_blocks
from labelfield.errors import DataError
from labelfield.progress import Progress, ignore

__all__ = ["read_csv"]

_COMMA, _NEWLINE = b",\n"
_BLANKS = (b" ", b"\t", b"\n", b"\r", b"\v", b"\f")
_BLANK_CELL = re.compile(rb"(?:\A|,)\s+,")
_NOT_FINITE = ("nan", "inf", "infinity")
_FIX_ROW = "Correct the row; quote a cell that holds commas."


def read_csv(
    path: Path,
    *,
    label_column: str | int | None = None,
    unlabelled: bool = False,
    n_features: int = 0,
    progress: Progress = ignore,
) -> Part:
    """Read a table; the first line tells whether it has a header, and which column holds the classes.

    With `unlabelled` a class may be missing, and a table as wide as `n_features` without a column that is named as the
    label has none.
    """
    with line_blocks(path, progress) as blocks:
        pieces = _whole_records(path, blocks)
        line, head, rest = _first_record(path, pieces)
        bare_width = n_features if unlabelled else None
        columns = columns_of(next(_records(path, head, line), (line, [""]))[1], path, line, label_column, bare_width)
        table = _Table(path, columns, unlabelled)
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
    """Blocks that no quoted cell runs across, each with the number of its first line."""
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
            fix="Close or remove it; the file may be cut short.",
        )


def _first_record(path: Path, pieces: Iterator[tuple[int, bytes]]) -> tuple[int, bytes, bytes]:
    """The first line that is not blank (more than one, if a quoted cell goes on): its number, it, and what follows."""
    is_empty = True
    for line, block in pieces:
        is_empty = False
        head = b""
        for text in io.BytesIO(block):
            head += text
            if head.strip() and head.count(b'"') % 2 == 0:
                return line + _leading_lines(head), head.lstrip(b" \t\r\n"), block[len(head) :]
    found = "the file is empty" if is_empty else "the file holds no rows"
    raise DataError(found, path=path, expected="rows of data", fix="Check where it came from.")


def _leading_lines(text: bytes) -> int:
    return text[: len(text) - len(text.lstrip(b" \t\r\n"))].count(b"\n")


def _records(path: Path, block: bytes, first_line: int) -> Iterator[tuple[int, list[str]]]:
    """The line and the cells of each row; blank lines are none."""
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
        raise DataError(
            f"not CSV ({error})", path=path, line=line, expected="cells as RFC 4180", fix=_FIX_ROW
        ) from None


@dataclass(frozen=True)
class _Cut:
    """Rows cut into their labels and the text of all other cells, each with a comma behind it."""

    labels: list[bytes]
    numbers: bytes


class _Table:
    """What has been read so far."""

    def __init__(self, path: Path, columns: Columns, unlabelled: bool) -> None:
        self.path, self.columns, self.unlabelled = path, columns, unlabelled
        self.counts, self.indices, self.values = Growing(np.int64), Growing(np.int32), Growing(np.float32)
        self.labels = Growing(np.int64)
        self.numbers: dict[bytes, int] = {}

    def fail(self, line: int, found: str, expected: str, fix: str) -> NoReturn:
        raise DataError(found, path=self.path, line=line, expected=expected, fix=fix)

    def add(self, block: bytes, first_line: int) -> None:
        cut = self.cut(block)
        values = None if cut is None else _parse(cut.numbers)
        if cut is None or values is None:
            labels, values = self.exact(block, first_line)
        else:
            labels = cut.labels
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

    def cut(self, block: bytes) -> _Cut | None:
        """A block of ordinary rows; None for one with quotes, blank lines, another width or a class that is missing."""
        # What is not ASCII might not be UTF-8, and a carriage return alone ends a line too.
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
            return _Cut([], block.replace(b"\n", b","))
        start = (end[:, label - 1] if label else np.append(-1, end[:-1, -1])) + 1
        labels = [block[a:b] for a, b in zip(start.tolist(), end[:, label].tolist(), strict=True)]
        if not all(each.strip() for each in set(labels)):
            return None
        # The label goes with the mark behind it, so that a mark stays behind each other cell.
        inside = np.zeros(text.size + 1, np.int8)
        inside[start] = 1
        inside[end[:, label] + 1] -= 1
        rest = text[~np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)]
        return _Cut(labels, rest.tobytes().replace(b"\n", b","))

    def exact(self, block: bytes, first_line: int) -> tuple[list[bytes], NDArray[np.float32]]:
        """Any block, or a DataError that names the first cell that is wrong."""
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
            self.fail(line, f"no class in {where}", "one class a row", "Give each row its class, or remove it.")
        if re.search(r"[\n\r\0]", label):
            self.fail(line, f"the class {label[:40]!r}", "a class on one line", "Rename it.")
        return label.encode()

    def number(self, cell: str, feature: int, line: int) -> float:
        text = cell.strip()
        where = self.columns.called(feature + (self.columns.label is not None and feature >= self.columns.label))
        if not text:
            fix = "Fill in what is missing, or encode it as numbers."
            self.fail(line, f"an empty cell in {where}", "a number", fix)
        if text.strip("+-").lower() in _NOT_FINITE:
            fix = "Fill in or remove such values."
            self.fail(line, f"{text[:40]!r} in {where} is not finite", "a finite number", fix)
        if not is_number(text):
            fix = "Encode it as numbers, or remove the column."
            self.fail(line, f"{text[:40]!r} in {where} is not a number", "a number", fix)
        with np.errstate(over="ignore"):
            value = float(np.float32(float(text)))
        if not np.isfinite(value):
            fix = "Correct or scale it."
            self.fail(line, f"{text[:40]!r} in {where} is too large", f"at most {np.finfo(np.float32).max:.1e}", fix)
        return value

    def finish(self) -> Part:
        counts, labels = self.counts.finish(), self.labels.finish()
        if counts.size == 0:
            raise DataError("the file holds no rows", expected="rows of data", fix="Check where it came from.")
        X = from_counts(counts, self.indices.finish(), self.values.finish(), self.columns.n_features)
        found = [text.decode().strip() for text in self.numbers]
        if blank := [number for number, text in enumerate(found) if not text]:
            has_class = labels != blank[0]
            # The numbers behind that of no class move up.
            labels = labels[has_class] - (labels[has_class] > blank[0])
            del found[blank[0]]
        else:
            has_class = np.ones(labels.size, np.bool_)
        names, columns = class_columns(found, labels)
        Y = from_counts(has_class.astype(np.int64), columns, None, len(names))
        features = None if self.columns.names is None else Names(self.columns.feature_names)
        return Part(Dataset(X, Y, names, features), True, holds_names=features is not None, has_classes=True)


def _parse(text: bytes) -> NDArray[np.float32] | None:
    """The numbers of a text with a comma behind each; None where anything else stands in it."""
    if any(blank in text for blank in _BLANKS) and _BLANK_CELL.search(text):  # which NumPy takes for -1
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how NumPy says that it met something else
        try:
            # With a number after the last comma an empty last cell is found like any other.
            values = np.fromstring(text + b"0", np.float64, sep=",")[:-1]
        except (DeprecationWarning, ValueError):
            return None
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    return rounded if np.isfinite(rounded).all() else None
