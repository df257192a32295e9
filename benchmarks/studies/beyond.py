"""Ten million rows on disk: converted from text and trained on by commands whose memory is limited.

Rows have words of their labels, so that there is something to learn. They are drawn and written block by block. A limit
on what the commands may allocate (RLIMIT_DATA) holds whatever the system does with pages of files, which it may drop at
any time. Beside it, the largest memory is stated in two ways: all pages (RSS), with those of files that happen to be in
memory, and allocated ones alone (anonymous).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.scale import Twin, draw_twin

SIZES = Twin(10_000_000, 100_000, 1_000, 20, 3)
LIMIT_MB = 1_536
BUDGET_S = 60
_ROWS = 200_000
_EVERY_S = 0.05
_OPTIONS = ("--set", "n_latent=32", "--set", "n_inducing=64", "--set", "label_linear=off", "--set", "batch_size=2000")


def run() -> dict[str, Any]:
    # Large files belong on a disk, and /tmp is memory on many systems.
    with TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        text, store, model, test = folder / "rows.svm", folder / "rows", folder / "model", folder / "test.svm"
        drawn = time.perf_counter()
        _write(text, SIZES.n_rows, 0)
        _write(test, 20_000, 1 << 20)
        drawn = time.perf_counter() - drawn
        text_mb = _megabytes(text)
        converted = _limited(folder, "convert", str(text), str(store))
        text.unlink()
        train = ["train", str(store), "--out", str(model), "--method", "mlgpf", *_OPTIONS]
        trained = _limited(folder, *train, "--time-budget", f"{BUDGET_S}s")
        scores = _command(folder, "evaluate", str(model), str(test), "--json")
        return {
            "rows": SIZES.n_rows,
            "non_zeros_per_row": SIZES.n_nonzeros,
            "labels": SIZES.n_labels,
            "seconds_of_drawing": drawn,
            "text_mb": text_mb,
            "folder_mb": _megabytes(store),
            "limit_mb": LIMIT_MB,
            "convert": converted._asdict(),
            "train": trained._asdict(),
            "train_budget_seconds": BUDGET_S,
            "options": " ".join(_OPTIONS),
            "steps": _steps(folder, model),
            "scores": scores,
        }


class Cost(NamedTuple):
    """What a command took: seconds, and its largest memory, of all pages and of those that it allocated."""

    seconds: float
    peak_rss_mb: float
    peak_anonymous_mb: float


def _write(path: Path, n_rows: int, seed: int) -> None:
    """Draw rows and write them as svmlight, a block at a time."""
    from labelfield.data.text import write_text

    with path.open("wb") as file:
        for number, first in enumerate(range(0, n_rows, _ROWS)):
            block = draw_twin(SIZES._replace(n_rows=min(_ROWS, n_rows - first)), seed + number)
            ones = block.X.copy()
            ones.data = np.ones_like(ones.data)
            whole = BytesIO()
            write_text(whole, block.with_parts(X=ones), svmlight=True, progress=lambda done, total: None)
            file.write(whole.getbuffer()[whole.getvalue().index(b"\n") + 1 :])  # without the header of a whole file


def _megabytes(path: Path) -> float:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) / 2**20


def _start(folder: Path, arguments: tuple[str, ...], limit: Any = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "labelfield", *arguments]
    environment = os.environ | {"TMPDIR": str(folder)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, preexec_fn=limit, text=True, **pipes)  # noqa: PLW1509


def _limited(folder: Path, *arguments: str) -> Cost:
    """Run a command of labelfield under the limit, and watch its memory."""
    n_bytes = LIMIT_MB << 20
    started = time.perf_counter()
    process = _start(folder, arguments, lambda: resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes)))
    rss = anonymous = 0.0
    while process.poll() is None:
        time.sleep(_EVERY_S)
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            rss = max(rss, _field(status, "VmHWM"))
            anonymous = max(anonymous, _field(status, "RssAnon"))
        except (FileNotFoundError, ProcessLookupError, IndexError):
            break  # it has just ended
    said = process.communicate()[1]
    if process.returncode:
        raise RuntimeError(f"labelfield {' '.join(arguments)} ended with code {process.returncode}: {said[-2000:]}")
    return Cost(time.perf_counter() - started, rss, anonymous)


def _field(status: str, name: str) -> float:
    return int(status.split(f"{name}:")[1].split(maxsplit=1)[0]) / 1024


def _command(folder: Path, *arguments: str) -> Any:
    import json

    process = _start(folder, arguments)
    shown, said = process.communicate()
    if process.returncode:
        raise RuntimeError(f"labelfield {' '.join(arguments)} ended with code {process.returncode}: {said[-2000:]}")
    return json.loads(shown)


def _steps(folder: Path, model: Path) -> dict[str, Any]:
    """Return how far the training came."""
    shown = _command(folder, "show", str(model), "--json")
    return {"epochs": len(shown["history"]), "seconds": shown["history"][-1]["seconds"], "batch_size": 2000}
