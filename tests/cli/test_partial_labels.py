"""Commands with labels that are known or missing: predict --known, train --observed, topics --sample."""

import json

import numpy as np
import pytest
from scipy import sparse
from test_commands import message, run

from labelfield import Dataset, load, read, read_predictions, synth, write, write_predictions

BRIEF = ["--device", "cpu", "--method", "mlgpf", "--set=n_latent=4", "--set=n_inducing=10", "--set=max_epochs=6"]
TOPICS = ["--device", "cpu", "--method", "topics", "--set=n_topics=4", "--set=max_epochs=5"]
NAMES = [f"subject {number:02d}" for number in range(20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("partial") / "data"
    drawn = synth.make_multilabel(180, 60, 20, seed=3)
    write(Dataset(drawn.X, drawn.Y, label_names=NAMES).split(1 / 3), path)
    return path


@pytest.fixture(scope="module")
def models(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    run("train", folder, "--out", path / "mlgpf", *BRIEF)
    run("train", folder, "--out", path / "topics", *TOPICS)
    return path


def entries(path, matrix):
    write_predictions(sparse.csr_array(matrix, dtype=np.float64), path)
    return path


class TestKnown:
    @pytest.mark.parametrize("suffix", [".txt", ".npz"])
    def test_it_is_what_condition_says(self, suffix, folder, models, tmp_path):
        test = read(folder).test
        known = np.zeros(test.Y.shape)
        known[0, 3], known[0, 5], known[7, test.Y[[7]].indices] = 1, -1, 1
        path = entries(tmp_path / f"known{suffix}", known)
        run("predict", models / "mlgpf", folder, "--known", path, "-k", "4", "--out", tmp_path / "lists.txt")
        found = read_predictions(tmp_path / "lists.txt", *test.Y.shape)
        expected = load(models / "mlgpf", device="cpu").condition(test.X, known, 4)
        np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-5)
        assert not {3, 5} & set(found[[0]].indices.tolist())
        by_utility = ("--rank-by", "utility", "-k", "4", "--out", tmp_path / "by-utility.txt")
        run("predict", models / "mlgpf", folder, "--known", path, *by_utility)
        found = read_predictions(tmp_path / "by-utility.txt", *test.Y.shape)
        own = load(models / "mlgpf", device="cpu").condition(test.X, known, 4, rank_by="utility")
        np.testing.assert_allclose(found.toarray(), own.toarray(), rtol=1e-5)
        assert abs(own - expected).max() > 1e-3

    def test_what_is_refused(self, folder, models, tmp_path):
        known = entries(tmp_path / "known.txt", 7 * np.eye(60, 20))
        out, empty = tmp_path / "lists.txt", tmp_path / "empty.txt"
        empty.touch()
        for arguments, code, expected in (
            (("mlgpf", known), 3, "row 1: the value 7 of label 0; expected 1 for a label that holds, -1 for one"),
            (("mlgpf", tmp_path / "nothing.txt"), 3, "there is no such file"),
            (("mlgpf", tmp_path), 3, "a folder, not a file"),
            (("mlgpf", empty), 3, "empty.txt:1: the file ends after 0 rows; expected 60"),
            (("mlgpf", entries(tmp_path / "few.txt", np.eye(3, 20))), 3, "60"),
            (
                ("topics", entries(tmp_path / "fine.txt", np.eye(60, 20))),
                1,
                "the method 'topics' cannot use known labels",
            ),
        ):
            name, file = arguments
            done = run("predict", models / name, folder, "--known", file, "--out", out, check=code)
            assert expected in message(done)
            assert not out.exists()
        fine = tmp_path / "fine.txt"
        done = run("predict", models / "mlgpf", folder, "--known", fine, "--rank-by", "0.5", "--out", out, check=2)
        assert "--known lists labels by probability or utility" in message(done)


class TestObserved:
    @pytest.mark.parametrize("options", [BRIEF, TOPICS])
    def test_it_is_what_fit_says(self, options, folder, tmp_path):
        training = read(folder).train
        seen = np.random.default_rng(0).random(training.Y.shape) < 0.6
        run("train", folder, "--out", tmp_path / "a", *options, "--observed", entries(tmp_path / "seen.txt", seen))
        found = load(tmp_path / "a", device="cpu")
        expected = type(found)(**found.get_params()).fit(training.X, training.Y, observed=seen)
        np.testing.assert_array_equal(found.predict_proba(training.X), expected.predict_proba(training.X))

    def test_what_is_refused(self, folder, tmp_path):
        wrong = entries(tmp_path / "wrong.txt", 0.5 * np.eye(120, 20))
        for options, file, code, expected in (
            (BRIEF, wrong, 3, "row 1: the value 0.5 of label 0; expected 1 for a label that was checked"),
            (["--method", "linear"], wrong, 2, "linear needs all labels; use --method mlgpf or topics"),
            ([], wrong, 2, "auto needs all labels"),
        ):
            done = run("train", folder, "--out", tmp_path / "m", *options, "--observed", file, check=code)
            assert expected in message(done)
            assert not (tmp_path / "m").exists()


class TestSample:
    def test_labels_are_drawn_from_the_model(self, folder, models):
        test = read(folder).test
        model = load(models / "topics", device="cpu")
        shown = run("topics", models / "topics", "--sample", 5, "--rows", folder, "--seed", 3, "--json").stdout
        drawn = model.sample(test.X[:5], 3)
        for number, row in enumerate(json.loads(shown)["rows"]):
            assert row["drawn"] == [NAMES[label] for label in drawn[[number]].indices]
            assert row["true"] == [NAMES[label] for label in test.Y[[number]].indices]
        table = run("topics", models / "topics", "--sample", 5, "--rows", folder, "--seed", 3).stdout
        assert "true" in table
        again = run("topics", models / "topics", "--sample", 5, "--rows", folder, "--seed", 3, "--json").stdout
        assert again == shown

    def test_of_rows_of_which_nothing_is_known(self, models):
        """As often as the model says of an empty row."""
        shown = json.loads(run("topics", models / "topics", "--sample", 2000, "--json").stdout)["rows"]
        model = load(models / "topics", device="cpu")
        P = model.predict_proba(sparse.csr_array((1, 60)), calibrated=False)[0]
        often = np.array([sum(name in row["drawn"] for row in shown) for name in NAMES]) / 2000
        assert (np.abs(often - P) < 4.5 * np.sqrt(P * (1 - P) / 2000) + 1e-9).all()
        assert "true" not in shown[0]

    def test_what_is_refused(self, folder, models):
        done = run("topics", models / "topics", "--rows", folder, check=2)
        assert "--rows is for --sample" in message(done)
        done = run("topics", models / "mlgpf", "--sample", 3, check=1)
        assert "has no topics" in message(done)


def test_ranking_by_mean_utility(folder, models, tmp_path):
    test = read(folder).test
    run("predict", models / "mlgpf", folder, "--rank-by", "utility", "--out", tmp_path / "lists.txt")
    found = read_predictions(tmp_path / "lists.txt", *test.Y.shape)
    expected = load(models / "mlgpf", device="cpu").predict_topk(test.X, 5, rank_by="utility")
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-5)
    shown = json.loads(run("evaluate", models / "mlgpf", folder, "--rank-by", "utility", "--json").stdout)
    other = json.loads(run("evaluate", tmp_path / "lists.txt", folder, "--json").stdout)
    assert shown["P@3"] == pytest.approx(other["P@3"])
    done = run("evaluate", tmp_path / "lists.txt", folder, "--rank-by", "utility", check=2)
    assert "--rank-by utility is for a model" in message(done)
