"""Rows that several tests of estimators share."""

import pytest

from labelfield import synth


@pytest.fixture(scope="session")
def data():
    """Rows as wide as words are many."""
    return synth.make_multilabel(600, 200, 40, seed=4).split(0.25)


@pytest.fixture(scope="session")
def few_words():
    """Enough training rows for a calibration, and as few of all else as tell models apart."""
    return synth.make_multilabel(400, 60, 30, seed=4).split(0.25)
