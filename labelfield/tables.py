"""Tables of text: which of their columns stand to the right, and how Markdown writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["are_numbers", "markdown_table"]

# A number, perhaps bold, or the dash that stands for one.
_NUMBER = re.compile(r"\**(?:[-+−±<~]?\d|–)")


def are_numbers(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Of each column whether it is to be read as numbers: most of what stands in it is, and it is not the first."""
    return [number > 0 and _mostly_numbers(column) for number, column in enumerate(zip(*rows, strict=True))]


def _mostly_numbers(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return 2 * sum(bool(_NUMBER.match(cell)) for cell in filled) > len(filled)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Names on the left, numbers on the right. What a cell says stays in it: a `|` there would begin another."""
    sides = ["--:" if is_number else "---" for is_number in are_numbers(rows)] or ["---"] * len(header)
    lines = [[cell.replace("|", "\\|") for cell in line] for line in [header, sides, *rows]]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
