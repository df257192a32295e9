"""Every method through the commands: train, predict, evaluate and show agree with Python; options; resumed runs."""

import json
import signal
import tomllib

import numpy as np
import pytest
from test_commands import message, run

import labelfield
from labelfield import metrics, synth
from labelfield.estimators.methods import method_parameters, new_estimator

FACTORS = {"n_latent": 4, "n_inducing": 12, "batch_size": 50, "max_epochs": 3}
PROCESSES = {"n_inducing": 6, "batch_size": 40, "max_epochs": 3}
DEEP = {"hidden": [8], "grid_size": 10, "batch_size": 40, "network_epochs": 3, "process_epochs": 2, "max_epochs": 2}
TOPICS = {"n_topics": 4, "max_epochs": 4, "n_draws": 2, "batch_size": 50}
# What is trained, by its method, on rows with several labels or one class each, with which options.
KINDS = {
    "mlgpf": ("mlgpf", "labels", FACTORS),
    "ensemble": ("mlgpf", "labels", FACTORS | {"ensemble": 2}),
    "one_vs_each": ("one_vs_each", "classes", PROCESSES | {"negative_sampling": "importance", "classes_per_batch": 2}),
    "robustmax": ("robustmax", "classes", PROCESSES),
    "softmax": ("softmax", "classes", PROCESSES),
    "svdkl for classes": ("svdkl", "classes", DEEP),
    "svdkl for labels": ("svdkl", "labels", DEEP),
    "ensemble of svdkl": ("svdkl", "classes", DEEP | {"ensemble": 2}),
    "linear for labels": ("linear", "labels", {"n_passes": 5}),
    "linear for classes": ("linear", "classes", {"cost": 1.0, "row_transform": "scaled"}),
    "auto": ("auto", "labels", {}),
    **{
        f"topics by {name}": ("topics", "labels", TOPICS | {"algorithm": name}) for name in ("em", "online_em", "gibbs")
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows with several labels and with one class each, in two splits."""
    path = tmp_path_factory.mktemp("methods")
    labelfield.write(synth.make_multilabel(210, 40, 8, seed=3).split(1 / 3), path / "labels")
    rings = synth.make_rings(180, 3, noise=0.1, seed=5).split(1 / 3)
    (path / "classes").mkdir()
    for split, rows in rings.splits.items():
        named = zip(np.array(["b", "a", "c"])[rows.Y.indices], rows.X.toarray(), strict=True)
        (path / "classes" / f"{split}.svm").write_text("".join(f"{c} 1:{u} 2:{v}\n" for c, (u, v) in named))
    return path


@pytest.fixture(scope="module")
def trained(folder):
    """A function from a kind to its data, its model folder, and what `train` printed; each is trained once."""
    known = {}

    def train(kind):
        if kind not in known:
            out = folder / f"model {kind}"
            known[kind] = folder / KINDS[kind][1], out, run(*command(folder, kind), "--out", out, "--json")
        return known[kind]

    return train


def command(folder, kind):
    method, data, options = KINDS[kind]
    return [
        "train",
        folder / data,
        "--method",
        method,
        "--set=device=cpu",
        *(f"--set={o}={v}" for o, v in options.items()),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_commands_agree_with_python(kind, trained, tmp_path):
    method, data_kind, options = KINDS[kind]
    path, model, done = trained(kind)
    data = labelfield.read(path, classes=data_kind == "classes")
    Y = data.Y if data_kind == "labels" else np.array(data.label_names)[data.Y.indices]
    fitted = new_estimator(method, options | {"device": "cpu"}).fit(data.X, Y)
    loaded = labelfield.load(model, device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(data.test.X), fitted.predict_proba(data.test.X))
    shown = json.loads(run("show", model, "--json").stdout)
    facts = json.loads(done.stdout)
    assert (shown["method"], shown["epochs done"]) == (method, facts["epochs"])
    assert facts["bound"] == pytest.approx(fitted.history_[-1]["bound"])
    assert f"{method}: {data.n_rows} rows, {data.n_features} features" in done.stderr
    assert f"{data.n_labels} " in run("show", model).stdout
    best = loaded.predict_topk(data.test.X, 2)
    for name in ("p.txt", "p.npz"):
        run("predict", model, path, "-k", 2, "--out", tmp_path / name)
        found = labelfield.read_predictions(tmp_path / name, data.test.n_rows, data.n_labels)
        np.testing.assert_allclose(found.toarray(), best.toarray(), rtol=1e-6)
    scores = json.loads(run("evaluate", model, path, "--json", "-k", "1,2").stdout)
    expected = metrics.evaluate(data.test.Y, best, k=(1, 2))
    assert {name: scores[name] for name in ("P@1", "P@2")} == pytest.approx({n: expected[n] for n in ("P@1", "P@2")})
    assert ("network alone" in str(scores)) == kind.startswith("svdkl")
    assert ("error rate %" in scores) == (data_kind == "classes")


@pytest.mark.parametrize("kind", ["ensemble", "ensemble of svdkl"])
def test_members_of_an_ensemble(kind, trained, folder):
    """With 300 rows a tenth would be held out, and their scores shown: tests/cli/test_models.py."""
    _, model, done = trained(kind)
    for facts in (json.loads(done.stdout), json.loads(run("show", model, "--json").stdout)):
        assert facts["member 1"] != facts["member 2"]
        assert "member 3" not in facts
    assert "an ensemble of 2; the first: " in done.stderr


@pytest.mark.parametrize(
    ("kind", "stop_after"),
    [
        ("mlgpf", 4),
        ("ensemble", 4),
        ("one_vs_each", 5),
        *(("svdkl for classes", steps) for steps in (4, 11, 16)),  # of 9 + 6 + 6 steps: in each stage
        ("topics by em", 2),
        ("topics by online_em", 8),
        ("topics by gibbs", 3),
        ("linear for labels", 1),
    ],
)
def test_an_interrupted_command_resumes(kind, stop_after, trained, folder, tmp_path, interrupt_after, monkeypatch):
    again, out = command(folder, kind), tmp_path / "m"
    interrupt = interrupt_after(stop_after, signal.SIGINT)
    with monkeypatch.context() as patched:
        patched.setattr("labelfield.cli.live.TrainingBar.__call__", lambda bar, *progress: interrupt(*progress))
        done = run(*again, "--out", out, check=128 + signal.SIGINT)
    # Members that train at the same time may each end the step they are in.
    assert interrupt.steps >= stop_after if kind == "ensemble" else interrupt.steps == stop_after
    assert "the same command with --resume continues" in done.stderr
    assert {path.name for path in out.iterdir()} <= {"checkpoint.safetensors", "checkpoint-1.safetensors"}
    assert "--resume" in message(run("show", out, check=3))
    refused = run(*again, "--out", out, "--resume", "--set=row_transform=none", check=3)
    assert "the checkpoint was made with another model or other training data" in refused.stderr
    run(*again, "--out", out, "--resume")
    for name in ("arrays.safetensors", "labels.txt"):
        assert (out / name).read_bytes() == (trained(kind)[1] / name).read_bytes()


# Options


@pytest.mark.parametrize(
    "kind",
    [
        "mlgpf",
        "one_vs_each",
        "robustmax",
        "softmax",
        "svdkl for classes",
        "topics by em",
        "linear for labels",
        "linear for classes",
        "auto",
    ],
)
def test_config_is_a_file_that_train_takes(kind, folder, tmp_path):
    method, data, options = KINDS[kind]
    text = run("config", method).stdout
    known = method_parameters(method)
    defaults = {name: option.default for name, option in known.items() if option.default is not None}
    assert tomllib.loads(text) == {name: list(v) if isinstance(v, tuple) else v for name, v in defaults.items()}
    lines = text.splitlines()[2:]
    assert [line.lstrip("# ").split(" ")[0] for line in lines] == list(known)
    for line, option in zip(lines, known.values(), strict=True):
        assert option.meaning, f"{option.name} has no meaning"
        assert f" # {option.meaning}" in line
    assert ("likelihood" in known) == (method in ("svdkl", "mlgpf"))
    path = tmp_path / "options.toml"
    own = {name: value for name, value in options.items() if name not in defaults}
    path.write_text(text + "".join(f"{name} = {json.dumps(value)}\n" for name, value in own.items()))
    short = "max_epochs" if "max_epochs" in known else "time_budget"
    run("train", folder / data, "--method", method, "--config", path, f"--set={short}=1", "--out", tmp_path / "m")
    assert getattr(labelfield.load(tmp_path / "m"), short) == 1


@pytest.mark.parametrize(
    ("kind", "option", "words"),
    [
        ("mlgpf", "zzz=1", "mlgpf has no option 'zzz'; all options: labelfield config mlgpf"),
        ("mlgpf", "n_latnet=1", "mlgpf has no option 'n_latnet'; did you mean 'n_latent'"),
        ("mlgpf", "negative_sampling=uniform", "no option 'negative_sampling'; did you mean"),
        ("one_vs_each", "likelihood=softmax", "no option 'likelihood'"),
        ("one_vs_each", "n_latent=3", "no option 'n_latent';"),
        ("svdkl for classes", "n_inducing=5", "no option 'n_inducing'"),
        ("topics by em", "n_latent=5", "no option 'n_latent'"),
        ("mlgpf", "n_latent", "--set n_latent; expected key=value"),
        ("mlgpf", "kernel=cubic", "kernel 'cubic'; expected linear, "),
        ("mlgpf", "posterior=best", "posterior='best'; expected one of whitened_diagonal, "),
        ("mlgpf", "n_negatives=-3", "n_negatives=-3; expected an integer of at least 0"),
        ("mlgpf", "n_inducing=10.5", "n_inducing=10.5; expected an integer of at least 1"),
        ("mlgpf", "learning_rate=fast", "learning_rate='fast'; expected a positive number"),
        ("mlgpf", "unit_norm=no", "unit_norm='no'; expected True or False"),
        ("mlgpf", "device=abacus", "device='abacus'; expected 'auto', 'cpu' or 'cuda'"),
        *(
            (kind, "ensemble=9", "ensemble=9; expected auto, or an integer from 2 to 8")
            for kind in KINDS
            if kind != "auto"
        ),
        ("auto", "ensemble=2", "auto has no option 'ensemble'"),
        ("auto", "quality=perfect", "quality='perfect'; expected one of fast, good, best"),
        ("linear for labels", "cost=0", "cost=0; expected a number"),
        ("linear for labels", "row_transform=unit+scaled", "row_transform='unit+scaled'; expected one of"),
        ("softmax", "n_negatives=1", "needs all classes"),
        ("one_vs_each", "negative_sampling=best", "negative_sampling='best'; expected one of uniform, importance"),
        ("robustmax", "epsilon=2", "epsilon=2; expected a number from"),
        ("svdkl for classes", "network=rnn", "network='rnn'; expected one of mlp, bag, cnn"),
        ("svdkl for classes", "network=cnn", "2 features do not form a square image"),
        ("svdkl for classes", "hidden=16", "hidden=16"),
        ("svdkl for classes", "subsets=[[0],[0,1]]", "subsets of 1, 2 features"),
        ("svdkl for classes", "subsets=5", "subsets=5"),
        ("svdkl for classes", "kernel=linear", "kernel='linear'; expected one of se, "),
        ("svdkl for classes", "likelihood=robustmax", "likelihood='robustmax'; expected one of softmax, bernoulli"),
        ("svdkl for classes", "n_negatives=3", "softmax needs all classes"),
        ("svdkl for classes", "dropout=1", "dropout=1; expected a number from 0 to 0.99"),
        ("topics by em", "n_topics=0", "n_topics=0; expected an integer of at least 1"),
        ("topics by em", "n_topics=25", "n_topics=25; expected at most 8, the number of labels"),
        ("topics by em", "n_topics=many", "n_topics='many'; expected an integer"),
        ("topics by em", "algorithm=magic", "algorithm='magic'; expected one of em, online_em, gibbs"),
        ("topics by em", "n_gradient_steps=-1", "n_gradient_steps=-1"),
        ("topics by em", "step_power=2", "step_power=2; expected a number from 0.5 to 1"),
        ("topics by em", "learn_hyper=perhaps", "learn_hyper='perhaps'; expected True or False"),
        ("topics by em", "row_transform=magic", "row_transform='magic'"),
    ],
)
def test_options_that_are_refused(kind, option, words, folder, tmp_path):
    done = run(*command(folder, kind), "--out", tmp_path / "m", "--set", option, check=2)
    assert words in message(done)
    assert not done.stdout
    assert not (tmp_path / "m").exists()


def test_options_of_a_file_are_checked_alike(folder, tmp_path):
    path = tmp_path / "options.toml"
    for text, code, words in (
        ("n_latnet = 3", 2, "no option 'n_latnet'; did you mean 'n_latent'"),
        ("calibrate = 1", 2, "calibrate=1; expected True or False"),
        ("not toml", 3, "not TOML"),
    ):
        path.write_text(text)
        done = run("train", folder / "labels", "--method=mlgpf", "--config", path, "--out", tmp_path / "m", check=code)
        assert words in message(done)
    done = run("train", folder / "labels", "--config", tmp_path / "none.toml", "--out", tmp_path / "m", check=3)
    assert "there is no such file" in done.stderr


def test_true_and_false_as_python_writes_them(folder, tmp_path):
    run(*command(folder, "mlgpf"), "--set=max_epochs=1", "--set=unit_norm=False", "--out", tmp_path / "m")
    assert labelfield.load(tmp_path / "m").spec_.unit_norm is False


def test_validation_rows_of_an_ensemble_are_scored_by_its_first_member(folder, tmp_path):
    done = run(*command(folder, "ensemble"), "--out", tmp_path / "m", "--valid", folder / "labels", "--json")
    data = labelfield.read(folder / "labels").test
    first = labelfield.load(tmp_path / "m", device="cpu").members()[0]
    expected = metrics.evaluate(data.Y, first.predict_topk(data.X, 5))
    assert json.loads(done.stdout)["P@1"] == pytest.approx(expected["P@1"])
