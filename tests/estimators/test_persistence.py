"""Model folders of every method: what loads answers with the same bits, and what is damaged is refused in one line."""

import json
import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest
import torch
from method_cases import CASES, ENSEMBLES, MIXES, N_FEATURES, N_LABELS, SINGLE, TEST, TRAIN, WORDS, fitted, gp, mlgpf

import labelfield
from labelfield import DataError
from labelfield.data import Names
from labelfield.models import artifact
from labelfield.models.artifact import ModelError

X, Y = TEST.X[:10], TEST.Y[:10]
every = pytest.mark.parametrize("name", CASES)
NAN = float("nan")


def same_answers(a, b, name):
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    np.testing.assert_array_equal(a.predict_proba(X, calibrated=False), b.predict_proba(X, calibrated=False))
    np.testing.assert_array_equal(a.predict_topk(X, 3).toarray(), b.predict_topk(X, 3).toarray())
    np.testing.assert_array_equal(a.predict_uncertainty(X), b.predict_uncertainty(X))
    if CASES[name].has_latent:
        np.testing.assert_array_equal(a.predict_latent(X).f_var, b.predict_latent(X).f_var)
    if a.evidence_ is not None:
        np.testing.assert_array_equal(a.predict_interval(X), b.predict_interval(X))


class TestRoundTrips:
    @every
    def test_a_loaded_model_answers_with_the_same_bits(self, name, tmp_path):
        model = fitted(name)
        model.save(tmp_path / "m")
        files = sorted(file.name for file in (tmp_path / "m").iterdir())
        assert files == ["arrays.safetensors", "config.json", "labels.txt"]
        again = labelfield.load(tmp_path / "m", device="cpu")
        assert type(again) is type(model)
        same_answers(again, model, name)
        for what in ("method", "label_kind_", "history_", "n_rows_", "n_iter_", "n_negatives_", "spec_", "trials_"):
            assert getattr(again, what) == getattr(model, what), what
        members = zip(again.members(), model.members(), strict=True)
        assert all(a.settings_ == b.settings_ and a.held_out_scores_ == b.held_out_scores_ for a, b in members)
        for what in ("classes_", "label_counts_", "n_features_in_"):
            np.testing.assert_array_equal(getattr(again, what), getattr(model, what))
        assert again.label_names() == model.label_names()
        assert again.summary() == model.summary()
        assert again.n_parameters() == model.n_parameters()
        found = again.get_params()
        for option, value in model.get_params().items():
            if option != "estimator":
                expected = list(value) if isinstance(value, tuple) else value
                assert found[option] == ("cpu" if option == "device" else expected), option

    @pytest.mark.parametrize("name", SINGLE)
    def test_training_goes_on(self, name, tmp_path):
        fitted(name).save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu").partial_fit(TRAIN.X, CASES[name].labels(TRAIN))
        assert again.n_iter_ == fitted(name).n_iter_ + 1
        assert again.n_rows_ == 640
        assert not np.array_equal(again.predict_proba(X), fitted(name).predict_proba(X))

    def test_a_new_process_answers_with_the_same_bits(self, tmp_path):
        """Neither loading nor training imports torch's compiler, which takes seconds."""
        names = ["mlgpf", "one_vs_each", "svdkl", "topics", "ensemble of mlgpf", "linear", "auto"]
        for number, name in enumerate(names):
            fitted(name).save(tmp_path / f"m{number}", [f"name {i}" for i in range(N_LABELS)])
        labelfield.write(labelfield.Dataset(X, Y), tmp_path / "rows")
        script = (
            "import sys, numpy as np, labelfield\n"
            "data = labelfield.read(sys.argv[1] + '/rows')\n"
            f"for number in range({len(names)}):\n"
            "    model = labelfield.load(f'{sys.argv[1]}/m{number}', device='cpu')\n"
            "    np.save(f'{sys.argv[1]}/{number}.npy', model.predict_proba(data.X))\n"
            "    assert model.label_names()[3] == 'name 3'\n"
            "    if number == 0: model.partial_fit(data.X, data.Y)\n"
            "print('torch._dynamo' in sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", script, tmp_path], check=True, capture_output=True, text=True)
        assert done.stdout == "False\n"
        read = labelfield.read(tmp_path / "rows").X
        for number, name in enumerate(names):
            np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), fitted(name).predict_proba(read))

    @pytest.mark.parametrize(
        "options",
        [
            {"inducing": "subspace", "kernel": "se", "rank": 4},
            {"inducing": "subspace_basis", "kernel": "se"},
            {"posterior": "parsimonious", "kernel": "se_ard + linear"},
            {"posterior": "full", "label_linear": "mean_field"},
            {"inducing": "fixed", "row_transform": "sqrt+tfidf"},
        ],
    )
    def test_every_make_of_mlgpf(self, options, tmp_path):
        model = mlgpf(max_epochs=1, **options).fit(TRAIN.X, TRAIN.Y)
        model.save(tmp_path / "m")
        same_answers(labelfield.load(tmp_path / "m", device="cpu"), model, "mlgpf")

    @pytest.mark.parametrize(
        "options",
        [
            {"negative_sampling": "importance", "n_negatives": 1},
            {"inducing": "per_class", "posterior": "parsimonious", "classes_per_batch": 2},
            {"inducing": "fixed", "kernel_per_class": True, "posterior": "full", "row_transform": "unit"},
        ],
    )
    def test_every_make_of_multi_class_processes(self, options, tmp_path):
        model = gp(max_epochs=1, **options).fit(TRAIN.X, TRAIN.y)
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu")
        same_answers(again, model, "one_vs_each")
        again.partial_fit(TRAIN.X, TRAIN.y)
        assert not np.array_equal(again.predict_proba(X), model.predict_proba(X))

    def test_a_folder_can_be_replaced(self, tmp_path):
        fitted("mlgpf").save(tmp_path / "m")
        fitted("topics").save(tmp_path / "m")
        same_answers(labelfield.load(tmp_path / "m", device="cpu"), fitted("topics"), "topics")

    def test_loading_works_in_inference_mode(self, tmp_path):
        fitted("mlgpf").save(tmp_path / "m")
        with torch.inference_mode():
            again = labelfield.load(tmp_path / "m", device="cpu")
            for _ in range(2):
                np.testing.assert_array_equal(again.predict_topk(X).data, fitted("mlgpf").predict_topk(X).data)

    def test_numpy_numbers_are_numbers(self, tmp_path):
        mlgpf(max_epochs=np.int64(1), n_iter_no_change=np.int64(3), jitter=np.float32(1e-4)).fit(X, Y).save(
            tmp_path / "m"
        )
        assert labelfield.load(tmp_path / "m").settings_.n_iter_no_change == 3


