"""Commands for deep kernels, with one class per row and with several labels per row."""

import json

import numpy as np
import pytest
from test_commands import run
from torch import nn

import labelfield
from labelfield import DeepKernelClassifier, synth
from labelfield.metrics import error_rate, nlpd

OPTIONS = {
    "hidden": [16],
    "dropout": 0.0,
    "grid_size": 10,
    "batch_size": 40,
    "network_epochs": 20,
    "process_epochs": 2,
    "max_epochs": 2,
    "learning_rate": 0.05,
}
SMALL = ["--method", "svdkl", "--device", "cpu", *(f"--set={name}={value}" for name, value in OPTIONS.items())]
BRIEF = [*SMALL, *(f"--set={name}=1" for name in ("network_epochs", "process_epochs", "max_epochs"))]


@pytest.fixture(scope="module")
def rings():
    return synth.make_rings(240, 3, noise=0.1, seed=5).split(1 / 3)


@pytest.fixture(scope="module")
def files(rings, tmp_path_factory):
    """A training and a test file of each kind: three rings, and several labels per row."""
    folder = tmp_path_factory.mktemp("deep")
    several = synth.make_multilabel(240, 60, 12, seed=3).split(1 / 3)
    for (split, rows), labelled in zip(rings.splits.items(), several.splits.values(), strict=True):
        (folder / split).mkdir()
        named = list(zip(np.array(["b", "a", "c"])[rows.Y.indices], rows.X.toarray(), strict=True))
        (folder / split / "words.svm").write_text("".join(f"{c} 1:{u} 2:{v}\n" for c, (u, v) in named))
        (folder / split / "named.csv").write_text("u,kind,v\n" + "".join(f"{u},{c},{v}\n" for c, (u, v) in named))
        (folder / split / "last.csv").write_text("u,v,class\n" + "".join(f"{u},{v},{c}\n" for c, (u, v) in named))
        labelfield.write(labelfield.Dataset(labelled.X, labelled.Y), folder / split / "several.txt")
    labelfield.write(several, folder / "several")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a model of one class per row, which `trained` writes."""
    return tmp_path_factory.mktemp("models") / "rings"


@pytest.fixture(scope="module", autouse=True)
def trained(files, model):
    """What training that model printed, with the test rows to score after each epoch."""
    valid = ["--valid", files / "test" / "words.svm", "--json"]
    return run("train", files / "train" / "words.svm", "--out", model, *SMALL, *valid)


@pytest.fixture(scope="module")
def several(files, tmp_path_factory):
    """The folder of a model of several labels per row."""
    path = tmp_path_factory.mktemp("models") / "several"
    run("train", files / "several", "--out", path, *SMALL, "--set=row_transform=unit")
    return path


def test_one_class_per_row(files, model, trained, tmp_path):
    assert json.loads(trained.stdout)["epochs"] == 24
    assert "svdkl: 160 rows, 2 features (scaled), 3 labels; network mlp 16, 3 processes on 1 features each" in (
        trained.stderr
    )
    assert "softmax" in trained.stderr
    assert " s on cpu; 20 network + 2 processes + 2 joint epochs of 4 steps" in trained.stderr
    assert (model / "labels.txt").read_text().split() == ["a", "b", "c"]
    shown = json.loads(run("evaluate", model, files / "test" / "words.svm", "--json").stdout)
    assert shown["rows"] == 80
    assert shown["error rate %"] < 25
    assert shown["error rate %"] == pytest.approx(100 - shown["P@1"])
    done = run("predict", model, files / "test" / "words.svm", "-k", 1, "--out", tmp_path / "p.txt")
    assert "80 rows" in done.stderr
    assert f"labels are lines of {model / 'labels.txt'}" in done.stderr


@pytest.mark.parametrize(("name", "column"), [("named.csv", ["--label-column", "kind"]), ("last.csv", [])])
def test_classes_in_a_table(name, column, files, tmp_path):
    train, test = (files / split / name for split in ("train", "test"))
    run("train", train, "--out", tmp_path / "m", *BRIEF, *column)
    assert (tmp_path / "m" / "labels.txt").read_text().split() == ["a", "b", "c"]
    assert json.loads(run("evaluate", tmp_path / "m", test, *column, "--json").stdout)["rows"] == 80


@pytest.mark.parametrize("name", ["several", "train/several.txt"])
def test_several_labels_per_row_are_detected(name, files, tmp_path):
    done = run("train", files / name, "--out", tmp_path / "m", *BRIEF)
    assert "svdkl: 160 rows, 60 features" in done.stderr
    assert "12 labels; network mlp 16, 12 processes" in done.stderr
    assert "bernoulli" in done.stderr
    loaded = labelfield.load(tmp_path / "m", device="cpu")
    assert (loaded.label_kind_, loaded.spec_.likelihood) == ("indicator", "bernoulli")


def test_the_likelihood_can_be_given(files, tmp_path):
    """Classes that are numbers can be read as labels; several labels per row cannot be read as a class."""
    lines = (files / "train" / "words.svm").read_text().replace("a ", "0 ").replace("b ", "1 ").replace("c ", "2 ")
    (tmp_path / "numbers.svm").write_text(lines)
    run("train", tmp_path / "numbers.svm", "--out", tmp_path / "m", *BRIEF, "--set=likelihood=bernoulli")
    loaded = labelfield.load(tmp_path / "m", device="cpu")
    assert (loaded.label_kind_, loaded.spec_.likelihood, loaded.spec_.n_labels) == ("indicator", "bernoulli", 3)
    done = run("train", files / "several", "--out", tmp_path / "n", *BRIEF, "--set=likelihood=softmax", check=3)
    assert "expected one class" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "where", "words"),
    [
        ("value.svm", "ham 1:1\nspam 1:2\nham 1:x\n", ":3: ", "'x' of feature 1 is not a number"),
        ("none.svm", "ham 1:1\nspam 1:2\n 1:3\n", ":3: ", "no label"),
        ("several.svm", "1,2 1:1\n2 1:2\n1,x 1:1\n", ":3: ", "'x' instead of a label index"),
        ("several-value.svm", "1 1:1\n2,1 1:2\n1,2 1:x\n", ":3: ", "'x' of feature 1 is not a number"),
        ("one.svm", "spam 1:1\nspam 2:1\n", ": ", "all rows have the class 'spam'; expected at least two classes"),
        ("empty.csv", "u,class\n", ": ", "no rows"),
    ],
)
def test_bad_files_are_refused_with_the_line_of_the_mistake(name, content, where, words, tmp_path):
    """However rows are read first, the message is that of the reading that suits the file."""
    (tmp_path / name).write_text(content)
    done = run("train", tmp_path / name, "--out", tmp_path / "m", *BRIEF, check=3)
    assert f"{tmp_path / name}{where}" in done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "m").exists()


class TestEvaluate:
    def test_the_network_alone_stands_beside_the_model(self, files, model, rings):
        shown = json.loads(run("evaluate", model, files / "test" / "words.svm", "--json").stdout)
        loaded = labelfield.load(model, device="cpu")
        y = np.array([1, 0, 2])[rings.test.Y.indices]  # b, a, c
        for prefix, P in (
            ("", loaded.predict_proba(rings.test.X)),
            ("network alone: ", loaded.baseline_proba(rings.test.X)),
        ):
            assert shown[f"{prefix}error rate %"] == pytest.approx(100 * error_rate(y, P))
            assert shown[f"{prefix}nlpd"] == pytest.approx(nlpd(y, P), rel=1e-5)
        assert shown["network alone: nlpd"] != shown["nlpd"]
        text = run("evaluate", model, files / "test" / "words.svm").stdout
        assert "network alone: error rate %" in text
        assert "network alone: nlpd" in text

    def test_of_several_labels(self, files, several):
        shown = json.loads(run("evaluate", several, files / "several", "--json", "-k", "1,2").stdout)
        loaded, data = labelfield.load(several, device="cpu"), labelfield.read(files / "several")
        for prefix, best in (
            ("", loaded.predict_topk(data.test.X, 2)),
            ("network alone: ", loaded.baseline_topk(data.test.X, 2)),
        ):
            scores = labelfield.metrics.evaluate(data.test.Y, best, k=(1, 2))
            for name in ("P@1", "P@2", "ECE@1", "ECE@2"):
                assert shown[prefix + name] == pytest.approx(scores[name])
        assert shown["network alone: ECE@1"] != shown["ECE@1"]
        lines = run("evaluate", several, files / "several", "-k", "1,2").stdout.splitlines()
        assert sum("network alone: P" in line for line in lines) == 1
        assert sum("network alone: ECE" in line for line in lines) == 1
        popular = json.loads(run("evaluate", "popularity", files / "several", "--json").stdout)
        assert shown["P@1"] > popular["P@1"]

    def test_without_a_baseline_there_is_nothing_beside(self, files, tmp_path):
        run("train", files / "train" / "words.svm", "--out", tmp_path / "m", *BRIEF, "--set=keep_baseline=false")
        shown = run("evaluate", tmp_path / "m", files / "test" / "words.svm", "--json").stdout
        assert "nlpd" in shown
        assert "network alone" not in shown

    def test_classes_that_it_has_not_seen(self, files, model, tmp_path):
        (tmp_path / "more.svm").write_text((files / "test" / "words.svm").read_text() + "d 1:1 2:1\n" * 20)
        shown = json.loads(run("evaluate", model, tmp_path / "more.svm", "--json").stdout)
        whole = json.loads(run("evaluate", model, files / "test" / "words.svm", "--json").stdout)
        for name in ("error rate %", "network alone: error rate %"):
            assert shown[name] == pytest.approx((80 * whole[name] + 20 * 100) / 100)
        assert shown["network alone: nlpd"] == pytest.approx(whole["network alone: nlpd"], rel=1e-5)

    def test_rows_beyond_what_the_network_can_take(self, model, tmp_path):
        (tmp_path / "huge.svm").write_text("a 1:1 2:1\nb 1:3e38 2:-3e38\n")
        for command in (
            ["evaluate", model, tmp_path / "huge.svm"],
            ["predict", model, tmp_path / "huge.svm", "--out", tmp_path / "p.txt"],
        ):
            done = run(*command, check=3)
            assert "features that are not finite for row 1" in done.stderr
            assert done.stderr.count("\n") == 1
        assert not (tmp_path / "p.txt").exists()


class TestOptions:
    @pytest.mark.parametrize(
        ("option", "expected"),
        [
            ("network=bag", {"name": "bag", "hidden": (16,)}),
            ("hidden=[16, 4]", {"name": "mlp", "hidden": (16, 4)}),
            ("hidden=[]", {"name": "mlp", "hidden": ()}),
            ("dropout=0.25", {"name": "mlp", "dropout": 0.25}),
        ],
    )
    def test_networks(self, option, expected, files, tmp_path):
        run("train", files / "train" / "words.svm", "--out", tmp_path / "m", *BRIEF, "--set", option)
        network = labelfield.load(tmp_path / "m").spec_.network
        assert {name: getattr(network, name) for name in expected} == expected

    def test_images(self, tmp_path):
        X = np.random.default_rng(0).random((40, 16))
        np.savez(tmp_path / "images.npz", X=X, y=np.arange(40) % 2)
        images = ["--set=network=cnn", "--set=channels=[2]"]
        run("train", tmp_path / "images.npz", "--out", tmp_path / "m", *BRIEF, *images)
        network = labelfield.load(tmp_path / "m").spec_.network
        assert (network.name, network.image_shape, network.channels) == ("cnn", (1, 4, 4), (2,))
        assert json.loads(run("evaluate", tmp_path / "m", tmp_path / "images.npz", "--json").stdout)["rows"] == 40

    def test_nothing_to_train(self, files, tmp_path):
        none = [f"--set={name}=0" for name in ("network_epochs", "process_epochs", "max_epochs")]
        done = run("train", files / "train" / "words.svm", "--out", tmp_path / "m", *SMALL, *none, check=2)
        assert "are all 0" in " ".join(done.stderr.replace("│", " ").split())

    def test_a_time_budget_is_shared_by_all_stages(self, files, tmp_path):
        long = [f"--set={name}=100000" for name in ("network_epochs", "process_epochs", "max_epochs")]
        run("train", files / "train" / "words.svm", "--out", tmp_path / "m", *SMALL, *long, "--time-budget", "0.2s")
        assert {e["stage"] for e in labelfield.load(tmp_path / "m").history_} == {"network", "processes", "joint"}

    def test_validation_rows(self, files, model, trained):
        shown = json.loads(run("evaluate", model, files / "test" / "words.svm", "--json").stdout)
        assert json.loads(trained.stdout)["P@1"] == pytest.approx(shown["P@1"])


class TestShow:
    def test_what_a_model_is(self, model):
        shown = json.loads(run("show", model, "--json").stdout)
        assert shown["method"] == "svdkl"
        assert (shown["network: name"], shown["network: hidden"], shown["likelihood"]) == ("mlp", "[16]", "softmax")
        assert shown["epochs done"] == len(shown["history"]) == 24
        text = run("show", model).stdout
        assert "whitened_kronecker" in text
        assert "network: hidden" in text

    def test_many_processes_stay_short(self, files, tmp_path):
        run("train", files / "train" / "words.svm", "--out", tmp_path / "m", *BRIEF, "--set=n_processes=500")
        lines = run("show", tmp_path / "m").stdout.splitlines()
        assert len(lines) < 60
        assert max(map(len, lines)) <= 100
        assert json.loads(run("show", tmp_path / "m", "--json").stdout)["subsets"] == "500, from (0,) on"


@pytest.mark.parametrize("command", ["evaluate", "predict", "show"])
def test_a_network_of_ones_own_is_for_python_alone(command, files, rings, tmp_path):
    fitted = DeepKernelClassifier(network=nn.Linear(2, 3), network_epochs=1, process_epochs=1, max_epochs=1)
    fitted.fit(rings.X, np.array(["b", "a", "c"])[rings.Y.indices]).save(tmp_path / "m")
    rest = {"show": [], "evaluate": [files / "test" / "words.svm"]}
    rest["predict"] = [*rest["evaluate"], "--out", tmp_path / "p.txt"]
    done = run(command, tmp_path / "m", *rest[command], check=3)
    assert not done.stdout
    assert done.stderr.count("\n") == 1
    assert (
        f"error: {tmp_path / 'm'}: the model has a network of your own, torch.nn.modules.linear.Linear" in done.stderr
    )
