"""Tiny models of every method with test rows, and predictions that are made up."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from labelfield import DeepKernelClassifier, EnsembleClassifier, GPClassifier, MLGPFClassifier, TopicClassifier, synth
from labelfield.metrics import score_ranking
from labelfield.report import Counts
from labelfield.report.predictions import Predictions

FEW = {"device": "cpu", "max_epochs": 4, "batch_size": 60}


def _labels(n=260):
    return synth.make_multilabel(n, 60, 25, seed=3).split(0.25)


def _fit(estimator, data, y=None):
    estimator.fit(data.X, data.Y if y is None else y)
    truth = data.test.Y if y is None else np.asarray(data.test.Y.indices)
    return SimpleNamespace(estimator=estimator, X=data.test.X, Y=truth)


def make_images(n, side=8, seed=0):
    """Make images of smooth bumps at three places, one for each class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    centre = np.array([[2, 2], [2, 5], [5, 3]])[y] + rng.normal(0, 0.3, (n, 2))
    grid = np.moveaxis(np.indices((side, side)), 0, 2)
    far = np.square(grid[None] - centre[:, None, None]).sum(-1)
    return np.exp(-far / 4).reshape(n, -1).astype(np.float32), y


def _make(name):
    if name == "mlgpf":
        return _fit(MLGPFClassifier(n_latent=4, n_inducing=12, kernel="se_ard", **FEW), _labels())
    if name == "ensemble":
        first = MLGPFClassifier(n_latent=3, n_inducing=8, **FEW)
        return _fit(EnsembleClassifier(estimator=first, n_members=2), _labels(160))
    if name == "few labels":
        case = _fit(MLGPFClassifier(n_inducing=8, **FEW), synth.make_multilabel(160, 30, 8, seed=1).split(0.25))
        for epoch in case.estimator.history_:
            epoch["scores"] = {"P@1": 40.0}
        return case
    if name == "gibbs":
        return _fit(
            TopicClassifier(n_topics=3, algorithm="gibbs", n_draws=2, max_epochs=6, device="cpu"),
            synth.make_topics(120, 20, 10, 3).split(0.25),
        )
    if name == "topics":
        return _fit(
            TopicClassifier(n_topics=4, max_epochs=3, device="cpu"), synth.make_topics(260, 50, 20, 4).split(0.25)
        )
    deep = {"hidden": [8], "network_epochs": 2, "process_epochs": 1, **FEW}
    if name == "svdkl labels":
        return _fit(DeepKernelClassifier(n_processes=4, **deep), _labels())
    if name == "images":
        X, y = make_images(200)
        model = GPClassifier(n_inducing=12, row_transform="range", kernel="se_ard", **FEW).fit(X[:150], y[:150])
        return SimpleNamespace(estimator=model, X=X[150:], Y=y[150:])
    rings = synth.make_rings(220, 3, noise=0.1, seed=5).split(0.3)
    if name == "svdkl":
        return _fit(DeepKernelClassifier(**deep), rings, rings.Y.indices)
    options = {"likelihood": name} if name != "point" else {"likelihood": "softmax", "posterior": "point"}
    inducing = {"inducing": "per_class"} if name == "one_vs_each" else {}
    return _fit(GPClassifier(n_inducing=8, **options, **inducing, **FEW), rings, rings.Y.indices)


@pytest.fixture(scope="session")
def fitted():
    """Return a function from a name to a fitted model with test rows; each is made once."""
    made = {}

    def find(name):
        if name not in made:
            made[name] = _make(name)
        return made[name]

    return find


def _made_up_labels(seed=0, n=200, k=40, density=0.1):
    """Make up truth, probabilities that know something of it, and training counts to match."""
    rng = np.random.default_rng(seed)
    rate = density * k * rng.dirichlet(np.full(k, 0.5))
    Y = rng.random((n, k)) < np.minimum(rate, 0.9)
    P = np.clip(0.5 * Y + 0.6 * rng.random((n, k)) * (rate > 0.01), 0, 1)
    counts = Counts(np.where(rate < 0.01, 0, rng.poisson(500 * rate)), 500)
    judged = score_ranking(sparse.csr_array(Y.astype(np.float32)), P, 5)
    return Predictions(judged), counts, P


def _made_up_classes(seed=0, n=120, k=6, n_known=None):
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    P = rng.dirichlet(np.ones(n_known or k), n)
    Y = sparse.csr_array((np.ones(n, np.float32), y.astype(np.int32), np.arange(n + 1)), shape=(n, k))
    p = np.where(y < P.shape[1], P[np.arange(n), np.minimum(y, P.shape[1] - 1)], np.nan)
    wide = np.pad(P, ((0, 0), (0, k - P.shape[1])))
    return Predictions(score_ranking(Y, wide, 5), p), Counts(np.bincount(y, minlength=k), n), P, y


@pytest.fixture(scope="session")
def made_up():
    """Return functions that make up predictions from a seed."""
    return SimpleNamespace(labels=_made_up_labels, classes=_made_up_classes)
