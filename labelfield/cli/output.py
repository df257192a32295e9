"""Output of commands: results on stdout (tables, or JSON alone), messages and progress on stderr."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from threading import Timer
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from labelfield.cluster import Cluster, joined

_PATIENCE_S = 1.0
_MOST_NAMED = 10
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Those that JSON leaves as they are.
_LATE_CONTROLS = re.compile(r"[\x7f-\x9f]")
# A number, perhaps bold, or the dash that stands for one.
_NUMBER = re.compile(r"\**(?:[-+−±<~]?\d|–)")


def printable(text: str) -> str:
    """Return a text without the control characters by which it could steer a terminal."""
    return _CONTROLS.sub("", text)


@contextmanager
def joined_quietly() -> Iterator[Cluster]:
    """Join the processes of a launcher; all but the first print nothing, except for an error in the end."""
    with joined() as cluster, ExitStack() as stack:
        if not cluster.is_first:
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield cluster


def counted(n: int, what: str) -> str:
    """Return a number of things in words: 1 document, 2 documents."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def print_json(content: dict[str, Any]) -> None:
    """Print JSON on stdout; numbers that JSON does not have (nan, inf) become null."""
    print(as_json_text(_plain(content), indent=2))


def as_json_text(content: Any, indent: int | None = None) -> str:
    """Return JSON as people read it, in which every character that could steer a terminal is escaped."""
    text = json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False)
    return _LATE_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print a table on stdout, with names on the left and numbers on the right."""
    table = Table(title=printable(title), title_justify="left", title_style="bold", show_edge=False)
    is_right = are_numbers(rows) or [False] * len(header)
    for i, column in enumerate(header):
        table.add_column(printable(column), justify="right" if is_right[i] else "left", no_wrap=i == 0)
    for row in rows:
        table.add_row(*map(printable, row))
    Console(highlight=False, markup=False).print(table)


def are_numbers(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether most of its cells are numbers; the first column never counts as numbers."""
    filled = [[cell for cell in column if cell] for column in zip(*rows, strict=True)]
    found = [2 * sum(bool(_NUMBER.match(cell)) for cell in cells) > len(cells) for cells in filled]
    return [False, *found[1:]] if found else []


def print_facts(title: str, facts: dict[str, Any], header: str = "") -> None:
    """Print a table of names and values."""
    print_table(title, [header, ""], [[name, shown(value)] for name, value in facts.items()])


def report_written(facts: dict[str, Any], started: float, as_json: bool, what: str, after: str = "") -> None:
    """Report what was written to facts["path"] and how long it took: as JSON, or in a line on stderr."""
    seconds = time.perf_counter() - started
    if as_json:
        print_json(facts | {"seconds": seconds})
    else:
        say(f"wrote {facts['path']}{what}, in {seconds:.1f} s{after}")


def say(message: str) -> None:
    """Print a message on stderr."""
    print(printable(message), file=sys.stderr)


def shown(value: Any) -> str:
    """Format a number for people to read."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.4f}"
    return str(value)


def named(numbers: Sequence[int], names: Sequence[str] | None) -> str:
    """Return what has these numbers in a list of names, or the numbers if there are no names; the first few of many."""
    shortened = [str(number) if names is None else names[number] for number in numbers[:_MOST_NAMED]]
    more = len(numbers) - len(shortened)
    return ", ".join(shortened) + (f" and {more} more" if more else "")


class Bar:
    """A progress bar on stderr, shown if that is a terminal and the work takes longer than a second.

    A call with (done, total) shows how far the work is; without any call, the bar only shows that it is running.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(title, total=None)
        self.timer = Timer(_PATIENCE_S, self.bar.start)
        self.timer.daemon = True

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            self.timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.timer.cancel()
        if self.timer.ident is not None:
            self.timer.join()
        if self.bar.live.is_started:
            self.bar.stop()

    def __call__(self, done: int, total: int) -> None:
        self.bar.update(self.task, completed=done, total=total)
