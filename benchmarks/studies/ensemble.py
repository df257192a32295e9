"""An ensemble of different members on EUR-Lex: scores, time and memory on the CPU, and what each member adds."""

from __future__ import annotations

from typing import Any

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA
from benchmarks.record import HEADLINE


def _prepare() -> Any:
    import labelfield

    return labelfield.MLGPFClassifier


def _train(classifier: Any) -> dict[str, Any]:
    import time

    import labelfield
    from labelfield import metrics

    data = labelfield.read(DATA / "eurlex-4k")
    assert data.test is not None
    started = time.perf_counter()
    model = classifier(device="cpu", ensemble="auto").fit(data.X, data.Y)
    train_seconds = time.perf_counter() - started
    started = time.perf_counter()
    predictions = model.predict_topk(data.test.X, 5)
    predict_seconds = time.perf_counter() - started
    scores = metrics.evaluate(data.test.Y, predictions, data.Y)
    others, alone = model.others_, {}
    model.others_ = []
    for number, member in enumerate((model, *others), 1):
        own = metrics.evaluate(data.test.Y, member.predict_topk(data.test.X, 5))
        made = f"{member.row_transform_.name}, {member.spec_.kernel}, private {member.spec_.private}"
        alone[f"member {number} ({made})"] = [own[f"P@{k}"] for k in (1, 3, 5)]
    return {
        "members": 1 + len(others),
        "train_seconds": train_seconds,
        "predict_seconds": predict_seconds,
        **{key: scores[key] for key in HEADLINE},
        "P@1, 3, 5 alone": alone,
    }


def run() -> dict[str, Any]:
    measured = isolated(_prepare, _train)
    return {**measured.value, "peak_mb": measured.peak_mb}
