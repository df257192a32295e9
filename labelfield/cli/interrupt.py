"""What every command does when it is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from labelfield.cli.output import say

__all__ = ["interruptible"]


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """The same command; an interrupt is said, and ends it with 130."""

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None

    return wrapped
