"""Topic classifiers small enough for tests, and how they are compared."""

import numpy as np
from scipy import sparse
from sklearn.metrics import roc_auc_score

from labelfield import TopicClassifier

ALGORITHMS = ("em", "online_em", "gibbs")
N_LABELS = 30
NAMES = np.array([f"label {number:02d}" for number in range(N_LABELS)])


def small(**options):
    sizes = {"n_topics": 5, "max_epochs": 40, "batch_size": 100, "n_draws": 4}
    return TopicClassifier(**sizes | {"device": "cpu"} | options)


def tiny(**options):
    return small(**{"n_topics": 3, "max_epochs": 4, "batch_size": 40} | options)


def wider(Y):
    """Return Y with five labels more, which no row has."""
    return sparse.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], N_LABELS))


def arrays(estimator):
    return {name: value.numpy().copy() for name, value in estimator.model_.state_dict().items()}


def assert_same_arrays(a, b):
    a, b = arrays(a), arrays(b)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def differ(a, b):
    return not np.array_equal(a.model_.V.numpy(), b.model_.V.numpy())


def auc(model, X, Y):
    """Return the area under the curve over all entries of labels that hold in some rows."""
    Y = Y.toarray()
    varies = Y.any(0)
    return roc_auc_score(Y[:, varies].ravel(), model.predict_proba(X)[:, : Y.shape[1]][:, varies].ravel())


def bounds(model):
    return np.array([epoch["bound"] for epoch in model.history_])
