"""The memory that is free, and the memory that a parameter takes."""

from __future__ import annotations

from pathlib import Path

import torch

__all__ = ["BYTES_PER_PARAMETER", "DOUBLE", "FLOAT", "free_bytes"]

# Adam keeps two numbers per parameter, besides the parameter and its gradient; all are float32.
BYTES_PER_PARAMETER = 16
FLOAT, DOUBLE = 4, 8


def free_bytes(device: torch.device) -> int | None:
    """Return how much memory is free on a device, or None if the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        known += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        limit, used = (Path("/sys/fs/cgroup") / f"memory.{name}" for name in ("max", "current"))
        if limit.exists() and (text := limit.read_text().strip()).isdecimal():
            # Cached pages of files count as used, but are released on demand.
            cache = [
                int(line.split()[1])
                for line in (limit.parent / "memory.stat").read_text().splitlines()
                if line.startswith(("inactive_file ", "active_file "))
            ]
            known.append(int(text) - int(used.read_text()) + sum(cache))
    except (OSError, ValueError, IndexError):
        pass  # another system
    return min(known, default=None)
