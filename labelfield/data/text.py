"""Sparse multi-label text: the XML-repository form (header `N D K`) and multi-label svmlight (no header)."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import MAX_COLUMNS, from_counts
from labelfield.data.classes import class_columns, number_classes
from labelfield.data.dataset import Dataset, Names
from labelfield.data.grammar import Grammar, Rows, parse_lines
from labelfield.data.reading import FileContents, Options, line_blocks, no_data
from labelfield.data.scan import scan
from labelfield.errors import DataError
from labelfield.mapped import Growing
from labelfield.progress import Progress

_XML_HEADER = re.compile(rb"[ \t]*([0-9]+)[ \t]+([0-9]+)[ \t]+([0-9]+)[ \t\r]*\n")
# svmlight has no header, so ours is a comment that other readers skip.
_OUR_HEADER = re.compile(rb"# labelfield rows=([0-9]+) features=([0-9]+) labels=([0-9]+)[ \t\r]*\n")
_BARE_NUMBERS = re.compile(rb"[ \t]*[0-9]+([ \t]+[+-]?[0-9.]+)*[ \t\r]*\n")
_COMMENT = re.compile(rb"#[^\n]*")
_WRITE_ENTRIES = 1 << 18


def read_text(path: Path, options: Options) -> FileContents:
    """Read either form; the first line tells which.

    With `classes`, the rows of a headerless file begin with one class, any word or number (or, with `unlabelled`, with
    none); under a header, classes are numbers like any labels.
    """
    with line_blocks(path, options.progress) as blocks:
        head = next(blocks, b"")
        if not head:
            raise no_data("the file is empty")
        ours = _OUR_HEADER.match(head)
        header = _XML_HEADER.match(head) or ours
        if header is not None:
            for name, size in zip(("rows", "features", "labels"), header.groups(), strict=True):
                if len(size) > 18 or (name != "rows" and int(size) > MAX_COLUMNS):
                    found = f"the header declares {size.decode()[:40]} {name}"
                    raise DataError(found, f"at most {MAX_COLUMNS}", "Correct the header.", line=1)
            n, d, k = map(int, header.groups())
            is_one_based = ours is not None if options.one_based is None else options.one_based
            grammar = Grammar(d, k, int(is_one_based), int(options.one_based_labels))
            rest = chain([head[header.end() :]], blocks)
            rows = read_rows(_without_comments(rest) if ours else rest, grammar, 2, n, scratch=options.scratch)
            return FileContents(_dataset(rows, d, k), True, first_line=2)
        line_end = head.index(b"\n") + 1
        if _BARE_NUMBERS.match(head) and b" " in head[:line_end].strip():
            found = f"the first line is {head[:line_end].decode().strip()!r}"
            expected = "a header `rows features labels`, or a row `label,label index:value index:value`"
            raise DataError(found, expected, "Complete or remove the header.", line=1)
        return _read_headerless(_without_comments(chain([head], blocks)), options)


def _without_comments(blocks: Iterable[bytes]) -> Iterator[bytes]:
    return (_COMMENT.sub(b"", block) if b"#" in block else block for block in blocks)


def _read_headerless(blocks: Iterator[bytes], options: Options) -> FileContents:
    classes: list[str] = []
    if options.classes:
        blocks = number_classes(blocks, classes, unlabelled=options.unlabelled)
    first_label = 0 if options.classes else int(options.one_based_labels)
    # A stored 0 says nothing about its row, but it shows how features are numbered and how many there are.
    grammar = Grammar(first_column=int(bool(options.one_based)), first_label=first_label, keep_zeros=True)
    least, most = 1, -1  # of all features that are written

    def without_zeros(rows: Rows) -> Rows:
        nonlocal least, most
        least, most = int(rows.indices.min(initial=least)), int(rows.indices.max(initial=most))
        return rows.without_zeros()

    rows = read_rows(blocks, grammar, 1, scratch=options.scratch, change=without_zeros)
    if rows.counts.size == 0:
        raise no_data("the file contains no rows")
    n_features, seems_one_based = most + 1, options.one_based is None and least > 0
    names, n_labels = None, int(rows.labels.max(initial=-1)) + 1
    if options.classes:
        names, columns = class_columns(classes, rows.labels)
        rows, n_labels = rows._replace(labels=columns), len(names)
    dataset = _dataset(rows, n_features, n_labels, names)
    return FileContents(dataset, False, seems_one_based=seems_one_based, has_classes=options.classes)


def _dataset(rows: Rows, n_features: int, n_labels: int, label_names: Names | None = None) -> Dataset:
    X = from_counts(rows.counts, rows.indices, rows.values, n_features)
    return Dataset(X, from_counts(rows.label_counts, rows.labels, None, n_labels), label_names, trusted=True)


def read_rows(
    blocks: Iterable[bytes],
    grammar: Grammar,
    line: int,
    n_rows: int | None = None,
    source: str = "the header says",
    *,
    scratch: Path | None = None,
    change: Callable[[Rows], Rows] = lambda rows: rows,
) -> Rows:
    """Parse blocks of lines, from this line on. Blank lines are rows if `n_rows` is given, and else skipped.

    `change` is applied to the rows of each block. With a `scratch` folder the arrays are in files there.
    """
    parts = [Growing(dtype, scratch) for dtype in grammar.row_types]
    n_found, expected = 0, f"{n_rows} rows as {source}"
    for block in blocks:
        rows = scan(block, grammar) or parse_lines(block, grammar, line)
        if n_rows is None:
            rows = _only(rows, ~rows.blank)
        elif n_found + rows.counts.size > n_rows:
            n_left = n_rows - n_found
            surplus = np.flatnonzero(~rows.blank[n_left:])
            if surplus.size:  # blank lines after the last row are allowed
                fix = "Remove the extra rows, or correct the number of rows."
                raise DataError("one row too many", expected, fix, line=line + n_left + int(surplus[0]))
            rows = _only(rows, slice(n_left))
        rows = change(rows)
        for i, part in enumerate(parts):
            part.extend(rows[i])
        n_found += rows.counts.size
        line += block.count(b"\n")
    if n_rows is not None and n_found < n_rows:
        fix = "The file may be truncated: write it again, or correct the number of rows."
        raise DataError(f"the file ends after {n_found} rows", expected, fix, line=max(line - 1, 1))
    return Rows(*(part.finish() for part in parts))


def _only(rows: Rows, kept: NDArray[np.bool_] | slice) -> Rows:
    """Drop the rows of other lines, which are all blank and so have no entries."""
    return rows._replace(counts=rows.counts[kept], label_counts=rows.label_counts[kept], blank=rows.blank[kept])


def write_text(file: IO[bytes], dataset: Dataset, *, svmlight: bool, progress: Progress) -> None:
    """Write rows that `read_text` reads back exactly. svmlight numbers features from 1, as it is defined."""
    n, d, k = dataset.n_rows, dataset.n_features, dataset.n_labels
    header = f"# labelfield rows={n} features={d} labels={k}\n" if svmlight else f"{n} {d} {k}\n"
    file.write(header.encode())
    write_rows(file, dataset.X, dataset.Y, int(svmlight), progress)


def write_rows(
    file: IO[bytes], X: sparse.csr_array, Y: sparse.csr_array | None, first_column: int, progress: Progress
) -> None:
    """Write `label,label index:value …` lines, or `index:value …` lines without Y. Values read back bit for bit."""
    n, start = X.shape[0], 0
    while start < n:
        # As many rows as have about _WRITE_ENTRIES entries, at least one.
        stop = int(np.searchsorted(X.indptr, X.indptr[start] + _WRITE_ENTRIES, side="right")) - 1
        stop = min(max(stop, start + 1), start + _WRITE_ENTRIES, n)
        # NumPy prints the shortest text that is read back as the same float32; each distinct value once.
        part = slice(X.indptr[start], X.indptr[stop])
        values, which = np.unique(X.data[part], return_inverse=True)
        texts = values.astype(np.str_)[which].tolist()
        columns = (X.indices[part].astype(np.int64) + first_column).tolist()
        pairs = [f"{column}:{text}" for column, text in zip(columns, texts, strict=True)]
        lines = _joined(pairs, X.indptr[start : stop + 1], " ")
        if Y is not None:
            ends = Y.indptr[start : stop + 1]
            lists = _joined([str(label) for label in Y.indices[ends[0] : ends[-1]].tolist()], ends, ",")
            lines = [f"{a} {b}" for a, b in zip(lists, lines, strict=True)]
        file.write(("\n".join(lines) + "\n").encode())
        start = stop
        progress(start, n)


def _joined(texts: list[str], ends: NDArray[np.int64], separator: str) -> list[str]:
    return [separator.join(texts[a:b]) for a, b in pairwise((ends - ends[0]).tolist())]
