"""MLGPF without options where one label of each test row is already known, and the time per row."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA

DATASETS = ("eurlex-4k", "delicious", "bibtex")


def _prepare() -> Any:
    import labelfield

    return labelfield.MLGPFClassifier


def _train(name: str, classifier: Any) -> dict[str, Any]:
    import time

    import labelfield

    data = labelfield.read(DATA / name)
    assert data.test is not None
    model = classifier(device="cpu").fit(data.X, data.Y)
    latencies = []
    for row in range(50):
        started = time.perf_counter()
        model.predict_topk(data.test.X[[row]], 5)
        latencies.append(time.perf_counter() - started)
    return {"one_row_ms": 1000 * median(latencies), "one_positive_revealed": _reveal(model, data.test)}


def _reveal(model: Any, test: Any) -> dict[str, list[float]]:
    """Return P@1, 3, 5 on the other labels if one positive per row is known, without and with conditioning on it."""
    from labelfield import metrics

    rows = np.flatnonzero(np.diff(test.Y.indptr) >= 2)
    X, Y = test.X[rows], sparse.csr_array(test.Y[rows])
    counts = np.diff(Y.indptr)
    picked = Y.indptr[:-1] + np.floor(np.random.default_rng(0).random(rows.size) * counts).astype(np.int64)
    known = sparse.csr_array((np.ones(rows.size, np.float32), (np.arange(rows.size), Y.indices[picked])), shape=Y.shape)
    rest = sparse.csr_array(Y - known)
    rest.eliminate_zeros()
    # Without: labels are ranked as if none were known, and the revealed one is taken off the list.
    plain = sparse.csr_array(model.predict_topk(X, 6))
    revealed = np.repeat(Y.indices[picked], np.diff(plain.indptr))
    plain.data = np.where(plain.indices == revealed, -1.0, plain.data)
    with_it = model.condition(X, known, k=5)
    return {
        name: [100 * metrics.precision_at_k(rest, scores, k) for k in (1, 3, 5)]
        for name, scores in (("without", plain), ("with", with_it))
    }


def run() -> dict[str, Any]:
    return {name: isolated(_prepare, partial(_train, name)).value for name in DATASETS}
