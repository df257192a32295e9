"""train, topics, predict, evaluate, show, config for topics of labels."""

import inspect
import json
import signal
import tomllib

import numpy as np
import pytest
from test_commands import run

import labelfield
from labelfield import TopicClassifier, synth

SMALL = ["--method", "topics", "--device", "cpu", "--set", "n_topics=5"]
BRIEF = [*SMALL, "--set=max_epochs=2", "--set=n_draws=2", "--set=batch_size=50"]
NAMES = [f"subject {number:02d}" for number in range(24)]


def message(done):
    """What was said on stderr, without the box around it."""
    return " ".join(done.stderr.replace("│", " ").split())


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
    assert "2 epochs of 6 steps on cpu" in done.stderr
    shown = json.loads(done.stdout)
    assert shown["epochs"] == 2
    assert np.isfinite(shown["bound"])
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "arrays.safetensors",
        "config.json",
        "labels.txt",
    ]


@pytest.mark.parametrize("algorithm", ["em", "online_em", "gibbs"])
def test_train_equals_the_function(algorithm, data, tmp_path):
    run("train", data, "--out", tmp_path / "m", *BRIEF, f"--set=algorithm={algorithm}", "--seed", 7)
    rows = labelfield.read(data)
    options = {"n_topics": 5, "max_epochs": 2, "n_draws": 2, "batch_size": 50, "algorithm": algorithm}
    expected = TopicClassifier(**options, device="cpu", random_state=7).fit(rows.X, rows.Y).predict_proba(rows.test.X)
    np.testing.assert_array_equal(labelfield.load(tmp_path / "m", device="cpu").predict_proba(rows.test.X), expected)


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
        run("train", data, "--out", tmp_path / "m", *sizes)
        done = run("topics", tmp_path / "m", check=1)
        assert f"{tmp_path / 'm'}: a model of the method 'mlgpf', which has no topics" in done.stderr
        assert done.stderr.count("\n") == 1
        assert not done.stdout

    def test_no_model(self, tmp_path):
        done = run("topics", tmp_path / "nowhere", check=3)
        assert "there is no such model folder" in done.stderr
        assert done.stderr.count("\n") == 1


class TestOtherCommands:
    def test_evaluate(self, data, model):
        shown = json.loads(run("evaluate", model, data, "--json").stdout)
        assert shown["rows"] == 150
        popular = json.loads(run("evaluate", "popularity", data, "--json").stdout)
        assert shown["P@1"] > popular["P@1"]
        rows = labelfield.read(data).test
        best = labelfield.load(model, device="cpu").predict_topk(rows.X, 5)
        assert shown["P@1"] == pytest.approx(labelfield.metrics.evaluate(rows.Y, best)["P@1"])

    def test_predict(self, data, model, tmp_path):
        expected = labelfield.load(model, device="cpu").predict_topk(labelfield.read(data).test.X, 3)
        for name in ("p.txt", "p.npz"):
            run("predict", model, data, "-k", 3, "--out", tmp_path / name)
            found = labelfield.read_predictions(tmp_path / name, 150, 24)
            np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-6)

    def test_show(self, model):
        shown = json.loads(run("show", model, "--json").stdout)
        assert shown["method"] == "topics"
        assert (shown["n_topics"], shown["n_labels"], shown["n_placed"], shown["n_draws"]) == (5, 24, 20, 1)
        assert shown["epochs done"] == len(shown["history"])
        text = run("show", model).stdout
        assert "n_topics" in text
        assert "training rows" in text


