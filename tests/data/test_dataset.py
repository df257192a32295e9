import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from strategies import assert_same_array, datasets

from labelfield import DataError, Dataset
from labelfield.csr import as_features, gather_rows, verify
from labelfield.data import Names


def test_any_matrix_is_brought_to_one_form():
    messy = sparse.csr_matrix(
        (np.array([1.0, 2.0, 0.0, 5.0]), np.array([2, 0, 1, 1]), np.array([0, 3, 4])), shape=(2, 3)
    )
    for X in (messy, messy.tocoo(), messy.tocsc(), messy.toarray(), messy.toarray().tolist(), sparse.coo_array(messy)):
        dataset = Dataset(X, [[1, 0], [0, 1]])
        assert isinstance(dataset.X, sparse.csr_array)
        assert dataset.X.dtype == np.float32
        assert dataset.X.indices.tolist() == [0, 2, 1]
        assert dataset.X.data.tolist() == [2, 1, 5]
        assert dataset.Y.data.tolist() == [1, 1]
    assert messy.indices.tolist() == [2, 0, 1, 1], "the caller's matrix was changed"


def test_duplicates_are_summed_as_scipy_means_them():
    X = sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(1, 2))
    Y = sparse.coo_array(([1, 1], ([0, 0], [1, 1])), shape=(1, 2))
    dataset = Dataset(X, Y)
    assert dataset.X.toarray().tolist() == [[0, 3]]
    assert dataset.Y.toarray().tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.eye(2), np.eye(3), "X has 2 rows and Y has 3"),
        ([[np.nan, 1.0]], [[1]], r"X\[0, 0\] is nan"),
        (sparse.csr_array(np.array([[np.inf, 1.0]], np.float32)), [[1]], r"X\[0, 0\] is inf"),
        (sparse.csr_array((1, 2**31)), [[1]], "at most 2147483647"),
        ([[1e300, 1.0]], [[1]], r"X\[0, 0\] is 1e\+300"),
        (np.eye(2), [[0, 1], [np.nan, 0]], r"Y\[1, 0\] is nan"),
        (np.eye(2), [[0, 1], [-1, 0]], r"Y\[1, 0\] is -1"),
        (np.ones(3), np.ones((3, 1)), "X has 1 dimensions"),
        ([["a"]], [[1]], "X holds"),
    ],
)
def test_refused(X, Y, message):
    with pytest.raises(DataError, match=message):
        Dataset(X, Y)


def in_our_form():
    return sparse.csr_array(np.array([[1, 0, 2], [0, 3, 0]], np.float32))


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_an_array_in_our_form_is_not_copied(kind):
    X = kind(in_our_form())
    for again in (as_features(X), Dataset(X, np.eye(2)).X, Dataset(as_features(X), np.eye(2)).X):
        assert isinstance(again, sparse.csr_array)
        assert all(np.shares_memory(getattr(again, part), getattr(X, part)) for part in ("data", "indices", "indptr"))


@pytest.mark.parametrize(
    ("part", "values", "expected"),
    [
        ("data", [1, np.nan, 3], "nan"),
        ("data", [1, -np.inf, 3], "-inf"),
        ("data", [0, 2, 3], [[0, 0, 2], [0, 3, 0]]),
        ("indices", [2, 0, 1], [[2, 0, 1], [0, 3, 0]]),
        ("indices", [0, 0, 1], [[3, 0, 0], [0, 3, 0]]),
        ("indptr", [0, 1, 3], [[1, 0, 0], [0, 3, 2]]),
    ],
)
def test_an_array_that_was_edited_is_checked_again(part, values, expected):
    """An earlier check leaves no mark on an array, so that edits in place are seen."""
    X = as_features(in_our_form())
    assert X.has_canonical_format  # which SciPy remembers
    getattr(X, part)[:] = values
    if isinstance(expected, str):
        with pytest.raises(DataError, match=rf"X\[0, 2\] is {expected}"):
            Dataset(X, np.eye(2))
    else:
        tidy = Dataset(X, np.eye(2)).X
        np.testing.assert_array_equal(tidy.toarray(), expected)
        assert tidy.nnz == np.count_nonzero(expected)
    Y = Dataset(np.eye(2), np.eye(2)).Y
    Y.data[0] = 5
    assert Dataset(np.eye(2), Y).Y.data.tolist() == [1, 1]


