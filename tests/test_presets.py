"""Presets are the papers' models: they can be made, and what they train is the evidence lower bound."""

import numpy as np
import pytest
from typer.testing import CliRunner

from labelfield import EnsembleClassifier, load, preset, synth
from labelfield.cli.main import app
from labelfield.estimators.methods import method_parameters
from labelfield.estimators.options import check_parameters
from labelfield.methods import METHODS
from labelfield.presets import PRESETS

SMALL = {
    "journal": {"n_latent": 4, "n_inducing": 12},
    "subspace": {"n_latent": 4, "n_inducing": 12, "rank": 20},
    "thesis": {"n_inducing": 6},
    "thesis-robustmax": {"n_inducing": 6},
    "svdkl": {"hidden": [8], "network_epochs": 1, "process_epochs": 1, "batch_size": 30},
    "bmlpl": {"n_topics": 4},
}


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(90, 40, 12, seed=1)


def labels_for(name, data):
    return data.X.indices[data.X.indptr[:-1]] % 3 if METHODS[PRESETS[name].method].has_classes({}) else data.Y


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_made_and_trained(name, data):
    estimator = preset(name, **SMALL[name], max_epochs=2, random_state=3)
    check_parameters(estimator)
    for option, value in PRESETS[name].options.items():
        if option not in {*SMALL[name], "max_epochs"}:
            assert getattr(estimator, option) == value
    estimator.fit(data.X, labels_for(name, data))
    assert np.isfinite(estimator.predict_proba(data.X)).all()
    assert estimator.settings_.held_out == 0


@pytest.mark.parametrize("name", ["journal", "subspace", "thesis-robustmax"])
def test_what_is_trained_is_the_evidence_lower_bound(name, data):
    """The bound that a step on all rows reports is that of the whole data set, with all labels and no weights."""
    options = {"batch_size": data.n_rows, "max_epochs": 1, "learning_rate": 1e-9, **SMALL[name]}
    Y = labels_for(name, data)
    model = preset(name, **options).fit(data.X, Y)
    assert model.history_[0]["bound"] == pytest.approx(model.bound(data.X, Y)["bound"] / data.n_rows, rel=1e-4)
    if name != "thesis-robustmax":
        tempered = preset(name, **options | {"kl_weight": 0.5}).fit(data.X, Y)
        assert tempered.history_[0]["bound"] > model.history_[0]["bound"] + 0.1


def test_thesis_steps_are_on_one_class_against_another(data):
    model = preset("thesis", **SMALL["thesis"], max_epochs=1)
    model.fit(data.X, labels_for("thesis", data))
    assert model.n_negatives_ == 1
    assert model.classes_per_batch == 1


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="preset 'journey'; expected one of journal, subspace"):
        preset("journey")
    assert isinstance(preset("journal", ensemble=2), EnsembleClassifier)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_commands_know_them(tmp_path, data):
    path = tmp_path / "rows.svm"
    from labelfield import write

    write(data, path)
    sizes = ("--set", "n_latent=3", "--set", "n_inducing=8", "--set", "max_epochs=1")
    done = run("train", path, "--out", tmp_path / "a", "--preset", "journal", *sizes)
    assert done.exit_code == 0, done.output
    model = load(tmp_path / "a", device="cpu")
    assert (model.kl_weight, model.n_points, model.posterior, model.n_latent) == (1.0, 10, "full", 3)
    # The file that config prints says the same.
    printed = run("config", "--preset", "journal").stdout
    assert 'posterior = "full"' in printed
    (tmp_path / "journal.toml").write_text(printed)
    done = run(
        "train", path, "--out", tmp_path / "b", "--method", "mlgpf", "--config", tmp_path / "journal.toml", *sizes
    )
    assert done.exit_code == 0, done.output
    again = load(tmp_path / "b", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(data.X), model.predict_proba(data.X))
    refused = run("train", path, "--out", tmp_path / "c", "--preset", "journal", "--method", "topics")
    assert refused.exit_code == 2
    assert "--preset journal is a model of --method mlgpf, not topics" in " ".join(refused.output.split())
    assert not (tmp_path / "c").exists()


def test_options_are_those_of_the_method():
    for name, one in PRESETS.items():
        assert set(one.options) <= set(method_parameters(one.method)), name
