"""What every command does when it is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import current_thread, main_thread
from typing import Any

import typer

from labelfield.cli.output import say

__all__ = ["interruptible"]


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which would otherwise end the process before it has cleared its scratch folders away."""


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """The same command; SIGINT and SIGTERM are said, and end it with 130 and 143."""

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> None:
        try:
            with _hearing_of_termination():
                command(*arguments, **options)
        except KeyboardInterrupt as stop:
            say("interrupted")
            number = signal.SIGTERM if isinstance(stop, _Terminated) else signal.SIGINT
            raise typer.Exit(128 + number) from None

    return wrapped


@contextmanager
def _hearing_of_termination() -> Iterator[None]:
    if current_thread() is not main_thread():  # others cannot ask for signals
        yield
        return

    def terminate(*_: Any) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
