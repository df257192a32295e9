"""YAML files, read so that every mistake can be reported with its line."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from labelfield.errors import DataError, LabelfieldError

__all__ = ["YamlFile", "find_file"]

# Keys from the top down; an entry of a list goes by its number. Keys need not be words: `10: …` is one too.
Where = Sequence[Any]
_MERGE = "tag:yaml.org,2002:merge"  # `<<`, a key that stands for others and has no value of its own


def find_file(name: str | Path, folder: Path, what: str, listing: str) -> Path:
    """Return a file of a folder by its name, or any YAML file by its path."""
    path, own = Path(name), folder / f"{name}.yaml"
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path
    if own.parent != folder or not own.is_file():
        raise LabelfieldError(
            f"no {what} {str(name)!r}; `python -m benchmarks {listing}` shows them, or give the path of a .yaml file"
        )
    return own


@dataclass(frozen=True)
class YamlFile:
    """The content of a file, and the line of each of its keys.

    Methods that check a value return it if it is what it should be, and else raise a DataError with its line.
    """

    path: Path
    content: dict[Any, Any]
    lines: dict[tuple[str, ...], int]

    @classmethod
    def read(cls, path: Path) -> YamlFile:
        """Read a file that holds a mapping."""
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DataError("not text in UTF-8", path=path, fix="Save it as UTF-8.") from None
        try:
            # The loader in C, where PyYAML was built with it, is ten times as fast. A safe one makes plain values only.
            loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
            tree = loader.get_single_node()
            for where, line, problem in _problems(loader, tree, (), ()):
                raise DataError(f"{': '.join(where)}: {problem}", path=path, line=line, fix="Correct the line.")
            content = None if tree is None else loader.construct_document(tree)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            at = None if mark is None else mark.line + 1
            problem = getattr(error, "problem", None) or str(error).splitlines()[0]
            raise DataError(f"not YAML ({problem})", path=path, line=at, fix="Correct the line.") from None
        if not isinstance(content, dict):
            raise DataError("not a mapping", path=path, expected="lines such as `title: …`", fix="See recipes/.")
        return cls(path, content, dict(_lines(tree, ())))

    def error(self, where: Where, found: str, expected: str) -> DataError:
        """Return an error about a key with its line, or if the key is missing with the line of what should hold it."""
        names = tuple(map(str, where))
        places = (names[:depth] for depth in range(len(names), -1, -1))
        line = next((self.lines[place] for place in places if place in self.lines), None)
        name = ": ".join(names)
        return DataError(f"{name}: {found}" if name else found, path=self.path, line=line, expected=expected)

    def check_keys(self, where: Where, found: Any, allowed: Collection[str]) -> None:
        """Check that a value is a mapping with known keys."""
        if not isinstance(found, dict):
            raise self.error(where, f"{found!r}", f"keys of {', '.join(sorted(allowed))}")
        for key in found:
            if key not in allowed:
                raise self.error((*where, key), "unknown key", f"one of {', '.join(sorted(allowed))}")

    def text(self, where: Where, found: Any, expected: str = "a word or a sentence") -> str:
        """Check that a value is text."""
        if not isinstance(found, str):
            raise self.error(where, f"{found!r}", expected)
        return found

    def words(self, where: Where, found: Any, expected: str = "a list of words") -> tuple[str, ...]:
        """Check that a value is a list of words, which may be empty."""
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise self.error(where, f"{found!r}", expected)
        return tuple(found)

    def mapping(self, where: Where, found: Any, expected: str = "a mapping such as {name: value}") -> dict[Any, Any]:
        """Check that a value is a mapping."""
        if not isinstance(found, dict):
            raise self.error(where, f"{found!r}", expected)
        return found

    def number(self, where: Where, found: Any) -> float:
        """Check that a value is a finite number."""
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise self.error(where, f"{found!r}", "a number")
        return found

    def count(self, where: Where, found: Any) -> int:
        """Check that a value is a whole number from 1 on."""
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise self.error(where, f"{found!r}", "a whole number from 1 on")
        return found

    def truth(self, where: Where, found: Any, expected: str = "true or false") -> bool:
        """Check that a value is true or false."""
        if not isinstance(found, bool):
            raise self.error(where, f"{found!r}", expected)
        return found


def _problems(
    loader: Any, node: Any, where: tuple[str, ...], above: tuple[Any, ...]
) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """Find what YAML would accept, or refuse without a line: yield the place, the line, and what is wrong."""
    if isinstance(node, yaml.ScalarNode):
        try:
            if node.tag != _MERGE:
                loader.construct_object(node)
        except (AttributeError, LookupError, OverflowError, ValueError):  # such as a day of the 13th month
            yield where, node.start_mark.line + 1, f"{node.value!r} is not a {node.tag.rpartition(':')[2]}"
        return
    above, seen = (*above, node), set()
    for name, line, parts in _parts(node):
        inside = (*where, name)
        if name in seen:  # YAML would keep the last alone
            yield inside, line, "a duplicate key"
        seen.add(name)
        for part in parts:
            if part in above:
                yield inside, line, "an alias of what contains it"
            else:
                yield from _problems(loader, part, inside, above)


def _lines(node: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Find the line of each key below a node."""
    if not where:
        yield where, node.start_mark.line + 1
    for name, line, parts in _parts(node):
        yield (*where, name), line
        yield from _lines(parts[-1], (*where, name))


def _parts(node: Any) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
    """Yield each entry of a mapping or a list: its name, its line, and its nodes, the value last."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            # YAML itself refuses a key that is not a scalar, with its line.
            yield str(key.value), key.start_mark.line + 1, (key, value)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            # An alias has the place of what it stands for, which is above the list.
            yield str(number), max(node.start_mark.line, value.start_mark.line) + 1, (value,)
