"""Rows that are images, and inducing inputs as pictures."""

import numpy as np
import pytest
from scipy import sparse

from labelfield.report.facts import gather
from labelfield.report.learned import image_side


def test_pixels_are_like_their_neighbours(fitted):
    X = fitted("images").X
    assert image_side(sparse.csr_array(X)) == 8
    shuffled = X[:, np.random.default_rng(0).permutation(64)]
    assert image_side(sparse.csr_array(shuffled)) is None
    assert image_side(sparse.csr_array(X[:, :63])) is None
    assert image_side(sparse.csr_array(-X)) is None


def test_inducing_inputs_are_pictures(fitted):
    case = fitted("images")
    Y = case.estimator.encode(case.Y, len(case.Y))
    learned = gather(case.estimator, sparse.csr_array(case.X), Y).learned
    assert {name for name, _ in learned.pictures} <= {"0", "1", "2"}
    assert len(learned.pictures) > 2
    for _, image in learned.pictures:
        assert image.shape == (8, 8)
        assert image.min() >= 0
        assert image.max() == pytest.approx(1)
    assert learned.relevance_picture.max() == pytest.approx(1)
    assert learned.inputs == []
