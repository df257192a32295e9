"""Messages of readers that no other test asks for: each says what was found and where."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import labelfield
from labelfield import DataError
from labelfield.data import Dataset
from labelfield.data.reading import open_bytes, read_bytes
from labelfield.data.transform import RowTransform

ARFF = "@relation 'x: -C 1'\n@attribute l {0,1}\n@attribute f numeric\n@data\n1,1\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{0,1}", "{a,b}", "label 'l' has the value 'a'; expected 0 and 1"),
        ("@data", "data", ":4: 'data' in the header; expected @relation"),
        ("@attribute l {0,1}", "@attribute l", ":2: '@attribute l'; expected @attribute name type"),
        ("{0,1}", "{'0,1}", "expected values separated by commas"),
        ("{0,1}", "{0 1}", "expected a comma"),
    ],
)
def test_arff(tmp_path, old, new, words):
    path = tmp_path / "rows.arff"
    path.write_text(ARFF.replace(old, new))
    with pytest.raises(DataError) as caught:
        labelfield.read(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(path))


def _names_of_latin1(path):
    labelfield.write(Dataset(np.eye(2), np.eye(2), ["ab", "cd"]), path)
    with np.load(path) as file:
        arrays = dict(file)
    (key,) = [key for key in arrays if "label" in key and arrays[key].dtype == np.uint8]
    arrays[key] = np.full_like(arrays[key], 255)
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_names_of_latin1, "is not UTF-8"),
        (lambda path: np.savez(path, X=np.float64(1), y=np.zeros(1, int)), "X is a single number"),
        (lambda path: np.savez(path, format=b"dok", shape=(1, 1), data=np.ones(1)), "no labels"),
    ],
    ids=["names", "number", "no partner"],
)
def test_npz(tmp_path, make, words):
    make(tmp_path / "rows.npz")
    with pytest.raises(DataError, match=words):
        labelfield.read(tmp_path / "rows.npz")


def test_a_matrix_of_another_kind_and_a_folder_in_its_place(tmp_path):
    np.savez(tmp_path / "X_rows.npz", format=b"dok", shape=(1, 1), data=np.ones(1))
    sparse.save_npz(tmp_path / "Y_rows.npz", sparse.csr_array(np.eye(1)))
    with pytest.raises(DataError, match="the matrix is of kind 'dok'; write it as csr"):
        labelfield.read(tmp_path / "X_rows.npz")
    sparse.save_npz(tmp_path / "X_rows.npz", sparse.csr_array(np.eye(1)))
    (tmp_path / "Y_rows.npz").unlink()
    (tmp_path / "Y_rows.npz").mkdir()
    with pytest.raises(DataError, match=r"Y_rows.npz: there is no such file"):
        labelfield.read(tmp_path / "X_rows.npz")


def test_files_that_are_not_there_or_damaged(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="nowhere: there is no such file"), open_bytes(tmp_path / "nowhere"):
        pass
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)"), open_bytes(tmp_path):
        pass
    path = tmp_path / "labels.ttl.gz"
    path.write_bytes(gzip.compress(b"a" * 1000)[:-9])
    with pytest.raises(DataError, match="truncated or damaged"):
        read_bytes(path)
    with pytest.raises(ValueError, match="narrow=True needs n_features"):
        labelfield.read(path, narrow=True)


def stored(folder):
    labelfield.write(Dataset(np.eye(2), np.eye(2), ["a", "b"]), folder)
    return json.loads((folder / "meta.json").read_text())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"splits": ["test"]}, "splits other than train and test"),
        ({"format": "another"}, "not the description of a labelfield data set"),
        ({"version": 2}, "version 2 of the folder format; expected version 1. Install a newer labelfield"),
        ({"version": 0}, "version 0 of the folder format; expected version 1. Convert the original data again"),
        ({"n_features": 2**40}, "1099511627776 columns"),
    ],
)
def test_folders(tmp_path, change, words):
    meta = stored(tmp_path / "data")
    assert set(change) & {*meta, "splits"}
    (tmp_path / "data" / "meta.json").write_text(json.dumps(meta | change))
    with pytest.raises(DataError, match=words):
        labelfield.read(tmp_path / "data")


@pytest.mark.parametrize("name", ["meta.json", "labels.txt"])
def test_a_disk_that_cannot_be_read_is_said_with_the_file(tmp_path, monkeypatch, name):
    stored(tmp_path / "data")
    whole = Path.read_bytes

    def fails(path):
        if path.name == name:
            raise OSError(5, "Input/output error")
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", fails)
    with pytest.raises(DataError, match=rf"{name}: cannot be read \(Input/output error\)"):
        list(labelfield.read(tmp_path / "data").label_names)


def test_row_transforms_with_parts_of_another():
    ones = np.ones(3, np.float32)
    with pytest.raises(ValueError, match="one shift per feature"):
        RowTransform("scaled", ones)
    with pytest.raises(ValueError, match="needs the codes of categories"):
        RowTransform("coded", ones, ones)
