"""Kernels that numba compiles for the CPU. Each has a plain twin, which is used where numba is missing."""

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any


@cache
def has_numba() -> bool:
    """Return whether numba is installed; importing it takes a third of a second."""
    return find_spec("numba") is not None


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile a function, and keep the result on disk where there is a place for it.

    There is none where package and home are read-only, as in many containers: then every process compiles again.
    """
    import numba

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no place
            return numba.njit(nogil=True, **options)(function)

    return decorate


def usable_threads() -> int:
    """Return how many threads to use: as OMP_NUM_THREADS says, which torch goes by too, or one for each core."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(asked) if asked.isdecimal() and int(asked) > 0 else cores
