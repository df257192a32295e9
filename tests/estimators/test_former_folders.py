"""Model folders of layouts 4 to 7, one of each kind: they load, answer as before, and are saved in the present one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labelfield
from labelfield import DeepKernelClassifier, EnsembleClassifier, GPClassifier, MLGPFClassifier, TopicClassifier
from labelfield.models import artifact
from labelfield.models.artifact import ModelError

FOLDERS = Path(__file__).parent / "folders-4"
KINDS = {
    "mlgpf": MLGPFClassifier,
    "mlgpf-subspace": MLGPFClassifier,
    "mlgpf-ensemble": EnsembleClassifier,
    "one_vs_each": GPClassifier,
    "robustmax": GPClassifier,
    "softmax-point": GPClassifier,
    "svdkl": DeepKernelClassifier,
    "svdkl-labels": DeepKernelClassifier,
    "topics": TopicClassifier,
    "topics-gibbs": TopicClassifier,
}
every = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def rows():
    with np.load(FOLDERS / "rows.npz") as file:
        return file["X"]


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDERS / "expected.npz") as file:
        return dict(file)


def assert_as_expected(model, kind, rows, expected):
    np.testing.assert_allclose(model.predict_proba(rows), expected[f"{kind}/proba"], rtol=5e-6)
    top = model.predict_topk(rows, 3).toarray()
    np.testing.assert_array_equal(top > 0, expected[f"{kind}/top"] > 0)
    np.testing.assert_allclose(top, expected[f"{kind}/top"], rtol=5e-6)
    np.testing.assert_allclose(model.predict_uncertainty(rows), 1 - top.max(1), atol=1e-6)


def test_every_folder_is_looked_at():
    assert {path.name for path in FOLDERS.iterdir() if path.is_dir()} == set(KINDS)
    assert sum(file.stat().st_size for file in FOLDERS.rglob("*")) < 300_000


@every
def test_it_answers_as_it_did(kind, rows, expected):
    model = labelfield.load(FOLDERS / kind, device="cpu")
    assert isinstance(model, KINDS[kind])
    assert_as_expected(model, kind, rows, expected)


@every
def test_saved_again_it_is_of_the_present_version(kind, rows, tmp_path):
    assert json.loads((FOLDERS / kind / "config.json").read_text())["version"] == 4
    model = labelfield.load(FOLDERS / kind, device="cpu")
    model.save(tmp_path / "m")
    assert json.loads((tmp_path / "m" / "config.json").read_text())["version"] == 7
    again = labelfield.load(tmp_path / "m", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    assert again.label_names() == model.label_names()
    assert again.classes_.tolist() == model.classes_.tolist()
    assert again.history_ == model.history_
    assert_same_options(again, model)


def assert_same_options(a, b):
    assert type(a) is type(b)
    for name, value in a.get_params().items():
        if name != "estimator":
            assert b.get_params()[name] == value, name


@every
def test_training_goes_on(kind, rows):
    model = labelfield.load(FOLDERS / kind, device="cpu")
    model = model.members()[-1]
    y = np.resize(model.classes_, len(rows))
    before = model.predict_proba(rows)
    model.partial_fit(rows, y if model.label_kind_ == "classes" else [[label] for label in y.tolist()])
    assert not np.array_equal(model.predict_proba(rows), before)


def test_options_have_their_present_names():
    found = {kind: labelfield.load(FOLDERS / kind, device="cpu") for kind in KINDS}
    assert found["mlgpf"].label_linear == found["mlgpf"].spec_.label_linear == "point"
    assert found["mlgpf"].model_.label_linear.weights.numel() == found["mlgpf"].spec_.n_label_linear > 0
    assert found["robustmax"].kernel_per_class is found["robustmax"].spec_.kernel_per_class is True
    assert found["svdkl"].spec_.kernel_per_process is True
    ensemble = found["mlgpf-ensemble"]
    assert ensemble.n_members == len(ensemble.members()) == 2
    assert not ensemble.model_.calibration.is_identity()
    assert all(len(member.held_out_scores_["together"]) == 3 for member in ensemble.members())


def changed(kind, tmp_path, change):
    """A copy of a folder whose description someone changed, checksum and all."""
    shutil.copytree(FOLDERS / kind, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    change(config)
    config["sha256"]["config.json"] = artifact._digest_of_config(config)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    return tmp_path / "m"


def assert_refused(folder, message=None):
    with pytest.raises(ModelError, match=message) as caught:
        labelfield.load(folder)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["svdkl", "svdkl-labels"])
def test_a_kernel_that_is_gone_is_refused(kind, tmp_path):
    def change(config):
        config["spec"]["kernel"] = config["options"]["kernel"] = "spectral_mixture"

    assert_refused(
        changed(kind, tmp_path, change), "the kernel spectral_mixture no longer exists. Train the model again"
    )


@pytest.mark.parametrize("version", [1, 3, 8, "4", None, True])
def test_other_versions_are_refused(version, tmp_path):
    folder = changed("mlgpf", tmp_path, lambda config: config.update(version=version))
    fix = "pip install --upgrade labelfield" if version == 8 else "Train it again"
    assert_refused(folder, rf"a model of version .*; this labelfield \(.*\) reads versions 4 to 7\. .*{fix}")


def test_a_newer_folder_says_who_made_it_and_what_to_do(tmp_path):
    folder = changed("mlgpf", tmp_path, lambda config: config.update(version=8, labelfield="9.1"))
    done = subprocess.run(
        [sys.executable, "-m", "labelfield", "show", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "a model of version 8, made by labelfield 9.1; this labelfield" in done.stderr
    assert done.stderr.strip().endswith("Install a newer one: pip install --upgrade labelfield")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"members": "two"},
        {"members": [{}]},
        {"members": None},
        {"options": {}},
        {"options": None},
        {"spec": None},
        {"settings": {"patience": "long"}},
        {"classes": 7, "label_kind": "classes"},
        {"method": ["mlgpf"]},
        {"method": "ensemble"},
    ],
)
def test_damaged_descriptions_are_refused(change, tmp_path):
    assert_refused(changed("mlgpf-ensemble", tmp_path, lambda config: config.update(change)))


@pytest.mark.parametrize("name", ["method", "options", "spec", "classes", "feature_names_sha256", "version"])
def test_incomplete_descriptions_are_refused(name, tmp_path):
    assert_refused(changed("topics", tmp_path, lambda config: config.pop(name)))


MACHINES = Path(__file__).parent / "folders-5"


@pytest.mark.parametrize("kind", ["linear", "linear-ensemble", "auto"])
def test_machines_without_intercepts_answer_as_they_did(kind, tmp_path):
    with np.load(MACHINES / "rows.npz") as file:
        rows = file["X"]
    with np.load(MACHINES / "expected.npz") as file:
        expected = dict(file)
    assert json.loads((MACHINES / kind / "config.json").read_text())["version"] == 5
    model = labelfield.load(MACHINES / kind, device="cpu")
    assert_as_expected(model, kind, rows, expected)
    model.save(tmp_path / "m")
    assert_as_expected(labelfield.load(tmp_path / "m", device="cpu"), kind, rows, expected)


LATER = Path(__file__).parent / "folders-6"


@pytest.mark.parametrize("kind", ["mlgpf", "one_vs_each", "topics", "linear", "auto", "text"])
def test_folders_without_evidence_answer_as_they_did(kind, tmp_path):
    with np.load(LATER / "rows.npz") as file:
        rows = file["X"]
    with np.load(LATER / "expected.npz") as file:
        expected = dict(file)
    assert json.loads((LATER / kind / "config.json").read_text())["version"] == 6
    model = labelfield.load(LATER / kind, device="cpu")
    model.save(tmp_path / "m")
    for one in (model, labelfield.load(tmp_path / "m", device="cpu")):
        if kind == "text":
            documents = one.text_.rows(["cats and tea", "sleep", ""])
            np.testing.assert_allclose(one.predict_proba(documents), expected["text/proba"], rtol=5e-6)
        else:
            assert_as_expected(one, kind, rows, expected)


PRESENT = Path(__file__).parent / "folders-7"


@pytest.mark.parametrize("kind", ["mlgpf", "one_vs_each", "topics", "linear", "auto", "svdkl", "ensemble", "text"])
def test_folders_of_the_present_layout_answer_as_they_did(kind):
    """They stay when the layout changes; until then they show that what others saved is still read."""
    with np.load(PRESENT / "rows.npz") as file:
        rows = file["X"]
    with np.load(PRESENT / "expected.npz") as file:
        expected = dict(file)
    assert json.loads((PRESENT / kind / "config.json").read_text())["version"] == 7
    model = labelfield.load(PRESENT / kind, device="cpu")
    if kind == "text":
        texts = ["cats and tea", "sleep", ""]
        np.testing.assert_allclose(model.predict_proba(texts), expected["text/proba"], rtol=5e-6)
    else:
        assert_as_expected(model, kind, rows, expected)
    if kind == "linear":
        assert model.fitted_.evidence.n_rows > 0


def test_every_layout_that_is_read_has_folders():
    found = {int(path.name.partition("-")[2]) for path in Path(__file__).parent.glob("folders-*")}
    assert found == set(artifact._READABLE)
