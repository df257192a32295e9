"""`python -m benchmarks.run NAME …`, or `labelfield bench NAME`: run studies and append their records."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.record import DATA, accelerator, write_record

# What each study is; read by `labelfield bench list` without running anything.
STUDIES: dict[str, str] = {
    "reading": "reading EUR-Lex text: time against scikit-learn's reader, and memory",
    "scores": "ranking scores: time against napkinXC, and of a million rows",
    "large": "a million synthetic rows drawn, written, opened and read in batches",
    "revealed": "MLGPF with one label of each row known, and the time of one row",
    "ensemble": "what each member of an ensemble adds on EUR-Lex",
    "steps": "one step of the papers' model: ours, GPyTorch's and GPflow's",
    "subspace": "a step with inducing inputs in a subspace, against the number of features",
    "trust": "does uncertainty find mistakes, and do intervals hold the truth",
    "scale": "what a step costs as labels and features grow",
    "multiclass": "rings, and steps with many classes",
    "covertype": "one-vs-each on Covertype beside scikit-learn",
    "deep-steps": "a step of deep kernels beside GPyTorch's",
    "deep-scaling": "a step of deep kernels against the number of inducing points",
    "topics": "topics: AUC, few labels observed, and what a step costs",
    "gpu": "EUR-Lex, Delicious and Bibtex on a GPU",
    "gpu-scale": "an epoch of the largest data sets on a GPU",
    "gpu-mnist": "the thesis' six methods on MNIST, on a GPU",
    "gpu-deep": "deep kernels on EUR-Lex, and their overhead, on a GPU",
    "gpu-deep-tables": "deep kernels on the paper's tables, on a GPU",
    "gpu-mnist-binary": "deep kernels on odd and even digits, on a GPU",
    "gpu-topics": "topics of EUR-Lex on a GPU",
}
# Where a study is, if not in `run` of the module of its name.
_ELSEWHERE = {
    "covertype": ("multiclass", "run_covertype"),
    "deep-steps": ("deep_cost", "run_steps"),
    "deep-scaling": ("deep_cost", "run_scaling"),
    "gpu-scale": ("scale", "run_on_gpu"),
    "gpu-mnist": ("multiclass", "run_on_gpu"),
    "gpu-deep": ("deep", "run_on_gpu"),
    "gpu-deep-tables": ("deep", "run_tables"),
    "gpu-mnist-binary": ("deep", "run_mnist_binary"),
    "gpu-topics": ("topics", "run_on_gpu"),
}
NEEDS_DATA = {
    **dict.fromkeys(("reading", "large", "revealed", "ensemble", "trust", "gpu", "topics", "gpu-topics"), "eurlex-4k"),
    "covertype": "covertype",
    "gpu-mnist": "mnist",
    "gpu-deep": "mnist",
    "gpu-mnist-binary": "mnist",
    "gpu-deep-tables": "adult",
}
NEEDS_GPU = tuple(name for name in STUDIES if name.startswith("gpu"))


def study(name: str) -> Callable[[], dict[str, Any]]:
    """The function that makes the results of a study."""
    module, function = _ELSEWHERE.get(name, (name, "run"))
    found: Callable[[], dict[str, Any]] = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    return found


def _what_is_missing(name: str) -> str | None:
    """Why a study cannot be run here, if it cannot."""
    needed = NEEDS_DATA.get(name)
    if needed and not (DATA / needed).is_dir():
        return f"{needed} is not at {DATA}; set LABELFIELD_DATA"
    return "there is no GPU here" if name in NEEDS_GPU and accelerator() is None else None


def main() -> None:
    names = sys.argv[1:]
    unknown = [name for name in names if name not in STUDIES]
    if unknown or not names:
        problem = f"no study {unknown[0]}" if unknown else "which study?"
        sys.exit(f"{problem} There are {', '.join(STUDIES)}.")
    skipped = {name: why for name in names if (why := _what_is_missing(name))}
    for name in names:
        if name not in skipped:
            print(f"{name} …", flush=True)
            path = write_record(name, study(name)())
            print(f"{name}: {path.relative_to(path.parents[2])}", flush=True)
    if skipped:  # whoever asked must not take the last record for a new one
        sys.exit("\n".join(f"{name}: not measured, {why}" for name, why in skipped.items()))


if __name__ == "__main__":
    main()
