"""One class a row: what classes are called in each format, their columns, and what is refused."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from strategies import assert_refused, classes, read_content

import labelfield
from labelfield import DataError, Dataset
from labelfield.data import align_classes
from labelfield.data.classes import class_name


def read(tmp_path, content, name="d.svm", **options):
    return read_content(tmp_path / name, content, **{"classes": True, **options})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1", "1"), ("+1", "1"), ("1.0", "1"), ("1.000e+00", "1"), ("-1", "-1"), ("-0", "0"), ("007", "7"),
        ("1.5", "1.5"), ("a", "a"), ("12345678901234567890", "12345678901234567890"), ("1e999", "1e999"), ("", ""),
    ],
)  # fmt: skip
def test_names(text, name):
    assert class_name(text) == name


# name: content, what the classes are, and the class of each row
SVMLIGHT = {
    "signs": ("-1 3:0.5 7:1\n+1 1:2\n-1 2:1\n", ["-1", "1"], ["-1", "1", "-1"]),
    "one class written three ways": ("1 1:1\n+1 1:1\n1.0 1:1\n2.0 1:1\n", ["1", "2"], ["1", "1", "1", "2"]),
    "numbers with gaps": ("12 4:1\n3 5:1\n100 1:1\n", ["3", "12", "100"], ["12", "3", "100"]),
    "words": ("spam 1:1\nham 2:1\nspam 1:2\n", ["ham", "spam"], ["spam", "ham", "spam"]),
    "words and numbers": ("10 1:1\n9 2:1\nx 1:2\n", ["10", "9", "x"], ["10", "9", "x"]),
    "comments, blank lines, blanks": ("# a b\n\n  2 1:1 # 5\n\t1\t2:1\r\n   \n", ["1", "2"], ["2", "1"]),
    "no features": ("1\n2 1:3\n1 \n", ["1", "2"], ["1", "2", "1"]),
    "letters beyond ASCII": ("für 1:1\n", ["für"], ["für"]),
}


@pytest.mark.parametrize("case", SVMLIGHT)
@pytest.mark.parametrize("name", ["d.svm", "d.txt"])
def test_svmlight(case, name, tmp_path):
    content, names, expected = SVMLIGHT[case]
    dataset = read(tmp_path, content, name)
    assert dataset.label_names == names
    assert classes(dataset) == expected


def test_what_scikit_learn_writes(tmp_path):
    X, y = sparse.random_array((30, 8), density=0.4, rng=np.random.default_rng(0)), np.arange(30) % 3 - 1.0
    dump_svmlight_file(X, y, str(tmp_path / "d.svm"), zero_based=False, comment="one class per row")
    dataset = labelfield.read(tmp_path / "d.svm", classes=True, n_features=8)
    np.testing.assert_allclose(dataset.X.toarray(), X.toarray(), rtol=1e-6)
    assert classes(dataset) == [str(int(c)) for c in y]


def test_features_are_read_as_ever(tmp_path):
    content = "-1 3:0.5 7:1\n+1 1:2\n"
    np.testing.assert_array_equal(read(tmp_path, content).X.toarray(), [[0, 0, 0.5, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0, 0]])
    assert read(tmp_path, content, one_based=False).n_features == 8
    assert read(tmp_path, content, n_features=9, n_labels=5).X.shape == (2, 9)
    assert read(tmp_path, content, n_features=9, n_labels=5).n_labels == 2
    with pytest.raises(DataError, match="'-1' is negative"):
        read(tmp_path, content, classes=False)


# name: content, the line named, and words of the message
REFUSED = {
    "two labels": ("1 1:1\n1,2 1:1\n", 2, ["two labels; expected one class per row", "--method mlgpf"]),
    "three labels": ("1 1:1\n\n# c\n1,2,3 1:1\n", 4, ["3 labels; expected one class per row"]),
    "no label": ("1 1:1\n 2:1\n", 2, ["no label; expected one class per row"]),
    "no label at the margin": ("2:1 3:1\n", 1, ["no label"]),
    "a value that is none": ("1 1:1\n-1 2:x\n", 2, ["'x'"]),
    "a class that is not UTF-8": ("1 1:1\nä 1:1\n".encode("latin-1"), 2, ["not UTF-8"]),
    "two labels under a header": ("2 3 4\n1 1:1\n0,3 1:1\n", 3, ["two labels; expected one class per row"]),
    "no label under a header": ("2 3 4\n1 1:1\n 1:1\n", 3, ["no label; expected one class per row"]),
    "two labels in a late block": ("1 1:1\n" * 200_000 + "1,2 1:1\n", 200_001, ["two labels"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    content, line, words = REFUSED[case]
    assert_refused(tmp_path / "d.svm", content, line, words, classes=True)


def test_rows_to_predict_need_no_class(tmp_path):
    dataset = read(tmp_path, "-1 1:1\n2:1\n 3:1\n+1\n", unlabelled=True)
    np.testing.assert_array_equal(dataset.Y.toarray(), [[1, 0], [0, 0], [0, 0], [0, 1]])
    np.testing.assert_array_equal(dataset.X.toarray(), [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    with pytest.raises(DataError, match=r":2: two labels"):
        read(tmp_path, "1:1\n1,2 1:1\n", unlabelled=True)


def test_under_a_header_classes_are_numbers_or_have_names(tmp_path):
    content = "3 4 9\n7 0:1\n2 1:1\n7 2:1\n"
    assert classes(read(tmp_path, content)) == ["7", "2", "7"]
    assert read(tmp_path, content).label_names == ["2", "7"]
    assert read(tmp_path, content, one_based_labels=True).label_names == ["2", "7"]
    (tmp_path / "labels.txt").write_text("".join(f"class {i}\n" for i in range(9)))
    assert read(tmp_path, content).label_names == ["class 2", "class 7"]


def test_a_list_of_names_beside_numbers(tmp_path):
    (tmp_path / "labels.txt").write_text("zero\none\ntwo\n")
    assert read(tmp_path, "2 1:1\n0 1:1\n").label_names == ["zero", "two"]
    assert read(tmp_path, "2 1:1\n1 1:1\n", one_based_labels=True).label_names == ["zero", "one"]
    assert read(tmp_path, "b 1:1\na 1:1\n").label_names == ["a", "b"]
    with pytest.raises(DataError, match=r"d\.svm: the class 3 has no name .*expected a class from 0 to 2"):
        read(tmp_path, "3 1:1\n")
    np.savez(tmp_path / "d.npz", X=np.eye(2), y=np.array([2, 1]))
    assert labelfield.read(tmp_path / "d.npz", classes=True).label_names == ["one", "two"]
    (tmp_path / "labels.txt").write_text("same\nsame\n")
    with pytest.raises(DataError, match=r"d\.svm: two classes are called 'same'"):
        read(tmp_path, "0 1:1\n1 1:1\n")


@pytest.mark.parametrize(
    ("y", "names", "expected"),
    [
        (np.array([100, 3, 7, 3]), ["3", "7", "100"], ["100", "3", "7", "3"]),
        (np.array([-1, 1, 1, -1], np.int8), ["-1", "1"], ["-1", "1", "1", "-1"]),
        (np.array([2.0, 1.0, 2.0, 2.0]), ["1", "2"], ["2", "1", "2", "2"]),
        (np.array([True, False, True, True]), ["0", "1"], ["1", "0", "1", "1"]),
        (np.array(["b", "a", "b", "c"]), ["a", "b", "c"], ["b", "a", "b", "c"]),
        (np.array(["10", "9", "+9", "10"]), ["9", "10"], ["10", "9", "9", "10"]),
        (np.array([[0], [5], [0], [5]], np.uint8), ["0", "5"], ["0", "5", "0", "5"]),
    ],
)
def test_npz(y, names, expected, tmp_path):
    np.savez(tmp_path / "d.npz", X=np.eye(4), y=y)
    dataset = labelfield.read(tmp_path / "d.npz", classes=True)
    assert dataset.label_names == names
    assert classes(dataset) == expected


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": np.array([0, 0.5])}, r"y\[1\] is 0.5; expected a class"),
        ({"y": np.array([np.nan, 1])}, r"y\[0\] is nan"),
        ({"y": np.array([1j, 1])}, "y holds complex128"),
        ({"Y": np.array([[1, 0], [1, 1]])}, r"row 1 \(counted from 0\) has two labels; expected one class per row"),
        ({"Y": np.array([[0, 0], [1, 0]])}, r"row 0 \(counted from 0\) has no label; expected one class per row"),
    ],
)
def test_npz_refused(arrays, words, tmp_path):
    np.savez(tmp_path / "d.npz", X=np.eye(2), **arrays)
    with pytest.raises(DataError, match=rf"d\.npz: {words}"):
        labelfield.read(tmp_path / "d.npz", classes=True)


@pytest.mark.parametrize("name", ["d", "d.npz", "d.txt", "d.svm"])
def test_what_we_write_is_read_again(name, tmp_path):
    dataset = Dataset(np.eye(3), np.eye(4)[[3, 1, 3]], ["p", "q", "r", "s"])
    labelfield.write(dataset, tmp_path / name)
    again = labelfield.read(tmp_path / name, classes=True)
    assert again.label_names == ["q", "s"]
    assert classes(again) == ["s", "q", "s"]
    several = Dataset(np.eye(2), [[1, 0], [1, 1]])
    labelfield.write(several, tmp_path / "other" / name)
    with pytest.raises(DataError, match=r"two labels; expected one class per row"):
        labelfield.read(tmp_path / "other" / name, classes=True)


def test_arff(tmp_path):
    body = "@relation 'm: -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n@attribute x numeric\n@data\n"
    assert classes(read(tmp_path, body + "1,0,2\n0,1,3\n", "m.arff")) == ["a", "b"]
    with pytest.raises(DataError, match=r"m\.arff: row 1 \(counted from 0\) has no label"):
        read(tmp_path, body + "1,0,2\n0,0,3\n", "m.arff")


@pytest.mark.parametrize("kind", ["svm", "npz", "folder"])
def test_the_test_split_follows_the_training_split(kind, tmp_path):
    train, test = ["7", "3", "7"], ["5", "7", "100"]
    if kind == "svm":
        for name, labels in (("train", train), ("test", test)):
            (tmp_path / f"{name}.svm").write_text("".join(f"{c} 1:1 4:2\n" for c in labels))
    elif kind == "npz":
        for name, labels in (("train", train), ("test", test)):
            np.savez(tmp_path / f"{name}.npz", X=np.eye(3), y=np.array(labels, int))
    else:
        Y = np.eye(101)
        both = Dataset(np.eye(3), Y[[7, 3, 7]], test=Dataset(np.eye(3), Y[[5, 7, 100]]))
        labelfield.write(both, tmp_path / "both")
        tmp_path = tmp_path / "both"
    dataset = labelfield.read(tmp_path, classes=True)
    assert dataset.label_names == dataset.test.label_names == ["3", "7", "5", "100"]
    assert classes(dataset) == train
    assert classes(dataset.test) == test


def test_a_damaged_folder_is_refused(tmp_path):
    labelfield.write(Dataset(np.eye(2), np.eye(2), ["a", "b"]), tmp_path / "d")
    np.save(tmp_path / "d" / "Y_indices.npy", np.array([0, 9], np.int32))
    with pytest.raises(DataError, match="damaged"):
        labelfield.read(tmp_path / "d", classes=True)


def test_align_classes():
    dataset = Dataset(np.eye(3), np.eye(3)[[0, 2, 1]], ["a", "b", "z"])
    aligned = align_classes(dataset, ["z", "m", "a"])
    assert aligned.label_names == ["z", "m", "a", "b"]
    assert classes(aligned) == ["a", "z", "b"]
    assert classes(align_classes(Dataset(np.eye(2), np.eye(2)), ["1"])) == ["0", "1"]
    several = align_classes(Dataset(np.eye(2), [[1, 1], [0, 1]], ["a", "b"]), ["b"])
    np.testing.assert_array_equal(several.Y.toarray(), [[1, 1], [1, 0]])
    both = align_classes(dataset.split(0.4), ["z"])
    assert both.test.label_names == both.label_names == ["z", "a", "b"]
