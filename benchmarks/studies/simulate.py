"""Steps of a factor model at many sizes, measured on one core, and what the simulator says of them.

Half of the sizes teach the simulator how fast the machine is; it then predicts the other half. What a process sends in
a step is counted beside what the simulator says.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.simulator.fitting import Point, fitted
from benchmarks.simulator.step import Prediction, Sizes, Work
from benchmarks.studies.scale import _csr

N_POINTS = 24
# Those of the study scale.
OF_SCALE = Sizes(10**6, 50_000, 40_000, 50, 5, 100, 200, 500, 1000, 8192, n_pool=1_500)
_STEPS = 5
_SEED = 0


def run() -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(_SEED)
    points = [_measured(sizes) for sizes in (_drawn(rng) for _ in range(N_POINTS))]
    taught, asked = points[::2], points[1::2]
    machine = fitted("one core", taught)
    checked: list[dict[str, Any]] = [
        {
            "sizes": asdict(point.sizes),
            "labels_per_step": point.sizes.labels_per_step,
            "measured_ms": 1e3 * point.seconds,
            "predicted_ms": 1e3 * Prediction.of(point.sizes, machine).step_seconds,
        }
        for point in asked
    ]
    ratios = np.array([one["predicted_ms"] / one["measured_ms"] for one in checked])
    return {
        "points": [{"sizes": asdict(point.sizes), "seconds": point.seconds} for point in points],
        "machine": {name: value for name, value in asdict(machine).items() if name != "memory"},
        "checked": checked,
        "median_error": float(np.median(np.abs(ratios - 1))),
        "largest_error": float(np.abs(ratios - 1).max()),
        "traffic": traffic(OF_SCALE),
    }


def _drawn(rng: np.random.Generator) -> Sizes:
    """Draw sizes of a model and its batches, small enough for one core."""

    def between(low: float, high: float) -> int:
        return int(np.exp(rng.uniform(np.log(low), np.log(high))))

    return Sizes(
        n_rows=10**6,
        n_features=50_000,
        n_labels=between(4_000, 400_000),
        n_nonzeros=between(20, 200),
        n_positives=5,
        n_latent=between(30, 300),
        n_inducing=between(60, 400),
        batch_size=between(200, 1_200),
        n_negatives=between(200, 2_000),
        n_support=between(1_000, 8_192),
        n_pool=1_500,
    )


def _prepared(sizes: Sizes) -> tuple[Any, Any]:
    """Return a model of these sizes, and a batch."""
    import torch

    from labelfield.data import Dataset
    from labelfield.models.mlgpf.spec import Spec, build

    rng = np.random.default_rng(_SEED)
    features = rng.integers(sizes.n_features, size=(sizes.batch_size, int(sizes.n_nonzeros)))
    pool = rng.choice(sizes.n_labels, sizes.n_pool, replace=False)
    labels = pool[rng.integers(pool.size, size=(sizes.batch_size, int(sizes.n_positives)))]
    data = Dataset(_csr(features, sizes.n_features, rng), _csr(labels, sizes.n_labels, None))
    shape: dict[str, Any] = {"n_latent": sizes.n_latent, "n_inducing": sizes.n_inducing, "n_support": sizes.n_support}
    model = build(Spec(sizes.n_features, sizes.n_labels, kernel="se_linear_ard", **shape))
    with torch.no_grad():
        model.Phi.normal_(0, 0.1)
        every = torch.arange(sizes.n_support)
        model.inducing.fill(torch.rand(sizes.n_inducing, sizes.n_support), every)  # type: ignore[operator]  # free ones
    return model, data


def _measured(sizes: Sizes) -> Point:
    """Return the shortest of a few steps, from the bound to the optimiser."""
    import torch

    from labelfield.inference.adam import RowAdam
    from labelfield.inference.source import DatasetSource
    from labelfield.inference.stepper import Stepper

    model, data = _prepared(sizes)

    def objective(X: Any, Y: Any, n_data: int, generator: Any) -> Any:
        return model.elbo(X, Y, n_data, n_negatives=sizes.n_negatives, n_points=3, generator=generator)

    stepper = Stepper(objective, DatasetSource(data), RowAdam(model.parameters(), lr=1e-3), torch.Generator())
    times = []
    for _ in range(_STEPS):
        started = time.perf_counter()
        stepper.step(np.arange(sizes.batch_size), sizes.n_rows)
        stepper.read()
        times.append(time.perf_counter() - started)
    return Point(sizes, min(times[1:]))


def traffic(sizes: Sizes) -> dict[str, Any]:
    """Count the bytes that a process adds up with others in a step, beside what the simulator counts."""
    import torch

    from labelfield.cluster import Cluster
    from labelfield.inference.adam import RowAdam
    from labelfield.inference.source import DatasetSource
    from labelfield.inference.stepper import Stepper
    from labelfield.inference.team import Team
    from labelfield.models.mlgpf.shares import Shares

    class Counting(Cluster):
        n_bytes = 0

        def sum(self, what: str, tensor: Any) -> None:
            self.n_bytes += tensor.numel() * tensor.element_size()

    model, data = _prepared(sizes)
    cluster = Counting(0, 2)
    shares = Shares.of(model, cluster)
    team = Team(cluster, model, shares.keep(model))

    def objective(X: Any, Y: Any, n_data: int, generator: Any) -> Any:
        return model.elbo(X, Y, n_data, n_negatives=sizes.n_negatives, n_points=3, generator=generator, shares=shares)

    optimiser = RowAdam(model.parameters(), lr=1e-3)
    stepper = Stepper(objective, DatasetSource(data), optimiser, torch.Generator(), team=team)
    stepper.step(np.arange(sizes.batch_size), sizes.n_rows)
    # Of two processes each sends as much as it adds up.
    return {"sizes": asdict(sizes), "counted_bytes": cluster.n_bytes, "predicted_bytes": Work.of(sizes, 2).bytes_sent}
