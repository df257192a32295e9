"""How many rows are processed at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

__all__ = ["CHUNK", "chunks"]

# Rows times labels that are processed at once: a core's cache holds a few temporaries of this size, or a GPU is busy.
CHUNK = {"cpu": 1 << 18, "cuda": 1 << 26}


def chunks(shape: Sequence[int], device: torch.device) -> Iterator[slice]:
    """Yield consecutive slices of the rows of a matrix of this shape, each small enough for this device."""
    n_rows, n_columns = shape
    step = max(1, CHUNK[device.type] // max(n_columns, 1))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
