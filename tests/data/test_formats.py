"""Each format reads as its definition, or another reader of it, says."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from strategies import assert_same, assert_same_array

import labelfield
from labelfield import DataError, Dataset

RNG = np.random.default_rng(0)


def random_dataset(n=40, d=12, k=6):
    X = sparse.random_array((n, d), density=0.3, rng=RNG, dtype=np.float32)
    return Dataset(X, RNG.random((n, k)) < 0.3)


class TestSvmlight:
    @pytest.mark.parametrize("zero_based", [True, False])
    @pytest.mark.parametrize("comment", [None, "a comment: 1,2 3"])
    def test_reads_what_scikit_learn_writes(self, zero_based, comment, tmp_path):
        dataset = random_dataset()
        path = tmp_path / "d.svm"
        dump_svmlight_file(
            dataset.X,
            dataset.Y.toarray().astype(int),
            str(path),
            multilabel=True,
            zero_based=zero_based,
            comment=comment,
        )
        again = labelfield.read(path)
        assert_same_array(again.X, dataset.X)
        assert_same_array(again.Y, dataset.Y)

    def test_scikit_learn_reads_what_we_write(self, tmp_path):
        dataset = random_dataset()
        labelfield.write(dataset, tmp_path / "d.svm")
        X, labels = load_svmlight_file(str(tmp_path / "d.svm"), n_features=dataset.n_features, multilabel=True)
        np.testing.assert_array_equal(X.toarray().astype(np.float32), dataset.X.toarray())
        assert [tuple(map(int, row)) for row in labels] == [
            tuple(dataset.Y[[i]].indices) for i in range(dataset.n_rows)
        ]

    def test_comments_and_blank_lines_are_skipped(self, tmp_path):
        path = tmp_path / "d.svm"
        path.write_text("# head\n\n1 1:2 # tail 3:4\n   \n0,2 3:1\n")
        dataset = labelfield.read(path)
        np.testing.assert_array_equal(dataset.X.toarray(), [[2, 0, 0], [0, 0, 1]])
        np.testing.assert_array_equal(dataset.Y.toarray(), [[0, 1, 0], [1, 0, 1]])

    def test_lines_are_counted_with_the_comments(self, tmp_path):
        path = tmp_path / "d.svm"
        path.write_text("# head\n\n1 1:2\n0 qid:3 1:1\n")
        with pytest.raises(DataError, match=r"d\.svm:4: 'qid'"):
            labelfield.read(path)

    def test_splits_share_their_widths(self, tmp_path):
        (tmp_path / "train.svm").write_text("1 1:2\n")
        (tmp_path / "test.svm").write_text("4 7:2\n")
        dataset = labelfield.read(tmp_path)
        assert dataset.X.shape == dataset.test.X.shape == (1, 7)
        assert dataset.Y.shape == dataset.test.Y.shape == (1, 5)

    def test_the_base_is_settled_over_both_splits(self, tmp_path):
        # The training rows alone look one-based; the test rows show that they are not.
        (tmp_path / "train.svm").write_text("1 1:2\n")
        (tmp_path / "test.svm").write_text("1 0:3 1:4\n")
        dataset = labelfield.read(tmp_path)
        np.testing.assert_array_equal(dataset.X.toarray(), [[0, 2]])
        np.testing.assert_array_equal(dataset.test.X.toarray(), [[3, 4]])

    def test_a_stored_zero_tells_base_and_width(self, tmp_path):
        (tmp_path / "d.svm").write_text("0 0:0 5:1\n1 3:1 9:0\n")
        dataset = labelfield.read(tmp_path / "d.svm")
        assert dataset.n_features == 10
        assert dataset.X.indices.tolist() == [5, 3]

    def test_names_set_the_widths(self, tmp_path):
        (tmp_path / "d.svm").write_text("1 1:2\n")
        (tmp_path / "labels.txt").write_text("a\nb\nc\n")
        assert labelfield.read(tmp_path / "d.svm").n_labels == 3


ARFF = """% a comment
@relation 'toy'

@attribute 'a feature' numeric
@attribute size {small,medium,large}
@attribute flag {no,yes}
@attribute code {0,5}
@attribute happy {0,1}
@attribute "sad" {0,1}

