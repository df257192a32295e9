"""A million synthetic rows: drawn, written to a folder, opened memory-mapped, and read in batches."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA

SHAPE = (1_000_000, 200_000, 13_000)
NONZEROS = 70
BATCH = 500
N_BATCHES = 50


def _nothing() -> None:
    import labelfield.synth  # noqa: F401  # imported before the measurement


def _draw(folder: Path, _: None) -> dict[str, float]:
    import labelfield

    dataset = labelfield.synth.make_multilabel(*SHAPE, n_nonzeros=NONZEROS)
    labelfield.write(dataset, folder)
    return {"nonzeros_per_row": dataset.X.nnz / SHAPE[0], "labels_per_row": dataset.Y.nnz / SHAPE[0]}


def _convert(folder: Path, _: None) -> None:
    import labelfield

    labelfield.write(labelfield.read(DATA / "eurlex-4k" / "train.txt.gz"), folder)


def _import_read() -> Any:
    import labelfield

    return labelfield.read


def _open(folder: Path, read: Any) -> int:
    return int(read(folder).n_rows)


def _open_for_batches(folder: Path) -> Any:
    from labelfield import Batch, read

    dataset = read(folder)
    Batch.gather(dataset, [0])
    for file in folder.glob("*.npy"):  # out of the page cache, so that batches come from the disk
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return Batch, dataset


def _disk_mb() -> float:
    """Return how many MB this process has read from the disk."""
    return int(Path("/proc/self/io").read_text().split("\nread_bytes:")[1].split()[0]) / 2**20


def _gather(prepared: Any) -> dict[str, float]:
    batch_type, dataset = prepared
    rng = np.random.default_rng(0)
    rows = [rng.choice(dataset.n_rows, BATCH, replace=False) for _ in range(N_BATCHES)]
    before = _disk_mb()
    batch = batch_type.gather(dataset, rows[0])
    rows_mb = 8 * (batch.X.values().numel() + BATCH) + 4 * (batch.Y.values().numel() + BATCH)
    from_disk = _disk_mb() - before
    for chosen in rows:
        batch_type.gather(dataset, chosen)
    started = time.perf_counter()
    for chosen in rows:
        batch_type.gather(dataset, chosen)
    warm = (time.perf_counter() - started) / N_BATCHES
    return {"batch_mb": rows_mb / 2**20, "first_batch_disk_mb": from_disk, "warm_batch_seconds": warm}


def _size_mb(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*")) / 2**20


def run() -> dict[str, Any]:
    results: dict[str, Any] = {"shape": SHAPE, "batch_rows": BATCH, "batches": N_BATCHES}
    scratch = Path(tempfile.mkdtemp())
    try:
        large, small = scratch / "large", scratch / "small"
        drawn = isolated(_nothing, partial(_draw, large))
        results |= {"draw_seconds": drawn.seconds, "draw_peak_gb": drawn.peak_mb / 1024, **drawn.value}
        isolated(_nothing, partial(_convert, small))
        for name, folder in (("large", large), ("small", small)):
            opened = [isolated(_import_read, partial(_open, folder)) for _ in range(5)]
            gathered = isolated(partial(_open_for_batches, folder), _gather)
            results[name] = {
                "rows": opened[0].value,
                "folder_mb": _size_mb(folder),
                "open_seconds": median(one.seconds for one in opened),
                **gathered.value,
            }
    finally:
        shutil.rmtree(scratch)
    results["batch_time_ratio"] = results["large"]["warm_batch_seconds"] / results["small"]["warm_batch_seconds"]
    return results
