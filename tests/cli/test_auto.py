"""train without a method: what suits the data is found, and show tells what was tried."""

import json

import numpy as np
import pytest
from test_commands import message, run

import labelfield
from labelfield import AutoClassifier, metrics, synth

WORDS = [f"word{number}" for number in range(60)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("auto") / "data"
    drawn = synth.make_multilabel(450, 60, 12, seed=6)
    rows = labelfield.Dataset(drawn.X, drawn.Y, [f"tag {number}" for number in range(12)], feature_names=WORDS)
    labelfield.write(rows.split(1 / 3), path)
    return path


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A function from a quality (None for the default) to its model folder and what `train` said."""
    known, folder = {}, tmp_path_factory.mktemp("models")

    def train(quality=None):
        if quality not in known:
            asked, out = ["--quality", quality] if quality else [], folder / str(quality)
            known[quality] = out, run("train", data, "--out", out, *asked, "--device=cpu", "--valid", data, "--json")
        return known[quality]

    return train


@pytest.mark.parametrize(("quality", "n_members"), [(None, 2), ("fast", 1), ("best", 3)])
def test_it_is_the_estimator(quality, n_members, data, trained):
    rows = labelfield.read(data)
    model, done = trained(quality)
    loaded = labelfield.load(model, device="cpu")
    if quality != "best":
        expected = AutoClassifier(quality=quality or "good", device="cpu").fit(rows.X, rows.Y)
        np.testing.assert_array_equal(loaded.predict_proba(rows.test.X), expected.predict_proba(rows.test.X))
    assert (type(loaded), loaded.quality) == (AutoClassifier, quality or "good")
    assert len(loaded.members()) == n_members
    shown = json.loads(done.stdout)
    assert shown["epochs"] == sum(len(member.history_) for member in loaded.members())
    found = metrics.evaluate(rows.test.Y, loaded.predict_topk(rows.test.X, 5))
    assert shown["P@1"] == pytest.approx(found["P@1"])  # the whole is scored on validation rows
    assert "auto: 300 rows, 60 features (" in done.stderr
    assert "linear (" in done.stderr


def test_show_tells_what_was_tried_and_what_members_add(trained):
    model, _ = trained()
    facts, text = json.loads(run("show", model, "--json").stdout), " ".join(run("show", model).stdout.split())
    tried = [name for name in facts if name.startswith("tried: ")]
    loaded = labelfield.load(model)
    assert tried == [f"tried: {trial['row_transform']}, cost {trial['cost']:g}" for trial in loaded.trials_]
    assert len(tried) > 3
    assert all(name in text for name in tried)
    assert "on held-out rows" in facts[tried[0]]
    assert facts["member 1"].startswith("linear, ")
    assert facts["member 2"].startswith("mlgpf, ")
    for name in ("member 1 alone", "member 2 alone", "members up to 2"):
        assert len(facts[f"{name}: P@1 / 3 / 5 on held-out rows"].split(" / ")) == 3
    assert facts["method"] == "auto"


def test_quality_is_for_the_default_alone(data, tmp_path):
    for method in ("linear", "mlgpf", "topics"):
        done = run("train", data, "--method", method, "--quality", "best", "--out", tmp_path / "m", check=2)
        assert f"--quality best is for --method auto; {method} has its own options" in message(done)
    run("train", data, "--quality", "perfect", "--out", tmp_path / "m", check=2)
    assert not (tmp_path / "m").exists()


def test_config_says_what_there_is_to_choose():
    assert run("config").stdout == run("config", "auto").stdout
    assert 'quality = "good"' in run("config", "auto").stdout
    text = run("config", "linear").stdout
    assert "# cost =" in text
    assert "n_passes = 10" in text
    assert "ensemble" not in run("config", "auto").stdout


@pytest.mark.parametrize("quality", [None, "fast"])
def test_every_command_takes_the_model(quality, data, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("labelfield.report.plots.to_svg", lambda figure, name, label: f"<svg>{name}</svg>")
    model, _ = trained(quality)
    run("report", model, data, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    scores = json.loads(run("evaluate", model, data, "--json").stdout)
    assert f"{scores['P@1']:.1f}" in page
    assert "tag 1" in page
    said = json.loads(run("explain", model, data, "--row", 2, "-k", 2, "--json").stdout)
    low, high = said["labels"][0]["interval"]
    assert 0 <= low < high <= 1
    assert {part["feature"] for part in said["labels"][0]["features"]} <= set(WORDS)
    done = run("topics", model, check=1)
    assert "of the method 'auto' has no topics" in done.stderr


def test_time_is_kept_to(data, tmp_path):
    run("train", data, "--out", tmp_path / "m", "--time-budget", "0.05s", "--device", "cpu")
    assert labelfield.load(tmp_path / "m").history_[-1]["seconds"] < 2
    with_valid = run("train", data, "--out", tmp_path / "l", "--method=linear", "--valid", data, "--json").stdout
    assert json.loads(with_valid)["P@1"] == pytest.approx(
        json.loads(run("evaluate", tmp_path / "l", data, "--json").stdout)["P@1"]
    )
