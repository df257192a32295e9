"""EUR-Lex by one process of two threads, and by two of one thread: time, and who has what.

Linear machines, and a factor model of three epochs.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from benchmarks.paths import DATA

SOURCE = DATA / "eurlex-4k"
REPEATS = 1
COMMAND = ["-m", "labelfield", "train", str(SOURCE), "--method"]
# Trials, which take longer than the training itself here, are left out.
LINEAR = ["linear", "--set", "row_transform=sqrt", "--set", "cost=1.0"]
FACTOR = ["mlgpf", "--set", "max_epochs=3"]
LAUNCHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def run() -> dict[str, Any]:
    alone, together, shares, digests = list[_Run](), list[_Run](), list[float](), set[str]()
    load = os.getloadavg()[0]
    with TemporaryDirectory() as scratch:
        for number in range(REPEATS):  # in turn, so that a slow moment of the machine affects both
            for ranks, runs in ((1, alone), (2, together)):
                out = Path(scratch) / f"{ranks}-{number}"
                runs.append(_train(ranks, out, LINEAR))
                digests.add(sha256((out / "arrays.safetensors").read_bytes()).hexdigest())
                if ranks > 1:
                    sizes = runs[-1].sizes.values()
                    shares.append(max(sizes) / sum(sizes))
    seconds = [median(run.seconds for run in runs) for runs in (alone, together)]
    cpu_seconds = [median(run.cpu_seconds for run in runs) for runs in (alone, together)]
    return {
        "data": "eurlex-4k",
        "load": load,
        "repeats": REPEATS,
        "one_process_of_two_threads_seconds": seconds[0],
        "two_processes_of_one_thread_seconds": seconds[1],
        "time_ratio": seconds[1] / seconds[0],
        "cpu_ratio": cpu_seconds[1] / cpu_seconds[0],
        "largest_share_of_one_rank": max(shares),
        "models_that_differ": len(digests) - 1,
        "factor_model": _factor_model(),
    }


def _factor_model() -> dict[str, Any]:
    """Compare a factor model of one process with that of two."""
    load = os.getloadavg()[0]
    with TemporaryDirectory() as scratch:
        one, two = (Path(scratch) / name for name in ("one", "two"))
        alone, together = _train(1, one, FACTOR), _train(2, two, FACTOR)
        arrays = [load_file(folder / "arrays.safetensors") for folder in (one, two)]
    # Weights that were dropped may differ where one of two was just small enough.
    shared = [name for name, array in arrays[0].items() if array.shape == arrays[1][name].shape and array.size]
    return {
        "load": load,
        "one_process_of_two_threads_seconds": alone.seconds,
        "two_processes_of_one_thread_seconds": together.seconds,
        "time_ratio": together.seconds / alone.seconds,
        "cpu_ratio": together.cpu_seconds / alone.cpu_seconds,
        "largest_difference_of_phi": float(np.abs(arrays[0]["Phi"] - arrays[1]["Phi"]).max()),
        "arrays_of_the_same_shape": len(shared),
    }


class _Run(NamedTuple):
    """The seconds of a whole command, those of all its processes on a core, and how many bytes each rank has saved."""

    seconds: float
    cpu_seconds: float
    sizes: dict[str, int]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _train(n_ranks: int, out: Path, options: list[str]) -> _Run:
    command = [sys.executable, *(LAUNCHER if n_ranks > 1 else []), *COMMAND, *options, "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1" if n_ranks > 1 else "2"}
    started, used, sizes = time.perf_counter(), _cpu_seconds(), dict[str, int]()
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
    return _Run(seconds, _cpu_seconds() - used, sizes)
