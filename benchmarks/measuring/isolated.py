"""Measure a function in a process of its own. Needs only the standard library, as peers' environments use it too."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["Measured", "isolated", "measured"]


@dataclass(frozen=True)
class Measured:
    """The value of a function, its seconds, how far it raised the peak memory of its process, and processor time."""

    value: Any
    seconds: float
    peak_mb: float
    cpu_seconds: float


def measured(prepare: Callable[[], Any], work: Callable[[Any], Any]) -> Measured:
    """Call `work(prepare())` in this process, and measure `work` alone, without imports and preparation."""
    prepared = prepare()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status_mb("VmRSS")
    started, cpu_started = time.perf_counter(), time.process_time()
    value = work(prepared)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Measured(value, seconds, _status_mb("VmHWM") - before, cpu_seconds)


def _child(send: Connection, prepare: Callable[[], Any], work: Callable[[Any], Any]) -> None:
    send.send(measured(prepare, work))


def _status_mb(field: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def isolated(prepare: Callable[[], Any], work: Callable[[Any], Any]) -> Measured:
    """Call `measured(prepare, work)` in a fresh process."""
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
