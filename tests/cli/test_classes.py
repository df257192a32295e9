"""Commands for one class per row: every kind of file, and every kind of name for classes."""

import json

import numpy as np
import pytest
from test_commands import run

import labelfield
from labelfield import synth

OPTIONS = {"n_inducing": 10, "batch_size": 60, "max_epochs": 6, "learning_rate": 0.3}
SMALL = ["--device", "cpu", *(f"--set={name}={value}" for name, value in OPTIONS.items())]
# What the three rings are called in each file.
NAMES = {
    "words.svm": ["spam", "ham", "egg"],
    "numbers.svm": ["7", "100", "3"],
    "named.csv": ["b", "a", "c"],
    "last.csv": ["2", "1", "3"],
    "numbers.npz": [7, 100, 3],
}


@pytest.fixture(scope="module")
def rings():
    return synth.make_rings(180, 3, noise=0.1, seed=5).split(1 / 3)


@pytest.fixture(scope="module")
def files(rings, tmp_path_factory):
    """A training and a test file of each kind."""
    folder = tmp_path_factory.mktemp("classes")
    for split, rows in rings.splits.items():
        path = folder / split
        path.mkdir()
        X, ring = rows.X.toarray(), rows.Y.indices
        for name, classes in NAMES.items():
            y = [classes[i] for i in ring]
            if name.endswith(".svm"):
                lines = [f"{c} 1:{u} 2:{v}" for c, (u, v) in zip(y, X, strict=True)]
            elif name == "named.csv":
                lines = ["u,kind,v", *(f"{u},{c},{v}" for c, (u, v) in zip(y, X, strict=True))]
            else:
                lines = ["u,v,class", *(f"{u},{v},{c}" for c, (u, v) in zip(y, X, strict=True))]
            if name.endswith(".npz"):
                np.savez(path / name, X=X, y=np.array(y))
            else:
                (path / name).write_text("\n".join(lines) + "\n")
        signs = [f"{'+1' if i else '-1'} 1:{u} 2:{v}" for i, (u, v) in zip(ring, X, strict=True)]
        (path / "signs.svm").write_text("\n".join(signs) + "\n")
    return folder


