"""The folder opens without being read, and damage to it is found."""

import json
import shutil

import numpy as np
import pytest
from strategies import assert_same

import labelfield
from labelfield import DataError
from labelfield.data import verify


@pytest.fixture
def folder(tmp_path):
    dataset = labelfield.synth.make_multilabel(200, 100, 30, seed=1)
    path = tmp_path / "store"
    labelfield.write(labelfield.Dataset(dataset.X, dataset.Y, map(str, range(30))), path)
    return path


def test_arrays_are_mapped_not_read(folder):
    dataset = labelfield.read(folder)
    for array in (dataset.X.data, dataset.X.indices, dataset.X.indptr, dataset.Y.indices, dataset.Y.indptr):
        assert not array.flags.writeable
        assert isinstance(array.base, np.memmap)
    assert dataset.Y.data.strides == (0,), "the ones of Y take no memory"
    assert dataset.Y.sum() == dataset.Y.indices.size


def test_a_mapped_data_set_behaves_like_one_in_memory(folder):
    dataset = labelfield.read(folder)
    copy = labelfield.Dataset(dataset.X.copy(), dataset.Y.copy(), dataset.label_names)
    rows = np.random.default_rng(0).permutation(200)[:50]
    assert_same(dataset.take(rows), copy.take(rows))
    np.testing.assert_allclose((dataset.X @ dataset.X.T).toarray(), (copy.X @ copy.X.T).toarray())
    np.testing.assert_array_equal((dataset.Y.T @ dataset.Y).toarray(), (copy.Y.T @ copy.Y).toarray())
    assert labelfield.describe(dataset) == labelfield.describe(copy)


def test_names_are_read_on_demand(folder):
    (folder / "labels.txt").write_text("too\nfew\n")
    dataset = labelfield.read(folder)
    assert len(dataset.label_names) == 30
    with pytest.raises(DataError, match=r"labels\.txt: 2 names where 30 were recorded"):
        dataset.label_names[0]


@pytest.mark.parametrize(
    "file", ["X_values.npy", "X_indices.npy", "X_indptr.npy", "Y_indices.npy", "Y_indptr.npy", "meta.json"]
)
@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "rubbish", "other type", "other size"])
def test_damage_is_found_on_opening(folder, file, damage):
    path = folder / file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
        if file == "meta.json":
            return  # then it is no folder of ours at all: see the directory without splits
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "rubbish":
        path.write_bytes(b"\x93NUMPY rubbish" * 10)
    elif file == "meta.json":
        path.write_text(json.dumps({"format": "labelfield dataset", "version": 1 if damage == "other size" else 99}))
    elif damage == "other type":
        np.save(path, np.load(path).astype(np.float64))
    else:
        np.save(path, np.load(path)[:-1])
    with pytest.raises(DataError) as caught:
        labelfield.read(folder)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [10**6, -1])
def test_indices_out_of_range_are_found_in_a_batch_and_by_verify(folder, wrong):
    indices = np.load(folder / "X_indices.npy")
    indices[5] = wrong
    np.save(folder / "X_indices.npy", indices)
    dataset = labelfield.read(folder)
    with pytest.raises(DataError, match="columns outside"):
        dataset.take([0])
    with pytest.raises(DataError, match="store: the sparse array is damaged"):
        verify(dataset, folder)


def test_row_pointers_that_fall_are_found(folder):
    indptr = np.load(folder / "X_indptr.npy")
    indptr[3] = indptr[10]
    np.save(folder / "X_indptr.npy", indptr)
    dataset = labelfield.read(folder)
    with pytest.raises(DataError, match="decrease"):
        dataset.take([3])
    with pytest.raises(DataError, match="decrease"):
        verify(dataset)


@pytest.mark.parametrize("wrong", [10**6, 2**60, -5])
def test_row_pointers_that_point_outside_are_found(folder, wrong):
    indptr = np.load(folder / "X_indptr.npy").astype(np.int64)
    indptr[10] = wrong
    np.save(folder / "X_indptr.npy", indptr)
    dataset = labelfield.read(folder)
    for rows in ([9, 3], [10, 3]):
        with pytest.raises(DataError, match="decrease or point outside"):
            dataset.take(rows)


def test_pickles_are_refused(folder):
    np.save(folder / "X_values.npy", np.array([print], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"X_values\.npy"):
        labelfield.read(folder)


def test_a_folder_can_be_moved(folder, tmp_path):
    dataset = labelfield.read(folder)
    before = dataset.X.copy()
    shutil.move(folder, tmp_path / "elsewhere")
    np.testing.assert_array_equal(labelfield.read(tmp_path / "elsewhere").X.data, before.data)
