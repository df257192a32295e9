"""Memory: how much is left, what to say when there is too little, and blocks of rows that fit."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Adam keeps two numbers for each parameter, beside its gradient and itself; all are float32.
BYTES_PER_PARAMETER = 16
FLOAT, DOUBLE = 4, 8
# What other packages and the system say of a failed allocation.
_ABOUT_MEMORY = (
    *("DefaultCPUAllocator", "not enough memory", "annot allocate memory", "bad_alloc", "start new thread"),
    "Storage size calculation overflowed",
    *("failed to map segment", "cannot map zero-fill pages"),
)
# What to lower when a prediction runs out of memory.
FEWER_ROWS = "the number of rows per call, or predict on the CPU"


def row_blocks(n_rows: int, width: int, *, entries: int, most: int) -> Iterator[slice]:
    """Yield slices of at most `most` rows, small enough that rows times `width` stays within `entries`."""
    step = max(1, min(most, entries // max(width, 1)))
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))


class OutOfMemoryError(MemoryError):
    """A failed allocation: which option to lower, and the reason, on one line."""

    def __init__(self, reason: str, lower: str) -> None:
        lines = reason.splitlines()
        super().__init__(f"out of memory: lower {lower}" + (f" ({lines[0]})" if lines else ""))


@contextmanager
def only_new_garbage() -> Iterator[None]:
    """Meanwhile, search only objects made from now on for garbage.

    Those of torch, numba and scikit-learn are half a million, which takes as long to search as ten steps of training.
    """
    if gc.get_freeze_count():  # the caller has set objects apart, or this is under way already
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def advising_on_memory(lower: str) -> Iterator[None]:
    """Turn every kind of failed allocation into one MemoryError that says what to lower."""
    try:
        yield
    except OutOfMemoryError:  # raised by a block inside this one
        raise
    except (MemoryError, RuntimeError) as error:
        if is_about_memory(error):
            raise OutOfMemoryError(str(error), lower) from None
        raise


def is_about_memory(error: Exception) -> bool:
    """Return whether an allocation failed: torch raises a RuntimeError then, an import an ImportError, and so on."""
    is_of_torch = type(error).__name__ == "OutOfMemoryError"  # on a GPU; torch itself may not be imported
    return isinstance(error, MemoryError) or is_of_torch or any(word in str(error) for word in _ABOUT_MEMORY)


def free_bytes(device: torch.device) -> int | None:
    """Return how much memory is free on a device, or None if the system does not say."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    known = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        known += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        limit, used = (Path("/sys/fs/cgroup") / f"memory.{name}" for name in ("max", "current"))
        if limit.exists() and (text := limit.read_text().strip()).isdecimal():
            # Cached pages of files count as used, and are given back when asked for.
            stat = (limit.parent / "memory.stat").read_text().splitlines()
            cache = [int(line.split()[1]) for line in stat if line.startswith(("inactive_file ", "active_file "))]
            known.append(int(text) - int(used.read_text()) + sum(cache))
    except (OSError, ValueError, IndexError):
        pass  # another system
    return min(known, default=None)


def own_bytes() -> int:
    """Return how much memory this process has of its own, without pages of files; 0 if the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    except (OSError, StopIteration):  # another system
        return 0