@pytest.fixture(scope="module")
def model(files, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "numbers"
    run("train", files / "train" / "numbers.svm", "--method", "one_vs_each", "--out", path, *SMALL)
    return path


@pytest.mark.parametrize(
    ("method", "name", "classes"),
    [
        ("one_vs_each", "signs.svm", ["-1", "1"]),
        ("robustmax", "words.svm", ["egg", "ham", "spam"]),
        ("softmax", "last.csv", ["1", "2", "3"]),
        ("one_vs_each", "named.csv", ["a", "b", "c"]),
        ("robustmax", "numbers.npz", ["3", "7", "100"]),
    ],
)
def test_every_method_on_every_kind_of_file(method, name, classes, files, rings, tmp_path):
    column = ["--label-column", "kind"] if name == "named.csv" else []
    train, test = (files / split / name for split in ("train", "test"))
    done = run("train", train, "--method", method, "--out", tmp_path / "m", *SMALL, *column, "--json")
    assert {"bound", "seconds"} <= set(json.loads(done.stdout))
    assert f"{method}: 120 rows, 2 features (scaled), {len(classes)} classes" in done.stderr
    assert (tmp_path / "m" / "labels.txt").read_text().split() == classes
    shown = json.loads(run("evaluate", tmp_path / "m", test, *column, "--json").stdout)
    assert shown["rows"] == 60
    assert shown["error rate %"] == pytest.approx(100 - shown["P@1"])
    assert shown["error rate %"] < 50
    assert shown["nlpd"] < np.log(len(classes))
    assert "rows of unseen classes" not in shown
    assert json.loads(run("show", tmp_path / "m", "--json").stdout)["method"] == method
    run("predict", tmp_path / "m", test, "--out", tmp_path / "p.npz", *column)


@pytest.mark.parametrize(("name", "kind"), [("numbers.svm", "i"), ("words.svm", "U"), ("signs.svm", "i")])
def test_a_loaded_model_predicts_the_classes_of_the_file(name, kind, files, rings, tmp_path):
    run("train", files / "train" / name, "--method", "one_vs_each", "--out", tmp_path / "m", *SMALL)
    loaded = labelfield.load(tmp_path / "m", device="cpu")
    assert loaded.classes_.dtype.kind == kind
    assert [str(label) for label in loaded.classes_] == loaded.label_names()
    ring = rings.test.Y.indices
    truth = np.where(ring, 1, -1) if name == "signs.svm" else np.array(NAMES[name]).astype(loaded.classes_.dtype)[ring]
    assert loaded.score(rings.test.X, np.asarray(truth)) > 0.6


def test_columns_in_another_order_are_refused(files, tmp_path):
    run("train", files / "train" / "last.csv", "--method", "one_vs_each", "--out", tmp_path / "m", *SMALL)
    lines = (files / "test" / "last.csv").read_text().splitlines()
    turned = [",".join([v, u, c]) for u, v, c in (line.split(",") for line in lines)]
    (tmp_path / "turned.csv").write_text("\n".join(turned) + "\n")
    for command in (
        ["evaluate", tmp_path / "m", tmp_path / "turned.csv"],
        ["predict", tmp_path / "m", tmp_path / "turned.csv", "--out", tmp_path / "p.txt"],
    ):
        result = run(*command, check=3)
        assert "order of the training file" in result.stderr
    assert not (tmp_path / "p.txt").exists()


def test_rows_alone_can_be_predicted(files, rings, tmp_path):
    run("train", files / "train" / "numbers.npz", "--method", "one_vs_each", "--out", tmp_path / "m", *SMALL)
    np.savez(tmp_path / "rows.npz", X=rings.test.X.toarray())
    run("predict", tmp_path / "m", tmp_path / "rows.npz", "--out", tmp_path / "p.txt")
    assert len((tmp_path / "p.txt").read_text().splitlines()) >= rings.test.n_rows


def test_evaluate_prints_what_matters(files, model):
    shown = run("evaluate", model, files / "test" / "numbers.svm").stdout
    assert "error rate %" in shown
    assert "nlpd" in shown
    assert "over 60 rows" in shown


@pytest.mark.parametrize(("name", "form"), [("numbers.svm", "p.txt"), ("numbers.npz", "p.npz")])
def test_predictions_name_classes_by_their_numbers(name, form, files, model, tmp_path):
    """So that the file with the truth, which numbers them alike, can score them."""
    truth = files / "test" / name
    done = run("predict", model, truth, "-k", 2, "--out", tmp_path / form)
    assert "labels are class numbers" in done.stderr
    whole = json.loads(run("evaluate", model, truth, "--json", "-k", "1,2").stdout)
    for extra in ([], ["--classes"]):
        scores = json.loads(run("evaluate", tmp_path / form, truth, "--json", "-k", "1,2", *extra).stdout)
        assert {key: scores[key] for key in ("P@1", "P@2")} == {key: whole[key] for key in ("P@1", "P@2")}


def test_classes_of_a_table_at_their_numbers(files, tmp_path):
    """A CSV file has a column for each class; --classes puts them at their numbers, where predictions are."""
    train, test = (files / split / "last.csv" for split in ("train", "test"))
    run("train", train, "--method", "softmax", "--out", tmp_path / "m", *SMALL)
    run("predict", tmp_path / "m", test, "-k", 1, "--out", tmp_path / "p.txt")
    whole = json.loads(run("evaluate", tmp_path / "m", test, "--json", "-k", "1").stdout)
    scores = json.loads(run("evaluate", tmp_path / "p.txt", test, "--classes", "--train", train, "--json").stdout)
    assert scores["P@1"] == whole["P@1"]
    assert "PSP@1" in scores


def test_predictions_of_words_name_lines_of_the_model(files, rings, tmp_path):
    train, test = (files / split / "words.svm" for split in ("train", "test"))
    run("train", train, "--method", "softmax", "--out", tmp_path / "m", *SMALL)
    done = run("predict", tmp_path / "m", test, "-k", 1, "--out", tmp_path / "p.txt")
    assert f"labels are lines of {tmp_path / 'm' / 'labels.txt'}, from 0" in done.stderr
    lines = (tmp_path / "p.txt").read_text().split("\n")[:60]
    names = (tmp_path / "m" / "labels.txt").read_text().split()
    loaded = labelfield.load(tmp_path / "m", device="cpu")
    best = loaded.predict_proba(rings.test.X).argmax(1)
    assert [names[int(line.split(":")[0])] for line in lines] == [loaded.label_names()[i] for i in best]
    error = run("evaluate", tmp_path / "p.txt", test, "--classes", check=3).stderr
    assert "classes that are not numbers" in error
    assert error.count("\n") == 1


def test_rows_to_predict_need_no_class_and_no_last_features(files, model, tmp_path):
    (tmp_path / "rows.svm").write_text("1:0.5\n100 1:1 2:0.5\n")
    run("predict", model, tmp_path / "rows.svm", "-k", 1, "--out", tmp_path / "p.txt")
    assert len((tmp_path / "p.txt").read_text().split("\n")) == 3
    (tmp_path / "truth.svm").write_text("3 1:0.5\n100 1:1\n")
    assert json.loads(run("evaluate", model, tmp_path / "truth.svm", "--json").stdout)["rows"] == 2


def test_unseen_classes_count_as_errors(files, model, tmp_path):
    known = (files / "test" / "numbers.svm").read_text()
    (tmp_path / "more.svm").write_text(known + "8 1:1 2:1\n9 1:1 2:1\n8 1:2 2:1\n" * 10)
    whole = json.loads(run("evaluate", model, files / "test" / "numbers.svm", "--json").stdout)
    done = run("evaluate", model, tmp_path / "more.svm", "--json")
    shown = json.loads(done.stdout)
    assert "30 rows belong to classes that the model has not seen (8, 9)" in done.stderr
    assert (shown["rows"], shown["rows of unseen classes"]) == (90, 30)
    assert shown["error rate %"] == pytest.approx((60 * whole["error rate %"] + 30 * 100) / 90)
    assert shown["nlpd"] == pytest.approx(whole["nlpd"], rel=1e-5)
    assert "rows of unseen classes" in run("evaluate", model, tmp_path / "more.svm").stdout


def test_a_folder_whose_test_rows_have_other_classes(files, tmp_path):
    (tmp_path / "d").mkdir()
    for split in ("train", "test"):
        (tmp_path / "d" / f"{split}.svm").write_text((files / split / "numbers.svm").read_text())
    with open(tmp_path / "d" / "test.svm", "a") as file:
        file.write("5 1:1 2:1\n")
    run("train", tmp_path / "d", "--method", "softmax", "--out", tmp_path / "m", *SMALL)
    assert (tmp_path / "m" / "labels.txt").read_text().split() == ["3", "7", "100"]
    shown = json.loads(run("evaluate", tmp_path / "m", tmp_path / "d", "--json").stdout)
    assert (shown["rows"], shown["rows of unseen classes"]) == (61, 1)


def test_validation_rows(files, tmp_path):
    """They may lack classes; one that the training rows lack is named."""
    (tmp_path / "few.svm").write_text("100 1:1\n100 2:1\n")
    (tmp_path / "other.svm").write_text("100 1:1\n55 2:1\n")
    train = ["train", files / "train" / "numbers.svm", "--method", "softmax", "--out", tmp_path / "m", *SMALL]
    error = run(*train, "--valid", tmp_path / "other.svm", check=3).stderr
    assert f"{tmp_path / 'other.svm'}: the class '55'; expected classes of the training rows" in error
    assert "P@1" in json.loads(run(*train, "--valid", tmp_path / "few.svm", "--json").stdout)


@pytest.mark.parametrize(
    ("name", "content", "where", "words"),
    [
        ("two.svm", "1 1:1\n2 1:1\n1,2 1:1\n", ":3: ", ["two labels", "one class", "--method mlgpf"]),
        ("none.svm", "1 1:1\n 2:1\n", ":2: ", ["no label"]),
        ("one.svm", "spam 1:1\nspam 2:1\n", ": ", ["the class 'spam'", "at least two classes"]),
        ("empty.csv", "u,class\n", ": ", ["no rows"]),
    ],
)
def test_refused(name, content, where, words, tmp_path):
    (tmp_path / name).write_text(content)
    done = run("train", tmp_path / name, "--method", "one_vs_each", "--out", tmp_path / "m", *SMALL, check=3)
    assert f"{tmp_path / name}{where}" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert not done.stdout
    assert not (tmp_path / "m").exists()


def test_columns_of_codes_are_named_and_new_codes_are_taken(tmp_path):
    rng = np.random.default_rng(0)
    size, colour = rng.normal(size=600), rng.integers(0, 6, 600)
    kind = (size + 3 * (-1.0) ** colour > 0).astype(int)
    lines = [f"{s},{c},{k}" for s, c, k in zip(size, colour, kind, strict=True)]
    (tmp_path / "all.csv").write_text("\n".join(["size,colour,class", *lines]) + "\n")
    assert "codes of categories: colour" in run("info", tmp_path / "all.csv", "--classes").stdout
    card = json.loads(run("info", tmp_path / "all.csv", "--classes", "--json").stdout)["splits"]["all"]
    assert card["coded_features"] == [1]
    out = tmp_path / "model"
    done = run("train", tmp_path / "all.csv", "--method", "one_vs_each", "--out", out, *SMALL)
    assert "codes of categories: colour" in done.stderr
    (tmp_path / "new.csv").write_text("size,colour,class\n0.5,17,0\n")
    assert "error" in run("evaluate", out, tmp_path / "new.csv").stdout
