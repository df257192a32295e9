"""The columns of a CSV file, from its first line: how many, their names, and which one holds the classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labelfield.data.numbers import INTEGER, is_not_finite, parse_number
from labelfield.errors import DataError

__all__ = ["Columns", "columns_of"]

# Usual names of a label column, the most certain first: beside a column `class`, `y` is a coordinate.
LABEL_NAMES = ("label", "class", "target", "y")
_SHOWN = 8


@dataclass(frozen=True)
class Columns:
    """The columns of a table: how many, which one is the label, if any, and their names if there is a header."""

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
        """Name a column in an error message."""
        return f"column {column + 1}" if self.names is None else f"column {self.names[column]!r}"


def columns_of(
    cells: list[str], path: Path, line: int, label_column: str | int | None, bare_width: int | None
) -> Columns:
    """Find the columns from the first line, which is a header if none of its cells, except the label's, is a number.

    The label is `label_column`, a name or a number from 0; otherwise the column with a usual name; otherwise the last
    column, except in a table of `bare_width` columns, which has no label.
    """
    names = tuple(cell.strip() for cell in cells)
    lower = [name.lower() for name in names]
    usual = next((lower.index(name) for name in LABEL_NAMES if name in lower), None)
    last = None if len(names) == bare_width else len(names) - 1
    if label_column is not None:
        label: int | None = _chosen(label_column, names, path, line)
    else:
        label = last if usual is None else usual
    is_header = isinstance(label_column, str) and label_column in names
    is_header = is_header or not any(_is_value(name) for i, name in enumerate(names) if i != label)
    if not is_header and label_column is None and usual is not None:
        if lower[usual] != "y":  # which is a class of its own in many tables
            fix = f"Name the columns, or pass --label-column {names[usual]} for a header, {usual} for a row of data."
            raise DataError(
                f"the first line contains numbers, and {names[usual]!r} like a header",
                path=path,
                line=line,
                expected="a header with names for all columns, or none",
                fix=fix,
            )
        label = last
    if len(names) - (label is not None) < 1:
        expected = "a label and at least one feature"
        raise DataError("one column", path=path, line=line, expected=expected, fix="Separate columns by commas.")
    if is_header and len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        found = f"two columns are called {twice!r}"
        raise DataError(found, path=path, line=line, expected="different names", fix="Rename one.")
    return Columns(len(names), label, names if is_header else None)


def _is_value(text: str) -> bool:
    """Return whether a cell of the first line is data: a number, nan or infinity."""
    return parse_number(text) is not None or is_not_finite(text)


def _chosen(label_column: str | int, names: tuple[str, ...], path: Path, line: int) -> int:
    """Return the column of this name or else of this number, counted from 0, or from -1 backwards."""
    n = len(names)
    if isinstance(label_column, str) and label_column in names:
        return names.index(label_column)
    if isinstance(label_column, int) or INTEGER.fullmatch(label_column):
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
