"""Handling of interrupts, the same for every command."""

import signal
from collections.abc import Callable
from functools import wraps
from threading import current_thread, main_thread
from typing import Any

import typer

from labelfield.cli.output import say


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that reports SIGINT and SIGTERM and then exits with 130 or 143.

    Left alone, SIGTERM would end the process before it has removed its temporary folders.
    """

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> None:
        received = [signal.SIGINT]

        def terminate(*_: Any) -> None:
            received.append(signal.SIGTERM)
            raise KeyboardInterrupt

        can_handle = current_thread() is main_thread()  # other threads cannot
        before = signal.signal(signal.SIGTERM, terminate) if can_handle else None
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(128 + received[-1]) from None
        finally:
            if can_handle:
                signal.signal(signal.SIGTERM, before)

    return wrapped
