"""write, then read, is the identity; a failed write leaves nothing behind."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import assert_same, datasets, finite, ragged

import labelfield
from labelfield import DataError, Dataset
from labelfield.data import FORMATS, files

NAMES = ["d.txt", "d.txt.gz", "d.txt.bz2", "d.txt.xz", "d.svm", "d.svm.gz", "d.npz", "d"]


# Files are slow, and examples few enough to go round: every format sees the same ones.
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(dataset=datasets())
def test_write_then_read_is_the_identity(name, dataset):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        labelfield.write(dataset, path)
        assert_same(labelfield.read(path), dataset)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=8)
@given(dataset=datasets().filter(lambda d: d.n_rows > 1))
def test_two_splits(format, dataset):
    splits = dataset.split(0.5, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "both"
        labelfield.write(splits, path, format=format)
        assert_same(labelfield.read(path), splits)
        labelfield.write(splits, path, format=format)  # ours, so replaced
        assert_same(labelfield.read(path), splits)


def toy(**names):
    return Dataset(np.array([[1, 0, 2.5], [0, 0, 0]], np.float32), np.array([[1, 0], [1, 1]]), **names)


def test_rewriting_replaces(tmp_path):
    for name in NAMES:
        labelfield.write(toy(), tmp_path / "x" / name)
        other = toy().take([1, 0, 1])
        labelfield.write(other, tmp_path / "x" / name)
        assert_same(labelfield.read(tmp_path / "x" / name), other)


def test_names_of_another_file_are_kept(tmp_path):
    labelfield.write(toy(label_names=["a", "b"]), tmp_path / "one.txt")
    labelfield.write(toy(label_names=["c", "d"]), tmp_path / "two.txt")
    assert labelfield.read(tmp_path / "one.txt").label_names == ["a", "b"]
    assert labelfield.read(tmp_path / "two.txt").label_names == ["c", "d"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.labels.txt", "one.txt", "two.labels.txt", "two.txt"]


def test_a_name_list_that_would_not_fit_is_refused(tmp_path):
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    with pytest.raises(DataError, match="a folder of its own"):
        labelfield.write(toy(), tmp_path / "one.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["labels.txt"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("older", [False, True])
def test_a_failed_write_leaves_nothing_behind(name, older, tmp_path, monkeypatch):
    path = tmp_path / name
    if older:
        labelfield.write(toy(), path)
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))

    def fail(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("labelfield.data.text.write_rows", fail)
    monkeypatch.setattr("labelfield.data.store._save", fail)
    monkeypatch.setattr("numpy.savez_compressed", fail)
    with pytest.raises(OSError, match="No space left"):
        labelfield.write(toy(label_names=["a", "b"], feature_names=["x", "y", "z"]), path)
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before
    monkeypatch.undo()
    if older:
        assert_same(labelfield.read(path), toy())


def test_writing_one_file_changes_no_other(tmp_path):
    labelfield.write(toy(), tmp_path / "b.txt")
    named = Dataset(np.eye(3), np.eye(3), list("abc"), list("xyz"))
    labelfield.write(named, tmp_path / "a.txt")
    assert_same(labelfield.read(tmp_path / "b.txt"), toy())
    assert_same(labelfield.read(tmp_path / "a.txt"), named)
    (tmp_path / "labels.txt").write_text("p\nq\nr\ns\n")
    labelfield.write(toy(), tmp_path / "c.npz")  # holds its own names, or none
    assert_same(labelfield.read(tmp_path / "c.npz"), toy())


@pytest.mark.parametrize("names", [["\ufeffa", "b"], ["BZhang", "\x1f\x8b"], ["", " "], ["a\u2028b", "\x85"]])
@pytest.mark.parametrize("name", NAMES)
def test_awkward_names(names, name, tmp_path):
    labelfield.write(toy(label_names=names), tmp_path / name)
    assert_same(labelfield.read(tmp_path / name), toy(label_names=names))


def test_lists_of_names_are_no_place_for_data(tmp_path):
    for name in ("labels.txt", "features.txt", "x.labels.txt"):
        with pytest.raises(ValueError, match="reserved for lists of names"):
            labelfield.write(toy(), tmp_path / name)


def test_a_failed_write_leaves_no_parents_behind(tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        labelfield.write(toy(), tmp_path / "new" / "deep" / "x.txt", progress=stop)
    assert not list(tmp_path.iterdir())


def test_strangers_inside_our_folders_are_seen(tmp_path):
    (tmp_path / "d" / "train").mkdir(parents=True)
    (tmp_path / "d" / "train" / "thesis.docx").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"thesis\.docx"):
        labelfield.write(toy(), tmp_path / "d")
    assert (tmp_path / "d" / "train" / "thesis.docx").exists()


def test_a_strangers_folder_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"thesis\.tex"):
        labelfield.write(toy(), tmp_path)
    labelfield.write(toy(), tmp_path / "d")
    (tmp_path / "d" / "notes.md").write_text("mine")
    with pytest.raises(FileExistsError, match=r"notes\.md"):
        labelfield.write(toy(), tmp_path / "d")


def test_formats_we_do_not_write(tmp_path):
    for name in ("d.csv", "d.arff", "d.npz.gz"):
        with pytest.raises(ValueError, match="does not write"):
            labelfield.write(toy(), tmp_path / name)
    with pytest.raises(ValueError, match="expected one of"):
        labelfield.write(toy(), tmp_path / "d", format="csv")
    with pytest.raises(ValueError, match="cannot hold two splits"):
        labelfield.write(toy().split(0.5), tmp_path / "d.txt")
    assert files.format_of(tmp_path / "tmp.Xa12b") == "folder"


@given(array=ragged(5, 8, finite))
def test_text_values_survive_bit_for_bit(array):
    dataset = Dataset(array, np.zeros((5, 1)))
    with tempfile.TemporaryDirectory() as folder:
        labelfield.write(dataset, Path(folder) / "d.txt")
        again = labelfield.read(Path(folder) / "d.txt")
    np.testing.assert_array_equal(again.X.data.view(np.uint32), dataset.X.data.view(np.uint32))
