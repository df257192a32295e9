"""The cost of the layer of processes on a CPU: beside GPyTorch's, and against the number of inducing points."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.gpytorch_dkl import prepare, prepare_layer_scaling, prepare_mlp, steps_per_second

__all__ = ["run_scaling", "run_steps"]

_N_ROUNDS = 5
# Points per dimension, for one, two and three features per process: m up to 10,000.
_GRIDS = {1: (64, 256, 1024, 4096, 10_000), 2: (8, 16, 32, 64, 100), 3: (5, 8, 12, 16, 21)}
# For GPyTorch only sizes that take less than a minute or two and a few GB.
_PEER_POINTS = (64, 256, 1024, 4096)
_N_PROCESSES, _N_ROWS = 2, 1000


def _ours(kernel_per_process: bool, n_inputs: int = 784, n_classes: int = 10, batch: int = 256) -> Callable[[], None]:
    """Return a step of our layer on the same network, grid, samples and batch."""
    import torch

    import labelfield
    from labelfield.inference.adam import RowAdam
    from labelfield.inference.deep import DeepTrainer
    from labelfield.inference.stepper import Stepper

    rng = np.random.default_rng(0)
    X = rng.normal(size=(batch, n_inputs)).astype(np.float32)
    y = np.arange(batch) % n_classes
    model = labelfield.DeepKernelClassifier(
        network="mlp",
        hidden=(256, 128),
        dropout=0.0,
        grid_size=64,
        kernel_per_process=kernel_per_process,
        n_samples=8,
        row_transform="none",
        calibrate=False,
        device="cpu",
    )
    data = model.prepare(X, y)
    trainer = model.trainer_
    assert isinstance(trainer, DeepTrainer)
    source = trainer.source(data)
    parameters = [parameter for parameter in model.model_.parameters() if parameter.requires_grad]
    stepper = Stepper(trainer.objective("joint"), source, RowAdam(parameters, 1e-3), torch.Generator().manual_seed(0))
    rows, labels = source.batch(np.arange(batch), torch.device("cpu"))
    return lambda: stepper.compute(rows, labels, batch)


def run_steps() -> dict[str, Any]:
    """Measure steps per second in turns, so that a slow minute affects all; ratios are within a round."""
    steps = {
        "ours": _ours(kernel_per_process=False),  # one kernel for all processes, as in the documentation of GPyTorch
        "ours, a kernel for each process": _ours(kernel_per_process=True),
        "gpytorch": prepare(),
        "network alone": prepare_mlp(),
    }
    rounds = [{name: steps_per_second(step, 2.0) for name, step in steps.items()} for _ in range(_N_ROUNDS)]
    over, own = (
        [found[name] / found["gpytorch"] for found in rounds] for name in ("ours", "ours, a kernel for each process")
    )
    behind = [found["network alone"] / found["ours"] for found in rounds]
    return {
        "shape": "784-256-128-10, grid 64, 8 samples, batch 256",
        "steps_per_second": {name: max(found[name] for found in rounds) for name in steps},
        "ours over gpytorch, each round": over,
        "ours over gpytorch": float(np.median(over)),
        "ours, a kernel for each process, over gpytorch": float(np.median(own)),
        "network alone over ours": float(np.median(behind)),
    }


def _layer(n_points: int, n_dimensions: int) -> Callable[[], None]:
    """Return the bound of two processes on rows of features with its gradient, also in the features."""
    import torch

    from labelfield.models.deep.plan import plan
    from labelfield.models.deep.spec import DeepSpec, build
    from labelfield.networks import NetworkSpec

    width = _N_PROCESSES * n_dimensions
    subsets = tuple(tuple(range(j * n_dimensions, (j + 1) * n_dimensions)) for j in range(_N_PROCESSES))
    chosen = plan(_N_ROWS, 10, 2, False, "mlp", n_dimensions, n_points)
    network = NetworkSpec("mlp", 10, width, ())
    spec = DeepSpec(10, 2, network, width, subsets, n_points, posterior=chosen.posterior, moments="sampled")
    model = build(spec)
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(_N_ROWS, width, generator=generator).requires_grad_()
    with torch.no_grad():
        model.A.copy_(torch.eye(2))
    model.processes.start(h.detach())
    Y = torch.sparse_csr_tensor(
        torch.arange(_N_ROWS + 1, dtype=torch.int32),
        (torch.arange(_N_ROWS) % 2).int(),
        torch.ones(_N_ROWS),
        size=(_N_ROWS, 2),
        check_invariants=False,
    )

    def evaluate() -> None:
        model.zero_grad(set_to_none=True)
        h.grad = None
        (-model.elbo(h, Y, _N_ROWS, generator=generator).bound()).backward()  # type: ignore[no-untyped-call]  # torch's is untyped

    return evaluate


def _time(evaluate: Callable[[], None]) -> float:
    """Return the median of a few evaluations, or a single one if they take long, after one to warm up."""
    started = time.perf_counter()
    evaluate()
    first = time.perf_counter() - started
    if first > 20:
        return first
    n_times = 1 if first > 5 else 7
    times = []
    for _ in range(n_times):
        started = time.perf_counter()
        evaluate()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def run_scaling() -> dict[str, Any]:
    """Measure an evaluation of the bound and its gradient against m, and the power of m it grows by from m = 500 on."""
    results: dict[str, Any] = {"processes": _N_PROCESSES, "rows": _N_ROWS}
    for n_dimensions, grids in _GRIDS.items():
        seconds = {str(n**n_dimensions): _time(_layer(n, n_dimensions)) for n in grids}
        results[f"seconds, d = {n_dimensions}"] = seconds
        large = {int(m): value for m, value in seconds.items() if int(m) >= 500}
        slope = np.polyfit(np.log(list(large)), np.log(list(large.values())), 1)[0]
        results[f"power of m, d = {n_dimensions}"] = float(slope)
        print(n_dimensions, seconds, flush=True)
    for name, is_free in (("gpytorch grid", False), ("gpytorch free", True)):
        seconds = {}
        for m in _PEER_POINTS:
            seconds[str(m)] = _time(prepare_layer_scaling(m, is_free=is_free))
            print(name, seconds, flush=True)
        results[f"seconds, {name}, d = 1"] = seconds
    return results