class TestOptions:
    def test_config_is_a_file_that_train_takes(self, data, tmp_path):
        text = run("config", "topics").stdout
        defaults = {name: p.default for name, p in inspect.signature(TopicClassifier).parameters.items()}
        assert tomllib.loads(text) == {name: value for name, value in defaults.items() if value is not None}
        lines = text.splitlines()[1:]
        assert [line.lstrip("# ").split(" ")[0] for line in lines] == list(defaults)
        assert all(len(line.rpartition(" # ")[2]) > 3 for line in lines), "each option has a meaning"
        path = tmp_path / "options.toml"
        path.write_text(text + "n_topics = 3\nmax_epochs = 1\n")
        command = ["train", data, "--method", "topics", "--config", path, "--device", "cpu"]
        run(*command, "--set=row_transform=log", "--out", tmp_path / "m")
        loaded = labelfield.load(tmp_path / "m")
        assert (loaded.spec_.n_topics, loaded.n_iter_, loaded.row_transform_.name) == (3, 1, "log")

    @pytest.mark.parametrize(
        ("option", "word"),
        [
            ("n_latent=5", "no option 'n_latent'"),
            ("nonsense=1", "no option 'nonsense'"),
            ("n_topics=0", "n_topics=0; expected an integer of at least 1"),
            ("n_topics=25", "n_topics=25, and there are 24 labels; expected no more topics than labels"),
            ("n_topics=many", "n_topics='many'"),
            ("algorithm=magic", "algorithm='magic'; expected one of em, online_em, gibbs"),
            ("n_gradient_steps=-1", "n_gradient_steps=-1"),
            ("step_power=2", "step_power=2"),
            ("learn_hyper=perhaps", "learn_hyper='perhaps'; expected True or False"),
            ("row_transform=magic", "row_transform='magic'"),
            ("device=abacus", "device='abacus'"),
        ],
    )
    def test_wrong_usage_exits_2(self, option, word, data, tmp_path):
        command = ["train", data, "--out", tmp_path / "m", "--method", "topics"]
        done = run(*command, "--set", option, check=2)
        assert word in message(done)
        assert not done.stdout
        assert not (tmp_path / "m").exists()

    def test_nothing_to_learn_from(self, tmp_path):
        (tmp_path / "none.txt").write_text("3 4 5\n 0:1\n 1:1\n 2:1 3:2\n")
        done = run("train", tmp_path / "none.txt", "--out", tmp_path / "m", *BRIEF, check=3)
        assert "no row has a label" in done.stderr
        assert done.stderr.count("\n") == 1

    def test_a_time_budget(self, data, tmp_path):
        endless = ["--set=max_epochs=1000000", "--set=tolerance=0", "--time-budget", "0.1s"]
        run("train", data, "--out", tmp_path / "m", *SMALL, *endless)
        assert labelfield.load(tmp_path / "m").history_[-1]["seconds"] < 2

    def test_validation_rows(self, data, tmp_path):
        done = run("train", data, "--out", tmp_path / "m", *BRIEF, "--valid", data, "--json")
        shown = json.loads(run("evaluate", tmp_path / "m", data, "--json").stdout)
        assert json.loads(done.stdout)["P@1"] == pytest.approx(shown["P@1"])


@pytest.mark.parametrize(("algorithm", "stop_after"), [("em", 2), ("online_em", 8), ("gibbs", 3)])
def test_an_interrupted_command_resumes(algorithm, stop_after, data, tmp_path, interrupt_after, monkeypatch):
    command = ["train", data, *BRIEF, f"--set=algorithm={algorithm}", "--set=max_epochs=4"]
    run(*command, "--out", tmp_path / "whole")
    command += ["--out", tmp_path / "m"]
    interrupt = interrupt_after(stop_after, signal.SIGINT)
    with monkeypatch.context() as patched:
        patched.setattr("labelfield.cli.live.TrainingBar.__call__", lambda bar, *progress: interrupt(*progress))
        done = run(*command, check=128 + signal.SIGINT)
    assert interrupt.steps == stop_after
    assert "--resume goes on" in done.stderr
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["checkpoint.safetensors"]
    for command_of_models in ("show", "topics"):
        assert "--resume" in message(run(command_of_models, tmp_path / "m", check=3))
    refused = run(*command, "--resume", "--set=n_topics=4", check=3)
    assert "the checkpoint was made with another model or other training data" in refused.stderr
    run(*command, "--resume")
    for name in ("arrays.safetensors", "labels.txt"):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
