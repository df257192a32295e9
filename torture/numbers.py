"""Odd numbers: whatever the rows are, a classifier gives finite probabilities, or one clear error."""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labelfield import estimators
from labelfield.errors import LabelfieldError
from torture.running import Trial

_SMALL: dict[str, Any] = {"n_inducing": 5, "max_epochs": 2, "device": "cpu"}
_DEEP: dict[str, Any] = {
    "hidden": (4,),
    "grid_size": 6,
    "network_epochs": 2,
    "process_epochs": 1,
    "max_epochs": 2,
    "device": "cpu",
}
# Name of the class, its options, and whether rows have one class.
CLASSIFIERS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "mlgpf": ("MLGPFClassifier", {"n_latent": 2, **_SMALL}, False),
    "mlgpf, words": ("MLGPFClassifier", {**_SMALL, "kernel": "se_linear_ard", "label_linear": "point"}, False),
    "one-vs-each": ("GPClassifier", {**_SMALL}, True),
    "robustmax": ("GPClassifier", {"likelihood": "robustmax", **_SMALL}, True),
    "softmax": ("GPClassifier", {"likelihood": "softmax", **_SMALL}, True),
    "deep kernel": ("DeepKernelClassifier", _DEEP, True),
    "topics": ("TopicClassifier", {"n_topics": 2, "max_epochs": 3}, False),
    "linear": ("LinearClassifier", {}, False),
    "linear, classes": ("LinearClassifier", {}, True),
    "auto": ("AutoClassifier", {"quality": "fast", "time_budget": 3.0}, False),
    "ensemble": ("EnsembleClassifier", {}, False),
    "text": ("TextClassifier", {}, False),
}
_TEXTS = ("", " ", "a", "A a a a", "\0", "é ß ١", "x" * 3000, "one two three", "\ud800", "1e30 nan", "🙂 🙂", "\n\t")


def draw(rng: Random) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw rows of an odd kind, labels, and classes."""
    n, d, k = rng.choice((1, 2, 3, 4, 5, 12, 40)), rng.choice((1, 2, 3, 8)), rng.choice((1, 2, 3))
    own = np.random.default_rng(rng.randrange(2**32))
    X = np.abs(own.normal(size=(n, d)))
    for _ in range(rng.choice((1, 1, 2, 3))):
        how, column = rng.randrange(11), rng.randrange(d)
        if how == 0:
            X[:, column] = rng.choice((0.0, 1.0, -1.0, 1e30, 1e-30, 3e38))
        elif how == 1:
            X *= rng.choice((1e30, 1e-30, 1e37, 1e-44, -1.0, 1e10))
        elif how == 2:
            X[rng.randrange(n), column] = rng.choice((1e30, -1e30, 1e-30, 3.4e38, -3.4e38, 1e-45))
        elif how == 3:
            X[:] = X[0]
        elif how == 4:
            X[rng.randrange(n)] = 0
        elif how == 5:
            X[:, column] = X[:, rng.randrange(d)]
        elif how == 6:
            X[:] = 0
        elif how == 7:
            X = X + 1e7
        elif how == 8:
            X = np.rint(X * 3)
        elif how == 9:
            X[own.random(X.shape) < 0.8] = 0
    Y = (own.random((n, k)) < rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))).astype(np.int64)
    return X, Y, own.integers(0, k, n)


def make_trial(name: str) -> Trial:
    """Return the trials of a classifier."""
    torch.set_num_threads(1)
    which, options, has_classes = CLASSIFIERS[name]
    kind = getattr(estimators, which)
    # Those of other packages are not ours, and arithmetic is checked by its results.
    warnings.simplefilter("ignore")

    def trial(seed: int) -> str | None:
        rng = Random(f"{name}/{seed}")
        X, Y, y = draw(rng)
        given = dict(options)
        if which == "EnsembleClassifier":
            given = {"estimator": estimators.MLGPFClassifier(n_latent=2, **_SMALL), "n_members": 2}
        if which == "TextClassifier":
            given = {"model": estimators.LinearClassifier()}
        model = kind(**given)
        rows: Any = [rng.choice(_TEXTS) for _ in range(len(X))] if which == "TextClassifier" else X
        labels: Any = y if has_classes else Y
        if which == "TextClassifier":
            labels = [[f"label {j}" for j in np.flatnonzero(own)] for own in Y]
        try:
            P = model.fit(rows, labels).predict_proba(rows)
        except (ValueError, LabelfieldError) as error:
            return _flaw_of(str(error))
        if not (np.isfinite(P).all() and (P >= 0).all() and (P <= 1).all()):
            return f"{(~np.isfinite(P)).sum()} of {P.size} probabilities are not finite"
        if has_classes and not np.allclose(P.sum(1), 1, atol=1e-3):
            return f"probabilities of classes that add up to {P.sum(1).min():g}"
        return None

    return trial


def _flaw_of(message: str) -> str | None:
    if "\n" in message or not message:
        return f"a message of several lines, or none: {message[:80]!r}"
    jargon = [word for word in ("ndarray", "dtype", "tensor", "broadcast", "axis", "math domain") if word in message]
    return f"a message of another package: {message[:100]}" if jargon else None
