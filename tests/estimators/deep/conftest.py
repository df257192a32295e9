"""Rows, and models fitted to them, that several tests of deep kernels only read."""

import pytest
from deep_cases import WORDS, small

from labelfield import synth


@pytest.fixture(scope="session")
def rings():
    """Enough rows for a calibration."""
    return synth.make_rings(400, 3, noise=0.1, seed=1).split(0.25)


@pytest.fixture(scope="session")
def few():
    return synth.make_rings(120, 3, noise=0.1, seed=2)


@pytest.fixture(scope="session")
def fitted(rings):
    return small(process_epochs=6, process_learning_rate=0.05).fit(rings.X, WORDS[rings.Y.indices])


@pytest.fixture(scope="session")
def several(data):
    """A model of several labels per row."""
    return small(network_epochs=8, row_transform="unit").fit(data.X, data.Y)
