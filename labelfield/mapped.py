"""Arrays in files, which take memory only while they are read: those of a data set, and what is computed from them.

The system reads pages of a mapped file when they are touched, and may drop them at any time. Whoever reads a mapped
array from end to end goes through it in `pieces`, which drop their pages at once, so that memory does not grow with the
file.
"""

import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from labelfield.errors import DataError

# Entries that are read at a time: long enough for a disk, and few in memory.
PIECE = 1 << 22


def map_of(array: NDArray[Any]) -> np.memmap[Any, Any] | None:
    """Return the mapped file that an array lies in, None for an array in memory."""
    found: Any = array
    while isinstance(found, np.ndarray) and not isinstance(found.base, mmap.mmap):
        found = found.base
    return found if isinstance(found, np.memmap) else None


def advise(array: NDArray[Any], advice: str, first: int = 0, last: int | None = None) -> None:
    """Tell the system how entries of an array will be read, if it is mapped and the system accepts such hints."""
    if (mapped := map_of(array)) is None or not hasattr(mmap, advice) or not array.size:
        return
    last = array.size if last is None else last
    before = array.ctypes.data - mapped.ctypes.data + mapped.offset % mmap.ALLOCATIONGRANULARITY
    start = (before + first * array.itemsize) // mmap.PAGESIZE * mmap.PAGESIZE
    length = before + last * array.itemsize - start
    if length > 0:
        mapped._mmap.madvise(getattr(mmap, advice), start, length)  # type: ignore[attr-defined]  # no public name


def pieces(*arrays: NDArray[Any], size: int | None = None) -> Iterator[slice]:
    """Yield slices of arrays of one length, one after another; mapped arrays forget each when the next is asked for."""
    step = size or PIECE
    for first in range(0, arrays[0].size, step):
        last = min(first + step, arrays[0].size)
        for array in arrays:
            advise(array, "MADV_WILLNEED", first, last)
        yield slice(first, last)
        for array in arrays:
            advise(array, "MADV_DONTNEED", first, last)


def folder_for(array: NDArray[Any]) -> Path | None:
    """Return where to keep what is as long as an array: nowhere but in memory, unless that is mapped."""
    return None if map_of(array) is None else scratch_folder()


def scratch_folder() -> Path:
    """Return where to keep arrays that are too long for memory.

    TMPDIR says where. By default it is /var/tmp, since many systems keep /tmp in memory.
    """
    is_told = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return Path(tempfile.gettempdir() if is_told or not os.access("/var/tmp", os.W_OK) else "/var/tmp")  # noqa: S108


def room_in_file(n: int, kind: type[Any], folder: Path | None) -> NDArray[Any]:
    """Return an empty array (n,) that lies in a file without a name, in this folder or where temporary files are."""
    size = n * np.dtype(kind).itemsize
    if not size:
        return np.empty(0, kind)
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            if hasattr(os, "posix_fallocate"):  # else a full disk would end the process without a word
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            fix = f"Free {size / 2**20:,.0f} MiB there, then go on with --resume."
            raise DataError(f"no room for arrays ({error.strerror})", path=folder, fix=fix) from None
        return np.memmap(file, kind, "r+", shape=(n,))


class Growing:
    """An array that grows at its end: in memory, or in a file of a folder, which has no name and ends with the array.

    With a folder, up to `in_memory` entries are in memory; once there are more, all of them are in the file. A large
    array in memory grows by moving pages, not bytes, which keeps peak memory low.
    """

    def __init__(
        self, dtype: type[np.generic], folder: Path | None = None, capacity: int = 1 << 16, *, in_memory: int = 0
    ) -> None:
        self.file: IO[bytes] | None = None  # first: `__del__` also sees an array for which there was no memory
        self.folder, self.size, self.in_memory = folder, 0, in_memory
        self.array: NDArray[Any] = np.empty(0 if folder and not in_memory else capacity, dtype)
        if folder is not None and not in_memory:
            self._open()

    def _open(self) -> None:
        # Not buffered, so that a full disk is told where something is written.
        self.file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115  # open until `finish`

    def __del__(self) -> None:
        """Close the file of an array that was not finished, because what was to be read was not readable."""
        if self.file is not None:
            self.file.close()

    def extend(self, more: NDArray[Any]) -> None:
        end = self.size + more.size
        if self.file is None and self.folder is not None and end > self.in_memory:
            self._open()
            self._write(self.array[: self.size])
            self.array = np.empty(0, self.array.dtype)
        if self.file is not None:
            self._write(np.ascontiguousarray(more, self.array.dtype).ravel())
        else:
            if end > self.array.size:
                self.array.resize(max(end, self.array.size * 5 // 4), refcheck=False)
            self.array[self.size : end] = more
        self.size = end

    def _write(self, more: NDArray[Any]) -> None:
        assert self.file is not None
        left = more.view(np.uint8).data
        try:
            while left:
                left = left[self.file.write(left) :]
        except OSError as error:
            fix = "Free some space there, or set TMPDIR if these are temporary files."
            raise DataError(f"no room for arrays ({error.strerror})", path=self.folder, fix=fix) from None

    def finish(self) -> NDArray[Any]:
        """Return the array; nothing can be added after that."""
        if self.file is None:
            self.array.resize(self.size, refcheck=False)
            return self.array
        with self.file:
            return np.memmap(self.file, self.array.dtype, "r+", shape=(self.size,)) if self.size else self.array
