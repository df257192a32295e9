"""Progress of long work, reported by calling a function with (units done, units in total)."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress", "ignore"]

Progress = Callable[[int, int], None]


def ignore(done: int, total: int) -> None:
    """Do nothing, for work whose progress is not shown."""
