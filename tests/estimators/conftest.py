"""Rows that several tests of estimators share."""

import pytest

from labelfield import synth


@pytest.fixture(scope="session")
def data():
    return synth.make_multilabel(600, 200, 40, seed=4).split(0.25)