def test_a_check_goes_on_across_blocks(monkeypatch):
    monkeypatch.setattr("labelfield.csr._BLOCK", 2)
    X = np.tril(np.ones((6, 6), np.float32))
    assert_same_array(as_features(X), sparse.csr_array(X))
    for position, column in ((1, 1), (4, 0), (20, 4), (19, 5)):
        wrong = as_features(X)
        wrong.indices[position] = column
        with pytest.raises(DataError, match="unsorted or repeated"):
            verify(wrong)


def test_names_are_checked():
    for names, message in [
        (["a"], "1 label names for 2 labels"),
        (["a", "b\n"], "without line breaks"),
        (["a", "\ud800"], "Unicode"),
    ]:
        with pytest.raises(DataError, match=message):
            Dataset(np.eye(2), np.eye(2), names)


def test_names_are_a_sequence():
    names = Names(["a", "b", "c"])
    assert names == ["a", "b", "c"] == names
    assert names == ("a", "b", "c")
    assert names != ["a", "b"]
    assert names[1] == "b"
    assert names[-2:] == ("b", "c")
    assert list(names) == ["a", "b", "c"]
    assert hash(names) == hash(Names("abc"))
    assert "length=3" in repr(names)


@given(datasets(), st.data())
def test_gather_equals_indexing(dataset, data):
    n = dataset.n_rows
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=9)) if n else [], np.int64)
    for array in (dataset.X, dataset.Y):
        assert_same_array(gather_rows(array, rows), sparse.csr_array(array[rows]))


def test_stored_zeros_are_dropped():
    X = sparse.csr_array((np.zeros(1, np.float32), [0], [0, 1]), shape=(1, 2))
    assert Dataset(X, [[1]]).X.nnz == 0


def test_splits_share_their_names():
    train, test = Dataset(np.eye(2), np.eye(2), ["a", "b"]), Dataset(np.eye(2), np.eye(2))
    assert Dataset(train.X, train.Y, ["a", "b"], test=test).test.label_names == ["a", "b"]
    with pytest.raises(DataError, match="label names of the two splits differ"):
        Dataset(test.X, test.Y, test=train)
    with pytest.raises(DataError, match="list of strings"):
        Dataset(np.eye(2), np.eye(2), "ab")


def test_take():
    dataset = Dataset(np.diag([1.0, 2, 3]), np.eye(3), ["a", "b", "c"])
    assert dataset.take([-1, 0]).X.data.tolist() == [3, 1]
    assert dataset.take(np.array([True, False, True])).X.data.tolist() == [1, 3]
    assert dataset.take(slice(1, None)).X.data.tolist() == [2, 3]
    assert dataset.take([]).X.shape == (0, 3)
    assert dataset.take([1]).label_names == ["a", "b", "c"]
    for wrong in ([3], [-4], [0.5], [[0]]):
        with pytest.raises(IndexError):
            dataset.take(wrong)


def test_split():
    dataset = Dataset(np.arange(1, 101)[:, None], np.ones((100, 1)))
    cut = dataset.split(0.2, seed=3)
    assert (cut.n_rows, cut.test.n_rows) == (80, 20)
    values = np.concatenate([cut.X.data, cut.test.X.data])
    assert sorted(values) == list(range(1, 101)), "each row is in exactly one split"
    assert cut.test.X.data.tolist() == sorted(cut.test.X.data), "rows keep their order"
    np.testing.assert_array_equal(cut.test.X.data, dataset.split(0.2, seed=3).test.X.data)
    assert not np.array_equal(cut.test.X.data, dataset.split(0.2, seed=4).test.X.data)
    for share in (0, 1, -0.5, 0.001, float("nan")):
        with pytest.raises(DataError, match="test share"):
            dataset.split(share)
    with pytest.raises(DataError, match="already has two splits"):
        cut.split(0.5)
