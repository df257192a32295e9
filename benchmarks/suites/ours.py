"""`python -m benchmarks.suites.ours TASK.json`: run one of our models, with the same task and answer as peers.

`peers/scripts/protocol.py` describes both. Our answer also has the epochs, the bound, and scores that need the
probability of every label.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from labelfield import metrics
from labelfield.data import Dataset, align_classes, read, write_predictions
from labelfield.data.classes import class_values
from labelfield.estimators.methods import new_estimator

__all__ = ["main"]


def main() -> None:
    """Train, predict, save, answer."""
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    started = time.perf_counter()
    training = _read(asked["train"], asked["classes"])
    options = {**asked["options"], "random_state": asked["seed"]}
    if asked["device"] is not None:
        options["device"] = asked["device"]
    estimator = new_estimator(asked["method"], options)
    by_epoch = _ByEpoch(estimator, asked, training) if asked["by_epoch"] else None
    estimator.fit(training.X, _classes(training, training) if asked["classes"] else training.Y, on_step=by_epoch)
    answer: dict[str, Any] = {"train_seconds": time.perf_counter() - started - (by_epoch.seconds if by_epoch else 0)}
    test = _read(asked["test"], asked["classes"], training)
    started = time.perf_counter()
    ranked = estimator.predict_topk(test.X, asked["k"], rank_by=asked["rank_by"])
    answer["predict_seconds"] = time.perf_counter() - started
    write_predictions(ranked, Path(asked["predictions"]))
    estimator.save(asked["model"], None if asked["classes"] else training.label_names)
    answer["model_bytes"] = sum(file.stat().st_size for file in Path(asked["model"]).rglob("*") if file.is_file())
    last = estimator.history_[-1] if estimator.history_ else {}
    answer["epochs"] = estimator.n_iter_
    if isinstance(last.get("bound"), float):
        answer["bound"] = last["bound"]  # of the last epoch, with the divergence weighted as in training
    if "elbo" in asked["wanted"]:  # the evidence lower bound itself, on all training rows and labels
        labels = _classes(training, training) if asked["classes"] else training.Y
        answer["elbo"] = estimator.bound(training.X, labels)["bound"] / training.n_rows
    answer |= _history(estimator.history_, by_epoch)
    answer["scores"] = _scores_of_all(estimator, test, asked)
    Path(asked["answer"]).write_text(json.dumps(answer), encoding="utf-8")


def _read(path: str, classes: bool, training: Dataset | None = None) -> Dataset:
    n_features, n_labels = (0, 0) if training is None else (training.n_features, training.n_labels)
    data = read(path, classes=classes, n_features=n_features, n_labels=0 if classes else n_labels)
    if data.test is not None:  # one path for both
        return data.train if training is None else data.test
    return data if training is None or not classes else align_classes(data, training.label_names or ())


def _classes(rows: Dataset, training: Dataset) -> Any:
    return class_values(list(training.label_names or ()))[rows.Y.indices]


class _ByEpoch:
    """P@1 of the test rows after each epoch, in percent, and the seconds that takes, which do not count as training."""

    def __init__(self, estimator: Any, asked: dict[str, Any], training: Dataset) -> None:
        started = time.perf_counter()
        self.estimator, self.scores = estimator, list[float]()
        self.test = _read(asked["test"], asked["classes"], training)
        self.seconds = time.perf_counter() - started

    def __call__(self, run: Any, n_steps: int) -> None:
        """Score the test rows if this was the last step of an epoch; training calls this after each step."""
        if run.step < n_steps:
            return
        started = time.perf_counter()
        # The estimator itself answers as the model was before training.
        predictor = self.estimator.blueprint.predictor(self.estimator.fitted())
        ranked = predictor.top_k(self.estimator.rows(self.test.X), 1)
        self.scores.append(100 * metrics.precision_at_k(self.test.Y, ranked, 1))
        self.seconds += time.perf_counter() - started


def _history(epochs: list[dict[str, Any]], by_epoch: _ByEpoch | None) -> dict[str, Any]:
    """Return the bound and the elapsed seconds after each epoch, and the mean seconds of an epoch after the first.

    The first also pays for what is made once, such as the state of the optimiser or a captured step.
    """
    kept = {name: [_short(epoch[name]) for epoch in epochs] for name in ("bound", "seconds")}
    if by_epoch is not None:
        kept["P@1"] = [_short(score) for score in by_epoch.scores]
    if len(epochs) < 2:
        return {"history": kept}
    seconds = (epochs[-1]["seconds"] - epochs[0]["seconds"]) / (len(epochs) - 1)
    return {"history": kept, "epoch_seconds": seconds}


def _short(value: Any) -> float | None:
    return float(f"{value:.6g}") if isinstance(value, float) and np.isfinite(value) else None


def _scores_of_all(estimator: Any, test: Dataset, asked: dict[str, Any]) -> dict[str, float]:
    """Return scores that look at every label: always with one class per row, else only if they are asked for."""
    if asked["classes"]:
        P, y = estimator.predict_proba(test.X), test.Y.indices
        error = metrics.error_rate(y, P)
        return {"error rate %": 100 * error, "accuracy": 1 - error, "nlpd": metrics.nlpd(y, P)}
    if not any(score.startswith("AUC") for score in asked["wanted"]):
        return {}
    P = np.asarray(estimator.predict_proba(test.X))
    return {f"AUC_{kind}": float(metrics.auc(test.Y, P, kind)) for kind in ("micro", "label", "row")}


if __name__ == "__main__":
    main()
