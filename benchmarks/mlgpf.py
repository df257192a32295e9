"""MLGPF without options on real data: scores, time and memory on the CPU, beside omikuji's Bonsai where it counts."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.record import DATA, isolated

DATASETS = ("eurlex-4k", "delicious", "bibtex")
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "ECE@1", "ECE@5")


def _prepare() -> Any:
    import labelfield

    return labelfield.MLGPFClassifier


def _train(name: str, classifier: Any) -> dict[str, Any]:
    import time

    import labelfield
    from labelfield import metrics

    started = time.perf_counter()
    data = labelfield.read(DATA / name)
    assert data.test is not None
    model = classifier(device="cpu").fit(data.X, data.Y)
    train_seconds = time.perf_counter() - started
    started = time.perf_counter()
    predictions = model.predict_topk(data.test.X, 5)
    predict_seconds = time.perf_counter() - started
    latencies = []
    for row in range(50):
        started = time.perf_counter()
        model.predict_topk(data.test.X[[row]], 5)
        latencies.append(time.perf_counter() - started)
    scores = metrics.evaluate(data.test.Y, predictions, data.Y)
    chosen = {key: getattr(model.spec_, key) for key in ("kernel", "n_latent", "n_inducing")}
    return {
        **chosen,
        "row_transform": model.row_transform_.name,
        "epochs": model.n_iter_,
        "train_seconds": train_seconds,
        "predict_seconds": predict_seconds,
        "one_row_ms": 1000 * median(latencies),
        **{key: scores[key] for key in SHOWN},
        "rows": scores["rows"],
        "one_positive_revealed": _reveal(model, data.test),
    }


def _reveal(model: Any, test: Any) -> dict[str, list[float]]:
    """P@1, 3, 5 on the other labels when one positive of each row is known, without and with conditioning on it."""
    from labelfield import metrics

    rows = np.flatnonzero(np.diff(test.Y.indptr) >= 2)
    X, Y = test.X[rows], sparse.csr_array(test.Y[rows])
    counts = np.diff(Y.indptr)
    picked = Y.indptr[:-1] + np.floor(np.random.default_rng(0).random(rows.size) * counts).astype(np.int64)
    known = sparse.csr_array((np.ones(rows.size, np.float32), (np.arange(rows.size), Y.indices[picked])), shape=Y.shape)
    rest = sparse.csr_array(Y - known)
    rest.eliminate_zeros()
    # Without: nothing is known when ranking, and the revealed label is taken off the list.
    plain = sparse.csr_array(model.predict_topk(X, 6))
    revealed = np.repeat(Y.indices[picked], np.diff(plain.indptr))
    plain.data = np.where(plain.indices == revealed, -1.0, plain.data)
    with_it = model.condition(X, known, k=5)
    return {
        name: [100 * metrics.precision_at_k(rest, scores, k) for k in (1, 3, 5)]
        for name, scores in (("without", plain), ("with", with_it))
    }


def _prepare_bonsai() -> Any:
    import os

    import omikuji

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it draws tens of thousands of progress bars
    return omikuji


def _train_bonsai(omikuji: Any) -> float:
    import gzip
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        path.write_bytes(gzip.decompress((DATA / "eurlex-4k" / "train.txt.gz").read_bytes()))
        hyper = omikuji.Model.default_hyper_param()
        hyper.cluster_balanced = False
        hyper.cluster_k = 100
        hyper.max_depth = 3
        omikuji.Model.train_on_data(str(path), hyper)
    return 0.0


def run() -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name in DATASETS:
        measured = isolated(_prepare, partial(_train, name))
        results[name] = {**measured.value, "peak_mb": measured.peak_mb}
    bonsai = isolated(_prepare_bonsai, _train_bonsai)
    results["eurlex-4k"]["bonsai_seconds"] = bonsai.seconds
    results["eurlex-4k"]["time_ratio"] = results["eurlex-4k"]["train_seconds"] / bonsai.seconds
    return results
