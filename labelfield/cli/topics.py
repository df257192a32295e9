"""topics: the topics of a model as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from labelfield.cli.options import AsJson, load_model
from labelfield.cli.output import print_json, print_table
from labelfield.errors import LabelfieldError

__all__ = ["topics"]


def topics(
    model: Annotated[Path, typer.Argument(help="The folder of a model of the method topics.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Labels shown per topic.")] = 10,
    n_features: Annotated[int, typer.Option("--features", min=0, help="Features shown per topic.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Print the topics of a model: their share in the labels of the training rows, and their first labels.

    Example: labelfield topics model -n 5
    """
    estimator = load_model(model, "cpu")
    known = estimator.topics(n)
    if known is None:
        kind = "an ensemble" if len(estimator.members()) > 1 else "a model"
        raise LabelfieldError(f"{model}: {kind} of the method {estimator.method!r} has no topics of its own")
    names = estimator.feature_names()
    found: list[dict[str, Any]] = [
        {
            "topic": topic.number,
            "share": topic.share,
            "labels": dict(topic.labels),
            **({"features": dict(estimator.top_features(topic.number, n_features, names))} if n_features else {}),
        }
        for topic in known
    ]
    if as_json:
        print_json({"path": str(model), "topics": found})
        return
    lines = []
    for topic in found:
        labels = ", ".join(f"{name} ({100 * weight:.0f})" for name, weight in topic["labels"].items())
        features = [", ".join(map(str, topic["features"]))] if n_features else []
        lines.append([str(topic["topic"]), f"{100 * topic['share']:.1f}", labels, *features])
    print_table(str(model), ["topic", "share %", "labels (weight %)", *(["features"] if n_features else [])], lines)
