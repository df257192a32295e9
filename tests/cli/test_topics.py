"""Commands for topics of labels."""

import json

import numpy as np
import pytest
from test_commands import run

import labelfield
from labelfield import synth

SMALL = ["--method", "topics", "--device", "cpu", "--set", "n_topics=5"]
BRIEF = [*SMALL, "--set=max_epochs=2", "--set=n_draws=2", "--set=batch_size=50"]
NAMES = [f"subject {number:02d}" for number in range(24)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two splits with names of labels, four of which no row has."""
    path = tmp_path_factory.mktemp("topics") / "data"
    drawn = synth.make_topics(450, 80, 20, 5, seed=2)
    Y = drawn.Y
    Y.resize((450, 24))
    labelfield.write(labelfield.Dataset(drawn.X, Y, label_names=NAMES).split(1 / 3), path)
    return path


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "topics"
    run("train", data, "--out", path, *SMALL)
    return path


def test_train_says_what_it_is_about_to_do(data, tmp_path):
    done = run("train", data, "--out", tmp_path / "m", *BRIEF, "--set=algorithm=online_em", "--json")
    assert "topics: 300 rows, 80 features (unit), 24 labels; 5 topics by online_em" in done.stderr
    assert " s on cpu; 2 epochs of 6 steps" in done.stderr
    shown = json.loads(done.stdout)
    assert shown["epochs"] == 2
    assert np.isfinite(shown["bound"])
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "arrays.safetensors",
        "config.json",
        "labels.txt",
    ]


class TestTopics:
    def test_a_table(self, model):
        lines = run("topics", model).stdout.splitlines()
        assert all(word in "\n".join(lines) for word in ("topic", "share %", "labels", "subject"))
        found = labelfield.load(model).topics(1)
        positions = ["\n".join(lines).index(f"{topic.labels[0][0]} (") for topic in found]
        assert min(positions) > 0
        assert "features" not in "\n".join(lines)

    def test_json_equals_the_model(self, model):
        shown = json.loads(run("topics", model, "--json", "-n", 3, "--features", 4).stdout)
        loaded = labelfield.load(model, device="cpu")
        assert shown["path"] == str(model)
        assert [topic["topic"] for topic in shown["topics"]] == [topic.number for topic in loaded.topics()]
        for ours, theirs in zip(shown["topics"], loaded.topics(3), strict=True):
            assert ours["share"] == pytest.approx(theirs.share)
            assert list(ours["labels"]) == [name for name, _ in theirs.labels]
            assert list(ours["labels"].values()) == pytest.approx([weight for _, weight in theirs.labels])
            expected = loaded.top_features(theirs.number, 4)
            assert ours["features"] == pytest.approx({str(feature): weight for feature, weight in expected})
        assert sum(topic["share"] for topic in shown["topics"]) == pytest.approx(1, rel=1e-5)
        assert "features" not in json.loads(run("topics", model, "--json").stdout)["topics"][0]

    def test_how_many(self, model):
        assert [len(t["labels"]) for t in json.loads(run("topics", model, "--json").stdout)["topics"]] == [10] * 5
        text = run("topics", model, "-n", 3, "--features", 3).stdout
        assert text.count("subject") == 15
        assert "features" in text
        for wrong in (["-n", "0"], ["-n", "many"], ["--features", "-1"]):
            done = run("topics", model, *wrong, check=2)
            assert not done.stdout

    def test_a_model_of_another_method(self, data, tmp_path):
        sizes = ["--set=n_latent=2", "--set=n_inducing=5", "--set=max_epochs=1", "--device", "cpu"]
        run("train", data, "--method", "mlgpf", "--out", tmp_path / "m", *sizes)
        done = run("topics", tmp_path / "m", check=1)
        assert f"{tmp_path / 'm'}: a model of the method 'mlgpf' has no topics" in done.stderr
        assert done.stderr.count("\n") == 1
        assert not done.stdout

    def test_no_model(self, tmp_path):
        done = run("topics", tmp_path / "nowhere", check=3)
        assert "there is no such model folder" in done.stderr
        assert done.stderr.count("\n") == 1


class TestOtherCommands:
    def test_show(self, model):
        shown = json.loads(run("show", model, "--json").stdout)
        assert shown["method"] == "topics"
        assert (shown["n_topics"], shown["n_labels"], shown["n_placed"], shown["n_draws"]) == (5, 24, 20, 1)
        assert shown["epochs done"] == len(shown["history"])
        text = run("show", model).stdout
        assert "n_topics" in text
        assert "training rows" in text


class TestOptions:
    def test_nothing_to_learn_from(self, tmp_path):
        (tmp_path / "none.txt").write_text("3 4 5\n 0:1\n 1:1\n 2:1 3:2\n")
        done = run("train", tmp_path / "none.txt", "--out", tmp_path / "m", *BRIEF, check=3)
        assert "no row has a label" in done.stderr
        assert done.stderr.count("\n") == 1

    def test_a_time_budget(self, data, tmp_path):
        endless = ["--set=max_epochs=1000000", "--set=tol=0", "--time-budget", "0.1s"]
        run("train", data, "--out", tmp_path / "m", *SMALL, *endless)
        assert labelfield.load(tmp_path / "m").history_[-1]["seconds"] < 2

    def test_validation_rows(self, data, tmp_path):
        done = run("train", data, "--out", tmp_path / "m", *BRIEF, "--valid", data, "--json")
        shown = json.loads(run("evaluate", tmp_path / "m", data, "--json").stdout)
        assert json.loads(done.stdout)["P@1"] == pytest.approx(shown["P@1"])
