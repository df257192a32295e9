"""The settings of a server, as the options of `labelfield serve` give them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from labelfield.errors import DataError

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_LOOPBACK = ("127.", "::1", "localhost")


@dataclass(frozen=True)
class Settings:
    """All that a worker needs to know; it can be sent to another process."""

    models: dict[str, Path]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    device: str = "cpu"
    batch_size: int = 64
    batch_wait_ms: float = 1.0
    queue: int = 1024
    timeout: float = 30.0
    max_body: int = 20 << 20
    connections: int = 2000
    token: str | None = field(default=None, repr=False)
    cors_origins: tuple[str, ...] = ()
    watch: bool = False
    log_text: bool = False
    corrections: Path | None = None
    data: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host.startswith(_LOOPBACK)


def parse_size(given: str) -> int:
    """Return a number of bytes from 20MB, 512kB or 1000000."""
    found = re.fullmatch(r"\s*(\d+)\s*([kmg]?b?)\s*", given.lower())
    units = _UNITS | {unit[0]: size for unit, size in _UNITS.items() if len(unit) == 2}
    if found is None or int(found[1]) == 0:
        raise DataError(f"the size {given!r}", expected="such as 20MB")
    return int(found[1]) * units[found[2]]
