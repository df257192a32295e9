"""Signals and clocks: a command that is interrupted says so and can be run again; one that is paused, or whose clock
jumps, ends as ever."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from torture import servers
from torture.jobs import JOBS, Child, copy_of, flaw_of, start
from torture.running import Trial

# Each with the exit codes that it may lead to: the command may be done already.
_INTERRUPTIONS = {
    "terminated": ([signal.SIGTERM], (0, 143, -15)),
    "interrupted": ([signal.SIGINT], (0, 130, -2)),
    "interrupted twice": ([signal.SIGINT, signal.SIGINT], (0, 130, -2)),
    "terminated, then interrupted": ([signal.SIGTERM, signal.SIGINT], (0, 143, 130, -15, -2)),
}
_HOWS = (*_INTERRUPTIONS, "paused", "clock")


def jump_clock(seed: int) -> None:
    """Let the clock of this process jump by up to years, forward and back, at some of its readings."""
    rng, read = Random(seed), time.time
    ahead = 0.0

    def jumping() -> float:
        nonlocal ahead
        if rng.random() < 0.2:
            ahead = rng.choice((-1e9, -3600.0, -1.0, 0.0, 1.0, 3600.0, 1e9))
        return max(read() + ahead, 0.0)

    time.time = jumping


CASES = [*JOBS, "serve"]


def make_trial(name: str) -> Trial:
    """Return the trials of a job; its undisturbed run tells how long it takes, and what it gives."""
    if name == "serve":
        return servers.make_trial(_of_servers)
    job = JOBS[name]
    base = Path(tempfile.mkdtemp())
    (base / "original").mkdir()
    job.make(base / "original")
    whole = copy_of(base / "original", base / "whole")
    started = time.monotonic()
    code, said = start(whole, job.command).wait()
    assert code == 0, said
    seconds, expected = time.monotonic() - started, job.result(whole)

    def trial(seed: int) -> str | None:
        rng = Random(f"{name}/{seed}")
        how = rng.choice(_HOWS)
        folder = copy_of(base / "original", base / "work")
        if how in _INTERRUPTIONS:
            return _interrupted(rng, how, folder)
        child = start(folder, job.command, (lambda: jump_clock(seed)) if how == "clock" else None)
        if how == "paused":
            _pause(rng, child)
        flaw = flaw_of(job, folder, child, how)
        if flaw is None and child.code != 0:
            flaw = f"{how}: exit code {child.code}"
        return flaw or (None if job.result(folder) == expected else f"{how}: another result")

    def _interrupted(rng: Random, how: str, folder: Path) -> str | None:
        numbers, codes = _INTERRUPTIONS[how]
        child = start(folder, job.command, _usual_signals)
        time.sleep(rng.uniform(0.0, 1.05) * seconds)
        for number in numbers:
            child.send(number)
            time.sleep(rng.uniform(0.0, 0.05))
        code, said = child.wait()
        if code not in codes:
            return f"{how}: exit code {code}: {said.strip()[-100:]}"
        if code not in (0, -15, -2) and "Traceback" in said:
            return f"{how}: a traceback: {said.strip().splitlines()[-1][:120]}"
        if not job.is_whole(folder):
            return f"{how}: what is left is neither the old state nor the new one"
        if code == 0 or (name == "train" and (folder / "model" / "config.json").exists()):
            return None
        code, said = start(folder, job.again).wait()
        if code != 0:
            return f"{how}: it does not go on: {said.strip().splitlines()[-1:]}"
        return None if job.result(folder) == expected else f"{how}: another result"

    def _pause(rng: Random, child: Child) -> None:
        for _ in range(3):
            time.sleep(rng.uniform(0.0, 0.4) * seconds)
            child.send(signal.SIGSTOP)
            time.sleep(0.05)
            child.send(signal.SIGCONT)

    return trial


def _of_servers(rng: Random) -> tuple[Callable[[], None] | None, list[int]]:
    how = rng.choice(_HOWS)
    if how == "clock":
        return partial(jump_clock, rng.randrange(1 << 30)), []
    if how == "paused":
        return None, [signal.SIGSTOP, signal.SIGCONT] * 3
    return _usual_signals, list(_INTERRUPTIONS[how][0])


def _usual_signals() -> None:
    """Handle signals as a process that was started by a shell does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
