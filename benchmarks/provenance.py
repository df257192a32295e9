"""Where a number comes from: commit, machine, packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from labelfield.bench.places import checkout
from labelfield.version import __version__

__all__ = ["accelerator", "commit", "machine", "provenance"]

_PACKAGES = ("numpy", "scipy", "torch", "scikit-learn")


@cache
def commit() -> str:
    """Of the code as it is when a run starts (others may commit meanwhile), or the version where there is none."""
    if "LABELFIELD_COMMIT" in os.environ:  # a copy without its history says where it was copied from
        return os.environ["LABELFIELD_COMMIT"]
    root = checkout()
    if root is None:
        return f"version {__version__}"

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)  # noqa: S603, S607  # no user data
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "labelfield", "benchmarks/*.py")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+changes" if changed else "")


def accelerator() -> str | None:
    """The name of the GPU, if there is one."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


@cache
def machine() -> dict[str, Any]:
    """Cores, CPU, memory and GPU."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].partition(":")[2].strip() if models else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    device = {"accelerator": name} if (name := accelerator()) else {}
    return {
        **device,
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": platform.system(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def provenance(packages: dict[str, str] | None = None) -> dict[str, Any]:
    """The head of every record; the packages are ours unless those of a peer are given."""
    if packages is None:
        packages = {package: version for package in _PACKAGES if (version := _version(package))}
    return {
        "commit": commit(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "python": platform.python_version(),
        "packages": packages,
    }
