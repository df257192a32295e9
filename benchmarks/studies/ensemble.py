"""An ensemble of different members on EUR-Lex: scores, time and memory on the CPU, and what each member adds."""

from __future__ import annotations

from typing import Any

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA
from benchmarks.record import HEADLINE


def _prepare() -> Any:
    from labelfield.estimators.methods import new_estimator

    return new_estimator


def _train(new_estimator: Any) -> dict[str, Any]:
    import time

    import labelfield
    from labelfield import metrics

    data = labelfield.read(DATA / "eurlex-4k")
    assert data.test is not None
    started = time.perf_counter()
    model = new_estimator("mlgpf", {"device": "cpu", "ensemble": "auto"}).fit(data.X, data.Y)
    train_seconds = time.perf_counter() - started
    started = time.perf_counter()
    predictions = model.predict_topk(data.test.X, 5)
    predict_seconds = time.perf_counter() - started
    scores = metrics.evaluate(data.test.Y, predictions, data.Y)
    members, alone = model.members(), {}
    for number, member in enumerate(members, 1):
        own = metrics.evaluate(data.test.Y, member.predict_topk(data.test.X, 5))
        made = f"{member.row_transform_.name}, {member.spec_.kernel}, label linear {member.spec_.label_linear}"
        alone[f"member {number} ({made})"] = [own[f"P@{k}"] for k in (1, 3, 5)]
    return {
        "members": len(members),
        "train_seconds": train_seconds,
        "predict_seconds": predict_seconds,
        **{key: scores[key] for key in HEADLINE},
        "P@1, 3, 5 alone": alone,
    }


def run() -> dict[str, Any]:
    measured = isolated(_prepare, _train)
    return {**measured.value, "peak_mb": measured.peak_mb}
