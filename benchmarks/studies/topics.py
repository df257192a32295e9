"""Topics of labels: AUC on the paper's data sets, with few labels observed, and what a step costs."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.record import DATA, ROOT, isolated

__all__ = ["draw_times", "run", "run_on_gpu", "write_topics"]

# The paper's AUC, and the topics it was reached with here.
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
    model = labelfield.TopicClassifier(n_topics=_N_TOPICS, **options).fit(data.X, data.Y, observed=seen)
    scores = metrics.evaluate(data.test.Y, model.predict_topk(data.test.X, 5))
    status = Path("/proc/self/status").read_text()
    return {
        **_aucs(data.test.Y, model.predict_proba(data.test.X)),
        **{score: scores[score] for score in ("P@1", "P@3", "P@5", "ECE@1", "ECE@5")},
        "steps": model.n_iter_,
        "seconds of training": model.history_[-1]["seconds"],
        "peak_mb of training": int(status.split("VmHWM:")[1].split()[0]) / 1024,
    }


def _step_seconds(problems: dict[str, Any]) -> dict[str, float]:
    """Of each problem the least over rounds of the mean of some steps, taken in turns."""
    import torch

    from labelfield.topics.em import EMOptions, em_step, start_em
    from labelfield.topics.rows import active_labels, topic_rows
    from labelfield.topics.state import Priors, start_topics

    options, states = EMOptions(), {}
    for name, (X, Y) in problems.items():
        rows = topic_rows(X, Y, active_labels(Y, None))
        start = start_topics(rows, _N_TOPICS, Y.shape[1], Priors(), torch.Generator().manual_seed(0))
        states[name] = (em_step(start_em(start), rows, options)[0], rows)
    seconds: dict[str, list[float]] = {name: [] for name in states}
    for _ in range(_N_ROUNDS):
        for name, (state, rows) in states.items():
            started = time.perf_counter()
            for _ in range(_N_STEPS):
                state, _ = em_step(state, rows, options)  # noqa: PLW2901  # goes on from here
            seconds[name].append((time.perf_counter() - started) / _N_STEPS)
    return {name: min(times) for name, times in seconds.items()}


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
    seconds = _step_seconds(problems)
    x, y = (np.array([values[key] for key in entries]) for values in (entries, seconds))
    slope, intercept = np.polyfit(x, y, 1)
    left = y - (slope * x + intercept)
    return {
        "positives": entries,
        "seconds a step": {key: seconds[key] for key in entries},
        "r squared of a line": float(1 - left.var() / y.var()),
        f"a step with {_MOST_LABELS:,} labels over one with {data.n_labels}": seconds["padded"] / seconds["100%"],
    }


def run() -> dict[str, Any]:
    """Each in a process of its own."""
    results: dict[str, Any] = {"topics": _N_TOPICS}
    for name, published in _PUBLISHED.items():
        found = isolated(_prepare, partial(_fit, name, {"device": "cpu"}, None)).value
        results[name] = {"published AUC": published, **found}
        print(name, results[name], flush=True)
    few = isolated(_prepare, partial(_fit, "bibtex", {"device": "cpu"}, _SHARE_OBSERVED)).value
    results[f"bibtex, {_SHARE_OBSERVED:.0%} of labels observed"] = {"published AUC": _PUBLISHED_FEW, **few}
    print(few, flush=True)
    results["delicious, cost"] = isolated(_prepare, _cost).value
    print(results["delicious, cost"], flush=True)
    return results


def run_on_gpu() -> dict[str, Any]:
    """EUR-Lex, with the GPU to itself; the first run warms it up."""
    _fit("eurlex-4k", {"device": "cuda", "max_epochs": 3}, None, None)
    found = _fit("eurlex-4k", {"device": "cuda"}, None, None)
    found.pop("peak_mb of training")  # of the host
    return {"topics": _N_TOPICS, "eurlex-4k": found}


# Figures of recipes


def draw_times(options: dict[str, Any]) -> dict[str, Any]:
    """AUC against seconds of training for each way to fit a topic model, as the paper's figure 2 has it."""
    import labelfield

    device, n_topics = options["device"], options["n_topics"]
    data = labelfield.read(DATA / "bibtex")
    test = data.test
    assert test is not None
    curves: dict[str, Any] = {}
    for name, own in options["ways"].items():
        model = labelfield.TopicClassifier(n_topics=n_topics, device=device, tolerance=0.0, calibrated=False, **own)
        rows = model.prepare(data.X, data.Y)

        def score(model: Any = model) -> dict[str, float]:
            return {"AUC": _aucs(test.Y, model.predict_proba(test.X))["AUC micro"]}

        model._train(rows, None, False, score, None)
        curves[name] = [[epoch["seconds"], epoch["scores"]["AUC"]] for epoch in model.history_]
        print(name, curves[name][-1], len(curves[name]), flush=True)
    return {"figure": _picture_of_times(curves), "topics": n_topics, "seconds and AUC": curves}


def _picture_of_times(curves: dict[str, Any]) -> str:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for colour, (name, curve) in zip(("#c2571a", "#1a6fc2", "#7a7a7a", "#2e8b57"), curves.items(), strict=False):
        seconds, auc = np.array(curve).T
        axes.plot(seconds, auc, "-", color=colour, lw=1.8, label=name, marker="o" if len(seconds) < 12 else None)
    axes.set(xscale="log", xlabel="seconds of training", ylabel="AUC (micro), test rows", ylim=(0.6, 0.96))
    axes.axhline(_PUBLISHED["bibtex"], color="#999999", lw=0.8, ls=":")
    axes.annotate("paper, EM", (axes.get_xlim()[0], _PUBLISHED["bibtex"]), color="#777777", va="bottom", fontsize=8)
    axes.set_title("Bibtex, 100 topics, 2 cores")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower center")
    path = ROOT / "docs" / "images" / "topic_times.svg"
    figure.savefig(path)
    return f"docs/images/{path.name}"


def write_topics(options: dict[str, Any]) -> dict[str, Any]:
    """The topics of EUR-Lex by the names of its labels, as the paper's table 4 has them."""
    import labelfield

    options = dict(options)
    n_shown = options.pop("n_shown")
    data = labelfield.read(DATA / "eurlex-4k")
    assert data.label_names is not None
    model = labelfield.TopicClassifier(**options).fit(data.X, data.Y)
    names = [name.replace("_", " ") for name in data.label_names]
    topics = model.topics(n_shown, names)
    return {
        "seconds of training": model.history_[-1]["seconds"],
        "topics": {
            str(topic.number): {"share": topic.share, "labels": [name for name, _ in topic.labels]} for topic in topics
        },
    }
