"""Small data and models that the tests of explanations share."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import labelfield
from labelfield import DeepKernelClassifier, EnsembleClassifier, GPClassifier, MLGPFClassifier, TopicClassifier, synth

SMALL = {"device": "cpu", "max_epochs": 2, "batch_size": 50}


@cache
def several_labels():
    """Make sparse rows with several labels each; the last two labels never hold."""
    data = synth.make_multilabel(160, 60, 14, seed=4)
    Y = data.Y
    Y.resize((160, 16))
    return labelfield.Dataset(data.X, Y)


@cache
def three_classes(n_classes=3):
    """Make dense measurements: the first is far from 0 everywhere, the second is not, the third is mostly 0."""
    rng = np.random.default_rng(2)
    y = rng.integers(n_classes, size=120)
    X = rng.normal(size=(120, 4)) + y[:, None] * [1.5, 1.0, 0.5, -1.0]
    X[:, 0] = 50 + 2 * X[:, 0]
    X[::2, 2] = 0
    return X.astype(np.float32), y


@cache
def model_of(kind):
    """Fit a model of this kind, once."""
    X, y = three_classes()
    data = several_labels()
    if kind in ("mlgpf", "ensemble"):
        first = MLGPFClassifier(n_latent=4, n_inducing=12, **SMALL)
        return (first if kind == "mlgpf" else EnsembleClassifier(estimator=first, n_members=2)).fit(data.X, data.Y)
    if kind == "ensemble of classes":
        return EnsembleClassifier(estimator=GPClassifier(n_inducing=6, **SMALL), n_members=2).fit(X, y)
    if kind in ("one_vs_each", "robustmax", "softmax"):
        return GPClassifier(likelihood=kind, n_inducing=6, **SMALL).fit(X, y)
    if kind == "two classes":
        return GPClassifier(n_inducing=6, **SMALL).fit(*three_classes(2))
    if kind == "mlgpf of two classes":
        return MLGPFClassifier(n_latent=2, n_inducing=6, row_transform="scaled", **SMALL).fit(*three_classes(2))
    if kind == "point":
        return GPClassifier(likelihood="softmax", posterior="point", **SMALL).fit(X, y)
    if kind in ("svdkl", "svdkl of classes"):
        options = {"network_epochs": 2, "process_epochs": 1, "hidden": (8,), "n_processes": 3, "grid_size": 16, **SMALL}
        return DeepKernelClassifier(**options).fit(*((data.X, data.Y) if kind == "svdkl" else (X, y)))
    if kind in ("topics", "sampled topics"):
        algorithm = "gibbs" if kind == "sampled topics" else "em"
        options = {"n_topics": 4, "algorithm": algorithm, "n_draws": 8, "max_epochs": 16, "device": "cpu"}
        return TopicClassifier(**options).fit(data.X, data.Y)
    raise ValueError(kind)


KINDS = (
    "mlgpf",
    "ensemble",
    "ensemble of classes",
    "one_vs_each",
    "robustmax",
    "softmax",
    "two classes",
    "mlgpf of two classes",
    "point",
    "svdkl",
    "svdkl of classes",
    "topics",
    "sampled topics",
)


def row_of(model, number=0):
    """Return a row that a model takes, as CSR."""
    if model.n_features_in_ == several_labels().n_features:
        return several_labels().X[number : number + 1]
    return sparse.csr_array(three_classes(model.spec_.n_labels)[0][number : number + 1])


@pytest.fixture(scope="session", params=KINDS)
def model(request):
    return model_of(request.param)


@pytest.fixture(scope="session")
def small():
    """Return functions that make data and models, each once."""
    return SimpleNamespace(model=model_of, row=row_of, several=several_labels, classes=three_classes, options=SMALL)
