"""CSV with a label column: what is read, which column is the label, and what is refused."""

import csv
import gzip
import io

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import assert_refused, classes, read_content

import labelfield
from labelfield import DataError
from labelfield.data import reading

TABLE = "length,width,species\n5.1,0,setosa\n7,-3.2e0,virginica\n0,0,setosa\n"


def read(tmp_path, content, name="d.csv", **options):
    return read_content(tmp_path / name, content, **options)


def test_a_table(tmp_path):
    dataset = read(tmp_path, TABLE)
    np.testing.assert_array_equal(dataset.X.toarray(), np.array([[5.1, 0], [7, -3.2], [0, 0]], np.float32))
    assert dataset.X.nnz == 3
    assert dataset.X.dtype == np.float32
    assert dataset.feature_names == ["length", "width"]
    assert dataset.label_names == ["setosa", "virginica"]
    np.testing.assert_array_equal(dataset.Y.toarray(), [[1, 0], [0, 1], [1, 0]])


# name: content, the features, the class of each row, the names of the features
READ = {
    "no header": ("1,2,a\n3,4,b\n", [[1, 2], [3, 4]], "ab", None),
    "a label in front, by its name": ("Class,u,v\na,1,2\nb,3,4\n", [[1, 2], [3, 4]], "ab", ["u", "v"]),
    "a label in the middle": ("u,TARGET,v\n1,a,2\n3,b,4\n", [[1, 2], [3, 4]], "ab", ["u", "v"]),
    "label is a surer name than y": ("x,y,label\n1,2,a\n3,4,b\n", [[1, 2], [3, 4]], "ab", ["x", "y"]),
    "y and n are classes": ("1,2,y\n3,4,n\n", [[1, 2], [3, 4]], "yn", None),
    "quotes": ('"u","v, w",label\n1,"2","a"\n"3",4,b\n', [[1, 2], [3, 4]], "ab", ["u", "v, w"]),
    "blanks before quotes and around cells": ('1, 2 , "a"\n3,4,b \n', [[1, 2], [3, 4]], "ab", None),
    "blank lines": ("\n  \n1,2,a\n\n3,4,b\n\n", [[1, 2], [3, 4]], "ab", None),
    "CRLF": ("1,2,a\r\n3,4,b\r\n", [[1, 2], [3, 4]], "ab", None),
    "CRLF and a label in front": ("label,u\r\na,1\r\nb,3\r\n", [[1], [3]], "ab", ["u"]),
    "no newline at the end": ("1,2,a\n3,4,b", [[1, 2], [3, 4]], "ab", None),
    "a byte-order mark": ("\ufeffu,v,label\n1,2,a\n", [[1, 2]], "a", ["u", "v"]),
    "one row and no header": ("1,2,a\n", [[1, 2]], "a", None),
    "one row and its label in front": ("label,u\na,3\n", [[3]], "a", ["u"]),
    "numbers in quotes": ('u,label\n"1","a"\n"-2.5","b"\n', [[1], [-2.5]], "ab", ["u"]),
    "letters beyond ASCII": ("1,2,ä\n3,4,b\n", [[1, 2], [3, 4]], "äb", None),
}


@pytest.mark.parametrize("case", READ)
def test_read(case, tmp_path):
    content, X, expected, names = READ[case]
    dataset = read(tmp_path, content)
    np.testing.assert_array_equal(dataset.X.toarray(), X)
    assert classes(dataset) == list(expected)
    assert dataset.feature_names == names


def test_numbers_are_ordered_as_numbers_and_words_as_words(tmp_path):
    assert read(tmp_path, "0,10\n0,9\n0,-1\n0,9.0\n").label_names == ["-1", "9", "10"]
    assert read(tmp_path, "0,10\n0,9\n0,a\n").label_names == ["10", "9", "a"]


def test_what_savetxt_writes(tmp_path):
    rows = np.array([[1.5, 0, 2], [0, 3.25, 1]])
    np.savetxt(tmp_path / "d.csv", rows, delimiter=",")
    dataset = labelfield.read(tmp_path / "d.csv")
    np.testing.assert_array_equal(dataset.X.toarray(), rows[:, :2])
    assert dataset.label_names == ["1", "2"]


@pytest.mark.parametrize("chosen", ["u", 0, "0", -3, "-3"])
def test_the_label_column_can_be_chosen(chosen, tmp_path):
    dataset = read(tmp_path, "u,v,label\n1,2,3\n4,5,6\n", label_column=chosen)
    assert dataset.label_names == ["1", "4"]
    assert dataset.feature_names == ["v", "label"]


