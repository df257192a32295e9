"""`read_documents`: any file or folder of documents, by its path; columns are guessed, and the guess is printed."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from labelfield.atomic import temporary_folder
from labelfield.data.reading import COMPRESSED_SUFFIXES
from labelfield.errors import DataError
from labelfield.mapped import scratch_folder
from labelfield.text.documents import (
    USUAL_NAMES,
    USUAL_TEXTS,
    Columns,
    Document,
    Documents,
    Wanted,
    by_field,
    choose_columns,
    documents_of,
    guess_separator,
    no_labels,
    usual_text,
)
from labelfield.text.sources import (
    PARQUET,
    Source,
    is_annif_line,
    is_fasttext_line,
    is_hint,
    is_pecos_line,
    not_decoded,
    read_annif_tsv,
    read_fasttext,
    read_folder,
    read_head,
    read_json,
    read_json_lines,
    read_lines,
    read_parquet,
    read_pecos,
    read_table,
    utf_16_name,
)

STDIN = "-"
_ANYTHING = Wanted()
_SAMPLE = 1000
_HEAD_BYTES = 1 << 20
_BATCH = 1024
_SPLITS = ("train", "test")
# Names of files that are always documents, and never; those of others leave it open.
_ALWAYS, _NEVER = (".jsonl", ".ndjson", ".json", ".parquet", ".tsv"), (".svm", ".svmlight", ".libsvm", ".npz", ".arff")
# Text of rows of numbers, not of documents: `label,label index:value …`, or numbers alone.
_ROWS = re.compile(r"[\d,.:eE+\s-]*")
# Two words one after another, which rows of numbers do not have; and how many lines are looked at.
_WORDS, _LINES = re.compile(r"[^\W\d_]{2,}\s+[^\W\d_]{2,}"), 20
# What files that people may take for documents begin with.
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet or text of an office program",
    b"%PDF-": "a PDF",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"ARROW1": "an Arrow table",
    b"SQLite format 3": "a SQLite database",
}
_MAGIC_BYTES = max(map(len, _FOREIGN))


class DocumentFile(NamedTuple):
    """An open file of documents: what it is, its columns, and documents one after another."""

    kind: str
    columns: Columns
    documents: Iterator[Document]
    # Of labels by URI, as far as documents were read and give them.
    names: dict[str, str]

    def gathered(self) -> Documents:
        """Return all documents that are left, in memory."""
        return _gathered(list(self.documents), self)

    def batches(self) -> Iterator[Documents]:
        """Yield documents in batches that bound the memory."""
        while some := list(islice(self.documents, _BATCH)):
            yield _gathered(some, self)


def read_documents(
    path: str | PathLike[str],
    *,
    text: str | Sequence[str] | None = None,
    labels: str | None = None,
    label_sep: str | None = None,
    id: str | None = None,
    encoding: str = "utf-8",
    part: str = "train",
    labelled: bool = False,
) -> Documents:
    """Read documents: CSV, TSV, JSON lines, JSON, Parquet, fastText, PECOS, or a file or folder of Annif.

    Text may be compressed (gzip, bzip2, xz); "-" is stdin. Columns are guessed from their names, unless `text` (one or
    several, such as "title,abstract"), `labels` and `id` name them; `label_sep` is what labels in one cell are joined
    by. Of a folder with `train.*` and `test.*` the `part` is read. With `labelled`, a file without labels is refused.
    """
    wanted = Wanted(_names(text), labels, label_sep, id)
    with open_documents(path, wanted, encoding=encoding, part=part, labelled=labelled) as file:
        found = file.gathered()
    if labelled and not any(found.labels or []):
        raise no_labels(file.columns.labels, path)
    return found


@contextmanager
def open_documents(
    path: str | PathLike[str],
    wanted: Wanted = _ANYTHING,
    usual: Wanted | None = None,
    *,
    encoding: str = "utf-8",
    part: str = "train",
    labelled: bool | None = False,
) -> Iterator[DocumentFile]:
    """Open documents as a stream, for files that are larger than memory; options as in `read_documents`.

    Columns that are not `wanted` are as `usual`, if the file has these, and else guessed. With `labelled=None`, labels
    are not even looked at.
    """
    found = Path(path)
    if _is_pipe(found):
        # Kept in a file for a moment: what it is shows in its first lines.
        name = "stdin" if str(path) == STDIN else str(path)
        with temporary_folder(scratch_folder()) as folder:
            spooled = folder / "stdin"
            with ExitStack() as stack, open(spooled, "wb") as file:
                pipe = sys.stdin.buffer if name == "stdin" else stack.enter_context(open(found, "rb"))
                shutil.copyfileobj(pipe, file)
            try:
                yield _open(spooled, wanted, usual, encoding, labelled)
            except DataError as error:
                if error.path not in (str(spooled), str(path)):  # of another file, read in the meantime
                    raise
                raise DataError(error.found, error.expected, error.fix, path=name, line=error.line) from None
        return
    if not found.exists():
        raise DataError("there is no such file or folder", path=found, fix="Check the path.")
    yield _open(split_of(found, part) or found, wanted, usual, encoding, labelled)


def _is_pipe(path: Path) -> bool:
    """Return whether a path is stdin, or an open pipe such as that of `<(…)` in a shell.

    A named pipe elsewhere may have nobody who writes to it: to open it would wait for ever.
    """
    return str(path) == STDIN or (path.is_fifo() and path.parts[:2] in (("/", "dev"), ("/", "proc")))


def _names(text: str | Sequence[str] | None) -> list[str] | None:
    if text is None:
        return None
    return [name.strip() for name in text.split(",")] if isinstance(text, str) else list(text)


def _gathered(some: list[Document], file: DocumentFile) -> Documents:
    return Documents(
        [one.texts for one in some],
        None if file.columns.labels is None else [one.labels for one in some],
        [one.id for one in some],
        file.columns.texts,
        file.columns.said(file.kind),
        [one.has_id for one in some],
        file.names,
    )


def _open(path: Path, wanted: Wanted, usual: Wanted | None, encoding: str, labelled: bool | None) -> DocumentFile:
    source = _source(path, encoding, wanted if usual is None else _either(wanted, usual))
    head = list(islice(source.records, _SAMPLE))
    if not head:
        raise DataError("the file has no documents", path=path, expected="at least one", fix="Check the file.")
    names = source.columns or list(dict.fromkeys(name for _, record in head for name in record))
    sample = [record for _, record in head]
    wanted = wanted if usual is None else _completed(wanted, usual, names, sample)
    columns = choose_columns(names, sample, wanted, labelled=labelled is True, path=path)
    if labelled is None:
        columns = columns._replace(labels=None, separator=None)
    if usual is not None:
        columns = _with_missing(columns, usual.text or ())
    known: dict[str, str] = {}
    stream = documents_of(chain(head, source.records), columns, path, source.unit, known)
    return DocumentFile(source.kind, columns, stream, known)


def _either(wanted: Wanted, usual: Wanted) -> Wanted:
    """Return what a header may name: columns that the user asked for, or else those of the training file.

    Columns of a training file without a header are called by their numbers, which no header names.
    """
    text = [name for name in usual.text or () if not name.isdecimal()]
    labels, identifier = (None if name is None or name.isdecimal() else name for name in (usual.labels, usual.id))
    return Wanted(wanted.text or text, wanted.labels or labels, None, wanted.id or identifier)


def _completed(wanted: Wanted, usual: Wanted, names: list[str], sample: list[dict[str, Any]]) -> Wanted:
    """Fill what was not said with usual columns, as far as the file has them."""
    fields = list(usual.text or ())
    text = [name for name in fields if name in names]
    if text and len(text) < len(fields) and USUAL_TEXTS.isdisjoint(name.lower() for name in text):
        # A title alone is not what a model of titles and texts was trained on.
        body = usual_text(names, (*text, wanted.labels, wanted.id, usual.labels, usual.id))
        text += [] if body is None else [body]
    labels = usual.labels if wanted.labels is None and usual.labels in names else wanted.labels
    identifier = usual.id if wanted.id is None and usual.id in names else wanted.id
    separator = wanted.label_sep
    if separator is None and labels is not None and labels == usual.labels:
        cells = [value for record in sample if isinstance(value := record.get(labels), str)]
        separator = guess_separator(cells, usual.label_sep) if cells else None
    return Wanted(wanted.text or text or None, labels, separator, identifier)


def _with_missing(columns: Columns, fields: Sequence[str]) -> Columns:
    """Return columns with as many texts as a model has fields: columns of other names are the last fields."""
    if len(fields) < len(columns.texts):
        return columns
    texts = by_field(columns.texts, fields)
    return columns._replace(texts=texts, missing=tuple(name for name in texts if name not in columns.texts))


def split_of(path: Path, part: str) -> Path | None:
    """Return the file of one split in a folder with `train.*` and `test.*` of documents; None for anything else."""
    if not path.is_dir():
        return None
    found = [entry for entry in sorted(path.iterdir()) if entry.name.split(".")[0] == part and is_documents(entry)]
    return found[0] if found else None


def is_documents(path: Path) -> bool:
    """Return whether a path holds documents, rather than rows of numbers: by its name, or else by its first lines."""
    if _is_pipe(path):
        return True
    if path.is_dir():
        if any(split_of(path, part) for part in _SPLITS):
            return True
        texts = {entry.stem for entry in path.glob("*.txt")}
        return any(entry.stem in texts for kind in ("*.tsv", "*.key") for entry in path.glob(kind))
    if not path.is_file():
        return False
    suffix = _suffix(path)
    if suffix in _ALWAYS:
        return True
    if suffix in _NEVER:
        return False
    head = read_head(path, _MAGIC_BYTES)
    if head.startswith((PARQUET, *_FOREIGN)):  # whose reader names what is no text
        return True
    lines = _head(path)
    if not lines:
        return False
    cells = _cells(lines[0])
    if _is_header(lines[0]) or (suffix == ".csv" and not USUAL_TEXTS.isdisjoint(cells)):
        return True
    if suffix != ".csv":
        some = lines[:_LINES]
        has_words = 2 * sum(bool(_WORDS.search(line)) for line in some) > len(some)
        return has_words or any(_is_document_line(line) or line.startswith("{") for line in some)
    # A table of numbers has numbers in most cells after the header; documents have a column of words.
    return any(
        not _ROWS.fullmatch(cell) and cell.count(" ") > 1 for line in lines[1:_LINES] for cell in line.split(",")
    )


def _is_document_line(line: str) -> bool:
    return is_fasttext_line(line) or is_annif_line(line) or is_pecos_line(line)


def _suffix(path: Path) -> str:
    name = path.name.lower()
    for packed in COMPRESSED_SUFFIXES:
        name = name.removesuffix(packed)
    return Path(name).suffix


def _head(path: Path) -> list[str]:
    """Return the first lines that are documents or a header; only one that is alone may be cut off."""
    content = read_head(path, _HEAD_BYTES)
    text = content.decode(utf_16_name(content) or "utf-8-sig", "replace")
    lines = [line for line in re.split("\r\n|[\r\n]", text) if line.strip() and not is_hint(line)]
    return lines[:-1] if len(content) == _HEAD_BYTES and len(lines) > 1 else lines


def _source(path: Path, encoding: str, wanted: Wanted) -> Source:
    """Open a file in the format that its first lines show; its name decides only what they leave open."""
    if path.is_dir():
        return read_folder(path, encoding)
    suffix = _suffix(path)
    head = read_head(path, _HEAD_BYTES)
    if head.startswith(PARQUET) or suffix == ".parquet":
        return read_parquet(path)
    if (kind := next((kind for magic, kind in _FOREIGN.items() if head.startswith(magic)), None)) is not None:
        fix = "Unpack it, or save its table as CSV, JSON lines or Parquet."
        raise DataError(f"the file is {kind}", path=path, expected="documents as text or Parquet", fix=fix)
    if encoding == "utf-8" and utf_16_name(head):
        raise not_decoded(path, 1)
    lines = _head(path)
    first = lines[0].lstrip() if lines else ""
    if first.startswith("["):
        return read_json(path, encoding)
    if first.startswith("{"):
        is_one = suffix == ".json" and not (len(lines) > 1 and lines[1].lstrip().startswith("{"))
        return read_json(path, encoding) if is_one else read_json_lines(path, encoding)
    if suffix in (".jsonl", ".ndjson", ".json"):
        return read_json_lines(path, encoding)
    if any(map(is_fasttext_line, lines[:_LINES])):
        return read_fasttext(path, encoding)
    if suffix != ".csv" and _are_lines_of(is_annif_line, _has_no_subjects, lines):
        return read_annif_tsv(path, encoding)
    if suffix != ".csv" and _are_lines_of(is_pecos_line, _has_no_numbers, lines):
        return read_pecos(path, encoding)
    if suffix in (".csv", ".tsv") or "\t" in first or _is_header(first, wanted):
        is_tsv = suffix == ".tsv" or (suffix != ".csv" and ("\t" in first or len(_cells(first)) == 1))
        delimiter = "\t" if is_tsv else _delimiter(first)
        return read_table(path, encoding, delimiter, lambda rows: _has_header(rows, wanted))
    return read_lines(path, encoding)


def _are_lines_of(is_line: Callable[[str], bool], is_bare: Callable[[str], bool], lines: list[str]) -> bool:
    """Return whether lines are of a format, by the first that has labels."""
    first = next((place for place, line in enumerate(lines[:_LINES]) if not is_bare(line)), None)
    return first is not None and is_line(lines[first])


def _has_no_subjects(line: str) -> bool:
    return not line.rpartition("\t")[2].strip() or "\t" not in line


def _has_no_numbers(line: str) -> bool:
    return line.startswith("\t")


def _delimiter(line: str) -> str:
    """Return what separates the cells of a header; in many countries spreadsheets write semicolons."""
    return max((",", ";", "\t"), key=line.count)


def _cells(line: str) -> list[str]:
    """Return the cells of a header, whatever separates them, in lower case."""
    return [cell.strip().strip('"').lower() for cell in re.split("[,;\t]", line)]


def _is_header(line: str, wanted: Wanted = _ANYTHING) -> bool:
    """Return whether a line is a header, in a file whose name does not say that it is a table."""
    if line.strip() in (wanted.text or ()):  # of a table with this column alone
        return True
    cells, texts = _cells(line), USUAL_TEXTS.union(name.lower() for name in wanted.text or ())
    known = USUAL_NAMES | texts | {str(name).lower() for name in (wanted.labels, wanted.id)}
    is_table = len(known.intersection(cells)) > 1 and not texts.isdisjoint(cells)
    return is_table and all(cell.count(" ") <= 1 for cell in cells)


def _has_header(rows: list[list[str]], wanted: Wanted) -> bool:
    """Return whether the first row has names of columns: some are usual or asked for, or all look like names.

    Those are different, no numbers, not among the values of their columns, and of one or two words; or of four, where
    documents are longer than that. A usual name that is among the values of its column, such as the label review, is
    none unless there are others.
    """
    names = [cell.strip() for cell in rows[0]]
    is_value = any(name == cell.strip() for row in rows[1:] for name, cell in zip(names, row, strict=False))
    if _are_names(names, wanted, at_least=1 + is_value):
        return True
    are_long = median(max(map(len, row), default=0) for row in rows[1:] or [[]]) > 3 * max(map(len, names), default=0)
    are_short = all(0 < len(name) <= 40 and name.count(" ") <= (3 if are_long else 1) for name in names)
    return are_short and not is_value and len(set(names)) == len(names) and not any(map(_ROWS.fullmatch, names))


def _are_names(cells: list[str], wanted: Wanted, at_least: int) -> bool:
    """Return whether one cell is the name of a column that was asked for, or enough of them are usual names."""
    names = {cell.strip().strip('"').lower() for cell in cells}
    asked = {wanted.labels, wanted.id, *(wanted.text or ())} - {None}
    return len(names & USUAL_NAMES) >= at_least or bool({str(one).lower() for one in asked} & names)
