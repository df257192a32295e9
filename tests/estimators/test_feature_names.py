"""The names of features in the folder of a model."""

import hashlib
import json

import numpy as np
import pytest

import labelfield
from labelfield import MLGPFClassifier, synth
from labelfield.data import Names
from labelfield.errors import DataError
from labelfield.models.artifact import ModelError

NAMES = [f"word {d}" for d in range(57)] + ["", "naïve", "\ufeffmarked"]


DATA = synth.make_multilabel(80, 60, 14, seed=4)


@pytest.fixture
def fitted():
    return MLGPFClassifier(n_latent=2, n_inducing=4, max_epochs=1, device="cpu").fit(DATA.X, DATA.Y)


def rewritten(folder, content):
    """Write other names, with the checksum that they should have."""
    (folder / "features.txt").write_bytes(content)
    config = json.loads((folder / "config.json").read_text())
    config["sha256"]["features.txt"] = hashlib.sha256(content).hexdigest()
    (folder / "config.json").write_text(json.dumps(config))


def test_they_survive(fitted, tmp_path):
    fitted.name_features(Names(NAMES))
    fitted.save(tmp_path / "m")
    loaded = labelfield.load(tmp_path / "m")
    assert loaded.feature_names() == NAMES
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "features.txt").read_bytes() == (tmp_path / "m" / "features.txt").read_bytes()
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == json.loads(
        (tmp_path / "m" / "config.json").read_text()
    )


def test_those_of_a_table(fitted, tmp_path):
    fitted.feature_names_in_ = np.array([f"column {d}" for d in range(60)], object)  # as scikit-learn sets them
    fitted.save(tmp_path / "m")
    assert labelfield.load(tmp_path / "m").feature_names()[59] == "column 59"


def test_without(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    assert not (tmp_path / "m" / "features.txt").exists()
    assert labelfield.load(tmp_path / "m").feature_names() is None


def test_another_fit_forgets_them(fitted):
    fitted.name_features(Names(NAMES))
    fitted.fit(DATA.X, DATA.Y)
    assert fitted.feature_names() is None


def test_a_name_must_be_one_line(fitted, tmp_path):
    for wrong in ("two\nlines", "half a pair \ud800"):
        fitted.feature_names_in_ = np.array([wrong, *NAMES[1:]], object)  # the columns of a table
        with pytest.raises(DataError, match=r"the feature name .* expected a line of text"):
            fitted.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("".join(f"{name}\n" for name in NAMES[:-1]), "59 feature names for 60 features"),
        ("".join(f"{name}\n" for name in [*NAMES, "more"]), "61 feature names for 60 features"),
        ("".join(f"{name}\n" for name in NAMES[::-1]), "not those of the training rows"),
        ("".join(f"{name}\n" for name in NAMES)[:-1], "59 feature names for 60 features"),
        ("", "0 feature names for 60 features"),
    ],
)
def test_a_damaged_list_is_refused(content, word, fitted, tmp_path):
    fitted.name_features(Names(NAMES))
    fitted.save(tmp_path / "m")
    rewritten(tmp_path / "m", content.encode())
    with pytest.raises(ModelError, match=word):
        labelfield.load(tmp_path / "m")


def test_a_list_that_was_changed_or_lost(fitted, tmp_path):
    fitted.name_features(Names(NAMES))
    fitted.save(tmp_path / "m")
    path = tmp_path / "m" / "features.txt"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"word 3\n", b"word X\n"))
    with pytest.raises(ModelError, match=r"features.txt: changed since it was saved"):
        labelfield.load(tmp_path / "m")
    path.unlink()
    with pytest.raises(ModelError, match=r"features.txt: missing"):
        labelfield.load(tmp_path / "m")
    rewritten(tmp_path / "m", b"\xff\xfe")
    with pytest.raises(ModelError, match=r"features.txt: .*decode"):
        labelfield.load(tmp_path / "m")
