import numpy as np
import pytest
from hypothesis import given
from scipy import sparse
from strategies import finite, ragged

from labelfield import DataError, read_predictions, write_predictions
from labelfield.metrics import top_k


@pytest.mark.parametrize("name", ["p.txt", "p.txt.gz", "p.npz"])
@given(scores=ragged(4, 7, finite))
def test_write_then_read_is_the_identity(name, scores, tmp_path_factory):
    path = tmp_path_factory.mktemp("p") / name
    write_predictions(scores, path)
    again = read_predictions(path, 4, 7)
    np.testing.assert_array_equal(again.data.astype(np.float32), scores.data)
    for part in ("indices", "indptr"):
        np.testing.assert_array_equal(getattr(again, part), getattr(scores, part))


def test_text_lists_the_best_first(tmp_path):
    write_predictions(sparse.csr_array([[0.1, 0.0, 0.7, 0.1], [0, 0, 0, 0]]), tmp_path / "p.txt")
    assert (tmp_path / "p.txt").read_text() == "2:0.7 0:0.1 3:0.1\n\n"


@pytest.mark.parametrize("name", ["p.txt", "p.npz"])
def test_dense_scores_and_double_precision_survive(name, tmp_path):
    scores = np.array([[0.0, -1.0, 1 - 1e-9, 1 - 1e-12], [1e-60, 1e-50, 1e39, 0.0]])
    write_predictions(scores, tmp_path / name)
    again = read_predictions(tmp_path / name, 2, 4)
    np.testing.assert_array_equal(again.toarray() if sparse.issparse(again) else again, scores)
    assert top_k(again, 4).labels.tolist() == top_k(scores, 4).labels.tolist()


def test_scores_that_cannot_be_ranked_are_not_written(tmp_path):
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match="not finite"):
            write_predictions(np.array([[bad]]), tmp_path / "p.txt")
    assert not list(tmp_path.iterdir())


def test_scores_that_cannot_be_ranked_are_not_read(tmp_path):
    sparse.save_npz(tmp_path / "sparse.npz", sparse.csr_array(np.array([[np.inf, 1.0]])))
    np.savez(tmp_path / "dense.npz", scores=np.array([[np.nan, 1.0]]))
    for name in ("sparse.npz", "dense.npz"):
        with pytest.raises(DataError, match="not finite"):
            read_predictions(tmp_path / name, 1, 2)


def test_zero_scores_stay_listed(tmp_path):
    (tmp_path / "p.txt").write_text("3:0 1:0.5\n")
    assert read_predictions(tmp_path / "p.txt", 1, 4).nnz == 2


def test_a_header_is_allowed(tmp_path):
    (tmp_path / "p.txt").write_text("2 4\n3:1\n1:1\n")
    assert read_predictions(tmp_path / "p.txt", 2, 4).indices.tolist() == [3, 1]


def test_dense(tmp_path):
    scores = np.random.default_rng(0).random((3, 4))
    write_predictions(scores, tmp_path / "p.npz")
    np.testing.assert_array_equal(read_predictions(tmp_path / "p.npz", 3, 4), scores)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1:1\n", "p.txt:1: the file ends after 1 rows; expected 2 rows as the truth has"),
        ("1:1\n1:1\n2:1\n", "p.txt:3: one row too many"),
        ("1:1\n4:1\n", "p.txt:2: the label index '4'; expected an integer from 0 to 3"),
        ("1:1\n1:nan\n", "p.txt:2: the value 'nan' of label 1 is not finite"),
        ("1:1\n1:1 1:2\n", "p.txt:2: label 1 occurs twice"),
        ("1:1\n3\n", "p.txt:2: '3' without a colon"),
        ("2 5\n1:1\n1:1\n", "predictions for 2 rows and 5 labels; expected 2 rows and 4 labels"),
        ("", "ends after 0 rows"),
    ],
)
def test_refused(content, message, tmp_path):
    (tmp_path / "p.txt").write_text(content)
    with pytest.raises(DataError) as caught:
        read_predictions(tmp_path / "p.txt", 2, 4)
    assert message in str(caught.value)


def test_other_refusals(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_predictions(tmp_path / "none.txt", 1, 1)
    np.savez(tmp_path / "p.npz", a=np.eye(2), b=np.eye(2))
    with pytest.raises(DataError, match="one matrix of scores"):
        read_predictions(tmp_path / "p.npz", 2, 2)
    write_predictions(np.eye(2), tmp_path / "p.npz")
    with pytest.raises(DataError, match="expected 3 rows and 2 labels"):
        read_predictions(tmp_path / "p.npz", 3, 2)
