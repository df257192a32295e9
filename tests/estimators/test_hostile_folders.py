"""Model folders and checkpoints that are no folders of files, and saves that fail: found by `python -m torture`."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import labelfield
from labelfield import CannotAnswerError, DataError, atomic
from labelfield.models import artifact
from labelfield.models.artifact import ModelError
from labelfield.models.mlgpf.spec import Spec
from labelfield.models.multiclass.spec import ClassSpec

FOLDER = Path(__file__).parent / "folders-4" / "mlgpf"
NO_FILES = {"device": lambda path: path.symlink_to("/dev/zero"), "pipe": os.mkfifo, "folder": lambda path: path.mkdir()}


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("name", ["config.json", "arrays.safetensors", "labels.txt"])
def test_what_is_no_file_is_refused(what, name, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    NO_FILES[what](tmp_path / "m" / name)
    with pytest.raises(ModelError, match=f"{name}: missing, or not a file"):
        labelfield.load(tmp_path / "m")


def test_a_message_is_short_whatever_the_folder_says(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["method"] = "x" * 5000
    config["sha256"]["config.json"] = artifact._digest_of_config(config)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"unknown method 'xxx.*…") as caught:
        labelfield.load(tmp_path / "m")
    assert len(str(caught.value)) <= 600


@pytest.mark.parametrize("what", NO_FILES)
def test_a_checkpoint_that_is_no_file(what, tmp_path):
    model = labelfield.MLGPFClassifier(n_latent=1, n_inducing=2, max_epochs=1)
    NO_FILES[what](tmp_path / "c.safetensors")
    with pytest.raises(DataError, match="there is no checkpoint"):
        model.fit(np.eye(4), np.eye(4), checkpoint=tmp_path / "c.safetensors", resume=True)


def test_a_checkpoint_that_is_a_link_to_itself(tmp_path):
    (tmp_path / "c.safetensors").symlink_to("c.safetensors")
    model = labelfield.MLGPFClassifier(n_latent=1, n_inducing=2, max_epochs=1)
    with pytest.raises(OSError, match="link"):
        model.fit(np.eye(4), np.eye(4), checkpoint=tmp_path / "c.safetensors")


@pytest.mark.parametrize("name", ["config.json", "arrays.safetensors", "labels.txt"])
def test_a_save_that_fails_at_any_file_leaves_the_old_model(name, tmp_path, monkeypatch):
    shutil.copytree(FOLDER, tmp_path / "m")
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    model = labelfield.load(tmp_path / "m", device="cpu")

    def full(path):
        if path.parent.parent == tmp_path / "m" and name in opened[path]:
            raise OSError(28, "No space left on device", str(path))

    opened = {}
    whole = artifact.replacing_file

    def noted(target):
        context = whole(target)
        enter = context.__enter__

        class Noted:
            def __enter__(self):
                new = enter()
                opened[new] = target.name
                return new

            def __exit__(self, *error):
                return context.__exit__(*error)

        return Noted()

    monkeypatch.setattr(artifact, "replacing_file", noted)
    monkeypatch.setattr(artifact, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        model.save(tmp_path / "m")
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == before


def test_a_full_disk_is_an_error_of_the_file_that_was_asked_for(tmp_path):
    def write():
        with atomic.replacing_file(tmp_path / "a") as new:
            raise OSError(errno.ENOSPC, "No space left on device", str(new))

    with pytest.raises(OSError, match="No space left on device") as caught:
        write()
    assert caught.value.filename == str(tmp_path / "a")


def test_answers_that_are_not_numbers_are_an_error(monkeypatch):
    """Weights that someone changed to the largest number there is, checksums and all, overflow."""
    model = labelfield.load(FOLDER, device="cpu")
    X, nothing = np.ones((2, model.n_features_in_)), np.full((2, 3), np.nan)
    monkeypatch.setattr(type(model.predictor_), "proba", lambda self, *given: nothing)
    monkeypatch.setattr(type(model.predictor_), "top_k", lambda self, *given: sparse.csr_array(nothing))
    for ask in (model.predict_proba, model.predict_topk):
        with pytest.raises(CannotAnswerError, match="probabilities that are not numbers"):
            ask(X)


@pytest.mark.parametrize("name", ["arrays.safetensors", "labels.txt", "features.txt", "vocabulary.jsonl"])
def test_files_without_a_checksum_are_refused(name, tmp_path):
    """A link to a file of this machine would make its lines names of labels, which a server shows to anyone."""
    shutil.copytree(FOLDER, tmp_path / "m")
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0\n" * len((FOLDER / "labels.txt").read_text().splitlines()))
    (tmp_path / "m" / name).unlink(missing_ok=True)
    (tmp_path / "m" / name).symlink_to(secret)
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["sha256"].pop(name, None)
    config["sha256"]["config.json"] = artifact._digest_of_config(config)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=f"{name}: changed since it was saved"):
        labelfield.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("make", "option", "value"),
    [
        (ClassSpec, "jitter", 10**30),
        (ClassSpec, "n_samples", 1 << 31),
        (ClassSpec, "prior_scale", 10**30),
        (Spec, "jitter", 10**30),
        (Spec, "label_linear_scale", 10**30),
    ],
)
def test_numbers_that_would_fail_in_a_prediction_are_refused_before(make, option, value):
    with pytest.raises(ValueError, match=f"{option}={value}; expected"):
        make(4, 3, **{"n_inducing": 4} | ({"n_latent": 2} if make is Spec else {}), **{option: value})
