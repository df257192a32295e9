"""Kernels that numba compiles for the CPU. Each has a plain twin, which is used where numba is missing."""

import os
from functools import cache
from importlib.util import find_spec


@cache
def has_numba() -> bool:
    """Return whether numba is installed; importing it takes a third of a second."""
    return find_spec("numba") is not None


def usable_threads() -> int:
    """Return how many threads to use: as OMP_NUM_THREADS says, which torch goes by too, or one for each core."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(asked) if asked.isdecimal() and int(asked) > 0 else cores
