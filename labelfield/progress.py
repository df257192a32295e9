"""Progress of long work, reported by calling a function with (units done, units in total)."""

from collections.abc import Callable

Progress = Callable[[int, int], None]


def ignore(done: int, total: int) -> None:
    """Do nothing, for work whose progress is not shown."""
