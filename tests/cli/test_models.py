"""Commands around a model of several labels per row: what they print, refuse, replace and resume."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from scipy import sparse
from test_commands import run

import labelfield
from labelfield import metrics
from labelfield.cli.prediction import _answer_together
from labelfield.memory import own_bytes

SMALL = [
    "--method",
    "mlgpf",
    "--device",
    "cpu",
    "--set",
    "n_latent=6",
    "--set",
    "n_inducing=20",
    "--set",
    "batch_size=50",
]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "toy"
    data = labelfield.synth.make_multilabel(400, 150, 30, seed=3)
    labelfield.write(labelfield.Dataset(data.X, data.Y, [f"label {i}" for i in range(30)]).split(0.2), path)
    return path


@pytest.fixture(scope="module")
def model(toy, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    run("train", toy, "--out", path, *SMALL, "--set", "max_epochs=3")
    return path


def test_train_announces_and_reports(toy, tmp_path):
    before = own_bytes()  # the memory that is announced is that of the process, not what training adds to it
    done = run("train", toy, "--out", tmp_path / "m", *SMALL, "--set", "max_epochs=2", "--valid", toy, "--json")
    shown = json.loads(done.stdout)
    assert shown["epochs"] == 2
    assert {"P@1", "bound", "seconds"} <= set(shown)
    assert "6 latent processes" in done.stderr
    assert int(re.search(r"about (\d+) MB and ", done.stderr)[1]) >= before // 2**20
    assert " s on cpu; 2 epochs of 7 steps" in done.stderr
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["arrays.safetensors", "config.json", "labels.txt"]
    assert (tmp_path / "m" / "labels.txt").read_text().startswith("label 0\n")


def test_predict_evaluate_and_api_agree(toy, model, tmp_path):
    data = labelfield.read(toy)
    expected = labelfield.load(model).predict_topk(data.test.X, 5)
    for name in ("p.txt", "p.npz"):
        run("predict", model, toy, "-k", 5, "--out", tmp_path / name)
        np.testing.assert_allclose(
            labelfield.read_predictions(tmp_path / name, 80, 30).toarray(), expected.toarray(), rtol=1e-6
        )
    shown = json.loads(run("evaluate", model, toy, "--json").stdout)
    scores = metrics.evaluate(data.test.Y, expected, data.Y)
    assert {name: shown[name] for name in scores} == pytest.approx(scores)
    alone = json.loads(run("evaluate", model, toy / "test", "--json").stdout)  # the model knows its propensities
    assert alone["PSP@3"] == pytest.approx(shown["PSP@3"])
    again = json.loads(run("evaluate", tmp_path / "p.npz", toy, "--json").stdout)
    assert {name: again[name] for name in scores} == pytest.approx(scores)


def test_rankings_by_propensity_agree(toy, model, tmp_path):
    """Files hold probabilities, in the order that they were ranked in; scores are told by what to rank."""
    data, estimator = labelfield.read(toy), labelfield.load(model)
    inverse = metrics.inverse_propensity(data.Y)
    for asked, rank_by in (("propensity", 1.0), ("0.5", 0.5)):
        expected = estimator.predict_topk(data.test.X, 5, rank_by=rank_by)
        scores = metrics.evaluate(data.test.Y, expected, data.Y, rank_by=rank_by)
        for name in ("p.txt", "p.npz"):
            path = tmp_path / asked / name
            path.parent.mkdir(exist_ok=True)
            assert json.loads(run("predict", model, toy, "--rank-by", asked, "--out", path, "--json").stdout)
            found = labelfield.read_predictions(path, 80, 30)
            np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-6)
            for source, where in ((path, toy), (model, toy), (model, toy / "test")):
                shown = json.loads(run("evaluate", source, where, "--rank-by", asked, "--json").stdout)
                assert {name: shown[name] for name in scores} == pytest.approx(scores)
        lines = (tmp_path / asked / "p.txt").read_text().splitlines()[-80:]
        listed = [[int(entry.split(":")[0]) for entry in line.split()] for line in lines]
        np.testing.assert_array_equal(listed, metrics.top_k(expected, 5, inverse**rank_by).labels)
    run("predict", model, toy, "--rank-by", "rare", "--out", tmp_path / "no.txt", check=2)
    for wrong in ("rare", "-1", "nan"):
        run("evaluate", model, toy, "--rank-by", wrong, check=2)
    run("evaluate", "popularity", toy, "--rank-by", "propensity", check=2)
    done = run("evaluate", tmp_path / "0.5" / "p.txt", toy / "test", "--rank-by", "0.5", check=2)
    assert "--train" in done.stderr


def test_search_with_an_index(toy, model, tmp_path):
    data, estimator = labelfield.read(toy), labelfield.load(model, device="cpu")
    estimator.index_labels(sparse.vstack([data.X, data.test.X]))
    estimator.save(tmp_path / "m")
    expected = estimator.predict_topk(data.test.X, 3, search="index")
    done = run("predict", tmp_path / "m", toy, "-k", 3, "--search", "index", "--out", tmp_path / "p.npz")
    found = labelfield.read_predictions(tmp_path / "p.npz", 80, 30)
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-6)
    assert "lists are proven complete" in done.stderr
    scores = metrics.evaluate(data.test.Y, estimator.predict_topk(data.test.X, 5, search="index"), data.Y)
    shown = json.loads(run("evaluate", tmp_path / "m", toy, "--search", "index", "--json").stdout)
    assert {name: shown[name] for name in scores} == pytest.approx(scores)
    for arguments in (("predict", model, toy, "--out", tmp_path / "no.npz"), ("evaluate", model, toy)):
        done = run(*arguments, "--search", "index", check=1)
        assert "have no index" in done.stderr
        run(*arguments, "--search", "other", check=2)
    done = run("evaluate", tmp_path / "m", toy, "--search", "index", "--rank-by", "propensity", check=1)
    assert "ranks by probability" in done.stderr
    run("evaluate", "popularity", toy, "--search", "index", check=2)
    done = run("predict", model, toy, "--known", toy, "--search", "index", "--out", tmp_path / "no.npz", check=2)
    assert "--known ranks all labels" in done.stderr
    assert not (tmp_path / "no.npz").exists()


def test_several_processes_rank_all_labels():
    with pytest.raises(typer.BadParameter, match="start it without torchrun"):
        _answer_together(None, None, None, SimpleNamespace(size=2), "index")


def test_show(model):
    assert json.loads(run("show", model, "--json").stdout)["n_latent"] == 6
    assert "whitened_diagonal" in run("show", model).stdout


def test_show_says_what_each_member_adds(tmp_path):
    labelfield.write(labelfield.synth.make_multilabel(320, 40, 8, seed=1), tmp_path / "data")
    options = [
        f"--set={option}" for option in ("device=cpu", "ensemble=2", "max_epochs=3", "n_latent=4", "n_inducing=10")
    ]
    trained = json.loads(
        run("train", tmp_path / "data", "--method", "mlgpf", "--out", tmp_path / "m", "--json", *options).stdout
    )
    shown = json.loads(run("show", tmp_path / "m", "--json").stdout)
    for facts in (trained, shown):
        assert "matern32_ard" in facts["member 1"]
        assert "se_ard" in facts["member 2"]
        assert len(facts["members up to 2: P@1 / 3 / 5 on held-out rows"].split(" / ")) == 3


def test_a_run_killed_before_its_first_checkpoint_starts_again(toy, tmp_path):
    (tmp_path / "m").mkdir()
    run("train", toy, "--out", tmp_path / "m", *SMALL, "--set=max_epochs=1", "--set=row_transform=none", "--resume")
    assert labelfield.load(tmp_path / "m").row_transform_.name == "none"


def test_time_budget(toy, tmp_path):
    run("train", toy, "--out", tmp_path / "m", *SMALL, "--set", "max_epochs=100000", "--time-budget", "0.2s")
    assert labelfield.load(tmp_path / "m").n_iter_ < 100000


@pytest.mark.parametrize(
    "extra",
    [
        ["--time-budget", "soon"],
        ["--time-budget", "."],
        ["--method", "magic"],
        ["--seed", "-1"],
    ],
)
def test_wrong_usage_exits_2(extra, toy, tmp_path):
    done = run("train", toy, "--out", tmp_path / "m", *SMALL, *extra, check=2)
    assert not done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "m").exists()


def test_an_existing_model_is_not_replaced_unasked(toy, model, tmp_path):
    before = (model / "arrays.safetensors").read_bytes()
    assert "--overwrite" in " ".join(run("train", toy, "--out", model, *SMALL, check=2).stderr.split())
    run("train", toy, "--out", model, *SMALL, "--resume", check=2)
    assert (model / "arrays.safetensors").read_bytes() == before
    run("train", toy, "--out", tmp_path / "m", *SMALL, "--set", "max_epochs=1")
    run("train", toy, "--out", tmp_path / "m", *SMALL, "--set", "max_epochs=1", "--overwrite")


def test_cuda_asked_for_and_absent(toy, model, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "CUDA" in run("train", toy, "--out", tmp_path / "m", "--device", "cuda", check=2).stderr
    assert "CUDA" in run("evaluate", model, toy, "--device", "cuda", check=2).stderr


def test_bad_models_and_data_exit_3(toy, model, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "checkpoint.safetensors").write_bytes(b"")
    (tmp_path / "empty.txt").write_text("0 5 3\n")
    (tmp_path / "broken" / "config.json").write_text("{}")
    other = labelfield.synth.make_multilabel(20, 150, 7)
    labelfield.write(other, tmp_path / "other")
    narrow = labelfield.synth.make_multilabel(20, 20, 30)
    labelfield.write(narrow, tmp_path / "narrow")
    for arguments, words in (
        (["show", tmp_path / "nowhere"], "nowhere"),
        (["show", tmp_path / "broken"], "config.json"),
        (["evaluate", tmp_path / "broken", toy], "config.json"),
        (["evaluate", model, tmp_path / "other"], "labels"),
        (["predict", model, tmp_path / "nothing", "--out", tmp_path / "p.txt"], "nothing"),
        (["predict", model, tmp_path / "narrow", "--out", tmp_path / "p.txt"], "features"),
        (["train", tmp_path / "nothing", "--out", tmp_path / "m"], "nothing"),
        (["train", tmp_path / "empty.txt", "--out", tmp_path / "m"], "no rows"),
        (["show", tmp_path / "unfinished"], "--resume"),
    ):
        done = run(*arguments, check=3)
        assert done.stderr.count("\n") == 1, done.stderr
        assert words in done.stderr
    assert not (tmp_path / "p.txt").exists()


def test_a_model_stays_until_the_new_one_is_trained(toy, tmp_path, monkeypatch):
    out = tmp_path / "m"
    run("train", toy, "--out", out, *SMALL, "--set", "max_epochs=1")
    before = (out / "arrays.safetensors").read_bytes()

    def explode(*arguments, **options):
        raise labelfield.LabelfieldError("training broke down")

    monkeypatch.setattr("labelfield.inference.gradient.Gradient.step", explode)
    run("train", toy, "--out", out, *SMALL, "--set", "max_epochs=2", "--overwrite", check=1)
    assert (out / "arrays.safetensors").read_bytes() == before
    assert labelfield.load(out).n_iter_ == 1
    monkeypatch.undo()
    run("train", toy, "--out", out, *SMALL, "--set", "max_epochs=2", "--overwrite")
    assert labelfield.load(out).n_iter_ == 2
    assert not (out / "checkpoint.safetensors").exists()
    (out / "mine.txt").write_text("not ours")
    assert "mine.txt" in run("train", toy, "--out", out, *SMALL, "--overwrite", check=2).stderr


def test_headerless_files_get_the_widths_of_the_model(toy, model, tmp_path):
    """svmlight does not say how wide it is; its rows may lack the last features and labels."""
    test = labelfield.read(toy).test
    lines = [
        f"{row % 3} "
        + " ".join(f"{j}:{v}" for j, v in zip(test.X[[row]].indices, test.X[[row]].data, strict=True) if j < 100)
        for row in range(5)
    ]
    (tmp_path / "five.svm").write_text("\n".join(lines) + "\n")
    run("predict", model, tmp_path / "five.svm", "--zero-based", "--out", tmp_path / "p.npz", "--device", "cpu")
    narrow = test.X[:5].toarray()
    narrow[:, 100:] = 0
    expected = labelfield.load(model).predict_topk(narrow, 5).toarray()
    np.testing.assert_allclose(labelfield.read_predictions(tmp_path / "p.npz", 5, 30).toarray(), expected, rtol=1e-5)
    done = run("evaluate", model, tmp_path / "five.svm", "--zero-based", "--device", "cpu", "--json")
    assert json.loads(done.stdout)["rows"] == 5


@pytest.mark.slow  # the same in one process: test_methods.py
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_resumes(number, toy, tmp_path):
    out = tmp_path / "m"
    command = [sys.executable, "-m", "labelfield", "train", toy, "--out", out, *SMALL, "--set", "max_epochs=25"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    lines = []
    while not any("epochs of" in line for line in lines):
        lines.append(process.stderr.readline())
    time.sleep(0.02)
    os.kill(process.pid, number)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 128 + number, rest
    assert "interrupted" in rest
    assert [p.name for p in out.iterdir()] == ["checkpoint.safetensors"]
    run("train", toy, "--out", out, *SMALL, "--set", "max_epochs=25", "--resume")
    whole = tmp_path / "whole"
    run("train", toy, "--out", whole, *SMALL, "--set", "max_epochs=25")
    assert (out / "arrays.safetensors").read_bytes() == (whole / "arrays.safetensors").read_bytes()


@pytest.mark.filterwarnings("always:.*values of features")
def test_features_and_labels_that_were_not_in_training(tmp_path):
    """As with svmlight files that were written separately: features are left out, labels count as missed."""
    data = labelfield.synth.make_multilabel(200, 30, 6, seed=4)
    train, test = data.X[:150, :25].toarray(), data.X[150:].toarray()
    for name, X, Y in (("train", train, data.Y[:150, :4]), ("test", test, data.Y[150:])):
        lines = (
            ",".join(map(str, labels.indices)) + "".join(f" {i + 1}:{row[i]:.4f}" for i in np.flatnonzero(row)) + "\n"
            for row, labels in zip(X, (Y[[i]] for i in range(Y.shape[0])), strict=True)
        )
        (tmp_path / f"{name}.svm").write_text("".join(lines))
    model, test = tmp_path / "m", tmp_path / "test.svm"
    run("train", tmp_path / "train.svm", "--out", model, *SMALL, "--set", "max_epochs=2", "--valid", test)
    done = run("evaluate", model, test, "--json", "--device", "cpu")
    assert "values of features" in done.stderr
    assert "labels were not in the training data; they count as missed" in done.stderr
    with_train = run("evaluate", model, test, "--train", tmp_path / "train.svm", "--json", "--device", "cpu")
    assert "train.svm" not in with_train.stderr, "nothing of the training rows is left out"
    assert json.loads(with_train.stdout)["nDCG@3"] == json.loads(done.stdout)["nDCG@3"]
    read = labelfield.read(test)
    ranked = labelfield.load(model, device="cpu").predict_topk(read.X[:, :25], 5)
    expected = metrics.evaluate(read.Y, sparse.hstack([ranked, sparse.csr_array((50, 2))], format="csr"))
    shown = json.loads(done.stdout)
    for name in ("P@1", "R@5", "nDCG@3"):
        assert shown[name] == pytest.approx(expected[name])
    run("report", model, test, "--out", tmp_path / "page.html", "--device", "cpu")
    page = (tmp_path / "page.html").read_text()
    assert "of their labels were not in training" in page
    assert f"{shown['P@1']:.1f}" in page
    run("explain", model, test, "--row", 0, "--device", "cpu")
    run("predict", model, test, "--out", tmp_path / "p.txt", "--device", "cpu")
    again = json.loads(run("evaluate", tmp_path / "p.txt", test, "--train", tmp_path / "train.svm", "--json").stdout)
    assert again["nDCG@3"] == pytest.approx(shown["nDCG@3"])
    (tmp_path / "stated.txt").write_text("1 31 4\n0 30:1\n")
    assert "31 features; expected 25" in run("evaluate", model, tmp_path / "stated.txt", check=3).stderr
