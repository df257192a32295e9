"""Files that ask for more than they hold, or are no files: each was found by `python -m torture files`."""

import gzip
import io
import lzma
import os
import struct
import zipfile

import numpy as np
import pytest
from scipy import sparse

import labelfield
from labelfield import DataError
from labelfield.data import reading
from labelfield.data.npz import load_arrays

NO_FILES = {"device": lambda path: path.symlink_to("/dev/zero"), "pipe": os.mkfifo, "folder": lambda path: path.mkdir()}


def archive(path, members):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


def npy(header):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n", "asks for 4000000000000 bytes"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n", "an array of shape"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (\n", "not an array of NumPy"),
        (b"{'descr': '', 'fortran_order': False, 'shape': (1,), }\n", "not an array of NumPy|an array of shape"),
        (b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", "Object arrays"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }\nmore", "bytes of numbers where its header says"),
    ],
)
def test_a_header_that_is_not_true(header, message, tmp_path):
    content = npy(header) if b"more" not in header else npy(header[:-4]) + b"more"
    archive(tmp_path / "rows.npz", {"X.npy": content})
    with pytest.raises(DataError, match=message):
        labelfield.read(tmp_path / "rows.npz")


@pytest.mark.parametrize("order", "<>")
def test_characters_that_do_not_exist(order, tmp_path):
    y = np.array([0x110000], f"{order}u4").view(f"{order}U1")
    np.savez(tmp_path / "rows.npz", X=np.ones((1, 1)), y=y)
    with pytest.raises(DataError, match="characters that do not exist"):
        labelfield.read(tmp_path / "rows.npz")


def test_arrays_of_any_order_and_type_are_read_as_numpy_reads_them(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "rows": rng.normal(size=(3, 4)),
        "columns": np.asfortranarray(rng.normal(size=(3, 4))),
        "words": np.array(["ä", "bcd"]),
        "big": np.arange(3, dtype=">i4"),
        "one": np.array(7),
        "none": np.zeros((0, 3), np.float32),
    }
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    found = load_arrays(tmp_path / "a.npz")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def saved(path, matrix, **changed):
    sparse.save_npz(path, matrix)
    with np.load(path) as file:
        arrays = dict(file) | {name: np.asarray(value) for name, value in changed.items()}
    np.savez(path, **arrays)


def test_pointers_that_scipy_does_not_look_at(tmp_path):
    saved(tmp_path / "p.npz", sparse.csr_array(np.eye(3)), indptr=np.array([0, 1, 2, -1], np.int32))
    with pytest.raises(DataError, match="row pointers that decrease or point outside"):
        labelfield.read_predictions(tmp_path / "p.npz", 3, 3)


def test_a_matrix_of_times(tmp_path):
    saved(tmp_path / "p.npz", sparse.coo_array(np.eye(3)), data=np.zeros(3, "M8[s]"))
    with pytest.raises(DataError, match="it holds datetime64"):
        labelfield.read_predictions(tmp_path / "p.npz", 3, 3)


def test_rows_that_a_small_file_cannot_have(tmp_path):
    saved(tmp_path / "p.npz", sparse.coo_array(np.eye(3)), shape=np.array([10**12, 3]))
    with pytest.raises(DataError, match="1000000000000 rows for 3 entries; write it as csr"):
        labelfield.read_predictions(tmp_path / "p.npz", 10**12, 3)
    dataset = labelfield.Dataset(np.eye(3), np.eye(3))
    labelfield.write(dataset, tmp_path / "rows.npz")
    arrays = load_arrays(tmp_path / "rows.npz")
    np.savez(tmp_path / "rows.npz", **arrays | {"X_shape": np.array([10**15, 3])})
    with pytest.raises(DataError, match="X is not a CSR array"):
        labelfield.read(tmp_path / "rows.npz")


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("name", ["meta.json", "X_values.npy", "labels.txt"])
def test_what_is_no_file_in_a_folder(what, name, tmp_path):
    dataset = labelfield.Dataset(np.eye(3), np.eye(3), ["a", "b", "c"])
    labelfield.write(dataset, tmp_path / "data")
    (tmp_path / "data" / name).unlink()
    NO_FILES[what](tmp_path / "data" / name)
    with pytest.raises(DataError):
        list(labelfield.read(tmp_path / "data").label_names)


def test_a_header_of_a_folder_that_is_not_python(tmp_path):
    labelfield.write(labelfield.Dataset(np.eye(3), np.eye(3)), tmp_path / "data")
    (tmp_path / "data" / "X_values.npy").write_bytes(npy(b"{'descr': '<f4', 'shape': (\n"))
    with pytest.raises(DataError, match=r"X_values\.npy"):
        labelfield.read(tmp_path / "data")


