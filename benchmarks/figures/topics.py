"""Figures of the topic model: AUC against seconds, and the words of topics."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.figures.saving import save_svg
from benchmarks.paths import DATA

__all__ = ["draw_times", "name_topics"]

# The paper's AUC on Bibtex.
_PUBLISHED = 0.921


def draw_times(options: dict[str, Any]) -> dict[str, Any]:
    """Draw AUC against seconds of training for each way to fit a topic model, as figure 2 of the paper does."""
    import labelfield
    from labelfield import metrics
    from labelfield.estimators.classifier import run_training
    from labelfield.inference.run import Monitor

    device, n_topics = options["device"], options["n_topics"]
    data = labelfield.read(DATA / "bibtex")
    test = data.test
    assert test is not None
    curves: dict[str, Any] = {}
    for name, own in options["ways"].items():
        model = labelfield.TopicClassifier(n_topics=n_topics, device=device, tol=0.0, calibrate=False, **own)
        rows = model.prepare(data.X, data.Y)

        def score(model: Any = model) -> dict[str, float]:
            # The estimator itself answers as the model was before training.
            predictor = model.blueprint.predictor(model.fitted())
            P = predictor.proba(model.rows(test.X))
            return {"AUC": float(metrics.auc(test.Y, P, average="micro"))}

        run_training(model, rows, Monitor(validate=score))
        curves[name] = [[epoch["seconds"], epoch["scores"]["AUC"]] for epoch in model.history_]
        print(name, curves[name][-1], len(curves[name]), flush=True)
    return {"figure": _picture_of_times(curves), "topics": n_topics, "seconds and AUC": curves}


def _picture_of_times(curves: dict[str, Any]) -> str:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for colour, (name, curve) in zip(("#c2571a", "#1a6fc2", "#7a7a7a", "#2e8b57"), curves.items(), strict=False):
        seconds, auc = np.array(curve).T
        axes.plot(seconds, auc, "-", color=colour, lw=1.8, label=name, marker="o" if len(seconds) < 12 else None)
    axes.set(xscale="log", xlabel="seconds of training", ylabel="AUC (micro), test rows", ylim=(0.6, 0.96))
    axes.axhline(_PUBLISHED, color="#999999", lw=0.8, ls=":")
    axes.annotate("paper, EM", (axes.get_xlim()[0], _PUBLISHED), color="#777777", va="bottom", fontsize=8)
    axes.set_title("Bibtex, 100 topics, 2 cores")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower center")
    return save_svg(figure, "topic_times.svg")


def name_topics(options: dict[str, Any]) -> dict[str, Any]:
    """Return the topics of EUR-Lex by the names of its labels, as table 4 of the paper does."""
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
