"""Sparse multi-label text: the XML-repository form (header `N D K`) and multi-label svmlight (no header)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import MAX_COLUMNS, from_counts
from labelfield.data.classes import ClassNumbers, class_columns
from labelfield.data.dataset import Dataset, Part
from labelfield.data.grammar import Grammar, Rows, parse_lines
from labelfield.data.growing import Growing
from labelfield.data.scan import scan
from labelfield.data.streams import line_blocks
from labelfield.errors import DataError
from labelfield.progress import Progress, ignore

__all__ = ["read_rows", "read_text", "write_rows", "write_text"]

_XML_HEADER = re.compile(rb"[ \t]*([0-9]+)[ \t]+([0-9]+)[ \t]+([0-9]+)[ \t\r]*\n")
# svmlight has no header, so ours is a comment that other readers skip.
_OUR_HEADER = re.compile(rb"# labelfield rows=([0-9]+) features=([0-9]+) labels=([0-9]+)[ \t\r]*\n")
_BARE_NUMBERS = re.compile(rb"[ \t]*[0-9]+([ \t]+[+-]?[0-9.]+)*[ \t\r]*\n")
_COMMENT = re.compile(rb"#[^\n]*")
_WRITE_ENTRIES = 1 << 18


def read_text(
    path: Path,
    *,
    one_based: bool | None = None,
    one_based_labels: bool = False,
    classes: bool = False,
    unlabelled: bool = False,
    progress: Progress = ignore,
) -> Part:
    """Read either form; the first line tells which.

    `one_based` says whether the first feature is written 1. Left out: files with a header start at 0, and of a
    headerless file it is told whether it seems to start at 1. With `classes` the rows of a headerless file begin with
    one class, any word or number (with `unlabelled`, or none); under a header classes are numbers like any labels.
    """
    with line_blocks(path, progress) as blocks:
        head = next(blocks, b"")
        if not head:
            raise DataError("the file is empty", path=path, expected="rows of data", fix="Check where it came from.")
        numbers = ClassNumbers(path, unlabelled=unlabelled) if classes else None
        return _read_text(path, head, blocks, one_based, int(one_based_labels), numbers)


def _read_text(
    path: Path,
    head: bytes,
    blocks: Iterator[bytes],
    one_based: bool | None,
    first_label: int,
    numbers: ClassNumbers | None,
) -> Part:
    line_end = head.index(b"\n") + 1
    if match := _XML_HEADER.match(head):
        sizes = _check_sizes(match, path)
        grammar = Grammar(sizes[1], sizes[2], int(bool(one_based)), first_label)
        rows = read_rows(head[line_end:], blocks, grammar, path, 2, n_rows=sizes[0])
        return _part(rows, sizes[1], sizes[2], is_stated=True)
    if match := _OUR_HEADER.match(head):
        sizes = _check_sizes(match, path)
        grammar = Grammar(sizes[1], sizes[2], 1 if one_based is None else int(one_based), first_label)
        rows = read_rows(head[line_end:], blocks, grammar, path, 2, n_rows=sizes[0], comments=True)
        return _part(rows, sizes[1], sizes[2], is_stated=True)
    if _BARE_NUMBERS.match(head) and b" " in head[:line_end].strip():
        raise DataError(
            f"the first line is {head[:line_end].decode().strip()!r}",
            path=path,
            line=1,
            expected="a header `rows features labels`, or a row `label,label index:value index:value`",
            fix="Complete the header or remove it.",
        )
    # A stored 0 says nothing about its row, but something about how features are numbered and how many there are.
    grammar = Grammar(
        first_column=int(bool(one_based)), first_label=0 if numbers is not None else first_label, keep_zeros=True
    )
    recode = None if numbers is None else numbers.recode
    rows = read_rows(head, blocks, grammar, path, 1, comments=True, recode=recode)
    if rows.counts.size == 0:
        raise DataError("the file holds no rows", path=path, expected="rows of data", fix="Check where it came from.")
    n_features = int(rows.indices.max(initial=-1)) + 1
    is_one_based = one_based is None and int(rows.indices.min(initial=1)) > 0
    rows = _without_zeros(rows)
    if numbers is None:
        part = _part(rows, n_features, int(rows.labels.max(initial=-1)) + 1, is_stated=False)
    else:
        names, columns = class_columns(numbers.found, rows.labels)
        part = _part(rows._replace(labels=columns), n_features, len(names), is_stated=False)
        part = part._replace(dataset=replace(part.dataset, label_names=names), has_classes=True)
    return part._replace(seems_one_based=is_one_based)


def _part(rows: Rows, n_features: int, n_labels: int, *, is_stated: bool) -> Part:
    """Rows as arrays. Under a header, which states the widths, every line is a row."""
    X = from_counts(rows.counts, rows.indices, rows.values, n_features)
    dataset = Dataset(X, from_counts(rows.label_counts, rows.labels, None, n_labels))
    return Part(dataset, is_stated, first_line=2 if is_stated else None)


def _check_sizes(match: re.Match[bytes], path: Path) -> tuple[int, int, int]:
    for name, size in zip(("rows", "features", "labels"), match.groups(), strict=True):
        if len(size) > 18 or (name != "rows" and int(size) > MAX_COLUMNS):
            raise DataError(
                f"the header asks for {size.decode()[:40]} {name}",
                path=path,
                line=1,
                expected=f"at most {MAX_COLUMNS}",
                fix="Correct the header.",
            )
    n, d, k = (int(size) for size in match.groups())
    return n, d, k


def read_rows(
    head: bytes,
    blocks: Iterator[bytes],
    grammar: Grammar,
    path: Path,
    first_line: int,
    *,
    n_rows: int | None = None,
    promised_by: str = "the header says",
    comments: bool = False,
    recode: Callable[[bytes, int], bytes] | None = None,
) -> Rows:
    """Parse `head` and the remaining blocks. Without `n_rows`, blank lines are skipped; else they are rows.

    `recode` is given each block and the number of its first line, and answers what to parse in its place.
    """
    parts = [Growing(dtype) for dtype in grammar.row_types]
    n_found, line = 0, first_line
    for raw in _chain(head, blocks):
        block = _COMMENT.sub(b"", raw) if comments and b"#" in raw else raw
        block = block if recode is None else recode(block, line)
        rows = scan(block, grammar)
        if rows is None:
            rows = parse_lines(block, grammar, path, line)
        if n_rows is None:
            rows = _without_blank(rows)
        elif n_found + rows.counts.size > n_rows:
            rows = _without_surplus(rows, n_rows - n_found, f"{n_rows} rows as {promised_by}", path, line)
        for i, part in enumerate(parts):
            part.extend(rows[i])
        n_found += rows.counts.size
        line += block.count(b"\n")
    if n_rows is not None and n_found < n_rows:
        raise DataError(
            f"the file ends after {n_found} rows",
            path=path,
            line=line - 1,
            expected=f"{n_rows} rows as {promised_by}",
            fix="The file may be cut short: make it again, or correct the number of rows.",
        )
    return Rows(*(part.finish() for part in parts))


def _chain(head: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from blocks


def _without_blank(rows: Rows) -> Rows:
    if not rows.blank.any():
        return rows
    kept = ~rows.blank
    return rows._replace(counts=rows.counts[kept], label_counts=rows.label_counts[kept], blank=rows.blank[kept])


def _without_zeros(rows: Rows) -> Rows:
    if rows.values.all():
        return rows
    kept = rows.values != 0
    row = np.repeat(np.arange(rows.counts.size), rows.counts)[kept]
    counts = np.bincount(row, minlength=rows.counts.size)
    return rows._replace(counts=counts, indices=rows.indices[kept], values=rows.values[kept])


def _without_surplus(rows: Rows, n_left: int, expected: str, path: Path, line: int) -> Rows:
    """Drop blank lines after the last row; any other surplus line is an error."""
    surplus = np.flatnonzero(~rows.blank[n_left:])
    if surplus.size:
        raise DataError(
            "one row too many",
            path=path,
            line=line + n_left + int(surplus[0]),
            expected=expected,
            fix="Remove the rest, or correct the number of rows.",
        )
    return rows._replace(
        counts=rows.counts[:n_left], label_counts=rows.label_counts[:n_left], blank=rows.blank[:n_left]
    )


def write_text(
    file: IO[bytes], X: sparse.csr_array, Y: sparse.csr_array, *, svmlight: bool = False, progress: Progress = ignore
) -> None:
    """Write rows that `read_text` reads back exactly. svmlight numbers features from 1, as its definition has it."""
    n, d, k = X.shape[0], X.shape[1], Y.shape[1]
    header = f"# labelfield rows={n} features={d} labels={k}\n" if svmlight else f"{n} {d} {k}\n"
    file.write(header.encode())
    write_rows(file, X, Y, first_column=int(svmlight), progress=progress)


def write_rows(
    file: IO[bytes],
    X: sparse.csr_array,
    Y: sparse.csr_array | None,
    *,
    first_column: int = 0,
    progress: Progress = ignore,
) -> None:
    """Write `label,label index:value …` lines, or `index:value …` lines without Y. Values read back bit for bit."""
    n = X.shape[0]
    start = 0
    while start < n:
        # As many rows as hold about _WRITE_ENTRIES entries, at least one.
        stop = int(np.searchsorted(X.indptr, X.indptr[start] + _WRITE_ENTRIES, side="right")) - 1
        stop = min(max(stop, start + 1), start + _WRITE_ENTRIES, n)
        features = _pairs(X, start, stop, first_column)
        lists = [] if Y is None else _lists(Y, start, stop)
        lines = features if Y is None else [f"{a} {b}" for a, b in zip(lists, features, strict=True)]
        file.write(("\n".join(lines) + "\n").encode())
        start = stop
        progress(start, n)


def _ragged(tokens: list[str], indptr: NDArray[np.int64], separator: str) -> list[str]:
    ends = indptr.tolist()
    return [separator.join(tokens[a:b]) for a, b in pairwise(ends)]


def _pairs(X: sparse.csr_array, start: int, stop: int, first: int) -> list[str]:
    indptr = X.indptr[start : stop + 1] - X.indptr[start]
    span = slice(int(X.indptr[start]), int(X.indptr[stop]))
    # NumPy prints the shortest text that is read back as the same float32; each distinct value once.
    values, which = np.unique(X.data[span], return_inverse=True)
    texts = values.astype(np.str_)[which].tolist()
    columns = (X.indices[span].astype(np.int64) + first).tolist()
    return _ragged([f"{c}:{t}" for c, t in zip(columns, texts, strict=True)], indptr, " ")


def _lists(Y: sparse.csr_array, start: int, stop: int) -> list[str]:
    indptr = Y.indptr[start : stop + 1] - Y.indptr[start]
    labels = Y.indices[int(Y.indptr[start]) : int(Y.indptr[stop])]
    return _ragged([str(label) for label in labels.tolist()], indptr, ",")
