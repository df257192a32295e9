"""YAML files read so that whatever is wrong can be told with its line."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from labelfield.errors import DataError

__all__ = ["YamlFile"]

# Keys from the top down; an entry of a list goes by its number. Keys need not be words: `10: …` is one too.
Where = Sequence[Any]
_MERGE = "tag:yaml.org,2002:merge"  # `<<`, a key that stands for others and is no value of its own


@dataclass(frozen=True)
class YamlFile:
    """The content of a file, and on which line each of its keys stands.

    What looks at a value gives it back where it is what it should be; all else is a DataError with its line.
    """

    path: Path
    content: dict[Any, Any]
    lines: dict[tuple[str, ...], int]

    @classmethod
    def read(cls, path: Path) -> YamlFile:
        """A mapping; anything else is a DataError."""
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DataError("no text in UTF-8", path=path, fix="Save it as UTF-8.") from None
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
            raise DataError(f"no YAML ({problem})", path=path, line=at, fix="Correct the line.") from None
        if not isinstance(content, dict):
            raise DataError("no mapping", path=path, expected="lines such as `title: …`", fix="See recipes/.")
        return cls(path, content, dict(_lines(tree, ())))

    def error(self, where: Where, found: str, expected: str, fix: str | None = None) -> DataError:
        """What is wrong with a key, and on which line; of one that is missing on that of what it should be in."""
        names = tuple(map(str, where))
        places = (names[:depth] for depth in range(len(names), -1, -1))
        line = next((self.lines[place] for place in places if place in self.lines), None)
        name = ": ".join(names)
        return DataError(f"{name}: {found}" if name else found, path=self.path, line=line, expected=expected, fix=fix)

    def check_keys(self, where: Where, found: Any, allowed: Collection[str]) -> None:
        """Refuse anything but a mapping of known words."""
        if not isinstance(found, dict):
            raise self.error(where, f"{found!r}", f"keys of {', '.join(sorted(allowed))}")
        for key in found:
            if key not in allowed:
                raise self.error((*where, key), "an unknown key", f"one of {', '.join(sorted(allowed))}")

    def text(self, where: Where, found: Any, expected: str = "a word or a sentence") -> str:
        """Words."""
        if not isinstance(found, str):
            raise self.error(where, f"{found!r}", expected)
        return found

    def words(self, where: Where, found: Any, expected: str = "a list of words") -> tuple[str, ...]:
        """A list of words, which may be empty."""
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise self.error(where, f"{found!r}", expected)
        return tuple(found)

    def mapping(self, where: Where, found: Any, expected: str = "a mapping such as {name: value}") -> dict[Any, Any]:
        """Names and what they stand for."""
        if not isinstance(found, dict):
            raise self.error(where, f"{found!r}", expected)
        return found

    def number(self, where: Where, found: Any) -> float:
        """A finite one."""
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise self.error(where, f"{found!r}", "a number")
        return found

    def count(self, where: Where, found: Any) -> int:
        """How many, at least one."""
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise self.error(where, f"{found!r}", "a whole number from 1 on")
        return found

    def truth(self, where: Where, found: Any, expected: str = "true or false") -> bool:
        """Yes or no."""
        if not isinstance(found, bool):
            raise self.error(where, f"{found!r}", expected)
        return found


def _problems(
    loader: Any, node: Any, where: tuple[str, ...], above: tuple[Any, ...]
) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """What YAML would let pass, or end at without its line: where and on which line it stands, and what it is."""
    if isinstance(node, yaml.ScalarNode):
        try:
            if node.tag != _MERGE:
                loader.construct_object(node)
        except (AttributeError, LookupError, OverflowError, ValueError):  # such as a day of the 13th month
            yield where, node.start_mark.line + 1, f"{node.value!r} is no {node.tag.rpartition(':')[2]}"
        return
    above, seen = (*above, node), set()
    for name, line, parts in _parts(node):
        inside = (*where, name)
        if name in seen:  # YAML would keep the last alone
            yield inside, line, "a key that was there before"
        seen.add(name)
        for part in parts:
            if part in above:
                yield inside, line, "an alias of what it stands in"
            else:
                yield from _problems(loader, part, inside, above)


def _lines(node: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Where each key below a node stands."""
    if not where:
        yield where, node.start_mark.line + 1
    for name, line, parts in _parts(node):
        yield (*where, name), line
        yield from _lines(parts[-1], (*where, name))


def _parts(node: Any) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
    """Each entry of a mapping or a list: its name, its line, and its nodes, of which the last is the value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            # A key that is no scalar is no key of ours; YAML refuses it with its line.
            yield str(key.value), key.start_mark.line + 1, (key, value)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            # An alias has the place of what it stands for, which is above the list.
            yield str(number), max(node.start_mark.line, value.start_mark.line) + 1, (value,)
