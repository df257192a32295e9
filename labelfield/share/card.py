"""Model cards: a model's identity, training data and scores, as README.md with front matter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from labelfield.estimators.protocol import FittedClassifier
from labelfield.version import __version__

# Keys of front matter must be plain, and so must the names of metrics.
_PLAIN = re.compile(r"[A-Za-z0-9@._ -]+")
_FREQUENT = 10


def model_card(
    model: Any,
    *,
    name: str = "A labelfield model",
    license: str | None = None,
    dataset: str | None = None,
    scores: Mapping[str, float] | None = None,
) -> str:
    """Return the model card of a fitted classifier or TextClassifier.

    `scores` are those of `metrics.evaluate` or of `labelfield evaluate --json`, on the `dataset` of that name; without
    any, the card has those of the rows that were held out in training.
    """
    classifier: FittedClassifier = getattr(model, "classifier_", model)
    text = classifier.text_
    language = None if text is None else getattr(text.encoder, "language_", None)
    shown = dict(scores or {})
    front: dict[str, Any] = {
        "library_name": "labelfield",
        "pipeline_tag": "text-classification" if text is not None else "tabular-classification",
        "tags": ["labelfield", "multi-label" if classifier.label_kind_ != "classes" else "multi-class"],
    }
    if language:
        front["language"] = [language]
    if license:
        front["license"] = license
    if shown:
        front["metrics"] = [one for one in shown if _PLAIN.fullmatch(one)]
        front["model-index"] = [_index(name, front["pipeline_tag"], dataset, shown)]
    head = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items())
    return f"---\n{head}\n---\n\n{_body(classifier, name, dataset, shown)}"


def _index(name: str, task: str, dataset: str | None, scores: Mapping[str, float]) -> dict[str, Any]:
    data = {"name": dataset or "held out", "type": dataset or "held-out"}
    metrics = [{"type": one, "value": round(float(value), 4)} for one, value in scores.items()]
    return {"name": name, "results": [{"task": {"type": task}, "dataset": data, "metrics": metrics}]}


def _body(classifier: FittedClassifier, name: str, dataset: str | None, scores: Mapping[str, float]) -> str:
    """Return the words of the card; JSON in front matter is YAML, and names are shown as code."""
    text, names = classifier.text_, classifier.label_names()
    counts = classifier.label_counts_
    order = counts.argsort()[::-1][:_FREQUENT].tolist()
    what = "documents" if text is not None else "rows"
    lines = [
        f"# {_line(name)}",
        "",
        f"Tags {what} with calibrated probabilities: {_line(classifier.summary())}",
        "",
        "| | |",
        "|---|---|",
        f"| made with | labelfield {__version__} |",
        f"| method | {classifier.method} |",
        f"| trained on | {classifier.n_rows_:,} {what} |",
        f"| labels | {len(names):,} |",
    ]
    if text is not None:
        lines.append(f"| fields | {', '.join(map(_code, text.fields))} |")
    lines += ["", "Most frequent labels: " + ", ".join(f"{_code(names[j])} ({counts[j]:,})" for j in order), ""]
    lines += ["## How good", ""]
    if scores:
        where = f" on {_line(dataset)}" if dataset else ""
        lines += [
            f"| score{where} | |",
            "|---|--:|",
            *(f"| {_line(one)} | {value:.4g} |" for one, value in scores.items()),
        ]
    else:
        lines.append("No scores were given. `labelfield evaluate` makes them.")
    use = 'model.tags(["some text"])' if text is not None else "model.predict_topk(X, 5)"
    lines += [
        "",
        "## How to use it",
        "",
        "```python",
        "import labelfield",
        "",
        'model = labelfield.load("this folder")',
    ]
    lines += [
        use,
        "```",
        "",
        "Probabilities hold for documents like those of the training data; `labelfield check` tells.",
    ]
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    """Return a text as one line without markup."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'").replace("|", "¦") + "`"
