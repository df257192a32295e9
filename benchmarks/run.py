"""`python -m benchmarks.run [NAME …]`: run benchmarks and write their records."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks import (
    deep,
    deep_cost,
    ensemble,
    gpu,
    large,
    mlgpf,
    multiclass,
    reading,
    scale,
    scores,
    steps,
    subspace,
    topics,
    trust,
)
from benchmarks.record import DATA, accelerator, write_record

BENCHMARKS: dict[str, Callable[[], dict[str, Any]]] = {
    "reading": reading.run,
    "scores": scores.run,
    "large": large.run,
    "mlgpf": mlgpf.run,
    "ensemble": ensemble.run,
    "steps": steps.run,
    "subspace": subspace.run,
    "trust": trust.run,
    "scale": scale.run,
    "multiclass": multiclass.run,
    "covertype": multiclass.run_covertype,
    "deep-steps": deep_cost.run_steps,
    "deep-scaling": deep_cost.run_scaling,
    "topics": topics.run,
    "gpu": gpu.run,
    "gpu-scale": scale.run_on_gpu,
    "gpu-mnist": multiclass.run_on_gpu,
    "gpu-deep": deep.run_on_gpu,
    "gpu-deep-tables": deep.run_tables,
    "gpu-topics": topics.run_on_gpu,
}
NEEDS_DATA = {
    **dict.fromkeys(("reading", "large", "mlgpf", "ensemble", "trust", "gpu", "topics", "gpu-topics"), "eurlex-4k"),
    "covertype": "covertype",
    "gpu-mnist": "mnist",
    "gpu-deep": "mnist",
    "gpu-deep-tables": "adult",
}
NEEDS_GPU = tuple(name for name in BENCHMARKS if name.startswith("gpu"))


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    for name in names:
        needed = NEEDS_DATA.get(name)
        if needed and not (DATA / needed).is_dir():
            print(f"{name}: skipped, {needed} is not at {DATA}; set LABELFIELD_DATA", flush=True)
            continue
        if name in NEEDS_GPU and accelerator() is None:
            print(f"{name}: skipped, there is no GPU here", flush=True)
            continue
        print(f"{name} …", flush=True)
        path = write_record(name, BENCHMARKS[name]())
        print(f"{name}: {path.relative_to(path.parents[2])}", flush=True)


if __name__ == "__main__":
    main()
