"""report: a page from a model and test rows."""

import json
import os
import re

import numpy as np
import pytest
from test_commands import message, run

import labelfield
from labelfield import synth
from labelfield.report import make_page

FEW = ["--device", "cpu", "--set=n_inducing=8", "--set=max_epochs=3", "--set=batch_size=60"]
NAMES = [f"subject {number:02d}" for number in range(20)]


@pytest.fixture(scope="module", autouse=True)
def _figures_are_not_drawn():
    """They take most of the time of a page, and are looked at in tests/report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labelfield.report.plots.to_svg", lambda figure, name, label: f"<svg>{name}</svg>")
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "books"
    drawn = synth.make_multilabel(240, 40, 20, seed=2)
    words = [f"word{number}" for number in range(40)]
    rows = labelfield.Dataset(drawn.X, drawn.Y, label_names=NAMES, feature_names=words)
    labelfield.write(rows.split(1 / 3), path)
    return path


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "shelf"
    run("train", data, "--method", "mlgpf", "--out", path, "--set=n_latent=3", *FEW)
    return path


@pytest.fixture(scope="module")
def written(data, model, tmp_path_factory):
    out = tmp_path_factory.mktemp("pages") / "report.html"
    return out, run("report", model, data, "--out", out)


def test_it_says_where_the_page_is(written):
    out, done = written
    assert re.fullmatch(rf"wrote {re.escape(str(out))}: \d+ kB, in \d+\.\d s; open it in a browser\n", done.stderr)
    page = out.read_text(encoding="utf-8")
    assert "<h1>shelf on books</h1>" in page
    assert "subject 0" in page
    assert "word" in page


def test_it_is_the_page_of_the_function(written, data, model):
    test = labelfield.read(data).test
    page = make_page(labelfield.load(model, device="cpu"), test.X, test.Y, title="shelf on books")
    assert page == written[0].read_text(encoding="utf-8")


def test_counts_of_training_rows_can_be_given(data, model, written, tmp_path):
    shown = json.loads(run("report", model, data, "--out", tmp_path / "a.html", "--train", data, "--json").stdout)
    assert shown["rows"] == 80
    assert shown["bytes"] == (tmp_path / "a.html").stat().st_size
    assert (tmp_path / "a.html").read_bytes() == written[0].read_bytes()


def test_an_older_page_stays(data, model, tmp_path):
    out = tmp_path / "report.html"
    out.write_text("mine")
    assert "exists; pass --overwrite" in message(run("report", model, data, "--out", out, check=2))
    assert out.read_text() == "mine"
    assert "is a folder" in message(run("report", model, data, "--out", tmp_path, "--overwrite", check=2))
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in message(run("report", model, data, "--out", tmp_path / "pipe", "--overwrite", check=2))
    assert "choose another folder" in message(run("report", model, data, "--out", out / "page.html", check=2))


def test_rows_that_cannot_be_compared(data, model, tmp_path):
    out = tmp_path / "new" / "report.html"
    rows = labelfield.read(data).test
    nothing = labelfield.Dataset(rows.X, rows.Y[:, :].multiply(0).tocsr())
    labelfield.write(nothing, tmp_path / "unlabelled.txt")
    done = run("report", model, tmp_path / "unlabelled.txt", "--out", out, check=3)
    assert "unlabelled.txt: no test row has a label" in message(done)
    labelfield.write(rows.take([]), tmp_path / "empty.txt")
    assert "empty.txt: no rows" in message(run("report", model, tmp_path / "empty.txt", "--out", out, check=3))
    labelfield.write(labelfield.Dataset(rows.X[:, :39], rows.Y), tmp_path / "narrow.txt")
    done = run("report", model, tmp_path / "narrow.txt", "--out", out, check=3)
    assert "39 features; expected 40, like the model" in message(done)
    labelfield.write(labelfield.Dataset(rows.X, rows.Y[:, :19]), tmp_path / "few.txt")
    assert "19 labels" in message(run("report", model, tmp_path / "few.txt", "--out", out, check=3))
    assert not out.parent.exists()


def test_classes_that_the_model_has_not_seen(tmp_path):
    rings = synth.make_rings(160, 4, noise=0.1, seed=5)
    X, y = rings.X.toarray(), rings.Y.indices
    names = np.array(["spam", "ham", "egg", "bacon"])[y]
    lines = np.array([f"{c} 1:{u} 2:{v}" for c, (u, v) in zip(names, X, strict=True)])
    (tmp_path / "train.svm").write_text("\n".join(lines[:100][y[:100] < 3]) + "\n")
    (tmp_path / "test.svm").write_text("\n".join(lines[100:]) + "\n")
    run("train", tmp_path / "train.svm", "--method", "one_vs_each", "--out", tmp_path / "m", *FEW)
    run("report", tmp_path / "m", tmp_path / "test.svm", "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    n_unseen = np.count_nonzero(y[100:] == 3)
    assert f"{n_unseen} of them belong to classes that the model has not seen" in page
    assert "bacon" in page


def test_labels_are_ranked_as_asked_for(data, model, tmp_path):
    test = labelfield.read(data).test
    estimator = labelfield.load(model, device="cpu")
    out = tmp_path / "rare.html"
    run("report", model, data, "--out", out, "--rank-by", "propensity")
    page = out.read_text(encoding="utf-8")
    assert "ranked by probability times inverse propensity: rare" in page
    assert page == make_page(estimator, test.X, test.Y, title="shelf on books", rank_by="propensity")
    assert page != make_page(estimator, test.X, test.Y, title="shelf on books")
    assert "to the power 0.5" in make_page(estimator, test.X, test.Y, rank_by=0.5)
    assert "--rank-by often; expected" in message(run("report", model, data, "--out", out, "--rank-by=often", check=2))
