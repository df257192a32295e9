"""Deep kernel classifiers small enough for tests, and networks of a user's own."""

import warnings

import numpy as np
import torch
from torch import nn

from labelfield import DeepKernelClassifier

WORDS = np.array(["cat", "dog", "eel"])
STAGES = ("network", "processes", "joint")
ALONE = {"process_epochs": 0, "max_epochs": 0}


def small(**options):
    sizes = {"hidden": (16,), "dropout": 0.0, "grid_size": 12, "batch_size": 100, "learning_rate": 0.05}
    epochs = {"network_epochs": 20, "process_epochs": 3, "max_epochs": 3}
    return DeepKernelClassifier(**sizes | epochs | {"device": "cpu"} | options)


def tiny(**options):
    epochs = {"network_epochs": 1, "process_epochs": 1, "max_epochs": 1}
    return small(**{"hidden": (8,), "grid_size": 8, "batch_size": 60} | epochs | options)


def arrays(estimator):
    return {name: value.numpy().copy() for name, value in estimator.model_.state_dict().items()}


def assert_same_arrays(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


class Own(nn.Module):
    """With everything that is one thing in training and another afterwards."""

    def __init__(self, n_features=2, n_outputs=3, width=16):
        super().__init__()
        layers = nn.Linear(n_features, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3)
        self.layers = nn.Sequential(*layers, nn.Linear(width, n_outputs))

    def forward(self, X):
        return self.layers(X)


class OwnSparse(nn.Module):
    """Of rows that are never made dense."""

    takes_sparse = True

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.bag = nn.EmbeddingBag(n_features, 16, mode="sum")
        nn.init.normal_(self.bag.weight, std=0.1)
        self.last = nn.Linear(16, n_outputs)

    def forward(self, X):
        assert X.layout == torch.sparse_csr
        h = self.bag(X.col_indices().long(), X.crow_indices()[:-1].long(), per_sample_weights=X.values())
        return self.last(h.relu())


class Wrong(nn.Module):
    """Gives whatever a function makes of its features."""

    def __init__(self, change, n_outputs=3):
        super().__init__()
        self.layer, self.change = nn.Linear(2, n_outputs), change

    def forward(self, X):
        return self.change(X, self.layer(X))


class Poisoned(nn.Module):
    """Where a row's first feature is beyond 50, what it gives is not finite."""

    def __init__(self, value=float("nan")):
        super().__init__()
        self.layer, self.value = nn.Linear(2, 3), value

    def forward(self, X):
        return torch.where(X[:, :1] > 50, self.value, self.layer(X))


class Linear(nn.Module):
    """A linear layer, then perhaps a norm, times a factor."""

    def __init__(self, factor=1.0, n_features=2, norm=None):
        super().__init__()
        self.layer, self.factor, self.norm = nn.Linear(n_features, 3), factor, norm or nn.Identity()

    def forward(self, X):
        return self.factor * self.norm(self.layer(X))


def seeded(make, *arguments, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make(*arguments, **options)


def quietly(work, *arguments):
    """Without what is said of steps that were skipped."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "step skipped")
        return work(*arguments)
