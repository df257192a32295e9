"""Names of labels and features: one per line in a text file, read when first needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import overload

from labelfield.errors import DataError


class Names(Sequence[str]):
    """An immutable list of names, in memory or still in its file. Equal to any sequence of the same strings."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: tuple[str, ...] | None = tuple(names)
        self._path: Path | None = None
        self._length = len(self._names)
        for i, name in enumerate(self._names):
            if not isinstance(name, str) or "\n" in name or "\r" in name or "\0" in name:
                raise DataError(f"name {i} is {name!r}", "a string without line breaks", "Rename it.")
            try:
                name.encode()
            except UnicodeEncodeError:
                raise DataError(f"name {i} is {name!r}", "valid Unicode", "Rename it.") from None

    @classmethod
    def from_bytes(cls, content: bytes) -> Names:
        """Return the names whose `to_bytes` gave these contents."""
        return cls(_lines(content))

    @classmethod
    def in_file(cls, path: Path, length: int | None = None) -> Names:
        """Return the lines of a UTF-8 file. If `length` is given, the file is not read before a name is needed."""
        names = cls(())
        names._names, names._path = None, path
        names._length = len(names._load()) if length is None else length
        return names

    def _load(self) -> tuple[str, ...]:
        if self._names is None:
            assert self._path is not None
            try:
                self._names = _lines(self._path.read_bytes())
            except OSError as error:
                raise DataError(f"cannot be read ({error.strerror})", path=self._path, fix="Check the file.") from None
            except UnicodeDecodeError as error:
                line = error.object.count(b"\n", 0, error.start) + 1
                raise DataError("not UTF-8 text", path=self._path, line=line, fix="Save it as UTF-8.") from None
        return self._names

    def require(self, length: int, what: str) -> None:
        """Raise a DataError unless there are `length` names."""
        if len(self) != length:
            expected = "one name per line for each index, starting with 0"
            fix = "Correct the list, or remove it to go without names."
            raise DataError(f"{len(self)} {what} names for {length} {what}s", expected, fix, path=self._path)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        names = self._load()
        if len(names) != self._length:
            found = f"{len(names)} names where {self._length} were recorded"
            raise DataError(found, path=self._path, fix="The folder was changed by hand; write it again.")
        return names[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str):
            return len(self) == len(other) and self[:] == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self[:])

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3])) + (", …" if len(self) > 3 else "")
        return f"Names([{shown}], length={len(self)})"

    def digest(self) -> str:
        """Return a fingerprint of all names in their order."""
        return sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the contents of a file that reads back as these names."""
        text = "".join(f"{name}\n" for name in self)
        # Reading drops one byte-order mark, so a first name that begins with that very character needs another.
        return ("\ufeff" + text if text.startswith("\ufeff") else text).encode()


def _lines(content: bytes) -> tuple[str, ...]:
    text = content.removeprefix(b"\xef\xbb\xbf").decode()
    return tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")) if text else ()
