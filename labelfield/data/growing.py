"""Arrays whose length is known only when a file has been read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Growing"]


class Growing:
    """An array that grows at its end. A large one grows by moving pages, not bytes, which keeps peak memory low."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self.array: NDArray[Any] = np.empty(1 << 16, dtype)
        self.size = 0

    def extend(self, more: NDArray[Any]) -> None:
        end = self.size + more.size
        if end > self.array.size:
            self.array.resize(max(end, self.array.size * 5 // 4), refcheck=False)
        self.array[self.size : end] = more
        self.size = end

    def finish(self) -> NDArray[Any]:
        self.array.resize(self.size, refcheck=False)
        return self.array