def test_a_header_of_numbers_is_one_if_its_label_is_named(tmp_path):
    content = "0,1,label\n5,6,a\n"
    with pytest.raises(
        DataError, match=r"d\.csv:1: the first line contains numbers, but also 'label', as a header would.*label-col"
    ):
        read(tmp_path, content)
    assert read(tmp_path, content, label_column="label").feature_names == ["0", "1"]
    assert classes(read(tmp_path, content, label_column=2)) == ["label", "a"]


@pytest.mark.parametrize("name", ["d.csv.gz", "D.CSV"])
def test_compressed_and_capital(name, tmp_path):
    content = gzip.compress(TABLE.encode()) if name.endswith("gz") else TABLE
    assert read(tmp_path, content, name).n_rows == 3


def test_splits_share_their_classes(tmp_path):
    (tmp_path / "train.csv").write_text("u,label\n1,b\n2,c\n")
    (tmp_path / "test.csv").write_text("u,label\n3,a\n4,c\n")
    dataset = labelfield.read(tmp_path)
    assert dataset.label_names == dataset.test.label_names == ["b", "c", "a"]
    assert classes(dataset) == ["b", "c"]
    assert classes(dataset.test) == ["a", "c"]
    (tmp_path / "test.csv").write_text("v,label\n3,a\n4,c\n")
    with pytest.raises(DataError, match="feature names of the two splits differ"):
        labelfield.read(tmp_path)


# name: content, the line named, and words of the message
REFUSED = {
    "an empty cell": ("u,v,label\n1,2,a\n1,,a\n", 3, ["an empty cell in column 'v'", "encode them as numbers"]),
    "an empty last cell": ("label,u,v\na,1,2\na,1,\n", 3, ["an empty cell in column 'v'"]),
    "a blank cell": ("u,v,label\n1,  ,a\n", 2, ["an empty cell in column 'v'"]),
    "a word": ("u,v,label\n1,red,a\n", 2, ["'red' in column 'v' is not a number", "Encode it as a number"]),
    "a word without a header": ("1,2,a\n1,red,a\n", 2, ["'red' in column 2 is not a number"]),
    "a word behind the label": ("label,u,v\na,1,red\n", 2, ["'red' in column 'v'"]),
    "a word in the first row": ("1,red,a\n", 1, ["'red' in column 2"]),
    "a question mark": ("u,label\n1,a\n?,a\n", 3, ["'?' in column 'u' is not a number"]),
    "nan": ("u,label\n1,a\nNaN,a\n", 3, ["'NaN' in column 'u' is not finite"]),
    "nan in the first row": ("nan,1,a\n", 1, ["'nan' in column 1"]),
    "inf": ("u,label\n-inf,a\n", 2, ["'-inf' in column 'u' is not finite"]),
    "too large for float32": ("u,label\n1e39,a\n", 2, ["'1e39' in column 'u' is too large", "at most 3.4e+38"]),
    "hexadecimal": ("u,label\n0x10,a\n", 2, ["'0x10' in column 'u'"]),
    "an underscore": ("u,label\n1_0,a\n", 2, ["'1_0' in column 'u'"]),
    "two numbers in a cell": ("u,label\n1 2,a\n", 2, ["'1 2' in column 'u'"]),
    "a comma in a number": ('u,v,label\n1,2,a\n"1,5",,a\n', 3, ["'1,5' in column 'u'"]),
    "a cell too few": ("u,v,label\n1,2,a\n1,a\n", 3, ["2 cells; expected 3 as in the first line"]),
    "a cell too many": ("u,v,label\n1,2,a\n1,2,a,\n", 3, ["4 cells; expected 3 as in the first line"]),
    "cells that even out": ("u,v,label\n1,2\n3,4,5,a\n", 2, ["2 cells"]),
    "no class": ("u,label\n1,a\n2,\n", 3, ["no class in column 'label'", "one class per row"]),
    "a class on two lines": ('u,label\n1,a\n2,"b\nc"\n', 3, ["the class 'b\\nc'"]),
    "after a cell of two lines": ('u,label\n1,"a\n\n"\nx,a\n', 5, ["'x' in column 'u'"]),
    "two columns of one name": ("u,u,label\n1,2,a\n", 1, ["two columns are called 'u'"]),
    "one column": ("1\n2\n", 1, ["one column", "commas"]),
    "other separators": ("u;v;label\n1;2;a\n", 1, ["one column", "commas"]),
    "a quote that stays open": ('u,label\n1,a\n2,"b\n3,a\n4,c\n', 3, ["a quote that is never closed"]),
    "text behind a quote": ('u,label\n1,a\n2,"b"c\n', 3, ["not CSV"]),
    "not UTF-8": ("u,label\n1,a\n2,ä\n".encode("latin-1"), 3, ["not UTF-8"]),
    "UTF-16": (TABLE.encode("utf-16"), 1, ["UTF-16"]),
    "an error in a late block": ("u,v,label\n" + "1.5,7,a\n" * 70_000 + "1,x,a\n", 70_002, ["'x' in column 'v'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    content, line, words = REFUSED[case]
    assert_refused(tmp_path / "d.csv", content, line, words)


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "the file is empty"), ("\n \n", "the file contains no rows"), ("u,label\n", "the file contains no rows")],
)
def test_without_rows(content, words, tmp_path):
    with pytest.raises(DataError, match=rf"d\.csv: {words}"):
        read(tmp_path, content)


