"""Rows, and topics fitted to them, that several tests only read."""

from unittest.mock import patch

import numpy as np
import pytest
from topic_cases import ALGORITHMS, small, wider

from labelfield import synth


def with_few_first_steps():
    """The sampler may begin anywhere."""
    return patch("labelfield.inference.topics._EM_BEFORE_GIBBS", 4)


@pytest.fixture(autouse=True, scope="module")
def brief():
    with with_few_first_steps():
        yield


@pytest.fixture(scope="session")
def data():
    return synth.make_topics(600, 100, 25, 5, seed=3).split(1 / 3)


@pytest.fixture(scope="session")
def X(data):
    return data.X


@pytest.fixture(scope="session")
def Y(data):
    return wider(data.Y)


@pytest.fixture(scope="session")
def few(X, Y):
    return X[:80], Y[:80].toarray()


@pytest.fixture(scope="session")
def models(X, Y):
    """One of each algorithm, and one of one class per row."""
    epochs = {"em": 40, "online_em": 10, "gibbs": 30}
    first = np.array([row[0] if len(row) else 0 for row in np.split(Y.indices, Y.indptr[1:-1])]) % 4
    with with_few_first_steps():
        found = {name: small(algorithm=name, max_epochs=epochs[name]).fit(X, Y) for name in ALGORITHMS}
        return found | {"classes": small(n_topics=None).fit(X, np.array(["ant", "bee", "cat", "dog"])[first])}


@pytest.fixture(scope="session")
def fitted(models):
    return models["em"]
