"""Disks: full, read-only or gone; at any write there is one clear message, and nothing is left half-written."""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from torture.jobs import JOBS, copy_of, flaw_of, start
from torture.running import Trial

_CALLS = ("open", "replace", "fsync", "mkdir", "unlink", "rmdir")
_ERRORS = ("ENOSPC", "EROFS", "EDQUOT", "EIO", "EACCES", "ENOENT")


def break_call(name: str, at: int, number: int) -> None:
    """Let the calls of one function of the system fail from the `at`-th on, as on a full or broken disk."""
    seen = 0

    def fails(path: Any) -> None:
        nonlocal seen
        seen += 1
        if seen >= at:
            raise OSError(number, os.strerror(number), os.fspath(path) if isinstance(path, str | Path) else None)

    if name == "open":
        opened = open

        def failing_open(file: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
            if any(letter in mode for letter in "wax+"):
                fails(file)
            return opened(file, mode, *given, **options)

        builtins.open = io.open = failing_open
        return
    whole = getattr(os, name)

    def failing(*given: Any, **options: Any) -> Any:
        fails(given[0])
        return whole(*given, **options)

    setattr(os, name, failing)


def make_trial(name: str) -> Trial:
    """Return the trials of a job: a call that fails, or a real file system that is full."""
    job = JOBS[name]
    base = Path(tempfile.mkdtemp())
    (base / "original").mkdir()
    job.make(base / "original")
    can_mount = os.geteuid() == 0

    def trial(seed: int) -> str | None:
        rng = Random(f"{name}/{seed}")
        if can_mount and rng.randrange(3) == 0:
            return _on_a_disk(rng, rng.choice(("full", "full", "read-only", "gone")))
        folder = copy_of(base / "original", base / "work")
        call, at, error = rng.choice(_CALLS), rng.choice((1, 1, 2, 3, 4, 5, 6, 8, 12)), rng.choice(_ERRORS)
        child = start(folder, job.command, lambda: break_call(call, at, getattr(errno, error)))
        # A folder that cannot be removed stays.
        return flaw_of(job, folder, child, f"{call} {at} {error}", may_leave=call in ("unlink", "rmdir"))

    def _of_a_removed_folder(folder: Path) -> str | None:
        """Remove the folder that a command works in, at some moment of it."""
        child = start(folder, job.command)
        time.sleep(Random(str(folder)).random() / 4)
        shutil.rmtree(folder, ignore_errors=True)
        code, said = child.wait()
        if "Traceback" in said:
            return f"a removed folder: a traceback: {said.strip().splitlines()[-1][:120]}"
        return f"a removed folder: code {code}, {said[-80:]!r}" if code < 0 or (code and not said.strip()) else None

    def _on_a_disk(rng: Random, how: str) -> str | None:
        """Run on a real file system that has little room, takes nothing, or is removed on the way."""
        disk = base / "disk"
        disk.mkdir(exist_ok=True)
        size = sum(path.stat().st_size + 4096 for path in (base / "original").rglob("*"))
        size += rng.choice((4096, 16384, 65536, 262144, 1 << 20)) if how == "full" else 1 << 26
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return None  # not permitted here
        try:
            folder = copy_of(base / "original", disk / "work")
            if how == "gone":
                return _of_a_removed_folder(folder)
            if how == "read-only":
                subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
            return flaw_of(job, folder, start(folder, job.command), f"a disk of {size} bytes, {how}")
        except OSError:
            return None  # the files of the job themselves do not fit
        finally:
            subprocess.run(["umount", str(disk)], check=False)

    return trial
