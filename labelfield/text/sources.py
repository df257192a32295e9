"""Files of documents as records: a line or row number, and values by the name of their column.

Every source is a stream, so that a file may be larger than memory. The standard library reads text formats: it is fast
enough, needs no memory and knows the line of every record. Parquet is read by pyarrow, which is imported when needed.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from labelfield.data.reading import DAMAGE, open_bytes
from labelfield.errors import DataError
from labelfield.mapped import scratch_folder

# Names of columns that formats without a header get.
TEXT, LABELS, ID = "text", "labels", "id"
# What Parquet files begin with.
PARQUET = b"PAR1"
_FASTTEXT = "__label__"
_URIS = re.compile(r"(<[^<>\s]+>\s*)+")
_NUMBERS = re.compile(r"\s*\d+(,\d+)*\s*")
_WINDOWS = re.compile("[\udc80-\udc9f]")
_MOST_CELLS = 100_000
_HEAD_BYTES, _FIRST_ROWS = 1000, 200
# Letters of a JSON array that are read at a time; what may be before and after an entry; and the longest sign that may
# be cut in two, -Infinity.
_CHUNK, _LONGEST_SIGN = 1 << 20, 12
_BLANK, _COMMA, _END = (re.compile(rf"[ \t\r\n]*{sign}[ \t\r\n]*") for sign in ("", ",", "\\]"))

# The number of the line or row, and its values.
Record = tuple[int, dict[str, Any]]


class Source(NamedTuple):
    """Records of a file: what the format is called, the names of its columns if it has a header, and the stream."""

    kind: str
    columns: list[str] | None
    records: Iterator[Record]
    # What the numbers of records count.
    unit: str = "line"


def open_text(path: Path, encoding: str) -> IO[str]:
    """Open a text file, compressed or not; a byte-order mark is skipped."""
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # some are not of text
    except (LookupError, UnicodeError):
        raise DataError(f"the encoding {encoding!r} is not known", fix="Pass utf-8, latin-1 or utf-16.") from None
    return io.TextIOWrapper(open_bytes(path), "utf-8-sig" if name == "utf-8" else name, newline="")


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file with their numbers, from 1, without their ends."""
    with open_text(path, encoding) as file:
        for line, text in located(path, enumerate(file, 1)):
            yield line, text.rstrip("\r\n")