class TestNames:
    def test_awkward_names_of_labels(self, tmp_path):
        names = [f"name\r{i} \u2028é" for i in range(N_LABELS)]
        fitted("mlgpf").save(tmp_path / "m", names)
        assert labelfield.load(tmp_path / "m").label_names() == names
        before = {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()}
        for bad, message in ((["two\nlines", *names[1:]], "label name"), (["\udc80", *names[1:]], "label name")):
            with pytest.raises(DataError, match=message):
                fitted("mlgpf").save(tmp_path / "m", bad)
        with pytest.raises(DataError, match="4 label names; expected 5"):
            fitted("mlgpf").save(tmp_path / "m", names[1:])
        assert {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()} == before

    @pytest.mark.parametrize(
        ("classes", "names"),
        [
            (WORDS, WORDS.tolist()),
            (np.array([3.0, 7.0, 100.0]), ["3", "7", "100"]),
            (np.array([False, True]), ["0", "1"]),
        ],
    )
    def test_names_survive_saving_twice(self, classes, names, tmp_path):
        model = gp(max_epochs=1).fit(X, np.resize(classes, X.shape[0]))
        model.save(tmp_path / "a")
        labelfield.load(tmp_path / "a").save(tmp_path / "b")
        assert (tmp_path / "b" / "labels.txt").read_text().split() == names
        again = labelfield.load(tmp_path / "b")
        assert again.classes_.tolist() == classes.tolist()
        np.testing.assert_array_equal(again.predict(X), model.predict(X))

    @pytest.mark.parametrize("name", ["mlgpf", "svdkl", "ensemble of topics"])
    def test_names_of_features(self, name, tmp_path):
        fitted(name).save(tmp_path / "plain")
        model = labelfield.load(tmp_path / "plain")
        assert model.feature_names() is None
        model.name_features(Names([f"word {d}" for d in range(N_FEATURES)]))
        model.save(tmp_path / "m")
        assert labelfield.load(tmp_path / "m").feature_names() == [f"word {d}" for d in range(N_FEATURES)]
        lines = (tmp_path / "m" / "features.txt").read_bytes()
        for damaged in (b"", lines + b"one more\n", lines.replace(b"word 3", b"word x")):
            (tmp_path / "m" / "features.txt").write_bytes(damaged)
            assert_refused(tmp_path / "m")
        (tmp_path / "m" / "features.txt").unlink()
        assert_refused(tmp_path / "m")
        other = labelfield.load(tmp_path / "plain")
        other.feature_names_in_ = np.array(["two\nlines"] * N_FEATURES, object)  # as scikit-learn sets them
        with pytest.raises(DataError, match="feature name"):
            other.save(tmp_path / "m")