@data
1.5,small,no,5,1,0
'-2',large,yes,0,0,1
{0 3, 2 yes, 4 1}
{}
"""


class TestArff:
    def write(self, tmp_path, content=ARFF, name="toy.arff"):
        (tmp_path / "toy.xml").write_text(
            '<?xml version="1.0"?><labels xmlns="http://mulan.sourceforge.net/labels">'
            '<label name="happy"><label name="sad"></label></label></labels>'
        )
        path = tmp_path / name
        path.write_text(content)
        return path

    def test_dense_sparse_and_nominal(self, tmp_path):
        dataset = labelfield.read(self.write(tmp_path))
        names = ["a feature", "size=small", "size=medium", "size=large", "flag", "code"]
        assert dataset.feature_names == names
        assert dataset.label_names == ["happy", "sad"]
        np.testing.assert_array_equal(
            dataset.X.toarray(), [[1.5, 1, 0, 0, 0, 5], [-2, 0, 0, 1, 1, 0], [3, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0]]
        )
        np.testing.assert_array_equal(dataset.Y.toarray(), [[1, 0], [0, 1], [1, 0], [0, 0]])

    def test_what_a_sparse_row_leaves_out_has_the_first_declared_value(self, tmp_path):
        header = "@relation r\n@attribute c {red,green,blue}\n@attribute n {1,2,3}\n@attribute happy {1,0}\n"
        header += "@attribute sad {0,1}\n@attribute r real [0,1] % range\n@data\n"
        path = self.write(tmp_path, header + "{4\t0.5}\nred,1,1,0,0.5\n{0 green, 1 3, 2 0, 3 1}\n")
        dataset = labelfield.read(path)
        np.testing.assert_array_equal(dataset.X.toarray(), [[1, 0, 0, 1, 0.5], [1, 0, 0, 1, 0.5], [0, 1, 0, 3, 0]])
        np.testing.assert_array_equal(dataset.Y.toarray(), [[1, 0], [1, 0], [0, 1]])

    def test_mulan_splits_share_one_list_of_labels(self, tmp_path):
        self.write(tmp_path, name="toy-train.arff")
        self.write(tmp_path, name="toy-test.arff")
        dataset = labelfield.read(tmp_path)
        assert_same(dataset.train, dataset.test)

    def test_meka_counts_labels_in_the_relation(self, tmp_path):
        path = tmp_path / "m.arff"
        body = "@attribute a {0,1}\n@attribute b {0,1}\n@attribute x numeric\n@data\n1,0,2.5\n"
        path.write_text(f"@relation 'm: -C 2'\n{body}")
        dataset = labelfield.read(path)
        assert dataset.label_names == ["a", "b"]
        assert dataset.X.toarray().tolist() == [[2.5]]
        path.write_text("@relation 'm: -C -1'\n" + body.replace("x numeric", "x {0,1}").replace("2.5", "1"))
        assert labelfield.read(path).label_names == ["x"]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("1.5,small,no,5,1", "5 values; expected 6"),
            ("?,small,no,5,1,0", "missing"),
            ("abc,small,no,5,1,0", "'abc'"),
            ("nan,small,no,5,1,0", "'nan'"),
            ("1,huge,no,5,1,0", "'huge'"),
            ("1,small,no,5,2,0", "'2'"),
            ("{9 1}", "attribute index '9'"),
            ("{0 1, 0 2}", "twice"),
            ("{0 1", "closing brace"),
        ],
    )
    def test_bad_rows_are_named(self, line, message, tmp_path):
        path = self.write(tmp_path, ARFF + line + "\n")
        with pytest.raises(DataError) as caught:
            labelfield.read(path)
        assert caught.value.line == ARFF.count("\n") + 1
        assert message in str(caught.value)

    def test_bad_headers(self, tmp_path):
        with pytest.raises(DataError, match="of type string"):
            labelfield.read(self.write(tmp_path, "@relation r\n@attribute a string\n@data\nx\n"))
        with pytest.raises(DataError, match="no @data"):
            labelfield.read(self.write(tmp_path, "@relation r\n@attribute a numeric\n"))

    def test_label_list(self, tmp_path):
        path = self.write(tmp_path)
        (tmp_path / "toy.xml").write_text('<labels><label name="unknown"/></labels>')
        with pytest.raises(DataError, match=r"toy\.xml: label 'unknown' is not an attribute"):
            labelfield.read(path)
        (tmp_path / "toy.xml").write_text('<!DOCTYPE x [<!ENTITY a "b">]><labels/>')
        with pytest.raises(DataError, match="document type"):
            labelfield.read(path)
        (tmp_path / "toy.xml").write_text("<labels>")
        with pytest.raises(DataError, match=r"toy\.xml:1: not XML"):
            labelfield.read(path)
        (tmp_path / "toy.xml").unlink()
        with pytest.raises(DataError, match="no list of labels"):
            labelfield.read(path)


class TestNpz:
    @pytest.mark.parametrize("kind", [">f8", ">f4", "f2", ">f2", "g", ">i8", "u1", "?"])
    @pytest.mark.parametrize("name", ["Y", "y"])
    def test_numbers_of_any_kind_and_byte_order(self, name, kind, tmp_path):
        X, Y = np.array([[0, 1.0], [1, 0], [1, 1]]), np.array([[0, 1], [1, 1], [0, 0]])
        np.savez(tmp_path / "a.npz", **{"X": X.astype(kind), name: Y.astype(kind)})
        found = labelfield.read(tmp_path / "a.npz")
        assert found.X.toarray().tolist() == X.tolist()
        assert found.Y.toarray().tolist() == Y.tolist()

    @pytest.mark.parametrize(
        ("x", "y"), [("X.npz", "Y.npz"), ("X_train.npz", "Y_train.npz"), ("test.X.npz", "test.Y.npz")]
    )
    @pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
    def test_pairs_of_scipy_matrices(self, x, y, kind, tmp_path):
        dataset = random_dataset()
        sparse.save_npz(tmp_path / x, dataset.X.asformat(kind))
        sparse.save_npz(tmp_path / y, dataset.Y.asformat(kind))
        assert_same(labelfield.read(tmp_path / x), dataset)

    def test_a_folder_of_pairs(self, tmp_path):
        splits = random_dataset().split(0.5)
        for name, part in splits.splits.items():
            sparse.save_npz(tmp_path / f"X_{name}.npz", part.X)
            sparse.save_npz(tmp_path / f"Y_{name}.npz", part.Y)
        assert_same(labelfield.read(tmp_path), splits)

    def test_x_without_its_y(self, tmp_path):
        sparse.save_npz(tmp_path / "X.npz", random_dataset().X)
        with pytest.raises(DataError, match=r"Y\.npz beside it"):
            labelfield.read(tmp_path / "X.npz")

    def test_dense_with_classes(self, tmp_path):
        images = np.arange(24, dtype=np.uint8).reshape(3, 4, 2)
        np.savez(tmp_path / "train.npz", X=images, y=np.array([0, 2, 1], np.uint8))
        np.savez(tmp_path / "test.npz", X=images[:2], y=np.array([0, 1], np.uint8))
        dataset = labelfield.read(tmp_path)
        np.testing.assert_array_equal(dataset.X.toarray(), images.reshape(3, 8))
        np.testing.assert_array_equal(dataset.Y.toarray(), np.eye(3)[[0, 2, 1]])
        assert dataset.test.Y.shape == (2, 3)

    def test_dense_with_named_classes_and_indicators(self, tmp_path):
        np.savez(tmp_path / "a.npz", X=np.eye(2), y=np.array(["cat", "ant"]))
        assert labelfield.read(tmp_path / "a.npz").label_names == ["ant", "cat"]
        np.savez(tmp_path / "b.npz", X=np.eye(2), Y=np.array([[1, 0, 1], [0, 0, 0]]))
        assert labelfield.read(tmp_path / "b.npz").Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0]]

    def test_refused(self, tmp_path):
        path = tmp_path / "bad.npz"
        for arrays, words in [
            ({"a": np.eye(2)}, "arrays a"),
            ({"X": np.array([[np.nan]]), "y": np.array([0])}, "nan"),
            ({"X": np.eye(2), "y": np.array([0.5, 1])}, "float64"),
            ({"X": np.eye(2), "y": np.array([-1, 1])}, "classes 0, 1, 2"),
            ({"X": np.eye(2), "y": np.array([0])}, "rows"),
            ({"X": np.eye(2), "Y": -np.eye(2)}, r"Y\[0, 0\] is -1"),
            ({"X": np.eye(2), "y": np.array([0, 2**31])}, "class 2147483648"),
        ]:
            np.savez(path, **arrays)
            with pytest.raises(DataError, match=words) as caught:
                labelfield.read(path)
            assert str(path) in str(caught.value)

    def test_our_own_files_are_not_trusted_either(self, tmp_path):
        labelfield.write(random_dataset(), tmp_path / "d.npz")
        good = dict(np.load(tmp_path / "d.npz"))
        zero, nan = good["X_values"].copy(), good["X_values"].copy()
        zero[0], nan[0] = 0, np.nan
        for key, value in (
            ("X_shape", np.array([-1, 5])),
            ("X_shape", np.array([40, 2**40])),
            ("X_shape", np.array([40])),
            ("X_values", zero),
            ("X_values", nan),
            ("X_indices", good["X_indices"] + 50),
            ("X_indptr", good["X_indptr"][::-1].copy()),
        ):
            np.savez(tmp_path / "bad.npz", **{**good, key: value})
            with pytest.raises(DataError, match=r"bad\.npz"):
                labelfield.read(tmp_path / "bad.npz")

    def test_values_of_scipy_matrices_are_checked(self, tmp_path):
        sparse.save_npz(tmp_path / "X.npz", sparse.csr_array(np.array([[1, np.nan], [0, 2]], np.float32)))
        sparse.save_npz(tmp_path / "Y.npz", sparse.csr_array(np.eye(2, dtype=np.float32)))
        with pytest.raises(DataError, match=r"X\[0, 1\] is nan"):
            labelfield.read(tmp_path / "X.npz")

    def test_nothing_is_unpickled(self, tmp_path):
        path = tmp_path / "evil.npz"
        np.savez(path, X=np.array([print], object), y=np.array([0]))
        with pytest.raises(DataError, match="cannot be read"):
            labelfield.read(path)

    def test_indices_from_a_file_are_not_trusted(self, tmp_path):
        good = random_dataset()
        for wrong in (99, -1):
            indices = good.X.indices.copy()
            indices[3] = wrong
            np.savez(
                tmp_path / "X.npz",
                format=np.array("csr"),
                shape=good.X.shape,
                data=good.X.data,
                indices=indices,
                indptr=good.X.indptr,
            )
            sparse.save_npz(tmp_path / "Y.npz", good.Y)
            with pytest.raises(DataError, match=r"X\.npz: not a SciPy matrix"):
                labelfield.read(tmp_path / "X.npz")

    def test_a_cut_file(self, tmp_path):
        labelfield.write(random_dataset(), tmp_path / "d.npz")
        content = (tmp_path / "d.npz").read_bytes()
        (tmp_path / "d.npz").write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=r"d\.npz"):
            labelfield.read(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("name", "train", "test", "d", "k"),
    [
        ("eurlex-4k", 15539, 3809, 5000, 3993),
        ("bibtex", 4880, 2515, 1836, 159),
        ("delicious", 12920, 3185, 500, 983),
        ("rcv1sub1", 3000, 3000, 47236, 101),
        ("enron", 1123, 579, 1001, 53),
        ("yeast", 1500, 917, 103, 14),
        ("emotions", 391, 202, 72, 6),
    ],
)
def test_real_data(name, train, test, d, k, real_data):
    dataset = labelfield.read(real_data(name))
    assert (dataset.n_rows, dataset.test.n_rows, dataset.n_features, dataset.n_labels) == (train, test, d, k)
    assert len(dataset.label_names) == k


def test_the_card_of_eurlex(real_data):
    dataset = labelfield.read(real_data("eurlex-4k"))
    train, test = (labelfield.describe(part) for part in dataset.splits.values())
    assert round(train["labels_per_row"], 4) == 5.3112
    assert round(test["labels_per_row"], 4) == 5.3061
    assert (train["rows_without_labels"], test["rows_without_labels"]) == (28, 6)
    assert (train["labels_used"], test["labels_used"]) == (3786, 2673)
    assert round(train["features_per_row"], 2) == 237.13
    assert not train["unit_rows"]


def test_real_text_equals_scikit_learn(real_data):
    import gzip

    path = real_data("yeast") / "train.txt.gz"
    with gzip.open(path) as file:
        file.readline()
        X, labels = load_svmlight_file(file, n_features=103, multilabel=True, zero_based=True)
    dataset = labelfield.read(path)
    np.testing.assert_array_equal(dataset.X.toarray(), X.toarray().astype(np.float32))
    assert [tuple(map(int, row)) for row in labels] == [tuple(dataset.Y[[i]].indices) for i in range(1500)]