def located(path: Path, numbered: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield numbered things; damage and wrong encodings on the way become errors with a file and a line."""
    line, iterator = 0, iter(numbered)
    while True:
        try:
            item = next(iterator, None)
        except UnicodeError as error:
            encoding = getattr(error, "encoding", "utf-16")  # which alone wants a mark at the start
            bad_line, content = _bad_line(path, encoding)
            if encoding != "utf-8":
                fix = "Pass the right --encoding (encoding=…), or none for UTF-8."
                raise DataError(f"the text is not {encoding}", path=path, line=bad_line, fix=fix) from None
            raise not_decoded(path, bad_line, content) from None
        except (csv.Error, RecursionError) as error:
            raise DataError(f"cannot be read ({error})", path=path, line=line + 1, fix="Correct the line.") from None
        except DAMAGE as error:
            found = f"the compressed file is truncated or damaged ({error})"
            expected, fix = "a complete file", "Fetch or compress it again."
            raise DataError(found, path=path, line=line + 1, expected=expected, fix=fix) from None
        if item is None:
            return
        line = item[0]
        yield item


def _bad_line(path: Path, encoding: str) -> tuple[int, bytes]:
    """Return the first line that cannot be decoded: its number and its bytes."""
    line, decoder = 1, codecs.getincrementaldecoder(encoding)()
    with open_bytes(path) as file, suppress(*DAMAGE):
        for content in file:
            try:
                line += decoder.decode(content).count("\n")
            except UnicodeError:
                return line, content
    return line, b""


def not_decoded(path: Path, line: int | None, content: bytes = b"") -> DataError:
    """Return the error of a text that is not UTF-8, with the encoding that it may have."""
    # Latin-1 has no signs where Windows has quotes, dashes and €, often after a first line with letters alone; letters
    # that are UTF-8 have such bytes, too.
    head = read_head(path, _CHUNK)
    has_signs = any(_WINDOWS.search(part.decode(errors="surrogateescape")) for part in (content, head))
    other = utf_16_name(head[:_HEAD_BYTES]) or ("cp1252" if has_signs else "latin-1")
    fix = f"Save it as UTF-8, or pass --encoding {other} (encoding='{other}')."
    return DataError("the text is not UTF-8", path=path, line=line, expected="UTF-8", fix=fix)


def read_head(path: Path, n_bytes: int) -> bytes:
    """Return the first bytes of a file, as far as they can be read; its reader says if it is damaged."""
    head = bytearray()
    with suppress(*DAMAGE), open_bytes(path) as file:
        while len(head) < n_bytes and (more := cast("Any", file).read1(n_bytes - len(head))):
            head += more
    return bytes(head)


def utf_16_name(head: bytes) -> str | None:
    """Return the encoding of a file that begins as UTF-16 does, with its mark or a zero in every other byte, or None.

    Python reads UTF-16 without a mark only if it is told the order of bytes.
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    halves = {"utf-16-be": head[::2], "utf-16-le": head[1::2]}
    return next((name for name, half in halves.items() if len(half) > 1 and 2 * half.count(0) > len(half)), None)


# Tables


def read_table(path: Path, encoding: str, delimiter: str, is_header: Callable[[list[list[str]]], bool]) -> Source:
    """Read CSV or TSV; without a header, which `is_header` finds in the first rows, columns are called 0, 1, …"""
    csv.field_size_limit(2**31 - 1)  # a document may be longer than a cell of a spreadsheet
    # The first lines may be empty, or tell a spreadsheet what separates cells.
    lines = dropwhile(lambda row: not row[1] or is_hint(delimiter.join(row[1])), _cells(path, encoding, delimiter))
    kind = "TSV" if delimiter == "\t" else "CSV"
    head = list(islice(lines, _FIRST_ROWS))
    if not head:
        raise DataError("the file is empty", path=path, expected="documents", fix="Check where it came from.")
    line, cells = head[0]
    has_header = is_header([row for _, row in head])
    columns = [cell.strip() for cell in cells] if has_header else [str(i) for i in range(len(cells))]
    if len(cells) > _MOST_CELLS:
        raise DataError(f"{len(cells)} columns", path=path, line=line, expected=f"at most {_MOST_CELLS}")
    if twice := {name for name in columns if columns.count(name) > 1} if len(columns) < 1000 else set():
        raise DataError(f"two columns are called {min(twice)!r}", path=path, line=line, fix="Rename one.")

    def records() -> Iterator[Record]:
        before = line
        if not has_header:
            yield line, dict(zip(columns, cells, strict=True))
        for last, row in chain(head[1:], lines):
            first_line, before = before + 1, last
            if not row:  # an empty line
                continue
            if len(row) != len(columns):
                raise DataError(
                    f"{len(row)} cells",
                    path=path,
                    line=first_line,
                    expected=f"{len(columns)} as the first line has",
                    fix="Correct the row; quote a cell that contains separators, quotes or line ends.",
                )
            yield first_line, dict(zip(columns, row, strict=True))

    return Source(kind, columns, records())


def is_hint(line: str) -> bool:
    """Return whether a line tells a spreadsheet what separates cells, as some tools write before the header: sep=;"""
    return re.fullmatch("sep=[,;\t|]", line) is not None


def _cells(path: Path, encoding: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row with the number of its last line."""
    with open_text(path, encoding) as file:
        own: list[str] = []  # the lines of the row
        reader = csv.reader(_kept(file, own), delimiter=delimiter)
        for last, row in located(path, ((reader.line_num, row) for row in reader)):
            if len(own) > 1:
                _require_quotes(own, delimiter, path, last)
            own.clear()
            yield last, row


def _kept(lines: Iterable[str], kept: list[str]) -> Iterator[str]:
    for line in lines:
        kept.append(line)
        yield line


def _require_quotes(lines: list[str], delimiter: str, path: Path, last: int) -> None:
    """Refuse a row of several lines whose quotes do not enclose cells: a stray one took further rows into its cell."""
    try:
        for _ in csv.reader(lines, delimiter=delimiter, strict=True):
            pass
    except csv.Error:
        first = last - len(lines) + 1
        found = f"a quote that begins a cell is not closed at its end, so that lines {first} to {last} are one row"
        fix = 'Quote such a cell, and write its quotes twice: "the ""best"" of them".'
        raise DataError(found, path=path, line=first, fix=fix) from None


def read_json_lines(path: Path, encoding: str) -> Source:
    """Read an object per line; empty lines are skipped."""

    def records() -> Iterator[Record]:
        for line, text in numbered_lines(path, encoding):
            if text.strip():
                yield line, _json_object(text, path, line)

    return Source("JSON lines", None, records())


def _json_object(text: str, path: Path, line: int) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg.removesuffix(' at')} at column {error.colno}"
        raise DataError(f"not JSON ({reason})", path=path, line=line, expected="an object per line") from None
    if not isinstance(value, dict):
        raise DataError(f"{str(value)[:40]!r}", path=path, line=line, expected='an object such as {"text": "…"}')
    return value


def read_json(path: Path, encoding: str) -> Source:
    """Read an array of objects, some of them at a time, or one object; it may hold the array as its only list."""
    if read_head(path, _HEAD_BYTES).decode(encoding, "ignore").lstrip("\ufeff \t\r\n").startswith("["):
        return Source("JSON", None, _json_entries(path, _array_entries(path, encoding)), "entry")
    content = "\n".join(text for _, text in numbered_lines(path, encoding))
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _not_json(error, path, getattr(error, "lineno", None)) from None
    if isinstance(value, dict):
        lists = [part for part in value.values() if isinstance(part, list) and part and isinstance(part[0], dict)]
        value = lists[0] if len(lists) == 1 else _by_rows(value)
    return Source("JSON", None, _json_entries(path, value), "entry")


def _by_rows(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table that pandas wrote column by column, {"text": {"0": …}, …}; or else the one object.

    Rows have numbers there; other keys, such as those of languages, are parts of the object.
    """
    columns = list(value.values())
    keys = list(columns[0]) if columns and isinstance(columns[0], dict) else []
    are_rows = keys and all(key.isdecimal() for key in keys)
    if not are_rows or not all(isinstance(one, dict) and one.keys() == columns[0].keys() for one in columns):
        return [value]
    return [{name: column[key] for name, column in value.items()} for key in keys]


def _json_entries(path: Path, entries: Iterable[Any]) -> Iterator[Record]:
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise DataError(f"entry {number} is {str(entry)[:40]!r}", path=path, expected="an object")
        yield number, entry


def _not_json(error: Exception, path: Path, line: int | None) -> DataError:
    reason = getattr(error, "msg", str(error)).removesuffix(" at")
    return DataError(f"not JSON ({reason})", path=path, line=line, expected="an array of objects")


def _array_entries(path: Path, encoding: str) -> Iterator[Any]:
    """Yield the entries of an array; the text is read on where an entry is not complete yet."""
    decode = json.JSONDecoder().raw_decode
    with open_text(path, encoding) as file:
        chunks = _chunks(path, file)
        line, text = next(chunks)
        at, before = text.index("[") + 1, _BLANK
        while not (end := _END.match(text, at)):
            try:
                if (start := before.match(text, at)) is None:
                    raise json.JSONDecodeError("Expecting ',' delimiter", text, _BLANK.match(text, at).end())  # type: ignore[union-attr]
                entry, at = decode(text, start.end())
            except (ValueError, RecursionError) as error:
                place = getattr(error, "pos", 0)
                is_cut = place + _LONGEST_SIGN > len(text) or str(error).startswith("Unterminated")
                more = next(chunks, (0, ""))[1] if is_cut else ""
                if not more:
                    raise _not_json(error, path, line + text.count("\n", 0, place)) from None
                line, text, at = line + text.count("\n", 0, at), text[at:] + more, 0
                continue
            yield entry
            before = _COMMA
        if (text[end.end() :] + next(chunks, (0, ""))[1]).strip():
            raise _not_json(ValueError("Extra data"), path, line + text.count("\n", 0, end.end()))


def _chunks(path: Path, file: IO[str]) -> Iterator[tuple[int, str]]:
    """Yield parts of a text, each with the number of the line that it begins in."""

    def numbered() -> Iterator[tuple[int, str]]:
        line = 1
        while chunk := file.read(_CHUNK):
            yield line, chunk
            line += chunk.count("\n")

    return located(path, numbered())


def read_parquet(path: Path) -> Source:
    """Read a Parquet file, some rows at a time."""
    try:
        from pyarrow import parquet
    except ImportError:
        fix = "Install it with `pip install labelfield[parquet]`, or save the table as CSV or JSON lines."
        raise DataError("Parquet needs the package pyarrow", path=path, fix=fix) from None
    copy = _unpacked(path)
    try:
        file = parquet.ParquetFile(copy or path)
        names = list(file.schema_arrow.names)
    except Exception as error:  # pyarrow raises what it likes
        if copy is not None:
            copy.close()
        raise DataError(f"not a whole Parquet file ({_first_line(error)})", path=path) from None

    def records() -> Iterator[Record]:
        number = 0
        try:
            for batch in file.iter_batches(1024):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        except Exception as error:  # pyarrow raises what it likes
            raise DataError(f"damaged ({_first_line(error)})", path=path, line=number + 1) from None
        finally:
            if copy is not None:
                copy.close()

    return Source("Parquet", names, records(), "row")


def _unpacked(path: Path) -> IO[bytes] | None:
    """Return a temporary copy of a compressed file, which can be read from its end, as Parquet is; else None."""
    with open(path, "rb") as raw:
        if raw.read(len(PARQUET)) == PARQUET:
            return None
    copy: IO[bytes] = tempfile.TemporaryFile(dir=scratch_folder())  # noqa: SIM115  # open as long as it is read
    try:
        with open_bytes(path) as file:
            shutil.copyfileobj(file, copy)
    except DAMAGE as error:
        copy.close()
        raise DataError(
            f"the compressed file is truncated or damaged ({error})",
            path=path,
            expected="a complete file",
            fix="Fetch or compress it again.",
        ) from None
    return copy


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


# Lines


def read_fasttext(path: Path, encoding: str) -> Source:
    """Read lines of `__label__a __label__b text`; as in fastText, labels may stand anywhere, and blanks are alike."""

    def records() -> Iterator[Record]:
        for line, text in numbered_lines(path, encoding):
            words = text.split()
            labels = [word.removeprefix(_FASTTEXT) for word in words if word.startswith(_FASTTEXT)]
            rest = [word for word in words if not word.startswith(_FASTTEXT)]
            if words:
                yield line, {TEXT: " ".join(rest), LABELS: labels}

    return Source("fastText", [TEXT, LABELS], records())


def read_annif_tsv(path: Path, encoding: str) -> Source:
    """Read lines of text, a tab, and `<uri> <uri>`."""

    def records() -> Iterator[Record]:
        for line, content in numbered_lines(path, encoding):
            if not content.strip():
                continue
            text, tab, uris = content.rpartition("\t")
            if not tab:
                text, uris = content, ""
            elif uris.strip() and not _URIS.fullmatch(uris.strip()):
                expected = "text, a tab, and subjects such as <http://…> <http://…>"
                raise DataError(f"subjects {uris[:40]!r}", path=path, line=line, expected=expected)
            yield line, {TEXT: text.replace("\t", " "), LABELS: uris.replace("<", " ").replace(">", " ").split()}

    return Source("Annif TSV", [TEXT, LABELS], records())


def read_pecos(path: Path, encoding: str) -> Source:
    """Read lines of label numbers, a tab, and text."""

    def records() -> Iterator[Record]:
        for line, content in numbered_lines(path, encoding):
            numbers, tab, text = content.partition("\t")
            if not content.strip():
                continue
            if not tab or (numbers.strip() and not _NUMBERS.fullmatch(numbers)):
                expected = "label numbers such as 0,3, a tab, and text"
                raise DataError(f"a line {content[:40]!r}", path=path, line=line, expected=expected)
            yield line, {TEXT: text, LABELS: [number.strip() for number in numbers.split(",") if number.strip()]}

    return Source("PECOS", [TEXT, LABELS], records())


def read_lines(path: Path, encoding: str) -> Source:
    """Read a document per line."""

    def records() -> Iterator[Record]:
        for line, text in numbered_lines(path, encoding):
            if text.strip():
                yield line, {TEXT: text}

    return Source("a document per line", [TEXT], records())


def read_folder(path: Path, encoding: str) -> Source:
    """Read a folder of Annif: x.txt with x.tsv (`<uri>` TAB label) or x.key (a label per line)."""

    def records() -> Iterator[Record]:
        for number, file in enumerate(sorted(path.glob("*.txt")), 1):
            text = "\n".join(text for _, text in numbered_lines(file, encoding))
            labels: list[Any] = []
            if (uris := file.with_suffix(".tsv")).exists():
                for line, content in numbered_lines(uris, encoding):
                    uri, _, name = content.partition("\t")
                    if content.strip() and not (uri.startswith("<") and uri.endswith(">")):
                        raise DataError(f"{uri[:40]!r}", path=uris, line=line, expected="<uri>, a tab, and a label")
                    labels += [{"uri": uri[1:-1], "label": name}] if content.strip() else []
            elif (names := file.with_suffix(".key")).exists():
                labels = [content.strip() for _, content in numbered_lines(names, encoding) if content.strip()]
            yield number, {ID: file.stem, TEXT: text, LABELS: labels}

    return Source("a folder of Annif", [ID, TEXT, LABELS], records(), "file")


def is_annif_line(line: str) -> bool:
    """Return whether a line is text, a tab, and URIs in angle brackets."""
    return bool("\t" in line and _URIS.fullmatch(line.rpartition("\t")[2].strip()))


def is_pecos_line(line: str) -> bool:
    """Return whether a line is label numbers, a tab, and text."""
    numbers, tab, text = line.partition("\t")
    return bool(tab and _NUMBERS.fullmatch(numbers) and any(c.isalpha() for c in text) and "\t" not in text)


def is_fasttext_line(line: str) -> bool:
    """Return whether a line begins with a label of fastText."""
    return line.startswith(_FASTTEXT)
