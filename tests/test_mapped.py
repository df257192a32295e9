"""Arrays in files: the same numbers as in memory, read in pieces, and gone when nobody needs them."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import labelfield
from labelfield import Dataset, synth
from labelfield.csr import as_features, column_counts, digest_of, verify
from labelfield.data.transform import VIEWS, RowTransform, candidate_transforms, choose_transform
from labelfield.errors import DataError
from labelfield.mapped import Growing, advise, folder_for, map_of, pieces

DATA = synth.make_multilabel(200, 64, 12, seed=0)


@pytest.fixture
def on_disk(tmp_path):
    labelfield.write(DATA, tmp_path / "rows")
    return labelfield.read(tmp_path / "rows")


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.bool_])
@pytest.mark.parametrize("sizes", [[], [0], [3, 0, 5], [1 << 15, 1 << 15, 1 << 15]], ids=str)
def test_arrays_grow_alike_in_memory_and_in_a_file(tmp_path, dtype, sizes):
    parts = [np.random.default_rng(n).integers(0, 2, n).astype(dtype) for n in sizes]
    found = []
    for folder in (None, tmp_path):
        growing = Growing(dtype, folder)
        for part in parts:
            growing.extend(part)
        found.append(growing.finish())
        assert found[-1].dtype == dtype
        np.testing.assert_array_equal(found[-1], np.concatenate([np.zeros(0, dtype), *parts]))
    assert map_of(found[0]) is None
    assert (map_of(found[1]) is not None) == (sum(sizes) > 0)
    assert list(tmp_path.iterdir()) == []  # a file without a name


@pytest.mark.parametrize("n", [0, 3, 4, 9])
def test_an_array_that_outgrows_memory_moves_to_a_file(tmp_path, n):
    array = Growing(np.int32, tmp_path, in_memory=4)
    for first in range(0, n, 2):
        array.extend(np.arange(first, min(first + 2, n)))
    found = array.finish()
    np.testing.assert_array_equal(found, np.arange(n))
    assert (map_of(found) is not None) == (n > 4)
    assert list(tmp_path.iterdir()) == []


def test_views_beside_each_other_stay_on_disk(on_disk):
    name = "unit+log"
    X = RowTransform.fit(name, DATA.X)(DATA.X)
    found = RowTransform.fit(name, on_disk.X)(on_disk.X)
    assert map_of(found.data) is not None
    assert map_of(found.indices) is not None
    assert abs(found - X).nnz == 0
    assert (
        abs(X - sparse.hstack([RowTransform.fit(view, DATA.X)(DATA.X) for view in name.split("+")]) * 0.5**0.5).max()
        < 1e-6
    )


def test_no_memory_is_one_error():
    with pytest.raises(MemoryError):
        Growing(np.float32, None, 1 << 50)  # what is left of it is closed without another error


def test_a_full_disk_names_the_folder(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    growing = Growing(np.float64, tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(DataError, match=r"no room for arrays \(File too large\)\. Free some space there") as caught:
            growing.extend(np.zeros(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.path == str(tmp_path)


def test_pieces_cover_everything_once_and_leave_it_as_it_was(on_disk):
    for X in (DATA.X, on_disk.X):
        found = [X.indices[some].copy() for some in pieces(X.indices, X.data, size=7)]
        np.testing.assert_array_equal(np.concatenate(found), DATA.X.indices)
        np.testing.assert_array_equal(X.data, DATA.X.data)  # read again after it was dropped
    assert list(pieces(np.zeros(0))) == []


def test_hints_reach_any_part_of_a_mapped_array(on_disk):
    for array in (on_disk.X.data, on_disk.X.data[5:], on_disk.X.data[:0], DATA.X.data):
        for first, last in ((0, None), (1, 3), (2, 2)):
            advise(array, "MADV_WILLNEED", first, last)
            advise(array, "MADV_NO_SUCH_HINT", first, last)
    np.testing.assert_array_equal(on_disk.X.data, DATA.X.data)


def test_counts_and_digests_are_the_same_in_pieces(on_disk, monkeypatch):
    monkeypatch.setattr("labelfield.mapped.PIECE", 5)
    for array, mapped in ((DATA.X, on_disk.X), (DATA.Y, on_disk.Y)):
        np.testing.assert_array_equal(column_counts(mapped), np.bincount(array.indices, minlength=array.shape[1]))
        assert digest_of(mapped) == digest_of(array)
        verify(mapped)


@pytest.mark.parametrize("name", [view for view in VIEWS if view != "coded"] + ["unit+log"])
def test_transforms_of_rows_on_disk_stay_there(on_disk, name, monkeypatch, tmp_path):
    """They have the values that rows in memory get, and memory is not what holds them."""
    monkeypatch.setattr("labelfield.data.transform._BLOCK_ENTRIES", 50)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    X = abs(DATA.X)
    labelfield.write(Dataset(as_features(X), DATA.Y), tmp_path / "positive")
    mapped = labelfield.read(tmp_path / "positive").X
    assert folder_for(mapped.data) == scratch
    here, there = (RowTransform.fit(name, rows) for rows in (X, mapped))
    ours, theirs = here(as_features(X)), there(mapped)
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())
    if name in ("unit", "sqrt", "log", "tfidf", "range"):
        assert map_of(theirs.data) is not None
        assert map_of(theirs.indices) is not None
    assert list(scratch.iterdir()) == []


def test_a_transform_is_chosen_by_some_of_many_rows(monkeypatch):
    rng = np.random.default_rng(0)
    for scale, chosen in ((1.0, "unit"), (4.0, "sqrt")):
        X = as_features(sparse.random(2000, 1200, 0.0125, format="csr", rng=0, dtype=np.float32))
        X.data[:] = np.exp(scale * rng.standard_normal(X.nnz))
        whole = choose_transform(X)
        with monkeypatch.context() as patch:
            patch.setattr("labelfield.data.transform._BLOCK_ENTRIES", 3000)
            assert choose_transform(X) == whole == chosen
            assert candidate_transforms(X)[0] == chosen


@pytest.mark.parametrize("name", ["rows.svm", "rows.txt", "rows.csv", "rows.arff"])
def test_text_is_read_into_files_as_into_memory(tmp_path, name):
    path = tmp_path / name
    if name.endswith(".csv"):
        path.write_text("a,b,label\n" + "".join(f"{i % 3},{i / 7:.3f},{'xyz'[i % 3]}\n" for i in range(50)))
    elif name.endswith(".arff"):
        rows = "".join(f"{i % 3},{i / 7:.3f},{i % 2}\n" for i in range(50))
        path.write_text(
            f"@relation 'x: -C -1'\n@attribute a numeric\n@attribute b numeric\n@attribute y {{0,1}}\n@data\n{rows}"
        )
    else:
        labelfield.write(DATA, path)
    ours, theirs = labelfield.read(path), labelfield.read(path, scratch=tmp_path)
    assert map_of(theirs.X.data) is not None
    for one, other in ((ours.X, theirs.X), (ours.Y, theirs.Y)):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one.toarray(), other.toarray())
    assert ours.label_names == theirs.label_names
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_headerless_rows_with_zeros_that_count_from_1(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:0 3:2\n0 2:1 5:0\n")
    for scratch in (None, tmp_path):
        found = labelfield.read(path, scratch=scratch)
        np.testing.assert_array_equal(found.X.toarray(), [[0, 0, 2, 0, 0], [0, 1, 0, 0, 0]])


def test_no_named_file_is_needed_where_tmp_is_read_only(monkeypatch):
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    mapped = np.memmap(os.path.realpath(__file__), np.uint8, "r")
    assert folder_for(mapped) == Path("/var/tmp")
    assert folder_for(np.zeros(3)) is None


def test_many_rows_that_are_taken_from_disk_stay_there(on_disk, monkeypatch):
    rows = np.random.default_rng(0).permutation(200)[:150]
    expected = DATA.take(rows)
    assert map_of(on_disk.take(rows).X.data) is None  # few fit into memory
    monkeypatch.setattr("labelfield.csr._IN_MEMORY", 100)
    monkeypatch.setattr("labelfield.csr._ROWS", 40)
    found = on_disk.take(rows)
    assert map_of(found.X.data) is not None
    for one, other in ((expected.X, found.X), (expected.Y, found.Y)):
        np.testing.assert_array_equal(one.toarray(), other.toarray())
        verify(other)
    both = on_disk.split(0.3)
    assert both.n_rows + both.test.n_rows == 200
