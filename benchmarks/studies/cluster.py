"""Linear machines on EUR-Lex by one process of two threads, and by two of one thread: time, and who has what."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.paths import DATA

SOURCE = DATA / "eurlex-4k"
REPEATS = 2
COMMAND = ["-m", "labelfield", "train", str(SOURCE), "--method", "linear"]
LAUNCHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def run() -> dict[str, Any]:
    alone, together, shares, digests = list[float](), list[float](), list[float](), set[str]()
    with TemporaryDirectory() as scratch:
        for number in range(REPEATS):  # in turn, so that a slow moment of the machine affects both
            for ranks, times in ((1, alone), (2, together)):
                out = Path(scratch) / f"{ranks}-{number}"
                seconds, sizes = _train(ranks, out)
                times.append(seconds)
                digests.add(sha256((out / "arrays.safetensors").read_bytes()).hexdigest())
                if ranks > 1:
                    shares.append(max(sizes.values()) / sum(sizes.values()))
    return {
        "data": "eurlex-4k",
        "repeats": REPEATS,
        "one_process_of_two_threads_seconds": median(alone),
        "two_processes_of_one_thread_seconds": median(together),
        "time_ratio": median(together) / median(alone),
        "largest_share_of_one_rank": max(shares),
        "models_that_differ": len(digests) - 1,
    }


def _train(n_ranks: int, out: Path) -> tuple[float, dict[str, int]]:
    """Train; return the seconds of the whole command, and how many bytes of solved labels each rank has saved."""
    command = [sys.executable, *(LAUNCHER if n_ranks > 1 else []), *COMMAND, "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1" if n_ranks > 1 else "2"}
    started, sizes = time.perf_counter(), dict[str, int]()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        time.sleep(0.05)
        for path in out.glob("checkpoint.*-of-*.safetensors"):
            try:
                sizes[path.name] = path.stat().st_size
            except FileNotFoundError:
                continue  # removed at the end
    seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {process.returncode}")
    return seconds, sizes
