"""How fast a machine is, from steps that were measured on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks.record import Record
from benchmarks.simulator.step import Machine, Sizes, Work


class Point(NamedTuple):
    """Sizes at which a step was measured, and its seconds."""

    sizes: Sizes
    seconds: float


def fitted(name: str, points: Sequence[Point], memory: float = float("inf")) -> Machine:
    """Return the machine that explains these points best, by relative errors; no rate is negative."""
    counted = np.array([[1.0, *Work.of(point.sizes)[:3]] for point in points])
    seconds = np.array([point.seconds for point in points])
    largest = counted.max(0)
    found, _ = nnls(counted / largest / seconds[:, None], np.ones(len(points)))
    overhead, per_operation, per_entry, per_byte = (found / largest).tolist()
    return Machine(name, overhead, per_operation, per_entry, per_byte, memory)


def recorded_points(record: Record) -> dict[str, Point]:
    """Return the steps that the studies scale and gpu-scale have measured, by name."""
    results, found = record["results"], dict[str, Point]()
    base = Sizes(10**6, 50_000, 40_000, 50, 5, 100, 200, 500, 1000, 8192, n_pool=1_500)
    for n_labels, seconds in results["step_seconds_by_labels"].items():
        found[f"{int(n_labels):,} labels"] = Point(replace(base, n_labels=int(n_labels)), seconds)
    for n_nonzeros, seconds in results["step_seconds_by_nonzeros"].items():
        found[f"{n_nonzeros} values per row"] = Point(replace(base, n_nonzeros=int(n_nonzeros)), seconds)
    for name, twin in results.items():
        if name.endswith("twin"):
            # Trained without options: the sizes that the plan of the model gives to data like these.
            model: dict[str, int] = {"n_latent": 300, "n_inducing": 400, "batch_size": 1000}
            found[name] = Point(Sizes(*twin["shape"], **model), twin["epoch_seconds"] / twin["steps"])
    return found
