"""YAML files read so that whatever is wrong can be told with its line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from labelfield.errors import DataError

__all__ = ["YamlFile"]

Key = str | int


@dataclass(frozen=True)
class YamlFile:
    """The content of a file, and on which line each of its keys stands."""

    path: Path
    content: dict[str, Any]
    lines: dict[tuple[Key, ...], int]

    @classmethod
    def read(cls, path: Path) -> YamlFile:
        """A mapping of words; anything else is a DataError."""
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DataError("no text in UTF-8", path=path, fix="Save it as UTF-8.") from None
        try:
            tree, content = _parse(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = None if mark is None else mark.line + 1
            problem = getattr(error, "problem", None) or str(error).splitlines()[0]
            raise DataError(f"no YAML ({problem})", path=path, line=line, fix="Correct the line.") from None
        for where, line in _twice(tree, ()):  # of which YAML would keep the last alone
            raise DataError(f"{': '.join(where)}: a key that was there before", path=path, line=line, fix="Rename one.")
        if not isinstance(content, dict):
            raise DataError("no mapping", path=path, expected="lines such as `title: …`", fix="See recipes/.")
        return cls(path, content, dict(_lines(tree, ())))

    def error(self, where: Sequence[Key], found: str, expected: str, fix: str | None = None) -> DataError:
        """What is wrong with a key, and on which line; of one that is missing on that of what it should be in."""
        places = (tuple(where[:depth]) for depth in range(len(where), -1, -1))
        line = next((self.lines[place] for place in places if place in self.lines), None)
        name = ": ".join(map(str, where))
        return DataError(f"{name}: {found}" if name else found, path=self.path, line=line, expected=expected, fix=fix)

    def check_keys(self, where: Sequence[Key], found: Any, allowed: Collection[str]) -> None:
        """Refuse anything but a mapping of known words."""
        if not isinstance(found, dict):
            raise self.error(where, f"{found!r}", f"keys of {', '.join(sorted(allowed))}")
        for key in found:
            if key not in allowed:
                raise self.error((*where, key), "an unknown key", f"one of {', '.join(sorted(allowed))}")


def _parse(text: str) -> tuple[Any, Any]:
    """The tree of nodes and what they stand for, by the safe loader: plain values, no objects."""
    # The loader in C, where PyYAML was built with it, is ten times as fast.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        tree = loader.get_single_node()
        return tree, None if tree is None else loader.construct_document(tree)
    finally:
        loader.dispose()


def _twice(node: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Keys that stand more than once in the same mapping, each with the line of its second place."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            inside = (*where, str(key.value))
            if key.value in seen:
                yield inside, key.start_mark.line + 1
            if isinstance(key.value, str):
                seen.add(key.value)
            yield from _twice(value, inside)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _twice(value, (*where, str(number)))


def _lines(node: Any, where: tuple[Key, ...]) -> list[tuple[tuple[Key, ...], int]]:
    """Where each key of a tree of nodes stands."""
    found = [(where, node.start_mark.line + 1)]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inside = _lines(value, (*where, key.value))
            found += [(inside[0][0], key.start_mark.line + 1), *inside[1:]]
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            found += _lines(value, (*where, number))
    return found
