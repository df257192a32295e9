"""Disks: full, read-only or gone; at any write there is one clear message, and nothing is left half-written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from torture.jobs import JOBS, copy_of, start
from torture.running import Trial

# Runs a command of labelfield whose n-th call of one function of the system fails as on a full or broken disk.
_FAULTY = """
import builtins, errno, os, sys
name, at, number = sys.argv[1], int(sys.argv[2]), getattr(errno, sys.argv[3])
seen = 0
def fails():
    global seen
    seen += 1
    return seen >= at
def failing(whole):
    def call(*given, **options):
        if fails():
            raise OSError(number, os.strerror(number), given[0] if isinstance(given[0], str) else None)
        return whole(*given, **options)
    return call
if name == "open":
    whole = builtins.open
    def opened(file, mode="r", *given, **options):
        if any(letter in mode for letter in "wax+") and file != os.devnull and fails():
            raise OSError(number, os.strerror(number), str(file))
        return whole(file, mode, *given, **options)
    builtins.open = opened
    import io
    io.open = opened
else:
    setattr(os, name, failing(getattr(os, name)))
sys.argv = ["labelfield", *sys.argv[4:]]
from labelfield.cli.main import main
main()
"""
_CALLS = ("open", "replace", "fsync", "mkdir", "unlink", "rmdir")
_ERRORS = ("ENOSPC", "EROFS", "EDQUOT", "EIO", "EACCES", "ENOENT")


def make_trial(name: str) -> Trial:
    """Return the trials of a job: a call that fails, or a real file system that is full."""
    job = JOBS[name]
    base = Path(tempfile.mkdtemp(prefix="torture-"))
    (base / "original").mkdir()
    job.make(base / "original")
    can_mount = os.geteuid() == 0

    def trial(seed: int) -> str | None:
        rng = Random(f"{name}/{seed}")
        if can_mount and rng.randrange(3) == 0:
            return _on_a_full_disk(rng)
        folder = copy_of(base / "original", base / "work")
        fault = [rng.choice(_CALLS), str(rng.choice((1, 1, 2, 3, 4, 5, 6, 8, 12))), rng.choice(_ERRORS)]
        process = start(folder, job.command, [sys.executable, "-c", _FAULTY, *fault])
        return _flaw(folder, process, " ".join(fault))

    def _on_a_full_disk(rng: Random) -> str | None:
        disk = base / "disk"
        disk.mkdir(exist_ok=True)
        size = sum(path.stat().st_size + 4096 for path in (base / "original").rglob("*"))
        size += rng.choice((4096, 16384, 65536, 262144, 1 << 20))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return None  # not permitted here
        try:
            folder = copy_of(base / "original", disk / "work")
            return _flaw(folder, start(folder, job.command), f"a disk of {size} bytes")
        except OSError:
            return None  # the files of the job themselves do not fit
        finally:
            subprocess.run(["umount", str(disk)], check=False)

    def _flaw(folder: Path, process: subprocess.Popen[str], fault: str) -> str | None:
        said = process.communicate()[1]
        if "Traceback" in said:
            return f"{fault}: a traceback: {said.strip().splitlines()[-1][:120]}"
        if process.returncode != 0 and not said.strip():
            return f"{fault}: no message"
        if process.returncode < 0:
            return f"{fault}: ended by signal {-process.returncode}"
        if not job.is_whole(folder):
            return f"{fault}: what is left is neither the old state nor the new one ({said.strip()[-80:]})"
        left = [path.name for path in folder.rglob(".labelfield-*")]
        # A folder that cannot be removed stays.
        if left and not fault.startswith(("rmdir", "unlink")):
            return f"{fault}: {left[0]} is left"
        return None

    return trial
