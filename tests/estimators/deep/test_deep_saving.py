"""Deep kernel models go to a folder and come back; damaged ones are refused."""

import resource
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from deep_cases import ALONE, WORDS, Linear, small, tiny
from scipy import sparse

import labelfield
from labelfield.models import artifact
from labelfield.models.artifact import ModelError


# Models to be saved: what they are, the rows they are fitted to and asked about.
def make_models(rings, data):
    bars = np.random.default_rng(0).standard_normal((90, 64)).astype(np.float32)
    lists = [[f"label {label}" for label in data.Y[[row]].indices] for row in range(data.n_rows)]
    y = WORDS[rings.Y.indices]
    return {
        "mlp": (small(network_epochs=3).fit(rings.X, y), rings.test.X),
        "mlp alone": (small(network_epochs=3, **ALONE).fit(rings.X, y), rings.test.X),
        "bag": (tiny(network="bag", max_epochs=3, row_transform="unit").fit(data.X, lists), data.test.X),
        "bag without baseline": (
            tiny(network="bag", keep_baseline=False, row_transform="unit").fit(data.X, data.Y),
            data.test.X,
        ),
        "bag alone": (
            tiny(network="bag", network_epochs=3, row_transform="unit", **ALONE).fit(data.X, data.Y),
            data.test.X,
        ),
        "cnn": (tiny(network="cnn", channels=(2, 3)).fit(bars, WORDS[np.arange(90) % 3]), sparse.csr_array(bars)),
    }


@pytest.fixture(scope="module")
def models(rings, data):
    return make_models(rings, data)


