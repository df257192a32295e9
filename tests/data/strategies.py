"""Random data sets, and what tests of several formats share."""

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import sparse

import labelfield
from labelfield import DataError, Dataset

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
names = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=8)


@st.composite
def ragged(draw, n_rows, n_columns, values):
    """A CSR array with any pattern, empty rows included."""
    rows = [draw(st.sets(st.integers(0, n_columns - 1), max_size=6)) if n_columns else set() for _ in range(n_rows)]
    indices = [i for row in rows for i in sorted(row)]
    data = [draw(values) for _ in indices]
    indptr = np.cumsum([0, *map(len, rows)])
    return sparse.csr_array((np.array(data, np.float32), indices, indptr), shape=(n_rows, n_columns))


@st.composite
def datasets(draw):
    n, d, k = draw(st.integers(0, 6)), draw(st.integers(1, 9)), draw(st.integers(1, 7))
    X = draw(ragged(n, d, finite))
    Y = draw(ragged(n, k, st.just(1.0)))
    label_names = draw(st.none() | st.lists(names, min_size=k, max_size=k))
    feature_names = draw(st.none() | st.lists(names, min_size=d, max_size=d))
    return Dataset(X, Y, label_names, feature_names)


def assert_same_array(a, b):
    assert a.shape == b.shape
    assert a.dtype == b.dtype == np.float32
    np.testing.assert_array_equal(a.indptr, b.indptr)
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_array_equal(a.data.view(np.uint32), np.ascontiguousarray(b.data).view(np.uint32))


def assert_same(a, b):
    assert_same_array(a.X, b.X)
    assert_same_array(a.Y, b.Y)
    assert a.label_names == b.label_names
    assert a.feature_names == b.feature_names
    assert (a.test is None) == (b.test is None)
    if a.test is not None:
        assert_same(a.test, b.test)


def read_content(path, content, **options):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return labelfield.read(path, **options)


def classes(dataset):
    """The class of each row, by name."""
    np.testing.assert_array_equal(np.diff(dataset.Y.indptr), 1)
    return [dataset.label_names[i] for i in dataset.Y.indices]


def assert_refused(path, content, line, words, **options):
    """The file gives one DataError, on one line, that says where, what and what to do."""
    with pytest.raises(DataError) as caught:
        read_content(path, content, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: "), message
    assert caught.value.line == line
    assert "\n" not in message
    for word in words:
        assert word in message
    assert caught.value.fix