def test_a_name_on_two_lines(tmp_path):
    with pytest.raises(DataError, match=r"d\.csv: name 0 is 'u\\nv'; expected a string without line breaks"):
        read(tmp_path, '"u\nv",label\n1,a\n')


@pytest.mark.parametrize("chosen", ["kind", 3, -4, "7"])
def test_a_label_column_that_is_not_there(chosen, tmp_path):
    with pytest.raises(DataError, match=r"d\.csv:1: there is no column .*one of length, width, species, or a number"):
        read(tmp_path, TABLE, label_column=chosen)


def test_rows_to_predict_need_no_class(tmp_path):
    for content in ("1,2\n3,4\n", "u,v\n1,2\n3,4\n", "u,v,label\n1,2,\n3,4,\n"):
        dataset = read(tmp_path, content, unlabelled=True, n_features=2)
        np.testing.assert_array_equal(dataset.X.toarray(), [[1, 2], [3, 4]])
        assert dataset.Y.shape == (2, 0)
    dataset = read(tmp_path, "1,2,b\n3,4,\n5,6,a\n", unlabelled=True, n_features=2)
    assert dataset.label_names == ["a", "b"]
    np.testing.assert_array_equal(dataset.Y.toarray(), [[0, 1], [0, 0], [1, 0]])


def test_a_quoted_cell_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_BYTES", 8)
    dataset = read(tmp_path, 'u,"la, bel"\n1,a\n"2","a"\n3,"b"\n4,"a"\n')
    np.testing.assert_array_equal(dataset.X.toarray().ravel(), [1, 2, 3, 4])
    assert classes(dataset) == ["a", "a", "b", "a"]
    with pytest.raises(DataError, match=r"d\.csv:4: '!'"):
        read(tmp_path, 'u,label\n1,"a"\n2,"b"\n!,a\n')


number = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr), st.integers(-(10**20), 10**20).map(str)
)


@given(
    rows=st.lists(st.tuples(number, number, st.sampled_from(["a", "b", 'c"', "d,e"])), min_size=1, max_size=6),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    label=st.integers(0, 2),
)
def test_what_the_csv_module_writes(rows, quoting, label, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "d.csv"
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=quoting)
    order = [0, 1]
    order.insert(label, 2)
    names = ["u", "v", "label"]
    writer.writerow([names[i] for i in order])
    writer.writerows([row[i] for i in order] for row in rows)
    path.write_bytes(text.getvalue().encode())
    dataset = labelfield.read(path)
    np.testing.assert_array_equal(dataset.X.toarray(), np.array([row[:2] for row in rows], np.float64).astype("f4"))
    assert classes(dataset) == [row[2] for row in rows]


cell = st.one_of(number, st.text(st.sampled_from('0123456789.,-+eE \t\r\n"nax_\0'), max_size=4))


@given(
    rows=st.lists(st.lists(cell, min_size=3, max_size=3).map(",".join), min_size=1, max_size=4), label=st.integers(0, 2)
)
@example(rows=["1,  ,a"], label=2)
@example(rows=["a, ,1"], label=0)
@example(rows=["1,2,a", "3,4,b\r"], label=2)
@example(rows=["1,\t,a", "1,2,a"], label=2)
def test_quick_equals_exact(rows, label, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "d.csv"
    path.write_bytes(("u,v,w\n" + "\n".join(rows) + "\n").encode())

    def outcome():
        try:
            dataset = labelfield.read(path, label_column=label)
        except DataError as error:
            return str(error)
        return dataset.X.toarray().tolist(), classes(dataset)

    quick = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labelfield.data.csv_table._parse", lambda *_: None)
        assert outcome() == quick


@pytest.mark.slow
def test_a_large_table(tmp_path):
    """The size of covertype, plain and all in quotes: seconds, and little more memory than the result."""
    import time

    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4000, (10_000, 54))
    lines = [",".join(map(str, row)) for row in rows]
    for quote in ("", '"'):
        block = "".join(f"{line},{quote}{i % 7}{quote}\n" for i, line in enumerate(lines))
        (tmp_path / "d.csv").write_text(block * 58)
        started = time.perf_counter()
        assert labelfield.read(tmp_path / "d.csv").n_rows == 580_000
        assert time.perf_counter() - started < 60