@pytest.mark.parametrize("what", ["device", "pipe"])
def test_rows_and_documents_from_a_device(what, tmp_path):
    NO_FILES[what](tmp_path / "rows.txt")
    for read in (labelfield.read, labelfield.read_documents):
        with pytest.raises(DataError, match="not a regular file"):
            read(tmp_path / "rows.txt")


def test_a_line_without_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_LINE_BYTES", 1 << 20)
    (tmp_path / "rows.txt.gz").write_bytes(gzip.compress(b"0 " * (1 << 20)))
    with pytest.raises(DataError, match="a line of more than 1 MB"):
        labelfield.read(tmp_path / "rows.txt.gz")


def test_an_index_of_five_thousand_digits(tmp_path):
    head = "@relation 'a: -C 1'\n@attribute l {0,1}\n@attribute x numeric\n@data\n"
    (tmp_path / "rows.arff").write_text(f"{head}{{{'1' * 5000} 1}}\n")
    with pytest.raises(DataError, match="attribute index") as caught:
        labelfield.read(tmp_path / "rows.arff")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_damage_in_compressed_documents_and_vocabularies(compress, tmp_path):
    whole = bytearray(compress("".join(f"uri,label_en,{i}\n" for i in range(999)).encode()))
    whole[len(whole) // 2 : len(whole) // 2 + 40] = bytes(40)
    for name in ("a.csv", "a.txt", "a.tsv"):
        (tmp_path / name).write_bytes(whole)
        for read in (labelfield.read_documents, labelfield.read_vocabulary):
            with pytest.raises(DataError):
                read(tmp_path / name)


def test_a_vocabulary_that_is_not_utf8_or_too_deep(tmp_path):
    (tmp_path / "v.csv").write_bytes("uri,label\nhttp://x/1,ü\n".encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8"):
        labelfield.read_vocabulary(tmp_path / "v.csv")
    (tmp_path / "v.jsonl").write_text('{"name": ' + "[" * 100_000)
    with pytest.raises(DataError, match="not a label"):
        labelfield.read_vocabulary(tmp_path / "v.jsonl")


def test_names_of_labels_are_never_empty(tmp_path):
    (tmp_path / "v.tsv").write_bytes(b"\0\nfood\n<http://x/1>\t\0\n")
    found = labelfield.read_vocabulary(tmp_path / "v.tsv")
    assert [label.name for label in found.labels] == ["food", "http://x/1"]
    (tmp_path / "v.jsonl").write_text('{"name": "\\u0000"}\n')
    with pytest.raises(DataError, match="a label has no name"):
        labelfield.read_vocabulary(tmp_path / "v.jsonl")


def test_a_parquet_file_whose_names_are_not_text(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(pa.table({"abcdefgh": ["one two three"]}), out)
    (tmp_path / "a.parquet").write_bytes(out.getvalue().replace(b"abcdefgh", b"abc\xffefgh"))
    with pytest.raises(DataError):
        labelfield.read_documents(tmp_path / "a.parquet")


ARFF_HEAD = "@relation 'x: -C 1'\n@attribute a {0,1}\n@attribute b {red,'dark blue',green}\n@data\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ARFF_HEAD + "1,blue\n", r"rows\.arff:5: the value 'blue'"),
        (ARFF_HEAD.replace("green", "g" * 9000) + "1,blue\n", r"rows\.arff:5: the value 'blue'.*…"),
        (ARFF_HEAD.replace("-C 1", "-C " + "1" * 5000) + "1,red\n", "no list of labels"),
        (ARFF_HEAD + "{0 1, 1 'dark blue}\n", r"rows\.arff:5: .* expected a quote that is closed"),
        (ARFF_HEAD + "{0 1, 1 'dark" + "\\'" * 100_000 + "}\n", r"rows\.arff:5: .* expected a quote that is closed"),
    ],
)
def test_arff_is_refused_at_once_and_in_one_short_line(content, message, tmp_path):
    (tmp_path / "rows.arff").write_text(content)
    with pytest.raises(DataError, match=message) as error:
        labelfield.read(tmp_path / "rows.arff")
    assert len(str(error.value)) < 700
    assert "\n" not in str(error.value)


def test_lines_of_unusual_blanks_are_empty(tmp_path):
    (tmp_path / "rows.arff").write_text(ARFF_HEAD.replace("@data", "\u00a0\n\u00a0@data") + "\u2003\n1,red\n")
    assert labelfield.read(tmp_path / "rows.arff").n_rows == 1


@pytest.mark.parametrize("name", ["rows.svm", "rows.csv", "rows.arff"])
def test_a_number_of_any_length_is_looked_at_once(name, tmp_path):
    number = "1" * 300_000 + "x"
    rows = {
        "rows.svm": f"0 1:{number}\n",
        "rows.csv": f"a,label\n{number},x\n",
        "rows.arff": f"{ARFF_HEAD}{number},red\n",
    }
    (tmp_path / name).write_text(rows[name])
    with pytest.raises(DataError, match=name):
        labelfield.read(tmp_path / name)
