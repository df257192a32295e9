"""Kills: a SIGKILL at a random moment leaves the old state or the new one, and the command, run again, ends as ever."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from random import Random

from torture.jobs import JOBS, copy_of, start
from torture.running import Trial


def make_trial(name: str) -> Trial:
    """Return the trials of a job; its undisturbed run tells how long it takes, and what it gives."""
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
        # Half of the runs begin where a whole result lies already, which they replace.
        first = rng.choice((base / "original", whole)) if name not in ("train", "learn") else base / "original"
        folder = copy_of(first, base / "work")
        child = start(folder, job.command)
        time.sleep(rng.uniform(0.0, 1.05) * seconds)
        child.send(signal.SIGKILL)
        child.wait()
        if not job.is_whole(folder):
            return "what is left is neither the old state nor the new one"
        is_done = (
            name == "train"
            and (folder / "model" / "config.json").exists()
            and not list((folder / "model").glob("checkpoint*"))
        )
        if not is_done:
            code, said = start(folder, job.again).wait()
            if code != 0:
                return f"it does not go on: {said.strip().splitlines()[-1:]}"
        return None if job.result(folder) == expected else "the result is not that of an undisturbed run"

    return trial
