"""What commands show: results on stdout (tables, or JSON alone), messages and progress on stderr."""

from __future__ import annotations

import json
import math
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["Bar", "print_json", "print_table", "say", "shown"]

_PATIENCE_S = 1.0


def print_json(content: dict[str, Any]) -> None:
    """JSON on stdout; numbers that JSON does not know (nan, inf) become null."""
    print(json.dumps(_plain(content), indent=2, allow_nan=False, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """A table on stdout: names to the left, numbers to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False)
    for i, column in enumerate(header):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def say(message: str) -> None:
    """A message on stderr."""
    print(message, file=sys.stderr)


def shown(value: Any) -> str:
    """A number as a person reads it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.4f}"
    return str(value)


class Bar:
    """A progress bar on stderr, shown if that is a terminal and the work takes longer than a second."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, done: int, total: int) -> None:
        if self.bar is None:
            if time.monotonic() - self.started < _PATIENCE_S or not sys.stderr.isatty():
                return
            console = Console(stderr=True)
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
            self.bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self.task = self.bar.add_task(self.title, total=total)
            self.bar.start()
        if self.task is not None:
            self.bar.update(self.task, completed=done, total=total)
