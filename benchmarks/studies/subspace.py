"""Inducing inputs in a subspace against free ones as features grow: time, memory and scores.

Rows are projected once, so that a step in a subspace does not depend on D. Free inputs have values on the 8,192 most
frequent features by default, and on all of them in the papers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA

__all__ = ["run"]

_SIZES: dict[str, Any] = {"n_latent": 100, "n_inducing": 100, "kernel": "se", "label_linear": "off", "calibrate": False}
_SIZES |= {"batch_size": 250, "max_epochs": 8, "learning_rate": 0.02, "kl_weight": 1.0, "row_transform": "unit"}
_KINDS: dict[str, dict[str, Any]] = {
    "subspace": {"inducing": "subspace", "rank": 200},
    "free, 8,192 features": {"inducing": "free"},
    "free, all features": {"inducing": "free", "n_support": 0},
}
# Rows drawn from the model, by their number of features, and real ones.
_TWINS = {"twin, 5,000 features": 5_000, "twin, 500,000 features": 500_000}
_REAL = "rcv1sub1"


def _prepare(name: str) -> Any:
    import labelfield

    if name not in _TWINS:
        return labelfield.read(DATA / name)
    return labelfield.synth.make_multilabel(5_000, _TWINS[name], 100, n_nonzeros=50).split(0.2)


def _fit(options: dict[str, Any], data: Any) -> dict[str, float]:
    import time

    import labelfield
    from labelfield import metrics

    model = labelfield.MLGPFClassifier(**_SIZES, **options, device="cpu")
    started = time.perf_counter()
    rows = model.prepare(data.X, data.Y)
    prepared = time.perf_counter()
    history = model.train_prepared(rows).history_
    done = time.perf_counter()
    # The first epoch also pays for what is made once, such as the projected rows and the state of the optimiser.
    per_epoch = (history[-1]["seconds"] - history[0]["seconds"]) / (len(history) - 1)
    scores = metrics.evaluate(data.test.Y, model.predict_topk(data.test.X, 5))
    return {
        "seconds until the first step": prepared - started,
        "seconds of training": done - prepared,
        "ms per step": 1000 * per_epoch / -(-data.n_rows // _SIZES["batch_size"]),
        **{score: scores[score] for score in ("P@1", "P@3", "P@5")},
    }


def run() -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name in (*_TWINS, _REAL):
        own: dict[str, Any] = {}
        for kind, options in _KINDS.items():
            found = isolated(partial(_prepare, name), partial(_fit, options))
            own[kind] = {**found.value, "peak_mb": found.peak_mb}
            print(name, kind, own[kind], flush=True)
        for kind in list(own)[1:]:
            ratio = own[kind]["ms per step"] / own["subspace"]["ms per step"]
            own[f"a step over one in the subspace: {kind}"] = ratio
        results[name] = own
    return results
