"""Every bad input is handled in the documented way or gives one DataError that says where, what and what to do."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
from strategies import assert_refused, read_content

import labelfield
from labelfield import DataError

# name: content, the line named, and words of the message
REFUSED = {
    "fewer rows than the header says": ("3 5 4\n0 1:1\n1 2:1\n", 3, ["ends after 2 rows", "expected 3 rows"]),
    "more rows than the header says": ("1 5 4\n0 1:1\n1 2:1\n", 3, ["one row too many", "expected 1 rows"]),
    "feature index beyond D": ("1 5 4\n0 7:1\n", 2, ["feature index '7'", "from 0 to 4"]),
    "label index beyond K": ("2 5 4\n0 1:1\n9 1:1\n", 3, ["label index '9'", "from 0 to 3"]),
    "one-based features": ("1 5 4\n0 1:1 5:1\n", 2, ["feature index '5'", "one-based"]),
    "one-based labels": ("1 5 4\n1,4 1:1\n", 2, ["label index '4'", "one-based"]),
    "negative feature": ("1 5 4\n0 -1:1\n", 2, ["'-1' is negative", "from 0 to 4"]),
    "negative label": ("1 5 4\n-1 1:1\n", 2, ["'-1' is negative", "from 0 to 3"]),
    "a word for a value": ("1 5 4\n0 1:abc\n", 2, ["'abc'", "not a number"]),
    "a word for an index": ("1 5 4\n0 abc:1\n", 2, ["'abc'", "feature index"]),
    "a word for a label": ("1 5 4\nfoo 1:1\n", 2, ["'foo'", "label index"]),
    "nan": ("1 5 4\n0 1:nan\n", 2, ["'nan'", "not finite"]),
    "inf": ("1 5 4\n0 1:-inf\n", 2, ["'-inf'", "not finite"]),
    "too large for float32": ("1 5 4\n0 1:1e39\n", 2, ["'1e39'", "too large"]),
    "the same feature twice": ("2 5 4\n0 1:1\n0 3:1 2:2 3:1\n", 3, ["feature 3 occurs twice"]),
    "the same feature twice, one zero": ("1 5 4\n0 3:0 3:1\n", 2, ["feature 3 occurs twice"]),
    "an index above 2^31": ("1 5 4\n0 4294967296:1\n", 2, ["'4294967296'", "from 0 to 4"]),
    "an index above 2^31 without a header": ("0 4294967296:1\n", 1, ["'4294967296'"]),
    "an index of many digits": ("0 99999999999999999999999999:1\n", 1, ["feature index"]),
    "more than 2^31 features": ("1 4294967296 4\n0 1:1\n", 1, ["4294967296 features"]),
    "a header of two numbers": ("2 5\n0 1:1\n1 2:1\n", 1, ["'2 5'", "rows features labels"]),
    "a header of four numbers": ("2 5 4 1\n0 1:1\n1 2:1\n", 1, ["'2 5 4 1'"]),
    "a value without an index": ("1 5 4\n0 1\n", 2, ["'1' without a colon"]),
    "blanks between labels": ("1 5 4\n0, 1 2:1\n", 2, ["label index"]),
    "an empty value": ("1 5 4\n0 1: 2:1\n", 2, ["''"]),
    "binary rubbish": ("1 5 4\n\x00\x01\x02\n", 2, ["label index"]),
    "UTF-16": ("1 5 4\n0 1:1\n".encode("utf-16"), 1, ["UTF-16"]),
    "an error in a late block": ("70000 5 4\n" + "0 1:1.5 2:7\n" * 69_998 + "0 1:1 2:x\n0 1:1\n", 70_000, ["'x'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    content, line, words = REFUSED[case]
    assert_refused(tmp_path / "rows.txt", content, line, words)


# name: content, expected X, expected Y
HANDLED = {
    "rows without features": ("2 3 2\n0 \n1\n", [[0, 0, 0], [0, 0, 0]], [[1, 0], [0, 1]]),
    "rows without labels": ("2 3 2\n 1:2\n1:3 2:1\n", [[0, 2, 0], [0, 3, 1]], [[0, 0], [0, 0]]),
    "an empty row in the middle": (
        "3 3 2\n0 1:1\n\n1 2:1\n",
        [[0, 1, 0], [0, 0, 0], [0, 0, 1]],
        [[1, 0], [0, 0], [0, 1]],
    ),
    "an empty row at the end": ("2 3 2\n0 1:1\n\n", [[0, 1, 0], [0, 0, 0]], [[1, 0], [0, 0]]),
    "blank lines after the last row": ("1 3 2\n0 1:1\n\n \n\n", [[0, 1, 0]], [[1, 0]]),
    "no newline at the end": ("1 3 2\n0 1:1", [[0, 1, 0]], [[1, 0]]),
    "unsorted indices": ("1 3 2\n1,0 2:5 0:4\n", [[4, 0, 5]], [[1, 1]]),
    "the same label twice": ("1 3 2\n1,1 0:1\n", [[1, 0, 0]], [[0, 1]]),
    "CRLF": ("1 3 2\r\n0 1:1\r\n", [[0, 1, 0]], [[1, 0]]),
    "tabs": ("1\t3\t2\n0\t1:1\t2:2\n", [[0, 1, 2]], [[1, 0]]),
    "several spaces": ("1  3  2\n0   1:1    2:2  \n", [[0, 1, 2]], [[1, 0]]),
    "spaces before the labels": ("1 3 2\n  0,1 1:1\n", [[0, 1, 0]], [[1, 1]]),
    "a byte-order mark": ("\ufeff1 3 2\n0 1:1\n", [[0, 1, 0]], [[1, 0]]),
    "a stored zero": ("1 3 2\n0 1:0 2:1\n", [[0, 0, 1]], [[1, 0]]),
    "signs and exponents": ("1 3 2\n0 0:+1 1:-2.5 2:1e-1\n", [[1, -2.5, 0.1]], [[1, 0]]),
    "no rows": ("0 3 2\n", np.zeros((0, 3)), np.zeros((0, 2))),
}


@pytest.mark.parametrize("case", HANDLED)
def test_handled(case, tmp_path):
    content, X, Y = HANDLED[case]
    dataset = read_content(tmp_path / "rows.txt", content)
    np.testing.assert_array_equal(dataset.X.toarray(), np.array(X, np.float32))
    np.testing.assert_array_equal(dataset.Y.toarray(), Y)
    assert dataset.X.nnz == np.count_nonzero(X)
    assert dataset.X.dtype == np.float32
    assert dataset.X.has_canonical_format


def test_one_based_files_are_read_when_told(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("1 5 4\n1,4 1:7 5:8\n")
    dataset = labelfield.read(path, one_based=True, one_based_labels=True)
    assert dataset.X.indices.tolist() == [0, 4]
    assert dataset.Y.indices.tolist() == [0, 3]
    path.write_text("1 5 4\n0,4 1:7 5:8\n")
    with pytest.raises(DataError, match=r"rows\.txt:2: the label index 0; expected an integer from 1 to 4"):
        labelfield.read(path, one_based=True, one_based_labels=True)


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_truncated_and_damaged_compressed_files(suffix, compress, tmp_path):
    rows = "".join(f"0 {i % 5}:{i / 7:.6f}\n" for i in range(20_000))
    whole = compress(f"20000 5 4\n{rows}".encode())
    path = tmp_path / f"rows.txt{suffix}"
    path.write_bytes(whole)
    assert labelfield.read(path).n_rows == 20_000
    for content in (
        whole[: len(whole) // 2],
        whole[: len(whole) // 2] + b"garbage" * 9 + whole[len(whole) // 2 + 63 :],
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match="truncated or damaged"):
            labelfield.read(path)


def test_empty_file(tmp_path):
    for name in ("rows.txt", "rows.svm", "rows.arff", "rows.npz"):
        path = tmp_path / name
        path.write_bytes(b"")
        with pytest.raises(DataError, match=name):
            labelfield.read(path)


def test_a_file_without_rows(tmp_path):
    for content in ("\n", "  \n\n", "# only a comment\n"):
        (tmp_path / "rows.svm").write_text(content)
        with pytest.raises(DataError, match=r"rows\.svm: the file contains no rows"):
            labelfield.read(tmp_path / "rows.svm")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.txt: there is no such file"):
        labelfield.read(tmp_path / "nowhere.txt")


def test_a_directory_without_splits(tmp_path):
    with pytest.raises(DataError, match="without train rows"):
        labelfield.read(tmp_path)
    (tmp_path / "train.txt").write_text("1 3 2\n0 1:1\n")
    with pytest.raises(DataError, match="without test rows"):
        labelfield.read(tmp_path)
    (tmp_path / "test.txt").write_text("1 3 2\n0 1:1\n")
    assert labelfield.read(tmp_path).test.n_rows == 1
    (tmp_path / "test.svm").write_text("0 1:1\n")
    with pytest.raises(DataError, match=r"test\.svm and test\.txt both look like"):
        labelfield.read(tmp_path)


def test_splits_of_different_widths(tmp_path):
    (tmp_path / "train.txt").write_text("1 3 2\n0 1:1\n")
    (tmp_path / "test.txt").write_text("1 4 2\n0 1:1\n")
    with pytest.raises(DataError, match="the same in both splits"):
        labelfield.read(tmp_path)


@pytest.mark.parametrize("what", ["labels", "features"])
def test_names_of_the_wrong_length(what, tmp_path):
    (tmp_path / "rows.txt").write_text("1 3 2\n0 1:1\n")
    (tmp_path / f"{what}.txt").write_text("a\nb\nc\nd\n")
    with pytest.raises(DataError, match=f"{what}.txt: 4 {what[:-1]} names for"):
        labelfield.read(tmp_path / "rows.txt")


def test_names_that_are_not_utf8(tmp_path):
    (tmp_path / "rows.txt").write_text("1 3 2\n0 1:1\n")
    (tmp_path / "labels.txt").write_bytes("a\nüber\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"labels\.txt:2: not UTF-8"):
        labelfield.read(tmp_path / "rows.txt")


def test_a_folder_is_not_a_file(tmp_path):
    (tmp_path / "train.txt").mkdir()
    with pytest.raises(DataError):
        labelfield.read(tmp_path)
