"""Topics of labels: AUC on the paper's data sets, with few labels observed, and the cost of a step."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA

__all__ = ["run", "run_cost", "run_few_written", "run_on_gpu"]

# The AUC of the paper, and how many topics ours takes.
_PUBLISHED = {"bibtex": 0.921, "delicious": 0.895, "eurlex-4k": 0.952}
_PUBLISHED_FEW = 0.842
_N_TOPICS = 100
_SHARE_OBSERVED = 0.2
_SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
_MOST_LABELS = 1_000_000
_N_STEPS, _N_ROUNDS = 1, 40


def _prepare() -> None:
    import labelfield.estimators  # noqa: F401  # imported before the measurement


def _aucs(truth: Any, P: NDArray[np.float32]) -> dict[str, float]:
    from labelfield import metrics

    return {f"AUC {kind}": float(metrics.auc(truth, P, average=kind)) for kind in ("micro", "label", "row")}


def _fit(name: str, options: dict[str, Any], observed: float | None, _: None) -> dict[str, Any]:
    import labelfield
    from labelfield import metrics

    data = labelfield.read(DATA / name)
    assert data.test is not None
    seen = None if observed is None else np.random.default_rng(0).random(data.Y.shape) < observed
    model = labelfield.TopicClassifier(**{"n_topics": _N_TOPICS, **options}).fit(data.X, data.Y, observed=seen)
    scores = metrics.evaluate(data.test.Y, model.predict_topk(data.test.X, 5))
    status = Path("/proc/self/status").read_text()
    return {
        **_aucs(data.test.Y, model.predict_proba(data.test.X)),
        **{score: scores[score] for score in ("P@1", "P@3", "P@5", "ECE@1", "ECE@5")},
        "steps": model.n_iter_,
        "seconds of training": model.history_[-1]["seconds"],
        "peak_mb of training": int(status.split("VmHWM:")[1].split()[0]) / 1024,
    }


def _step_costs(problems: dict[str, Any]) -> tuple[dict[str, float], dict[str, int]]:
    """Return for each problem the seconds of a step and how many numbers it reads and writes.

    The seconds are the lowest over rounds of the mean of some steps; problems take turns.
    """
    import torch

    from labelfield.topics.em import EMOptions, EMState, em_step
    from labelfield.topics.rows import active_labels, topic_rows
    from labelfield.topics.start import start_topics
    from labelfield.topics.state import Priors

    options, states = EMOptions(), {}
    for name, (X, Y) in problems.items():
        rows = topic_rows(X, Y, active_labels(Y, None))
        start = start_topics(rows, _N_TOPICS, Y.shape[1], Priors(), torch.Generator().manual_seed(0))
        states[name] = (em_step(EMState(start), rows, options)[0], rows)
    seconds: dict[str, list[float]] = {name: [] for name in states}
    for _ in range(_N_ROUNDS):
        for name, (state, rows) in states.items():
            started = time.perf_counter()
            for _ in range(_N_STEPS):
                state, _ = em_step(state, rows, options)  # noqa: PLW2901  # the next step continues from here
            seconds[name].append((time.perf_counter() - started) / _N_STEPS)
    numbers = {
        name: _numbers(lambda state=state, rows=rows: em_step(state, rows, options))
        for name, (state, rows) in states.items()
    }
    return {name: min(times) for name, times in seconds.items()}, numbers


def _numbers(work: Any) -> int:
    """Return how many numbers the operations of some work read and write: a cost that no other process disturbs."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's is untyped
        total = 0

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # or a second goes by until the compiler is imported

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            for part in torch.utils._pytree.tree_leaves((args, kwargs, result)):
                if isinstance(part, torch.Tensor):
                    Counter.total += part.values().numel() if part.layout == torch.sparse_csr else part.numel()
            return result

    with Counter():  # type: ignore[no-untyped-call]
        work()
    return Counter.total


def _cost(_: None) -> dict[str, Any]:
    import labelfield
    from labelfield.data.transform import RowTransform

    data = labelfield.read(DATA / "delicious")
    X = RowTransform.fit("unit", data.X)(data.X)
    rng, problems, entries = np.random.default_rng(0), {}, {}
    for share in _SHARES:
        kept = sparse.csr_array(data.Y, copy=True)
        kept.data = (rng.random(kept.nnz) < share).astype(np.float32)
        kept.eliminate_zeros()
        problems[f"{share:.0%}"], entries[f"{share:.0%}"] = (X, kept), kept.nnz
    wide = sparse.csr_array((data.Y.data, data.Y.indices, data.Y.indptr), shape=(data.n_rows, _MOST_LABELS))
    problems["padded"] = (X, wide)
    seconds, numbers = _step_costs(problems)

    def straightness(values: dict[str, Any]) -> float:
        """Return r² of a line through these values against the positives."""
        x, y = (np.array([own[key] for key in entries], np.float64) for own in (entries, values))
        slope, intercept = np.polyfit(x, y, 1)
        return float(1 - (y - (slope * x + intercept)).var() / y.var())

    wide = f"a step with {_MOST_LABELS:,} labels over one with {data.n_labels}"
    return {
        "positives": entries,
        "seconds a step": {key: seconds[key] for key in entries},
        "numbers a step": {key: numbers[key] for key in entries},
        "r squared of a line": straightness(seconds),
        wide: seconds["padded"] / seconds["100%"],
        "numbers, r squared of a line": straightness(numbers),
        f"numbers, {wide}": numbers["padded"] / numbers["100%"],
    }


def run() -> dict[str, Any]:
    """Measure each data set in a process of its own."""
    results: dict[str, Any] = {"topics": _N_TOPICS}
    for name, published in _PUBLISHED.items():
        found = isolated(_prepare, partial(_fit, name, {"device": "cpu"}, None)).value
        results[name] = {"published AUC": published, **found}
        print(name, results[name], flush=True)
    few = isolated(_prepare, partial(_fit, "bibtex", {"device": "cpu"}, _SHARE_OBSERVED)).value
    results[f"bibtex, {_SHARE_OBSERVED:.0%} of labels observed"] = {"published AUC": _PUBLISHED_FEW, **few}
    print(few, flush=True)
    return results


def run_cost() -> dict[str, Any]:
    """Measure steps on Delicious with a fifth to all of its positive labels, in seconds and in numbers touched."""
    return dict(isolated(_prepare, _cost).value)


def run_few_written() -> dict[str, Any]:
    """Run the paper's model to the letter where a fifth of the labels was seen, with its K of 40 % of the labels."""
    from labelfield.presets import PRESETS

    options = {**PRESETS["bmlpl"].options, "n_topics": 64, "device": "cpu"}
    return {"bibtex": isolated(_prepare, partial(_fit, "bibtex", options, _SHARE_OBSERVED)).value}


def run_on_gpu() -> dict[str, Any]:
    """Measure EUR-Lex with nothing else on the GPU; a first run warms it up."""
    _fit("eurlex-4k", {"device": "cuda", "max_epochs": 3}, None, None)
    found = _fit("eurlex-4k", {"device": "cuda"}, None, None)
    found.pop("peak_mb of training")  # the host's
    return {"topics": _N_TOPICS, "eurlex-4k": found}