class TestSaving:
    @pytest.mark.parametrize("name", ["mlp", "mlp alone", "bag", "bag without baseline", "bag alone", "cnn"])
    def test_a_saved_model_predicts_the_same(self, name, models, tmp_path):
        model, X = models[name]
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu")
        asked = ["predict_proba", "predict_uncertainty", "transform", "decision_function"]
        for ask in asked + ["baseline_proba"] * model.spec_.has_baseline:
            np.testing.assert_array_equal(getattr(again, ask)(X), getattr(model, ask)(X), err_msg=ask)
        assert again.spec_ == model.spec_
        assert again.classes_.tolist() == model.classes_.tolist()
        assert again.history_ == model.history_
        if name in ("mlp", "mlp alone", "bag"):
            assert model.settings_.held_out > 0
            assert not np.array_equal(again.predict_proba(X), again.predict_proba(X, calibrated=False))
        if model.label_kind_ == "classes":
            assert again.predict(X).tolist() == model.predict(X).tolist()
            assert set(again.predict(X)) <= set(WORDS)

    @pytest.mark.slow  # MLGPF's, by the same code, is among the fast ones
    def test_in_a_new_process(self, models, tmp_path):
        script = """
import sys, labelfield, numpy as np
from scipy import sparse
from pathlib import Path
for folder in sorted(Path(sys.argv[1]).iterdir()):
    model, X = labelfield.load(folder / "m", device="cpu"), sparse.load_npz(folder / "X.npz")
    plain = model.baseline_proba(X) if model.spec_.has_baseline else []
    np.savez(folder / "found.npz", P=model.predict_proba(X), plain=plain)
"""
        for name, (model, X) in models.items():
            model.save(tmp_path / name / "m")
            sparse.save_npz(tmp_path / name / "X.npz", sparse.csr_array(X))
        subprocess.run([sys.executable, "-c", script, tmp_path], check=True, timeout=60)
        for name, (model, X) in models.items():
            found = np.load(tmp_path / name / "found.npz")
            np.testing.assert_array_equal(found["P"], model.predict_proba(X), err_msg=name)
            if model.spec_.has_baseline:
                np.testing.assert_array_equal(found["plain"], model.baseline_proba(X), err_msg=name)

    def test_a_loaded_model_goes_on(self, models, rings, tmp_path):
        model, X = models["mlp"]
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu").partial_fit(rings.X, WORDS[rings.Y.indices])
        assert again.n_iter_ == model.n_iter_ + 1
        assert not np.array_equal(again.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(again.baseline_proba(X), model.baseline_proba(X))

    @pytest.mark.parametrize("form", ["indicators", "sparse indicators", "lists"])
    def test_one_class_per_row_in_other_forms(self, form, few, tmp_path):
        y = few.Y.indices
        forms = {"indicators": np.eye(3, dtype=int)[y], "sparse indicators": few.Y, "lists": [[int(i)] for i in y]}
        Y = forms[form]
        model, other = tiny(likelihood="softmax").fit(few.X, Y), tiny().fit(few.X, y)
        model.save(tmp_path / "m")
        for found in (model, labelfield.load(tmp_path / "m", device="cpu")):
            np.testing.assert_array_equal(found.predict(few.X), other.predict(few.X))
            np.testing.assert_array_equal(found.predict_proba(few.X), other.predict_proba(few.X))
            assert found.score(few.X, Y) == other.score(few.X, y)
            assert found.bound(few.X, Y) == other.bound(few.X, y)


class TestDamagedModels:
    """By someone who also mends the checksums."""

    @pytest.fixture(scope="class")
    @classmethod
    def saved(cls, few, tmp_path_factory):
        folder = tmp_path_factory.mktemp("damaged") / "m"
        tiny().fit(few.X, few.Y.indices).save(folder)
        return artifact.load_artifact(folder)

    def damage(self, saved, config=None, arrays=None, network=None):
        changed = saved[0] | (config or {}), saved[1] | (arrays or {}), saved[2]
        with (
            patch("labelfield.estimators.persistence.load_artifact", lambda path: changed),
            pytest.raises(ModelError) as caught,
        ):
            labelfield.load("model", network=network)
        message = str(caught.value)
        assert message.startswith("model: ")
        assert "\n" not in message
        return message

    @pytest.fixture
    def little_memory(self):
        """A gigabyte more than there is."""
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)

    def test_impossible_sizes(self, saved, little_memory):
        spec = saved[0]["spec"]
        started = time.perf_counter()
        for change in (
            {"grid_size": 10**9},
            {"grid_size": 50_000},  # which a model could have
            {"n_labels": 10**12},
            {"n_outputs": 10**9},
            {"n_features": 10**9},
            {"subsets": [[0]] * 100_000},
            {"subsets": [[0, 1, 2]] * 3, "grid_size": 1300},
            {"n_samples": 10**11},
            {"n_samples_predict": 10**11},  # which would be felt in prediction
            *(
                {"network": spec["network"] | network}
                for network in (
                    {"hidden": [65_536, 60_000]},
                    {"hidden": [65_536] * 64},
                    {"hidden": [10**12]},
                    {"n_features": 10**9},
                    {"n_outputs": 65_536},
                    {"name": "bag", "hidden": [65_536, 60_000]},
                    {"name": "cnn", "image_shape": [1, 1, 2], "channels": []},
                    {"name": "cnn", "image_shape": [2, 1, 1], "channels": [65_536, 40_000]},
                )
            ),
        ):
            message = self.damage(saved, config={"spec": spec | change})
            assert "alloc" not in message
            assert "memory" not in message
        assert time.perf_counter() - started < 2

    def test_descriptions(self, saved):
        config = saved[0]
        spec, options = config["spec"], config["options"]
        for change in (
            {"method": "softmax"},
            {"method": "mlgpf"},
            {"label_kind": "indicator"},
            {"label_kind": "lists"},
            {"classes": [1, 2]},
            {"n_features": 3},
            {"row_transform": "cube"},
            {"spec": None},
            {"options": None},
            {"options": options | {"kernel": "cubic"}},
            {"options": options | {"nonsense": 1}},
            *(
                {"spec": {name: value for name, value in spec.items() if name != missing}}
                for missing in ("network", "network_class", "subsets", "grid_size")
            ),
            *(
                {"spec": spec | changed}
                for changed in (
                    {"network": None},
                    {"network": "mlp"},
                    {"network": {"name": "mlp"}},
                    {"network": spec["network"] | {"name": "rnn"}},
                    {"network": spec["network"] | {"dropout": 1}},
                    {"network": spec["network"] | {"code": "__import__('os')"}},
                    {"network_class": "os.system"},
                    {"network": None, "network_class": "os.system"},
                    {"network_class": 3},
                    {"likelihood": "bernoulli"},
                    {"likelihood": "robustmax"},
                    {"kernel": "spectral_mixture"},
                    {"kernel": "__import__('os')"},
                    {"posterior": "best"},
                    {"moments": "all"},
                    {"kernel_per_process": False},
                    {"kernel_per_process": 1},
                    {"has_baseline": False},
                    {"is_plain": "no"},
                    {"subsets": [[0], [1]]},
                    {"subsets": [[0], [1], [3]]},
                    {"subsets": []},
                    {"n_samples": 0},
                    {"n_points": 500},
                    {"n_labels": 4},
                    {"jitter": float("nan")},
                    {"nonsense": 1},
                )
            ),
        ):
            self.damage(saved, config=change)

    def test_numbers(self, saved):
        arrays = saved[1]
        for name in (
            "A",
            "b",
            "baseline.b",
            "calibration.power",
            "features.network.last.W",
            "processes.log_variance",
            "processes.family.mean",
            "processes.grid.centre",
        ):
            self.damage(saved, arrays={name: arrays[name] * float("nan")})
            self.damage(saved, arrays={name: arrays[name][:0]})
            self.damage(saved, arrays={name: arrays[name].double()})
        for name in ("calibration.power", "baseline.calibration.power", "processes.grid.scale", "rows.weights"):
            self.damage(saved, arrays={name: -arrays[name]})
        self.damage(saved, arrays={"surplus": arrays["b"]})
        for name in ("processes.family.factor", "processes.log_variance"):  # with which nothing is finite
            self.damage(saved, arrays={name: arrays[name] * 0 + 1e30})

    def test_weights_of_a_network_of_the_users_own(self, few, tmp_path):
        tiny(network=Linear()).fit(few.X, few.Y.indices).save(tmp_path / "m")
        saved, name = artifact.load_artifact(tmp_path / "m"), "features.network.layer.weight"
        for change in (lambda a: a.double(), lambda a: a.half(), lambda a: a * float("nan")):
            self.damage(saved, arrays={name: change(saved[1][name])}, network=Linear())
