"""topics: what a topic model has learned, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labelfield.cli.options import AsJson, load_model
from labelfield.cli.output import print_json, print_table
from labelfield.errors import LabelfieldError

__all__ = ["topics"]


def topics(
    model: Annotated[Path, typer.Argument(help="The folder of a model of the method topics.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Labels shown of each topic.")] = 10,
    n_features: Annotated[int, typer.Option("--features", min=0, help="Features shown of each topic.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Print the topics of a model: their share in the labels of the training rows, and their first labels.

    Example: labelfield topics model -n 5
    """
    estimator = load_model(model, "cpu")
    if estimator._method() != "topics":
        raise LabelfieldError(f"{model}: a model of the method {estimator._method()!r}, which has no topics")
    names = estimator.feature_names_
    found = [
        {
            "topic": topic.number,
            "share": topic.share,
            "labels": dict(topic.labels),
            **({"features": dict(estimator.top_features(topic.number, n_features, names))} if n_features else {}),
        }
        for topic in estimator.topics(n)
    ]
    if as_json:
        print_json({"path": str(model), "topics": found})
        return
    header = ["topic", "share %", "labels (weight %)", *(["features"] if n_features else [])]
    print_table(str(model), header, [_line(topic) for topic in found])


def _line(topic: dict[str, object]) -> list[str]:
    labels, features = topic["labels"], topic.get("features")
    assert isinstance(labels, dict)
    line = [str(topic["topic"]), f"{100 * float(str(topic['share'])):.1f}"]
    line.append(", ".join(f"{name} ({100 * weight:.0f})" for name, weight in labels.items()))
    return line if not isinstance(features, dict) else [*line, ", ".join(map(str, features))]
