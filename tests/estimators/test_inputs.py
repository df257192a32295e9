"""Labels in every form land in the right columns."""

import numpy as np
import pytest
from scipy import sparse

from labelfield import DataError
from labelfield.estimators.inputs import Labels, encode_known, encode_labels


def columns(Y):
    return [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]


INDICATOR = Labels("indicator", np.arange(6))
LISTS = Labels("lists", np.arange(2))
NAMES = Labels("lists", np.array(["a", "b", "c"]))


@pytest.mark.parametrize(
    ("Y", "known", "expected"),
    [
        (np.array([3, 4]), INDICATOR, [[3], [4]]),
        ([[3], [4]], INDICATOR, [[3], [4]]),
        ([{3, 0}, set()], INDICATOR, [[0, 3], []]),
        (np.array([[0], [1]]), Labels("indicator", np.arange(1)), [[], [0]]),
        ([[0, 1], [0, 1]], LISTS, [[0, 1], [0, 1]]),
        ([[], []], LISTS, [[], []]),
        ([[], []], NAMES, [[], []]),
        ([["c"], ["b", "a"]], NAMES, [[2], [0, 1]]),
        (sparse.lil_array([[0, 1], [1, 1]]), LISTS, [[1], [0, 1]]),
        (sparse.dok_array(np.array([[0, 1], [1, 1]])), LISTS, [[1], [0, 1]]),
        (np.array(["b", "a"]), Labels("classes", np.array(["a", "b"])), [[1], [0]]),
    ],
)
def test_labels_go_where_they_belong(Y, known, expected):
    assert columns(encode_known(Y, 2, known)) == expected


@pytest.mark.parametrize(
    ("Y", "known"),
    [
        ([["x"], ["y"]], INDICATOR),
        ([[9], [1]], INDICATOR),
        ([["d"], []], NAMES),
        ([[1], [2]], NAMES),
        (np.eye(2), NAMES),
    ],
)
def test_labels_that_are_not_known_are_refused(Y, known):
    with pytest.raises(DataError, match="Y has"):
        encode_known(Y, 2, known)


def test_classes_may_name_more_than_the_rows_show():
    Y, labels = encode_labels([[3], [7]], 2, classes=[7, 3, 5])
    assert labels.classes.tolist() == [3, 5, 7]
    assert columns(Y) == [[0], [2]]
    Y, labels = encode_labels([["a"], ["c"]], 2, classes=["a", "b", "c"])
    assert columns(Y) == [[0], [2]]
    Y, labels = encode_labels(["no", "no"], 2, classes=["no", "yes"])
    assert Y.shape == (2, 2)
    with pytest.raises(DataError, match="2 labels, but 3 classes"):
        encode_labels(np.eye(2), 2, classes=[0, 1, 2])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, np.nan], "y contains NaN"),
        (np.array(["a", np.nan], object), "y contains NaN"),
        (np.array(["a", None], object), "y contains NaN"),
        (np.array(["a", 3], object), "one kind of label"),
        ([0.5, 1.5], "continuous"),
        (None, "requires y"),
        ([1, 2, 3], "X has 2 rows and Y has 3"),
        (np.array([[0, 2], [1, 0]]), "not binary"),
        (np.array([["a", "b"], ["b", "c"]]), "values; expected 0 and 1"),
        (np.zeros((2, 2, 2)), "3 dimensions"),
        ([[10**9], [3, 4]], "label number 1000000000"),
    ],
)
def test_what_are_no_labels_is_refused(y, message):
    with pytest.raises(ValueError, match=message):
        encode_labels(y, 2)
