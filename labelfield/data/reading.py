"""Parts that all formats share: bytes in blocks of lines, options and results, numbers in text."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np

from labelfield.csr import assemble
from labelfield.data.dataset import Dataset
from labelfield.errors import DataError
from labelfield.progress import Progress, ignore

# Large enough to make NumPy's overhead per call negligible, small enough that the arrays of a block stay in cache.
BLOCK_BYTES = 1 << 19
# A few bytes may decompress to a line without an end.
MOST_LINE_BYTES = 1 << 28
_MAGIC: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_SUFFIX: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSED_SUFFIXES = tuple(_SUFFIX)
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)  # gzip and bz2 report damage as an OSError
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading; its contents, not its name, tell how it is compressed."""
    if path.exists() and not path.is_file() and not path.is_dir():  # a device never ends
        raise DataError("not a regular file", path=path, fix="Copy it to a file.")
    try:
        with open(path, "rb") as file:
            head = file.read(6)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        found = "there is no such file" if is_missing else f"cannot be read ({error.strerror})"
        raise DataError(found, path=path, fix="Check the path.") from None
    for magic, opener in _MAGIC.items():
        if head.startswith(magic):
            return cast("IO[bytes]", opener(path, "rb"))
    return open(path, "rb")


@contextmanager
def open_for_writing(path: Path, name: str) -> Iterator[IO[bytes]]:
    """Open `path` for writing, compressed as the suffix of `name` says."""
    suffix = Path(name).suffix
    with open(path, "wb") as plain:
        packed: Any = plain
        if suffix == ".gz":  # without name and time in the header, the same data give the same bytes
            packed = gzip.GzipFile("", "wb", 6, plain, mtime=0)
        elif suffix in _SUFFIX:
            packed = _SUFFIX[suffix](plain, "wb")
        with packed:
            yield packed


def _damaged(path: Path, line: int | None, error: BaseException) -> DataError:
    found = f"the compressed file is truncated or damaged ({error})"
    return DataError(found, path=path, line=line, expected="a complete file", fix="Fetch or compress it again.")


def read_bytes(path: Path) -> bytes:
    """Return the whole contents of a small file."""
    try:
        with open_bytes(path) as file:
            return file.read()
    except DAMAGE as error:
        raise _damaged(path, None, error) from error


def stem(path: Path) -> str:
    """Return the name without the suffixes of compression and format."""
    name = path.name
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return Path(name).stem


def line_blocks(path: Path, progress: Progress = ignore) -> closing[Generator[bytes, None, None]]:
    """Return a context with an iterator over blocks of whole lines, each ending in a newline.

    While a block is parsed, a second thread decompresses the next one, until the context is left.
    """
    return closing(_iter_blocks(path, progress))


def _iter_blocks(path: Path, progress: Progress) -> Generator[bytes, None, None]:
    size = path.stat().st_size if path.exists() else 0
    lines = 1
    with open_bytes(path) as file, ThreadPoolExecutor(1) as ahead:
        raw = getattr(file, "fileobj", None) or getattr(file, "_fp", None) or file
        try:
            pending = ahead.submit(file.read, BLOCK_BYTES)
            rest, n_rest, is_first = list[bytes](), 0, True
            while block := pending.result():
                pending = ahead.submit(file.read, BLOCK_BYTES)
                if is_first:
                    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
                        raise DataError("the text is UTF-16", "UTF-8", "Save it as UTF-8.", path=path, line=1)
                    block, is_first = block.removeprefix(b"\xef\xbb\xbf"), False
                cut = block.rfind(b"\n") + 1
                if cut == 0:
                    rest.append(block)
                    n_rest += len(block)
                    if n_rest > MOST_LINE_BYTES:
                        found = f"a line of more than {MOST_LINE_BYTES >> 20} MB"
                        raise DataError(found, "rows on lines", "Check where it came from.", path=path, line=lines)
                    continue
                whole = b"".join([*rest, block[:cut]])
                rest, n_rest = [block[cut:]], len(block) - cut
                yield whole
                lines += whole.count(b"\n")
                progress(min(raw.tell(), size), size)
        except DAMAGE as error:
            raise _damaged(path, lines, error) from error
        if n_rest:
            yield b"".join([*rest, b"\n"])
        progress(size, size)


class Options(NamedTuple):
    """The options of `labelfield.read`, where they are explained."""

    one_based: bool | None
    one_based_labels: bool
    n_features: int
    n_labels: int
    classes: bool
    unlabelled: bool
    label_column: str | int | None
    progress: Progress
    scratch: Path | None


class FileContents(NamedTuple):
    """The contents of one file: a whole data set, or one of its splits.

    Not every file states its widths; without `is_stated` they are those of the largest indices that occur. svmlight
    does not say whether it counts from 0 or 1: `seems_one_based` if no feature 0 occurs, which the other split may
    refute. If the file `holds_names`, lists of names beside it are not used. If it `has_classes`, each row has one
    class, and there is a column for each class that occurs; the other split may have different ones. If every line is
    a row, `first_line` is the line of row 0.
    """

    dataset: Dataset
    is_stated: bool
    seems_one_based: bool = False
    holds_names: bool = False
    has_classes: bool = False
    first_line: int | None = None
    path: Path | None = None

    def with_parts(self, **parts: Any) -> FileContents:
        """Return the same contents with other parts of the data set."""
        return self._replace(dataset=self.dataset.with_parts(**parts))

    def from_zero(self) -> FileContents:
        """Return the same contents with every feature index reduced by 1, in place: the reader made them for this."""
        X, width = self.dataset.X, max(self.dataset.n_features - 1, 0)
        X.indices -= np.int32(1)
        return self.with_parts(X=assemble(X.data, X.indices, X.indptr, (X.shape[0], width)))

    def widen(self, n_features: int, n_labels: int) -> FileContents:
        """Return the same contents with at least this many columns, unless the file states its widths."""
        X, Y = self.dataset.X, self.dataset.Y
        if self.is_stated or (X.shape[1] >= n_features and Y.shape[1] >= n_labels):
            return self
        X, Y = (
            assemble(part.data, part.indices, part.indptr, (part.shape[0], max(part.shape[1], width)))
            for part, width in ((X, n_features), (Y, n_labels))
        )
        return self.with_parts(X=X, Y=Y)


def no_data(found: str) -> DataError:
    """Return the error for a file without rows."""
    return DataError(found, "rows of data", "Check where the file came from.")


def parse_number(text: str, dtype: type[np.floating[Any]] = np.float32) -> float | None:
    """Return a number rounded to a type, infinite if it is too large; None for any other text, also for nan and inf."""
    if not _NUMBER.fullmatch(text):
        return None
    with np.errstate(over="ignore"):
        return float(dtype(float(text)))


def is_not_finite(text: str) -> bool:
    """Return whether a text means nan or infinity."""
    return text.strip("+-").lower() in ("nan", "inf", "infinity")
