"""Memory: whatever limit a command meets, and wherever, it says so in one line and leaves nothing half-written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

from torture import servers
from torture.jobs import JOBS, copy_of, flaw_of, start
from torture.running import Trial, limit_memory

_CGROUP = Path("/sys/fs/cgroup/memory")


CASES = [*JOBS, "serve"]


def make_trial(name: str) -> Trial:
    """Return the trials of a job: a limit of the address space or, where that can be set, of a control group."""
    if name == "serve":
        return servers.make_trial(lambda rng: (partial(limit_memory, int(2 ** rng.uniform(16, 29))), []))
    job = JOBS[name]
    base = Path(tempfile.mkdtemp())
    (base / "original").mkdir()
    job.make(base / "original")

    def trial(seed: int) -> str | None:
        rng = Random(f"{name}/{seed}")
        folder = copy_of(base / "original", base / "work")
        extra = int(2 ** rng.uniform(16, 29))  # 64 KB to 512 MB beyond what a process has at first
        if rng.randrange(4) == 0:
            with _control_group(extra) as join:
                if join is not None:
                    return _in_group(folder, join, extra)
        return flaw_of(job, folder, start(folder, job.command, lambda: limit_memory(extra)), f"{extra >> 10} KB more")

    def _in_group(folder: Path, join: Callable[[], None], extra: int) -> str | None:
        """The kernel kills whoever needs more: that is no message, but what is left must be whole."""
        child = start(folder, job.command, join)
        code, said = child.wait()
        if "Traceback" in said or (code not in (0, -9) and not said.strip()):
            return f"a group of {extra >> 10} KB more: {said.strip()[-120:]}"
        return None if job.is_whole(folder) else f"a group of {extra >> 10} KB more: what is left is not whole"

    return trial


@contextmanager
def _control_group(extra: int) -> Iterator[Callable[[], None] | None]:
    """Make a group with a limit, and yield what puts a process into it; None where that is not permitted."""
    group = _CGROUP / f"labelfield-torture-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(extra + (64 << 20)))
    except OSError:
        group.rmdir() if group.is_dir() else None
        yield None
        return
    try:
        yield lambda: _join(group)
    finally:
        group.rmdir()


def _join(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))
