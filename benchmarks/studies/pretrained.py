"""A static pretrained encoder beside words, on short texts: titles alone, with few and with many training documents."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks.paths import DATA
from labelfield import TextClassifier
from labelfield.estimators.linear import LinearClassifier
from labelfield.text import Documents, read_documents

SIZES = (500, 2_000)
ENCODERS = {"words": "words", "wordllama": "wordllama", "both side by side": ["words", "wordllama"]}
_KS = (1, 3, 5)


def run() -> dict[str, Any]:
    """Measure linear machines on rows of each encoder; every size is the first part of the same training documents."""
    train, test = (_titles(read_documents(DATA / "eurovoc-text", part=part)) for part in ("train", "test"))
    found: dict[str, Any] = {"test documents": len(test[0]), "letters per title": float(np.mean([*map(len, test[0])]))}
    for size in SIZES:
        scores = {}
        for name, encoder in ENCODERS.items():
            started = time.perf_counter()
            model = TextClassifier(encoder=encoder, language="en", model=LinearClassifier(random_state=0))
            model.fit(train[0][:size], train[1][:size])
            scores[name] = _precision(model, *test) | {"seconds": time.perf_counter() - started}
            print(size, name, scores[name], file=sys.stderr)
        found[f"{size} documents"] = scores
    return found


def _titles(documents: Documents) -> tuple[list[str], list[list[str]]]:
    place = documents.fields.index("title")
    assert documents.labels is not None
    return [texts[place] for texts in documents.texts], documents.labels


def _precision(model: TextClassifier, texts: list[str], labels: list[list[str]]) -> dict[str, float]:
    """Return P@k in percent, and the standard error of P@1; labels that training did not show are missed."""
    tags = model.tags(texts, max(_KS))
    hits = np.array([[tag.label in own for tag in found] for found, own in zip(tags, labels, strict=True)], np.float64)
    found = {f"P@{k}": 100 * float(hits[:, :k].mean()) for k in _KS}
    return found | {"standard_error": 100 * float(hits[:, 0].std() / np.sqrt(len(hits)))}