def assert_refused(folder):
    with pytest.raises(ModelError) as caught:
        labelfield.load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


class TestDamagedFiles:
    @pytest.fixture
    def folder(self, tmp_path):
        fitted("mlgpf").save(tmp_path / "m")
        return tmp_path / "m"

    @pytest.mark.parametrize("name", ["config.json", "arrays.safetensors", "labels.txt"])
    def test_files_that_are_missing_cut_or_of_something_else(self, name, folder):
        good = (folder / name).read_bytes()
        for damaged in (b"", good[: len(good) // 2], b"rubbish", b"[" * 100_000):
            (folder / name).write_bytes(damaged)
            assert_refused(folder)
        (folder / name).unlink()
        assert_refused(folder)

    def test_a_bit_that_flipped(self, folder):
        flipped = bytearray((folder / "arrays.safetensors").read_bytes())
        flipped[-3] ^= 64
        (folder / "arrays.safetensors").write_bytes(flipped)
        assert_refused(folder)

    def test_changes_without_the_checksum(self, folder):
        config = json.loads((folder / "config.json").read_text())
        for change in ({"n_rows": 5}, {"spec": config["spec"] | {"kernel": "se_ard"}}):
            (folder / "config.json").write_text(json.dumps(config | change))
            assert_refused(folder)

    def test_no_folder(self, tmp_path):
        with pytest.raises(ModelError, match="no such model folder"):
            labelfield.load(tmp_path / "nowhere")

    @pytest.mark.parametrize("change", [{"version": True}, {"version": 99}, {"format": "other"}])
    def test_other_formats(self, change, folder):
        config = json.loads((folder / "config.json").read_text()) | change
        config["sha256"]["config.json"] = artifact._digest_of_config(config)
        (folder / "config.json").write_text(json.dumps(config))
        assert_refused(folder)


# What someone who also mends the checksums may change in the description of any model.
EVERYWHERE = [
    {"method": []},
    {"method": "unknown"},
    {"method": None},
    {"label_kind": "guess"},
    {"label_kind": "lists", "classes": None},
    {"label_kind": "lists", "classes": [[]] * N_LABELS},
    {"history": [{}]},
    {"history": 3},
    {"history": [{"epoch": "x", "bound": 1, "learning_rate": 1, "seconds": 1}]},
    {"row_transform": "cube"},
    {"row_transform": 5},
    {"n_rows": -1},
    {"n_rows": True},
    {"n_features": 3},
    {"n_negatives": -1},
    {"held_out_scores": {"alone": ["good"]}},
    {"feature_names_sha256": 5},
    {"settings.batch_size": 0},
    {"settings.no_such": 1},
    {"spec": {}},
    {"spec.n_labels": 4},
    {"spec.no_such": 1},
    {"options": {"no_such": 1}},
    {"options.threshold": "high"},
    {"options.calibrate": "yes"},
]
# The same in those of a method.
OF_METHODS = {
    "mlgpf": [
        {"spec.n_points": 0},
        {"spec.n_latent": 3 + 1},
        {"spec.n_latent": 10**13},
        {"spec.jitter": "much"},
        {"spec.kernel": "se"},
        {"spec.kernel": "__import__('os')"},
        {"spec.label_linear": "point"},
        {"spec.n_support": 1},
        {"spec.rank": -1},
        {"method": "one_vs_each"},
        {"method": "topics"},
        {"method": "ensemble"},
        {"options.posterior": "best"},
    ],
    "mlgpf, label linear": [{"spec.n_label_linear": 3}, {"spec.label_linear": "off"}],
    "one_vs_each": [
        {"method": "mlgpf"},
        {"method": "softmax"},
        {"label_kind": "indicator"},
        {"classes": [1, 2]},
        {"classes": [[0], [1], [2], [3], [4]]},
        {"options.likelihood": "bernoulli"},
        {"options.likelihood": "softmax"},
        {"spec.likelihood": "robustmax"},
        {"spec.likelihood": "bernoulli"},
        {"spec.posterior": "point"},
        {"spec.inducing": "nowhere"},
        {"spec.negative_sampling": "best"},
        {"spec.n_labels": 1},
        {"spec.n_inducing": 10**13},
        {"spec.n_samples": 0},
        {"spec.n_points": 500},
        {"spec.epsilon": NAN},
        {"spec.prior_scale": 0},
        {"spec.n_support": 1},
        {"spec.kernel": "__import__('os')"},
    ],
    "svdkl": [
        {"spec.grid_size": 10**9},
        {"spec.likelihood": "bernoulli"},
        {"spec.network": None},
        {"spec.network": 5},
        {"spec.network_class": "os.system"},
        {"spec.subsets": []},
        {"label_kind": "indicator"},
    ],
    "linear": [
        {"spec.cost": -1.0},
        {"spec.n_weights": 3},
        {"spec.n_weights": 10**13},
        {"spec.n_features": 11},
        {"method": "mlgpf"},
        {"method": "auto"},
        {"options.cost": "much"},
        {"trials": 3},
        {"trials": [3]},
        {"trials": [{"score": None}]},
    ],
    "topics": [{"spec.n_topics": 10**12}, {"spec.n_draws": 7}, {"spec.n_placed": 2}, {"options.algorithm": "magic"}],
}
OF_ENSEMBLES = [
    {"members": []},
    {"members": 3},
    {"members": [{}]},
    {"members": [{}] * 9},
    {"n_members": 1},
    {"n_members": "many"},
    {"n_members": None},
    {"options": {"no_such": 1}},
    {"options": None},
    {"options.calibrate": "yes"},
    {"feature_names_sha256": 5},
]
OF_MIXES = [
    {"members": []},
    {"members": 3},
    {"members": [{}]},
    {"members": [{}] * 9},
    {"method": "linear"},
    {"method": "ensemble"},
    {"method": None},
    {"options": {"no_such": 1}},
    {"options": None},
    {"options.quality": "perfect"},
    {"options.threshold": 3},
    {"history": [{}]},
    {"history": None},
    {"trials": [[]]},
    {"trials": None},
    {"feature_names_sha256": 5},
]
# Numbers by the arrays that hold them: not finite, of another shape or type, or where only positive ones make sense.
ARRAYS = {
    "mlgpf": ["b", "Phi", "family.mean"],
    "mlgpf, label linear": ["label_linear.weights"],
    "one_vs_each": ["b", "utilities.family.mean", "calibration.power"],
    "svdkl": ["b", "A", "calibration.power"],
    "topics": ["V", "W", "r"],
    "linear": ["weights", "stack.slopes", "stack.places"],
    "auto": ["member.0.weights", "member.0.stack.offsets", "member.1.b"],
    "ensemble of one_vs_each": ["member.1.b", "member.0.calibration.power"],
}
POSITIVE = {
    "mlgpf": ["calibration.slopes"],
    "one_vs_each": ["calibration.power", "rows.weights"],
    "svdkl": ["calibration.power", "rows.weights"],
    "topics": ["calibration.slopes", "V", "r"],
    "linear": ["calibration.slopes", "stack.slopes"],
    "auto": ["calibration.slopes", "stack.slopes", "member.0.stack.slopes"],
    "ensemble of mlgpf": ["calibration.slopes"],
    "ensemble of svdkl": ["calibration.power"],
}


class TestDamagedModels:
    """By someone who also mends the checksums."""

    def save(self, name, folder):
        fitted(name).save(folder)
        return artifact.load_artifact(folder)

    def damage(self, name, saved, config=None, arrays=None):
        changed = {**saved[0]}
        for place, value in (config or {}).items():
            part, _, key = place.partition(".")
            changed[part] = {**changed[part], key: value} if key else value
        fake = changed, saved[1] | (arrays or {}), saved[2]
        with (
            patch("labelfield.estimators.persistence.load_artifact", lambda path: fake),
            patch("labelfield.estimators.persistence.load_lines", lambda path, config, name: None),
        ):
            try:
                labelfield.load("model")
            except ModelError as error:
                message = str(error)
            else:
                pytest.fail(f"{name}: {config or list(arrays)} was not refused")
        assert message.startswith("model: ")
        assert "\n" not in message

    @pytest.mark.parametrize("name", [*OF_METHODS])
    def test_descriptions(self, name, tmp_path):
        saved = self.save(name, tmp_path)
        is_multi_class = "threshold" not in fitted(name).get_params()
        for change in EVERYWHERE + OF_METHODS[name]:
            if not (is_multi_class and "options.threshold" in change):
                self.damage(name, saved, config=change)
        assert labelfield.load(tmp_path)

    @pytest.mark.parametrize("name", ENSEMBLES)
    def test_descriptions_of_ensembles(self, name, tmp_path):
        saved = self.save(name, tmp_path)
        for change in OF_ENSEMBLES:
            self.damage(name, saved, config=change)
        if CASES[name].has_classes:
            self.damage(name, saved, config={"classes": ["ant", "bee"]})
        members = saved[0]["members"]
        of_other = members[1] | {"method": "softmax" if "topics" in name else "topics"}
        wider = members[1] | {"n_features": 13}
        for changed in ([members[0]], [*members, members[0]], [members[0], of_other], [members[0], wider]):
            self.damage(name, saved, config={"members": changed})

    @pytest.mark.parametrize("name", MIXES)
    def test_descriptions_of_mixes(self, name, tmp_path):
        saved = self.save(name, tmp_path)
        for change in OF_MIXES:
            self.damage(name, saved, config=change)
        first, *others = saved[0]["members"]
        mix = {part: value for part, value in saved[0].items() if part != "members"}
        wrong = [[first | {"method": "topics"}, *others], [first | {"n_features": 13}, *others], [mix, *others]]
        for changed in (*wrong, [*others], [first, *others, first], [*others, first]):
            if changed != [first]:
                self.damage(name, saved, config={"members": changed})

    @pytest.mark.parametrize("name", ARRAYS)
    def test_numbers(self, name, tmp_path):
        found = (saved := self.save(name, tmp_path))[1]
        for array in ARRAYS[name]:
            values = found[array]
            for damaged in (values * NAN, values[:0], values.double(), values.unsqueeze(0)):
                self.damage(name, saved, arrays={array: damaged})
        some = next(iter(found.values()))
        self.damage(name, saved, arrays={"surplus": some})

    @pytest.mark.parametrize("name", POSITIVE)
    def test_numbers_that_must_be_positive(self, name, tmp_path):
        found = (saved := self.save(name, tmp_path))[1]
        prefix = "member.0." if name in ENSEMBLES | MIXES else ""
        for array in [*POSITIVE[name], f"{prefix}training.label_counts"]:
            for damaged in (-found[array] - 1, found[array] * NAN):
                self.damage(name, saved, arrays={array: damaged})

    def test_calibrations_that_would_change_the_ranking(self, tmp_path):
        saved = self.save("mlgpf", tmp_path)
        self.damage("mlgpf", saved, arrays={"calibration.offsets": torch.arange(6.0)})

    def test_patterns_that_point_outside(self, tmp_path):
        for name, prefix in (("mlgpf, label linear", "label_linear."), ("linear", ""), ("auto", "member.0.")):
            found = (saved := self.save(name, tmp_path))[1]
            for array in (f"{prefix}pointers", f"{prefix}features"):
                for damaged in (found[array] + 10**6, found[array] - 10**6, found[array].flip(0) + 1):
                    self.damage(name, saved, arrays={array: damaged})
