"""The bytes of plain or compressed files, in blocks of whole lines, decompressed one block ahead."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, cast

from labelfield.errors import DataError
from labelfield.progress import Progress, ignore

# Large enough to make NumPy's overhead per call negligible, small enough that the arrays of a block stay in cache.
BLOCK_BYTES = 1 << 19
_MAGIC: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_SUFFIX: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSED_SUFFIXES = tuple(_SUFFIX)
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)  # gzip and bz2 report damage as an OSError


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading; its contents, not its name, tell how it is compressed."""
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
        packed: Any
        if suffix == ".gz":
            # Without name and time in the header, the same data give the same bytes.
            packed = gzip.GzipFile("", "wb", 6, plain, mtime=0)
        else:
            packed = _SUFFIX[suffix](plain, "wb") if suffix in _SUFFIX else plain
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
    except _DAMAGE as error:
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
            rest, is_first = b"", True
            while block := pending.result():
                pending = ahead.submit(file.read, BLOCK_BYTES)
                if is_first:
                    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
                        raise DataError("the text is UTF-16", "UTF-8", "Save it as UTF-8.", path=path, line=1)
                    block, is_first = block.removeprefix(b"\xef\xbb\xbf"), False
                cut = block.rfind(b"\n") + 1
                if cut == 0:
                    rest += block
                    continue
                whole, rest = rest + block[:cut], block[cut:]
                yield whole
                lines += whole.count(b"\n")
                progress(min(raw.tell(), size), size)
        except _DAMAGE as error:
            raise _damaged(path, lines, error) from error
        if rest:
            yield rest + b"\n"
        progress(size, size)
