"""Rows that several tests of estimators share."""

import pytest

from labelfield import synth


@pytest.fixture(scope="session")
def data():
    """Enough training rows for a calibration, and more labels than a row's ranking tells apart."""
    return synth.make_multilabel(400, 60, 30, seed=4).split(0.25)
