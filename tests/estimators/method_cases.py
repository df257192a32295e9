"""One small classifier of every kind, fitted once per process, for tests of what all classifiers share."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from labelfield import (
    AutoClassifier,
    DeepKernelClassifier,
    EnsembleClassifier,
    GPClassifier,
    LinearClassifier,
    MLGPFClassifier,
    TopicClassifier,
)

N_FEATURES, N_LABELS, N_TEST = 12, 5, 30
WORDS = np.array(["ant", "bee", "cat", "dog", "eel"])


class Rows(NamedTuple):
    """Rows, which labels hold in them, and one class per row."""

    X: sparse.csr_array
    Y: sparse.csr_array
    y: np.ndarray


def draw_rows(n_rows, seed):
    """Labels and classes that a linear function of the features decides."""
    X = sparse.csr_array(sparse.random(n_rows, N_FEATURES, 0.4, format="csr", rng=seed, dtype=np.float32))
    scores = X @ np.random.default_rng(7).normal(size=(N_FEATURES, N_LABELS))
    Y = scores > np.quantile(scores, 0.7, axis=0)
    return Rows(X, sparse.csr_array(Y.astype(np.float32)), WORDS[scores.argmax(1)])


TRAIN, TEST = draw_rows(320, 1), draw_rows(N_TEST, 2)  # enough for a calibration


class Case(NamedTuple):
    """A classifier, and which questions it has an answer to."""

    estimator: Any
    has_classes: bool = False
    has_latent: bool = True
    has_bound: bool = True

    def labels(self, rows):
        """What it is fitted to: one class per row or several labels."""
        return rows.y if self.has_classes else rows.Y


def mlgpf(**options):
    return MLGPFClassifier(**{"n_latent": 3, "n_inducing": 8, "max_epochs": 3, "learning_rate": 0.1} | options)


def gp(**options):
    return GPClassifier(**{"n_inducing": 8, "max_epochs": 3, "batch_size": 80, "learning_rate": 0.2} | options)


def deep(**options):
    sizes = {"hidden": (6,), "dropout": 0.0, "grid_size": 8, "batch_size": 80, "learning_rate": 0.05}
    return DeepKernelClassifier(**sizes | {"network_epochs": 3, "process_epochs": 1, "max_epochs": 3} | options)


def topics(**options):
    return TopicClassifier(**{"n_topics": 3, "max_epochs": 6} | options)


def ensemble(estimator, **options):
    return EnsembleClassifier(**{"estimator": estimator, "n_members": 2} | options)


NO_PROCESSES = {"has_latent": False, "has_bound": False}
SINGLE = {
    "mlgpf": Case(mlgpf()),
    "mlgpf, label linear": Case(mlgpf(label_linear="point", row_transform="unit+log")),
    "mlgpf, classes": Case(mlgpf(), has_classes=True),
    "mlgpf, hinge": Case(mlgpf(likelihood="squared_hinge", label_linear="point")),
    "one_vs_each": Case(gp(), has_classes=True),
    "softmax": Case(gp(likelihood="softmax"), has_classes=True),
    "robustmax": Case(gp(likelihood="robustmax"), has_classes=True),
    "point": Case(gp(likelihood="softmax", posterior="point"), has_classes=True),
    "svdkl": Case(deep(), has_classes=True),
    "svdkl, labels": Case(deep()),
    "svdkl, plain": Case(deep(process_epochs=0, max_epochs=0), has_classes=True),
    "topics": Case(topics(), **NO_PROCESSES),
    "topics, classes": Case(topics(), has_classes=True, **NO_PROCESSES),
    "topics, online": Case(topics(algorithm="online_em", batch_size=100), **NO_PROCESSES),
    "topics, gibbs": Case(topics(algorithm="gibbs", n_draws=5, max_epochs=20), **NO_PROCESSES),
}
ENSEMBLES = {
    "ensemble of mlgpf": Case(ensemble(mlgpf()), has_bound=False),
    "ensemble of mlgpf, classes": Case(ensemble(mlgpf()), has_classes=True, has_bound=False),
    "ensemble of mlgpf, hinge": Case(ensemble(mlgpf(likelihood="squared_hinge")), has_bound=False),
    "ensemble of one_vs_each": Case(ensemble(gp()), has_classes=True, has_bound=False),
    "ensemble of svdkl": Case(ensemble(deep()), has_classes=True, has_bound=False),
    "ensemble of svdkl, labels": Case(ensemble(deep()), has_bound=False),
    "ensemble of topics": Case(ensemble(topics()), **NO_PROCESSES),
    "ensemble of topics, gibbs": Case(ensemble(topics(algorithm="gibbs", n_draws=5, max_epochs=20)), **NO_PROCESSES),
}
# Solved on all rows at once, and so not fitted in parts.
LINEAR = {
    "linear": Case(LinearClassifier(), **NO_PROCESSES),
    "linear, trees": Case(LinearClassifier(n_trees=2), **NO_PROCESSES),
    "linear, classes": Case(LinearClassifier(cost=0.3), has_classes=True, **NO_PROCESSES),
}
MIXES = {
    "auto": Case(AutoClassifier(), **NO_PROCESSES),
    "auto, fast": Case(AutoClassifier(quality="fast"), **NO_PROCESSES),
}
CASES = SINGLE | ENSEMBLES | LINEAR | MIXES


@cache
def fitted(name):
    """The classifier of this name, fitted; tests only read it."""
    from sklearn.base import clone

    case = CASES[name]
    return clone(case.estimator).fit(TRAIN.X, case.labels(TRAIN))
