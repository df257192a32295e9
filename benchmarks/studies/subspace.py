"""A step with inducing inputs in a subspace and rows projected once: its cost does not depend on D."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measuring.isolated import isolated

FEATURES = (5_000, 50_000, 500_000)
N_ROWS, N_LABELS, STEPS = 2_000, 100, 30


def _prepare(n_features: int) -> Any:
    import torch

    import labelfield
    from labelfield.inference.fitting import GradientTrainer

    data = labelfield.synth.make_multilabel(N_ROWS, n_features, N_LABELS, n_nonzeros=50)
    model = labelfield.MLGPFClassifier(
        n_latent=100, n_inducing=100, rank=200, kernel="se", inducing="subspace", device="cpu"
    )
    rows = model.prepare(data.X, data.Y)
    trainer = model.trainer_
    assert isinstance(trainer, GradientTrainer)
    return torch, model, trainer.source(rows)


def _steps(prepared: Any) -> float:
    torch, model, source = prepared
    trained = [p for p in model.model_.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(trained, lr=0.01, fused=True)
    times = []
    for i in range(STEPS):
        rows = np.random.default_rng(i).choice(N_ROWS, 250, replace=False)
        started = time.perf_counter()
        X, Y = source.batch(rows, torch.device("cpu"))
        optimiser.zero_grad()
        (-model.model_.elbo(X, Y, N_ROWS, n_points=3).bound()).backward()
        optimiser.step()
        times.append(time.perf_counter() - started)
    return median(times)


def run() -> dict[str, Any]:
    seconds = {d: isolated(partial(_prepare, d), _steps).value for d in FEATURES}
    return {
        **{f"step_ms_at_{d}_features": 1000 * value for d, value in seconds.items()},
        "largest_over_smallest": max(seconds.values()) / min(seconds.values()),
    }
