"""Trials in forked processes, so that a crash, a hang or a limit of memory ends one trial and not the run."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import FrameType
from typing import NamedTuple

# A trial that takes longer than it may fails; after as many seconds more its process is killed.
_GRACE = 10
# Trials of one process. A new one starts from the memory of the parent.
_CHUNK = 2000


class Failure(NamedTuple):
    """A trial that failed, and how."""

    seed: int
    what: str


class TooSlowError(Exception):
    """A trial that took too long."""


# A trial takes a seed; it returns None, or in words what is wrong. Making one prepares the process.
Trial = Callable[[int], str | None]


def run_trials(
    make: Callable[[], Trial],
    first: int,
    count: int,
    extra_bytes: int | None,
    seconds: float,
    until: float = inf,
) -> tuple[list[Failure], int]:
    """Run trials with these seeds, each process with `extra_bytes` of memory more than it has at first.

    None begins after the time `until`. Return what failed, and how many were tried.
    """
    failures: list[Failure] = []
    seed, end = first, first + count
    while seed < end and time.monotonic() < until:
        seed = _run_chunk(make, seed, min(seed + _CHUNK, end), extra_bytes, seconds, until, failures)
    return failures, seed - first


def _run_chunk(
    make: Callable[[], Trial],
    first: int,
    end: int,
    extra_bytes: int | None,
    seconds: float,
    until: float,
    failures: list[Failure],
) -> int:
    """Run some trials in one process; return the first seed that was not tried."""
    out, into = os.pipe()
    room = tempfile.mkdtemp(prefix="torture-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    child = os.fork()
    if child == 0:
        tempfile.tempdir = room  # all that trials write
        os.close(out)
        status = 1
        try:
            _work(make, first, end, extra_bytes, seconds, until, into)
            status = 0
        except BaseException:  # of the preparations
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(into)
    begun, text = first - 1, b""
    started = time.monotonic()
    is_over = False
    while not is_over:
        patience = seconds + _GRACE + (120 if begun < first else 0)  # the first trial waits for the preparations
        ready, _, _ = select.select([out], [], [], max(0.0, started + patience - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            failures.append(Failure(max(begun, first), f"no answer in {seconds + _GRACE:g} s"))
            break
        some = os.read(out, 1 << 16)
        is_over = not some
        text += some
        *lines, text = text.split(b"\n")
        for line in lines:
            seed, what = json.loads(line)
            if what is None:
                begun, started = seed, time.monotonic()
            else:
                failures.append(Failure(seed, what))
    os.close(out)
    status = os.waitpid(child, 0)[1]
    shutil.rmtree(room, ignore_errors=True)
    if is_over and status != 0:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "an exit"
        failures.append(Failure(max(begun, first), f"the process ended with {how}"))
        return max(begun, first) + 1
    return max(begun, first) + 1


def _work(
    make: Callable[[], Trial],
    first: int,
    end: int,
    extra_bytes: int | None,
    seconds: float,
    until: float,
    into: int,
) -> None:
    trial = make()
    limit_memory(extra_bytes)
    signal.signal(signal.SIGALRM, _too_slow)
    for seed in range(first, end):
        if seed > first and time.monotonic() > until:
            return
        os.write(into, json.dumps([seed, None]).encode() + b"\n")
        what = attempt(trial, seed, seconds)
        if what is not None:
            os.write(into, json.dumps([seed, what]).encode() + b"\n")


def attempt(trial: Trial, seed: int, seconds: float) -> str | None:
    """Run one trial with a limit of time; return what is wrong, with the place of an error that nobody expects."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return trial(seed)
    except BaseException as error:  # whatever the package lets through is a failure
        return described(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def described(error: BaseException) -> str:
    """Return an error in one line, with the last place of the package that it went through."""
    places = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "labelfield" in Path(frame.filename).parts
    ]
    where = f" at {Path(places[-1].filename).name}:{places[-1].lineno}" if places else ""
    return f"{type(error).__name__}{where}: {str(error)[:120]}".replace("\n", " ")


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError("it takes too long")


def limit_memory(extra_bytes: int | None) -> None:
    """Limit the address space of this process to what it has, and so much more."""
    if extra_bytes is not None and sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + extra_bytes
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
