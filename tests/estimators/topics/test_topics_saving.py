"""Topics go to a folder and come back; damaged folders are refused."""

import pickle
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from topic_cases import ALGORITHMS, N_LABELS, NAMES, assert_same_arrays, tiny

import labelfield
from labelfield.models import artifact
from labelfield.models.artifact import ModelError


class TestSaving:
    @pytest.mark.parametrize("name", [*ALGORITHMS, "classes"])
    def test_a_saved_model_answers_the_same(self, name, models, data, tmp_path):
        model, X = models[name], data.test.X
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu")
        assert_same_arrays(model, again)
        for ask in ("predict_proba", "transform", "decision_function"):
            np.testing.assert_array_equal(getattr(again, ask)(X), getattr(model, ask)(X))
        assert again.topics() == model.topics()
        assert (again.sample(X, 3) != model.sample(X, 3)).nnz == 0
        assert again.get_params() == model.get_params() | {"device": "cpu"}
        assert again.spec_.n_draws == (4 if name == "gibbs" else 1)

    def test_names_of_labels(self, fitted, tmp_path):
        fitted.save(tmp_path / "m", label_names=NAMES)
        named = labelfield.load(tmp_path / "m").topics(2)
        for ours, theirs in zip(named, fitted.topics(2), strict=True):
            assert ours.labels == [(NAMES[int(column)], weight) for column, weight in theirs.labels]

    @pytest.mark.parametrize("name", ["gibbs", "classes"])
    def test_pickle_and_clone(self, name, models, X):
        model = models[name]
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        fresh = clone(model)
        assert fresh.get_params() == model.get_params()
        assert not hasattr(fresh, "model_")

    def test_in_a_pipeline(self, few):
        pipeline = make_pipeline(Normalizer(), tiny()).fit(*few)
        assert pipeline.predict_proba(few[0]).shape == (80, N_LABELS)
        assert pipeline.transform(few[0]).shape == (80, 3)


class TestDamagedModels:
    """By someone who also mends the checksums."""

    @pytest.fixture(scope="class")
    @classmethod
    def saved(cls, few, tmp_path_factory):
        folder = tmp_path_factory.mktemp("damaged") / "m"
        tiny(algorithm="gibbs", n_draws=2).fit(*few).save(folder)
        return artifact.load_artifact(folder)

    def damage(self, saved, config=None, arrays=None):
        changed = saved[0] | (config or {}), saved[1] | (arrays or {}), saved[2]
        with (
            patch("labelfield.estimators.persistence.load_artifact", lambda path: changed),
            pytest.raises(ModelError) as caught,
        ):
            labelfield.load("model")
        assert str(caught.value).startswith("model: ")
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("name", ["V", "rest", "W", "r", "precision", "eta", "share"])
    def test_numbers(self, name, saved):
        array = saved[1][name]
        for changed in (array[:0], array * float("nan"), array.double(), array.unsqueeze(0), array.repeat(2, 1, 1)):
            self.damage(saved, arrays={name: changed})
        if name != "W":
            self.damage(saved, arrays={name: -array})

    def test_labels(self, saved):
        labels, counts = (saved[1][name] for name in ("labels", "training.label_counts"))
        reordered = labels.flip(0), labels - 1 - labels[0], labels + N_LABELS, labels * 0
        for changed in (*reordered, labels.int(), labels[1:]):
            self.damage(saved, arrays={"labels": changed})
        for changed in (-counts - 1, counts[1:], counts.float()):
            self.damage(saved, arrays={"training.label_counts": changed})
        self.damage(saved, arrays={"surplus": labels})

    def test_sizes(self, saved):
        spec = saved[0]["spec"]
        for name in spec:
            for value in (spec[name] + 1, 0, -1, 10**9, 10**18, 2.0, True, None, "3"):
                self.damage(saved, config={"spec": spec | {name: value}})
            if name != "is_exclusive":  # older folders do not say it
                self.damage(saved, config={"spec": {key: value for key, value in spec.items() if key != name}})
        self.damage(saved, config={"spec": spec | {"n_placed": spec["n_labels"] + 1}})

    def test_descriptions(self, saved):
        options = saved[0]["options"]
        for change in ({"algorithm": "magic"}, {"n_topics": 0}, {"threshold": "high"}, {"nonsense": 1}):
            self.damage(saved, config={"options": options | change})
        for change in ({"label_kind": "poem"}, {"n_rows": -1}, {"history": [{"epoch": "a"}]}, {"row_transform": "x"}):
            self.damage(saved, config=change)
        for name in ("spec", "options", "history", "label_kind"):
            self.damage(saved, config={name: None})
