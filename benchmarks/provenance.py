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

from benchmarks.paths import ROOT

__all__ = ["accelerator", "commit", "machine", "provenance"]

_PACKAGES = ("numpy", "scipy", "torch", "scikit-learn")


@cache
def commit() -> str:
    """Return the commit of the code, once per process: others may commit during a run."""
    if "LABELFIELD_COMMIT" in os.environ:  # a copy without its history says where it was copied from
        return os.environ["LABELFIELD_COMMIT"]

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    code = ("labelfield", "benchmarks", ":!benchmarks/records")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *code)
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+changes" if changed else "")


def accelerator() -> str | None:
    """Return the name of the GPU, if there is one."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


@cache
def machine() -> dict[str, Any]:
    """Describe the machine: cores, CPU, memory and GPU."""
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
    """Return the head of a record; the packages are ours unless those of a peer are given."""
    if packages is None:
        packages = {package: version for package in _PACKAGES if (version := _version(package))}
    return {
        "commit": commit(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "python": platform.python_version(),
        "packages": packages,
    }
