"""What the first line of a CSV file tells: how many columns, what they are called, and which holds the classes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from labelfield.errors import DataError

__all__ = ["Columns", "columns_of", "is_number"]

# What a label column is called, the surest name first: beside a column `class`, `y` is a coordinate.
LABEL_NAMES = ("label", "class", "target", "y")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?[0-9]{1,9}")
_SHOWN = 8


@dataclass(frozen=True)
class Columns:
    """The columns of a table: how many, their names if there is a header, and which one is the label, if any."""

    n_columns: int
    label: int | None
    names: tuple[str, ...] | None

    @property
    def n_features(self) -> int:
        return self.n_columns - (self.label is not None)

    @property
    def feature_names(self) -> list[str]:
        return [name for i, name in enumerate(self.names or ()) if i != self.label]

    def called(self, column: int) -> str:
        """How an error names a column."""
        return f"column {column + 1}" if self.names is None else f"column {self.names[column]!r}"


def is_number(text: str) -> bool:
    """Whether a cell is a number; nan and inf are none here."""
    return _NUMBER.fullmatch(text.strip()) is not None


def columns_of(
    cells: list[str], path: Path, line: int, label_column: str | int | None, bare_width: int | None
) -> Columns:
    """The columns that the first line tells of. It is a header if no cell but the label's is a number.

    The label is `label_column`, a name or a number from 0; else the column of a usual name; else the last one, but none
    in a table of `bare_width` columns.
    """
    names = tuple(cell.strip() for cell in cells)
    lower = [name.lower() for name in names]
    usual = next((lower.index(name) for name in LABEL_NAMES if name in lower), None)
    last = None if len(names) == bare_width else len(names) - 1
    if label_column is not None:
        label: int | None = _chosen(label_column, names, path, line)
        is_header = isinstance(label_column, str) and label_column in names
    else:
        label, is_header = last if usual is None else usual, False
    is_header = is_header or not any(_is_value(name) for i, name in enumerate(names) if i != label)
    if not is_header and label_column is None and usual is not None:
        if lower[usual] != "y":  # which is a class of its own in many tables
            raise DataError(
                f"the first line has numbers, and {names[usual]!r} like a header",
                path=path,
                line=line,
                expected="a header with names for all columns, or none",
                fix=f"Name the columns, or say --label-column {names[usual]} for a header, {usual} for a row of data.",
            )
        label = last
    if len(names) - (label is not None) < 1:
        raise DataError(
            "one column",
            path=path,
            line=line,
            expected="a label and at least one feature",
            fix="Separate columns by commas.",
        )
    if is_header and len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataError(
            f"two columns are called {twice!r}", path=path, line=line, expected="different names", fix="Rename one."
        )
    return Columns(len(names), label, names if is_header else None)


def _is_value(text: str) -> bool:
    """Whether a cell of the first line is data: a number of any kind."""
    return is_number(text) or text.strip("+-").lower() in ("nan", "inf", "infinity")


def _chosen(label_column: str | int, names: tuple[str, ...], path: Path, line: int) -> int:
    """The column of this name, or else of this number from 0, or from -1 for the last one backwards."""
    n = len(names)
    if isinstance(label_column, str) and label_column in names:
        return names.index(label_column)
    if isinstance(label_column, int) or _INTEGER.fullmatch(label_column):
        number = int(label_column)
        if -n <= number < n:
            return number % n
    shown = ", ".join(names[:_SHOWN]) + (", …" if n > _SHOWN else "")
    raise DataError(
        f"there is no column {label_column!r}",
        path=path,
        line=line,
        expected=f"one of {shown}, or a number from 0 to {n - 1}",
        fix="Correct --label-column.",
    )
