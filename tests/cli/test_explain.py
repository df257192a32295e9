"""explain: what it says of one row, for every method."""

import json

import numpy as np
import pytest
from test_commands import message, run

import labelfield
from labelfield import synth
from labelfield.explain import explain_row

WORDS = [f"word {d}" for d in range(60)]
TAGS = [f"tag {label}" for label in range(12)]
SIZES = {
    "mlgpf": ["n_latent=3", "n_inducing=8"],
    "ensemble": ["n_latent=3", "n_inducing=8", "ensemble=2"],
    "one_vs_each": ["n_inducing=5"],
    "robustmax": ["n_inducing=5"],
    "softmax": ["n_inducing=5"],
    "svdkl": ["network_epochs=1", "process_epochs=1", "n_processes=3", "grid_size=16", "hidden=[8]"],
    "topics": ["n_topics=3"],
    "linear": ["n_passes=5"],
    "auto": ["quality=fast"],
}
WITH_INPUTS = ("mlgpf", "one_vs_each", "robustmax", "softmax")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows of words with several labels, in two splits and with names; measurements with a class, as CSV."""
    path = tmp_path_factory.mktemp("explain")
    drawn = synth.make_multilabel(130, 60, 12, seed=5)
    data = labelfield.Dataset(drawn.X, drawn.Y, label_names=TAGS, feature_names=WORDS).split(0.25)
    labelfield.write(data, path / "words")
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=80)
    lines = [f"{40 + c + rng.normal():.3f},{c + rng.normal():.3f},{'xyz'[c]}" for c in y]
    (path / "train.csv").write_text("\n".join(["height,width,species", *lines[:60]]) + "\n")
    (path / "test.csv").write_text("\n".join(["height,width,species", *lines[60:]]) + "\n")
    return path


@pytest.fixture(scope="module")
def model_of(folder):
    """A function from the name of a method to a small model of it, and to rows for it."""

    def model(method):
        has_classes = method in ("one_vs_each", "robustmax", "softmax")
        if not (folder / method).exists():
            brief = [] if method in ("linear", "auto") else ["max_epochs=1"]
            options = [f"--set={option}" for option in (*SIZES[method], *brief)]
            name = "mlgpf" if method == "ensemble" else method
            data = folder / ("train.csv" if has_classes else "words")
            run("train", data, "--method", name, "--out", folder / method, "--device", "cpu", *options)
        return folder / method, folder / ("test.csv" if has_classes else "words")

    return model


@pytest.mark.parametrize("method", list(SIZES))
def test_json_equals_the_function(method, model_of):
    model, rows = model_of(method)
    shown = json.loads(run("explain", model, rows, "--row", 4, "-k", 2, "--features", 3, "--json").stdout)
    estimator = labelfield.load(model, device="cpu")
    has_classes = estimator.label_kind_ == "classes"
    data = labelfield.read(rows, classes=True) if has_classes else labelfield.read(rows).test
    expected = explain_row(estimator, data.X[4:5], k=2, n_features=3)
    assert shown["true"] == [data.label_names[label] for label in data.Y[4:5].indices]
    assert shown["row"] == 4
    assert len(shown["labels"]) == len(expected.labels) == 2
    for ours, theirs in zip(shown["labels"], expected.labels, strict=True):
        assert (ours["label"], ours["number"]) == (theirs.name, theirs.number)
        assert ours["probability"] == pytest.approx(theirs.probability)
        assert ours["interval"] == (None if theirs.interval is None else pytest.approx(theirs.interval))
        assert ours["is_true"] == (theirs.name in shown["true"])
        assert [(part["feature"], part["effect"]) for part in ours["features"]] == [
            (name, pytest.approx(effect)) for name, _, effect in theirs.features
        ]
        assert {part["feature"] for part in ours["features"]} <= {*WORDS, "height", "width"}
        assert [(part["number"], part["effect"]) for part in ours["inducing"]] == [
            (source.number, pytest.approx(effect)) for source, effect in theirs.inducing
        ]
        assert [part["share"] for part in ours["topics"]] == pytest.approx([topic.share for topic in theirs.topics])
        assert bool(ours["inducing"]) == (method in WITH_INPUTS)
        assert bool(ours["topics"]) == (method == "topics")


@pytest.mark.parametrize("method", list(SIZES))
def test_for_people(method, model_of):
    model, rows = model_of(method)
    done = run("explain", model, rows, "--row", 1, "-k", 12)
    text = " ".join(done.stdout.split())
    shown = json.loads(run("explain", model, rows, "--row", 1, "-k", 12, "--json").stdout)
    assert text.startswith(f"row 1 of {rows}: {shown['n_features']} features, {shown_method(method)}")
    places = [text.index(f"{'✓' if label['is_true'] else '✗'} {label['label']} ") for label in shown["labels"]]
    assert places == sorted(places)
    assert all(f"{100 * label['probability']:.1f} %" in text for label in shown["labels"])
    assert ("90 % between" in text) == (shown["labels"][0]["interval"] is not None)
    assert "log-odds fall if the" in text
    assert ("utility" in text) == (method in WITH_INPUTS)
    assert ("topic 0" in text) == (method == "topics")
    assert "true as well" not in text  # all labels are shown


def shown_method(method):
    return "mlgpf" if method == "ensemble" else method


def test_parts_that_are_shown_add_up(model_of):
    model, rows = model_of("mlgpf")
    text = run("explain", model, rows, "--row", 0, "-k", 1).stdout.replace("−", "-")
    said = next(line for line in text.splitlines() if "utility" in line and "these" in line)
    whole, *parts = [float(word.strip(":,")) for word in said.split() if word.strip(":,+-").replace(".", "").isdigit()]
    assert sum(parts) == pytest.approx(whole, abs=0.03)


def test_true_labels_that_are_not_among_the_first(model_of, folder):
    model, rows = model_of("mlgpf")
    Y = labelfield.read(rows).test.Y
    row = int(np.argmax(np.diff(Y.indptr)))
    said = run("explain", model, rows, "--row", row, "-k", 1).stdout
    true = {TAGS[label] for label in Y[row : row + 1].indices}
    assert len(true) > 1
    # As well as what: only where one of those shown is true.
    start = "true as well: " if "✓ " in said.split("log-odds")[0] else "true: "
    line = next(line for line in said.splitlines() if line.startswith(start))
    assert set(line.removeprefix(start).split(", ")) <= true


def test_features_without_names_are_numbers(tmp_path):
    data = labelfield.synth.make_multilabel(60, 20, 5, seed=0)
    model = labelfield.MLGPFClassifier(n_inducing=4, n_latent=2, max_epochs=1, device="cpu").fit(data.X, data.Y)
    model.save(tmp_path / "model")
    labelfield.write(data, tmp_path / "rows.svm")
    asked = ("explain", tmp_path / "model", tmp_path / "rows.svm", "--row", 0, "-k", 1)
    assert "are counted from 0; put features.txt" in " ".join(run(*asked).stdout.split())
    (tmp_path / "features.txt").write_text("".join(f"word{number}\n" for number in range(20)))
    assert "are counted from 0" not in run(*asked).stdout


def test_rows_without_labels_are_not_judged(model_of, tmp_path):
    model, _ = model_of("mlgpf")
    (tmp_path / "rows.txt").write_text(" 0:1 5:2 17:1\n")
    done = run("explain", model, tmp_path / "rows.txt", "--row", 0, "--zero-based")
    assert "✓" not in done.stdout
    assert "✗" not in done.stdout
    assert "word 5 = 2" in done.stdout  # names that the model has kept
    shown = json.loads(run("explain", model, tmp_path / "rows.txt", "--row", 0, "--zero-based", "--json").stdout)
    assert {label["is_true"] for label in shown["labels"]} == {None}


def test_names_of_the_rows_where_the_model_has_none(folder, tmp_path):
    data = labelfield.read(folder / "words")
    fitted = labelfield.MLGPFClassifier(n_latent=2, n_inducing=5, max_epochs=1, device="cpu").fit(data.X, data.Y)
    fitted.save(tmp_path / "m")
    assert "word " in run("explain", tmp_path / "m", folder / "words", "--row", 0).stdout
    (tmp_path / "rows.txt").write_text(" 0:1 5:2\n")
    assert "feature 5" in run("explain", tmp_path / "m", tmp_path / "rows.txt", "--row", 0, "--zero-based").stdout


class TestErrors:
    def test_a_row_that_is_not_there(self, model_of):
        model, rows = model_of("mlgpf")
        n_rows = labelfield.read(rows).test.n_rows
        done = run("explain", model, rows, "--row", n_rows, check=2)
        assert f"--row {n_rows}: {rows} has no such row; its rows are 0 to {n_rows - 1}" in message(done)
        assert not done.stdout
        for wrong in (["--row", "-1"], ["--row", "first"], [], ["--row", "0", "-k", "0"]):
            assert not run("explain", model, rows, *wrong, check=2).stdout

    def test_no_model(self, folder, tmp_path):
        done = run("explain", tmp_path / "nowhere", folder / "words", "--row", 0, check=3)
        assert "there is no such model folder" in done.stderr
        assert "config.json: missing" in run("explain", folder / "words", folder / "words", "--row", 0, check=3).stderr
        assert done.stderr.count("\n") == 1

    def test_other_columns(self, model_of, tmp_path):
        model, _ = model_of("mlgpf")
        labelfield.write(synth.make_multilabel(5, 61, 12), tmp_path / "wide")
        done = run("explain", model, tmp_path / "wide", "--row", 0, check=3)
        assert "61 features; expected 60, like the model" in done.stderr
        data = synth.make_multilabel(5, 60, 12)
        labelfield.write(labelfield.Dataset(data.X, data.Y, feature_names=WORDS[::-1]), tmp_path / "turned")
        done = run("explain", model, tmp_path / "turned", "--row", 0, check=3)
        assert "expected the names of the training rows, in the same order" in done.stderr
        assert not done.stdout


class TestNamesOfFeatures:
    def test_train_keeps_them(self, model_of):
        model, _ = model_of("topics")
        assert (model / "features.txt").read_text() == "".join(f"{word}\n" for word in WORDS)
        assert labelfield.load(model).feature_names() == WORDS

    def test_topics_are_told_by_them(self, model_of):
        model, _ = model_of("topics")
        shown = json.loads(run("topics", model, "--features", 3, "--json").stdout)
        assert {name for topic in shown["topics"] for name in topic["features"]} <= set(WORDS)
        assert "word " in run("topics", model, "--features", 3).stdout

    def test_an_older_model_is_replaced_with_its_names(self, model_of, folder, tmp_path):
        model, _ = model_of("mlgpf")
        loaded = labelfield.load(model, device="cpu")
        loaded.save(tmp_path / "m")
        loaded.fitted_.feature_names = None
        loaded.save(tmp_path / "m")
        assert not (tmp_path / "m" / "features.txt").exists()
        assert labelfield.load(tmp_path / "m").feature_names() is None
