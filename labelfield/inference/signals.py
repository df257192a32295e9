"""Requests to stop: SIGINT and SIGTERM end a training between two steps, after its checkpoint has been written."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop; the checkpoint, if there is one, has been written."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


_listening: list[list[int]] = []


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of dying from them; a second SIGINT stops at once.

    Nested blocks share the list of the outermost one, so that a request that came before training began is not lost.
    Outside the main thread signals cannot be handled, and the list stays empty.
    """
    if _listening:
        yield _listening[-1]
        return
    caught: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        caught.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread
        yield caught
        return
    _listening.append(caught)
    try:
        yield caught
    finally:
        _listening.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
