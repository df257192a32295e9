"""topics: the topics of a model as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelfield.cli.options import AsJson, load_model
from labelfield.cli.output import print_json, print_table
from labelfield.errors import LabelfieldError

if TYPE_CHECKING:
    from labelfield.estimators.protocol import FittedClassifier

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
    found: list[dict[str, Any]] = [
        {
            "topic": topic.number,
            "share": topic.share,
            "labels": dict(topic.labels),
            **({"features": _first_features(estimator, topic.number, n_features)} if n_features else {}),
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


def _first_features(estimator: FittedClassifier, topic: int, n: int) -> dict[Any, float]:
    """Return the n features that most raise a topic, by name or number, with their weights."""
    found, names = estimator.predictor_.topic_weights(), estimator.feature_names()
    assert found is not None  # a model with topics has them
    weights = estimator.row_transform_.fold(found[:, topic])
    best = (-weights).argsort(kind="stable")[:n].tolist()
    return {d if names is None else names[d]: float(weights[d]) for d in best}
