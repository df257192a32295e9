"""A command in a process of its own: how long it took, how much of the cores, how much memory."""

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

__all__ = ["Finished", "Together", "run_process"]

# Memory of more processes than one is looked at this often.
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


class Together:
    """Processes that run at the same time, each waited for by a thread; only the main thread hears of an interrupt."""

    def __init__(self) -> None:
        self._lock, self._leaders, self._is_ended = Lock(), set[int](), False

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a process that leads a group of its own."""
        with self._lock:
            if self._is_ended:
                raise KeyboardInterrupt
            process = subprocess.Popen(command, start_new_session=True, **options)  # noqa: S603  # a list, and no shell
            self._leaders.add(process.pid)
        return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """It has ended, and its number may become another's."""
        with self._lock:
            self._leaders.discard(process.pid)

    def end(self) -> None:
        """End all of them with their children, and let none start from now on."""
        with self._lock:
            self._is_ended = True
            for leader in self._leaders:
                _kill(leader)


def _kill(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def run_process(
    command: list[str], *, log: Path, environment: dict[str, str] | None = None, together: Together | None = None
) -> Finished:
    """Run a command in a group of its own, with its output in a file; interrupting ends it and all its children.

    Peak memory is that of the largest process, or of all of them together where several were seen at once.
    """
    usage = log.with_name(f"{log.name}.usage")
    together = together or Together()
    with log.open("w") as output:
        process = together.start(
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
            together.forget(process)
            watch.ended.set()
            watch.join()
    errors = log.read_text(errors="replace")[-_TAIL:].strip()
    if not usage.exists():  # the one that measures was killed itself
        return Finished(process.returncode or 1, 0.0, 0.0, watch.peak_mb, errors)
    spent = json.loads(usage.read_text(encoding="utf-8"))
    peak = max(spent["peak_mb"], watch.peak_mb)
    return Finished(spent["code"], spent["seconds"], spent["cpu_seconds"], peak, errors)


class _Watch(Thread):
    """Looks at the memory of all processes of a session, but its leader, while there are several."""

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
    """The memory of a process, what it shares with others shared among them."""
    with suppress(OSError, IndexError, ValueError):
        return int((process / "smaps_rollup").read_text().split("Pss:")[1].split()[0]) / 1024
    return 0.0
