"""The cost of a step as labels and features grow, and one epoch of data sets of the largest sizes in the papers.

Rows are random, with the sizes of the real data sets: time and memory depend on nothing else.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.measuring.isolated import isolated

N_LABELS = (4_000, 13_000, 40_000, 130_000, 400_000, 1_300_000, 4_000_000)
NONZEROS = (25, 50, 100, 200, 400)
N_ROWS = (250, 500, 1_000, 2_000, 4_000)
_ROWS, _FEATURES, _POOL = 500, 50_000, 1_500
_STEPS = 10


class Twin(NamedTuple):
    """The sizes of a data set: rows, features, labels, and how many features and labels each row has."""

    n_rows: int
    n_features: int
    n_labels: int
    n_nonzeros: int
    n_positives: int


TWINS = {
    "Wiki10-31K twin": Twin(14_146, 101_938, 30_938, 673, 19),
    "Delicious-large twin": Twin(196_606, 782_585, 205_443, 301, 76),
    "AmazonCat-13K twin": Twin(1_186_239, 203_882, 13_330, 71, 5),
    "WikiLSHTC-325K twin": Twin(1_778_351, 1_617_899, 325_056, 42, 3),
}


def _prepare() -> Any:
    import labelfield.estimators  # noqa: F401  # imported before the measurement

    return None


def _step(n_labels: int, n_nonzeros: int, n_rows: int, device: str, _: Any) -> dict[str, float]:
    """Time a step, from the bound to the optimiser, on batches with the same number of labels for any K."""
    import torch

    from labelfield.data import Dataset
    from labelfield.inference.adam import RowAdam
    from labelfield.inference.source import DatasetSource
    from labelfield.inference.stepper import Stepper
    from labelfield.models.mlgpf.spec import Spec, build

    rng = np.random.default_rng(0)
    features = rng.integers(_FEATURES, size=(n_rows, n_nonzeros))
    labels = rng.choice(n_labels, _POOL, replace=False)[rng.integers(_POOL, size=(n_rows, 5))]
    data = Dataset(_csr(features, _FEATURES, rng), _csr(labels, n_labels, None))
    spec = Spec(_FEATURES, n_labels, n_latent=100, n_inducing=200, kernel="se_linear_ard", n_support=8192)
    model = build(spec)
    with torch.no_grad():
        model.Phi.normal_(0, 0.1)
        model.inducing.fill(torch.rand(200, 8192), torch.arange(8192))  # type: ignore[operator]  # these are free
    model.to(device)

    def objective(X: Any, Y: Any, n_data: int, generator: Any) -> Any:
        return model.elbo(X, Y, n_data, n_negatives=1000, n_points=3, generator=generator)

    stepper = Stepper(objective, DatasetSource(data), RowAdam(model.parameters(), lr=1e-3), torch.Generator())
    times = []
    for _ in range(_STEPS):
        started = time.perf_counter()
        stepper.step(np.arange(n_rows), 10**6)
        stepper.read()
        times.append(time.perf_counter() - started)
    n_parameters = sum(p.numel() for p in model.parameters())
    return {"seconds": min(times[2:]), "parameters_mb": 4 * n_parameters / 2**20}


def _csr(columns: NDArray[np.integer[Any]], width: int, rng: np.random.Generator | None) -> sparse.csr_array:
    """Make rows with these columns, without duplicates; values are random, or 1."""
    columns = np.sort(columns, axis=1)
    kept = np.ones(columns.shape, np.bool_)
    kept[:, 1:] = columns[:, 1:] != columns[:, :-1]
    pointers = np.r_[0, np.cumsum(kept.sum(1))]
    indices = columns[kept].astype(np.int32)
    values = np.ones(indices.size, np.float32) if rng is None else 1 + rng.random(indices.size, np.float32)
    return sparse.csr_array((values, indices, pointers), shape=(len(columns), width))


def draw_twin(twin: Twin, seed: int) -> Any:
    """Draw a data set of these sizes, with frequent and rare labels and words, and ten words of its own per label."""
    import labelfield

    rng = np.random.default_rng(seed)
    parts = []
    for first in range(0, twin.n_rows, 1 << 16):
        n = min(1 << 16, twin.n_rows - first)
        labels = (twin.n_labels * rng.random((n, twin.n_positives)) ** 3).astype(np.int64)
        words = (twin.n_features * rng.random((n, twin.n_nonzeros), np.float32) ** 3).astype(np.int64)
        n_own = twin.n_nonzeros // 3
        whose = labels[np.arange(n)[:, None], rng.integers(twin.n_positives, size=(n, n_own))]
        words[:, :n_own] = (whose * 7919 + rng.integers(10, size=(n, n_own)) * 104_729) % twin.n_features
        parts.append((_csr(words, twin.n_features, rng), _csr(labels, twin.n_labels, None)))
    X, Y = (sparse.csr_array(sparse.vstack(part, format="csr")) for part in zip(*parts, strict=True))
    return labelfield.Dataset(X, Y)


def anonymous_mb() -> float:
    """Return the memory of this process without pages of files."""
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) / 1024


def train_twin(sizes: Twin, folder: Path, device: str, _: Any) -> dict[str, Any]:
    """Train for one epoch without options on a memory-mapped folder, and score other rows."""
    import labelfield
    from labelfield import metrics

    peak, is_over = [anonymous_mb()], threading.Event()
    before = peak[0]

    def watch() -> None:
        while not is_over.wait(0.1):
            peak.append(anonymous_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    train = labelfield.read(folder)
    model = labelfield.MLGPFClassifier(device=device, max_epochs=1, calibrate=False)
    started = time.perf_counter()
    rows = model.prepare(train.X, train.Y)
    prepared = time.perf_counter()
    model.train_prepared(rows)
    trained = time.perf_counter()
    is_over.set()
    watcher.join()
    test = draw_twin(sizes._replace(n_rows=5000), seed=1)
    scores = metrics.evaluate(test.Y, model.predict_topk(test.X, 5))
    return {
        "prepare_seconds": prepared - started,
        "epoch_seconds": trained - prepared,
        "peak_mb_beyond_data": max(peak) - before,
        "steps": -(-train.n_rows // model.settings_.batch_size),
        "parameters": sum(p.numel() for p in model.model_.parameters()),
        "P@1": scores["P@1"],
        "P@5": scores["P@5"],
    }


def twin(name: str, device: str) -> dict[str, Any]:
    """Draw a twin of a data set, open it memory-mapped, and train for an epoch."""
    scratch = Path(tempfile.mkdtemp())
    try:
        isolated(_prepare, partial(_draw, TWINS[name], scratch / "data"))
        measured = isolated(_prepare, partial(train_twin, TWINS[name], scratch / "data", device))
    finally:
        shutil.rmtree(scratch)
    return {"shape": list(TWINS[name]), **measured.value}


def _draw(sizes: Twin, folder: Path, _: Any) -> None:
    import labelfield

    labelfield.write(draw_twin(sizes, seed=0), folder)


def steps(device: str) -> dict[str, Any]:
    """Measure seconds of a step against labels, entries per row, and rows."""
    by_labels = {k: isolated(_prepare, partial(_step, k, 50, _ROWS, device)) for k in N_LABELS}
    by_nonzeros = {n: isolated(_prepare, partial(_step, 40_000, n, _ROWS, device)) for n in NONZEROS}
    by_rows = {n: isolated(_prepare, partial(_step, 40_000, 50, n, device)) for n in N_ROWS}
    return {
        "step_seconds_by_labels": {str(k): found.value["seconds"] for k, found in by_labels.items()},
        "peak_mb_by_labels": {str(k): found.peak_mb for k, found in by_labels.items()},
        "parameters_mb_by_labels": {str(k): found.value["parameters_mb"] for k, found in by_labels.items()},
        "step_seconds_by_nonzeros": {str(n): found.value["seconds"] for n, found in by_nonzeros.items()},
        "step_seconds_by_rows": {str(n): found.value["seconds"] for n, found in by_rows.items()},
    }


def run_steps() -> dict[str, Any]:
    return steps("cpu")


def run() -> dict[str, Any]:
    # The largest twin takes too long without a GPU.
    return {**steps("cpu"), **{name: twin(name, "cpu") for name in TWINS if name != "WikiLSHTC-325K twin"}}


def run_on_gpu() -> dict[str, Any]:
    return {**steps("cuda"), **{name: twin(name, "cuda") for name in TWINS}}
