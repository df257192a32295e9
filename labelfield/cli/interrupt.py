"""Handling of interrupts, the same for every command."""

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
    """SIGTERM, which would otherwise end the process before it has removed its temporary folders."""


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that reports SIGINT and SIGTERM and then exits with 130 or 143."""

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> None:
        try:
            with _raising_on_sigterm():
                command(*arguments, **options)
        except KeyboardInterrupt as stop:
            say("interrupted")
            number = signal.SIGTERM if isinstance(stop, _Terminated) else signal.SIGINT
            raise typer.Exit(128 + number) from None

    return wrapped


@contextmanager
def _raising_on_sigterm() -> Iterator[None]:
    if current_thread() is not main_thread():  # other threads cannot handle signals
        yield
        return

    def terminate(*_: Any) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
