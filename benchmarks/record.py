"""Measuring in a process of its own, and the records that tables are made from."""

from __future__ import annotations

import importlib.metadata
import json
import multiprocessing
import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["DATA", "RECORDS", "Measured", "isolated", "measured", "write_record"]

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "records"
DATA = Path(os.environ.get("LABELFIELD_DATA", ROOT.parent / "shared" / "data"))
_PACKAGES = ("numpy", "scipy", "torch", "scikit-learn", "napkinxc")


@dataclass(frozen=True)
class Measured:
    """What a function returned, how long it took, and how far it raised the peak memory of its process."""

    value: Any
    seconds: float
    peak_mb: float


def measured(prepare: Callable[[], Any], work: Callable[[Any], Any]) -> Measured:
    """`work(prepare())` in this process; only `work`, without imports and preparation, is measured."""
    prepared = prepare()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status_mb("VmRSS")
    started = time.perf_counter()
    value = work(prepared)
    seconds = time.perf_counter() - started
    return Measured(value, seconds, _status_mb("VmHWM") - before)


def _child(send: Connection, prepare: Callable[[], Any], work: Callable[[Any], Any]) -> None:
    send.send(measured(prepare, work))


def _status_mb(field: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def isolated(prepare: Callable[[], Any], work: Callable[[Any], Any]) -> Measured:
    """`measured(prepare, work)` in a fresh process."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(send, prepare, work))
    process.start()
    send.close()
    try:
        measured: Measured = receive.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the measured process ended with code {process.exitcode}") from None
    process.join()
    return measured


def _machine() -> dict[str, Any]:
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


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    if "LABELFIELD_COMMIT" in os.environ:  # a copy without its history says where it was copied from
        return os.environ["LABELFIELD_COMMIT"]
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "labelfield", "benchmarks/*.py")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+changes" if changed else "")


# As it is when a benchmark starts: others may commit while it runs.
_COMMIT = _commit()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def accelerator() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def write_record(name: str, results: dict[str, Any], *, seed: int = 0, command: str | None = None) -> Path:
    """One JSON file: what was measured, at which commit, on which machine, with which packages and seed."""
    versions = {package: version for package in _PACKAGES if (version := _version(package))}
    record = {
        "benchmark": name,
        "command": command or f"python -m benchmarks.run {name}",
        "commit": _COMMIT,
        "machine": _machine(),
        "python": platform.python_version(),
        "packages": versions,
        "seed": seed,
        "results": results,
    }
    RECORDS.mkdir(exist_ok=True)
    path = RECORDS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path
