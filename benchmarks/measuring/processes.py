"""Run a command in a process of its own, and measure its time, its use of the cores, and its memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

__all__ = ["Finished", "ProcessGroup", "run_process"]

# How often the memory of several processes is read.
_EVERY_S = 0.2
_TAIL = 2000
_LAUNCH = Path(__file__).with_name("launch.py")


@dataclass(frozen=True)
class Finished:
    """How a process ended, and what it and its children cost."""

    code: int
    seconds: float
    cpu_seconds: float
    peak_mb: float
    errors: str


class ProcessGroup:
    """Processes that run at the same time, each awaited by a thread; only the main thread receives interrupts."""

    def __init__(self) -> None:
        self._lock, self._leaders, self._is_ended = Lock(), set[int](), False

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a process that leads a group of its own."""
        with self._lock:
            if self._is_ended:
                raise KeyboardInterrupt
            process = subprocess.Popen(command, start_new_session=True, **options)
            self._leaders.add(process.pid)
        return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Drop a process that has ended: the system may give its number to another."""
        with self._lock:
            self._leaders.discard(process.pid)

    def end(self) -> None:
        """Kill all processes with their children, and refuse to start more."""
        with self._lock:
            self._is_ended = True
            for leader in self._leaders:
                _kill(leader)


def _kill(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def run_process(
    command: list[str], *, log: Path, environment: dict[str, str] | None = None, group: ProcessGroup | None = None
) -> Finished:
    """Run a command in a group of its own, with its output in a file; an interrupt ends it and all its children.

    Peak memory is that of the largest process, or the sum over all processes where several were seen at once.
    """
    usage = log.with_name(f"{log.name}.usage")
    group = group or ProcessGroup()
    with log.open("w") as output:
        process = group.start(
            [sys.executable, "-S", "-E", str(_LAUNCH), str(usage), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        watch = _Watch(process.pid)
        watch.start()
        try:
            process.wait()
        except BaseException:
            _kill(process.pid)
            process.wait()
            raise
        finally:
            group.forget(process)
            watch.ended.set()
            watch.join()
    errors = log.read_text(errors="replace")[-_TAIL:].strip()
    if not usage.exists():  # the measuring process itself was killed
        return Finished(process.returncode or 1, 0.0, 0.0, watch.peak_mb, errors)
    spent = json.loads(usage.read_text(encoding="utf-8"))
    peak = max(spent["peak_mb"], watch.peak_mb)
    return Finished(spent["code"], spent["seconds"], spent["cpu_seconds"], peak, errors)


class _Watch(Thread):
    """A thread that reads the memory of all processes of a session except its leader, while there are several."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.session, self.ended, self.peak_mb = session, Event(), 0.0

    def run(self) -> None:
        while not self.ended.wait(_EVERY_S):
            members = [folder for folder in Path("/proc").glob("[0-9]*") if _session(folder) == self.session]
            members = [folder for folder in members if folder.name != str(self.session)]
            if len(members) > 1:
                self.peak_mb = max(self.peak_mb, sum(map(_resident_mb, members)))


def _session(process: Path) -> int | None:
    with suppress(OSError, IndexError, ValueError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[3])
    return None


def _resident_mb(process: Path) -> float:
    """Return the memory of a process; pages shared by n processes count as 1/n."""
    with suppress(OSError, IndexError, ValueError):
        return int((process / "smaps_rollup").read_text().split("Pss:")[1].split()[0]) / 1024
    return 0.0
