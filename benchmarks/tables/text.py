"""How tables show scores, machines and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labelfield.cli.output import are_numbers

__all__ = ["digits", "machine_shown", "markdown_table", "triple", "value_shown"]

_PERCENT = ("P@", "PSP@", "nDCG@", "PSnDCG@", "R@", "ECE@", "error rate %")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table with names on the left and numbers on the right. A `|` in a cell is escaped."""
    sides = ["--:" if is_number else "---" for is_number in are_numbers(rows)] or ["---"] * len(header)
    lines = [[cell.replace("|", "\\|") for cell in line] for line in [header, sides, *rows]]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def digits(score: str) -> int:
    """Return how many digits of a score are shown after the point."""
    if score.startswith(_PERCENT) or score == "value":
        return 2
    return 3 if score in ("bound", "elbo") else 4


def value_shown(score: str, value: float) -> str:
    """Show a value of a score."""
    if "seconds" in score:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:.{digits(score)}f}"


def triple(scores: Mapping[str, Any], name: str, ks: Sequence[int] = (1, 3, 5)) -> str:
    """Show a score at each k, or nothing where it was not measured."""
    if f"{name}@{ks[0]}" not in scores:
        return ""
    return " / ".join(f"{scores[f'{name}@{k}']:.1f}" for k in ks)


def machine_shown(machine: Mapping[str, Any]) -> str:
    """Show the CPU, cores and memory of a machine."""
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB"
