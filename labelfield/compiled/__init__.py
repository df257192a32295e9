"""Kernels that numba compiles for the CPU. Each has a plain twin, which is used where numba is missing."""

from functools import cache
from importlib.util import find_spec


@cache
def has_numba() -> bool:
    """Return whether numba is installed; importing it takes a third of a second."""
    return find_spec("numba") is not None
