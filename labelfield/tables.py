"""Tables of text: which columns hold numbers, and how to write a table in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["are_numbers", "markdown_table"]

# A number, perhaps in bold, or the dash that stands for a missing one.
_NUMBER = re.compile(r"\**(?:[-+−±<~]?\d|–)")


def are_numbers(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether most of its filled cells are numbers; the first column holds names."""
    return [number > 0 and _mostly_numbers(column) for number, column in enumerate(zip(*rows, strict=True))]


def _mostly_numbers(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return 2 * sum(bool(_NUMBER.match(cell)) for cell in filled) > len(filled)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown, with numbers aligned to the right and every `|` in a cell escaped."""
    sides = ["--:" if is_number else "---" for is_number in are_numbers(rows)] or ["---"] * len(header)
    lines = [[cell.replace("|", "\\|") for cell in line] for line in [header, sides, *rows]]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
