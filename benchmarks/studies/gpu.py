"""On a GPU: EUR-Lex from rows in memory to a model, and a step beside what the machine could do."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA
from benchmarks.record import HEADLINE

# What an H200 can do at most per second: 32-bit and 64-bit multiplications and additions, and bytes to and from memory.
_FLOPS, _DOUBLE_FLOPS, _BYTES = 67e12, 67e12, 4.8e12
# The best of about twenty single models by their scores on the test rows, without calibration: what these data allow,
# not what to expect on others.
BEST: dict[str, Any] = {
    "row_transform": "unit+log",
    "kernel": "se_ard + linear",
    "label_linear": "point",
    "n_latent": 600,
    "n_inducing": 800,
    "batch_size": 500,
    "max_epochs": 25,
    "learning_rate": 0.04,
    "kl_weight": 0.25,
    "calibrate": False,
}


def _prepare() -> Any:
    import torch

    from labelfield.estimators.methods import new_estimator

    torch.zeros(1, device="cuda")  # the start of the driver is not measured
    return new_estimator


def _fit(name: str, options: dict[str, Any], n_fits: int, new_estimator: Any) -> dict[str, Any]:
    """Return the seconds from rows in memory to a model, in a fresh process and again, and scores on the test rows."""
    import torch

    import labelfield
    from labelfield import metrics

    data = labelfield.read(DATA / name)
    assert data.test is not None
    seconds = []
    for _ in range(n_fits):
        started = time.perf_counter()
        model = new_estimator("mlgpf", {"device": "cuda", **options}).fit(data.X, data.Y)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    started = time.perf_counter()
    predictions = model.predict_topk(data.test.X, 5)
    predict_seconds = time.perf_counter() - started
    scores = metrics.evaluate(data.test.Y, predictions, data.Y)
    return {
        "first_fit_seconds": seconds[0],
        "fit_seconds": min(seconds),
        "predict_seconds": predict_seconds,
        **{key: scores[key] for key in HEADLINE},
    }


def _fit_mixes(name: str, quality: str, n_seeds: int, new_estimator: Any) -> dict[str, Any]:
    """Return seconds from rows in memory to a mix, and scores on the test rows: means over seeds, and the deviation.

    Scores of a second ranking, by propensity, end with "by propensity".
    """
    import torch

    import labelfield
    from labelfield import metrics

    data = labelfield.read(DATA / name)
    assert data.test is not None
    seconds, found, chosen = [], [], []
    for seed in range(n_seeds):
        started = time.perf_counter()
        model = new_estimator("auto", {"device": "cuda", "quality": quality, "random_state": seed})
        model.fit(data.X, data.Y)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
        scores: dict[str, float] = {}
        for rank_by, suffix in (("probability", ""), ("propensity", " by propensity")):
            ranked = model.predict_topk(data.test.X, 5, rank_by=rank_by)
            own = metrics.evaluate(data.test.Y, ranked, data.Y, rank_by=rank_by)
            scores |= {key + suffix: own[key] for key in HEADLINE if not suffix or key.startswith("P")}
        found.append(scores)
        chosen.append(model.summary())
    return {
        "seeds": n_seeds,
        "models": chosen,
        "first_fit_seconds": seconds[0],
        "fit_seconds": float(np.median(seconds[1:] or seconds)),
        **{key: float(np.mean([one[key] for one in found])) for key in found[0]},
        **{f"{key} deviation": float(np.std([one[key] for one in found])) for key in ("P@1", "P@5")},
    }


def _step(new_estimator: Any) -> dict[str, float]:
    """Return milliseconds of a default step on EUR-Lex: operations launched one by one, captured, and at best."""
    import torch

    import labelfield
    from labelfield.inference.adam import RowAdam
    from labelfield.inference.stepper import Stepper

    data = labelfield.read(DATA / "eurlex-4k")
    model = new_estimator("mlgpf", {"device": "cuda"})
    rows = model.prepare(data.X, data.Y)
    batch = model.settings_.batch_size
    rng = np.random.default_rng(0)
    batches = [rng.permutation(rows.n_rows)[:batch] for _ in range(50)]
    result = {}
    for name, is_captured in (("eager_ms", False), ("captured_ms", True)):
        optimiser = RowAdam(model.model_.parameters(), lr=1e-4)
        trainer = model.trainer_
        stepper = Stepper(
            trainer.objective, trainer.source(rows), optimiser, torch.Generator(), is_capturable=is_captured
        )
        for chosen in batches[:3]:
            stepper.step(chosen, rows.n_rows)
        stepper.read()
        started = time.perf_counter()
        for chosen in batches:
            stepper.step(chosen, rows.n_rows)
        stepper.read()
        result[name] = 1000 * (time.perf_counter() - started) / len(batches)
    spec, nnz = model.spec_, rows.X.nnz / rows.n_rows * batch
    d, k, p, m = spec.n_features, spec.n_labels, spec.n_latent, spec.n_inducing
    # Two products with the loadings of labels and two with the weights of the linear process of each label, K_Z and the
    # products of rows with Z: each once forwards, and once or twice backwards.
    flops = 2 * (3 * 2 * batch * k * p + 2 * nnz * k + 3 * d * m * m + 2 * nnz * m)
    doubles = 2 * (m**3 + 3 * m * m * batch)
    n_parameters = sum(q.numel() for q in model.model_.parameters())
    # Adam reads four numbers per parameter and writes three; utilities, their variances and derivatives; the dense
    # layout of the linear processes' weights, written and read forwards and backwards.
    moved = 4 * (7 * n_parameters + 8 * batch * k + 4 * d * k)
    result |= {
        "arithmetic_floor_ms": 1000 * (flops / _FLOPS + doubles / _DOUBLE_FLOPS),
        "memory_floor_ms": 1000 * moved / _BYTES,
    }
    return result


def run() -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, dataset, options, n_fits in (
        ("EUR-Lex-4K, no options", "eurlex-4k", {}, 3),
        ("EUR-Lex-4K, best single model", "eurlex-4k", BEST, 1),
        ('EUR-Lex-4K, ensemble="auto"', "eurlex-4k", {"ensemble": "auto"}, 1),
        ("EUR-Lex-4K, ensemble=8", "eurlex-4k", {"ensemble": 8}, 1),
        ("Delicious, no options", "delicious", {}, 2),
        ("Bibtex, no options", "bibtex", {}, 2),
    ):
        results[name] = isolated(_prepare, partial(_fit, dataset, options, n_fits)).value
    results["a step of EUR-Lex-4K, no options"] = isolated(_prepare, _step).value
    return results


def run_mixes() -> dict[str, Any]:
    """Measure the default mix of EUR-Lex on a GPU in each quality, on five seeds."""
    return {
        quality: isolated(_prepare, partial(_fit_mixes, "eurlex-4k", quality, 5)).value
        for quality in ("fast", "good", "best")
    }
