"""A folder from a stranger is loaded in NumPy only if it is sound; others are left to the estimators, which say why."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from labelfield import AutoClassifier, CannotAnswerError, LinearClassifier, TextClassifier
from labelfield.estimators.ensemble import MOST_MEMBERS
from labelfield.light import checks
from labelfield.light.answers import _factor
from labelfield.light.model import load_light
from labelfield.models import artifact, calibration, sparse, stack
from labelfield.models.artifact import ModelError
from labelfield.models.linear.spec import MOST_TREES
from labelfield.synth import make_texts

TEXTS, LABELS = make_texts(340, seed=0)


@pytest.fixture(scope="module")
def mix(tmp_path_factory):
    """A mix of machines, with trees and weights of features, and a factor model."""
    folder = tmp_path_factory.mktemp("light") / "mix"
    TextClassifier(model=AutoClassifier(time_budget=2.0, random_state=0)).fit(TEXTS, LABELS).save(folder)
    return folder


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("light") / "machines"
    model = LinearClassifier(row_transform="tfidf", cost=1.0, n_trees=2)
    TextClassifier(model=model).fit(TEXTS, LABELS).save(folder)
    return folder


def changed(source, target, change):
    """Copy a folder, let `change` work on its config and its arrays, and make all checksums right."""
    shutil.copytree(source, target)
    config, arrays = json.loads((target / "config.json").read_text()), load_file(target / "arrays.safetensors")
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(config, arrays)
    save_file(arrays, target / "arrays.safetensors")
    config["sha256"]["arrays.safetensors"] = artifact._digest_of_file(target / "arrays.safetensors")
    config["sha256"]["config.json"] = artifact._digest_of_config(config)
    (target / "config.json").write_text(json.dumps(config))
    return target


def spec(**values):
    """Change the spec of the last member, or of the only one."""
    return lambda config, arrays: config.get("members", [config])[-1]["spec"].update(values)


def put(name, place, value):
    def change(config, arrays):
        arrays[name][place] = value

    return change


def shorter(name):
    def change(config, arrays):
        arrays[name] = arrays[name][:-1]

    return change


def whole(name):
    def change(config, arrays):
        arrays[name] = arrays[name].astype(np.float64)

    return change


OF_MIXES = {
    "members": lambda config, arrays: config.update(members=[]),
    "labels": spec(n_labels=11),
    "no number of labels": spec(n_labels=True),
    "features": spec(n_features=7),
    "points": spec(n_points=10**9),
    "support": spec(n_support=10**12),
    "other support": spec(n_support=3),
    "norm": spec(unit_norm="yes"),
    "jitter": spec(jitter=-1.0),
    "no jitter": spec(jitter="much"),
    "latent": spec(n_latent=10**13),
    "short b": shorter("member.1.b"),
    "doubles": whole("member.1.Phi"),
    "not finite": put("member.1.Phi", (0, 0), np.inf),
    "calibration": put("calibration.slopes", 0, -1.0),
    "offsets": put("calibration.offsets", 1, 99.0),
    "stack": put("stack.slopes", (0, 0), -1.0),
    "a missing array": lambda config, arrays: arrays.pop("member.1.b"),
}
OF_MACHINES = {
    "machines": spec(n_machines=3),
    "trees": spec(n_trees=17),
    "own machines": spec(has_own="yes"),
    "weights": spec(n_weights=3),
    "features outside": put("features", -1, 2_000_000_000),
    "pointers": put("pointers", 1, -1),
    "groups": put("groups", (0, 0), 10**9),
    "label as a group": put("groups", (0, 0), 0),
    "weight of a feature": put("rows.weights", 0, -1.0),
    "feature that is no number": put("rows.weights", 0, np.nan),
    "fewer features": shorter("rows.weights"),
}


@pytest.mark.parametrize("what", OF_MIXES)
def test_mixes(mix, tmp_path, what):
    assert load_light(changed(mix, tmp_path / "model", OF_MIXES[what])) is None


@pytest.mark.parametrize("what", OF_MACHINES)
def test_machines(machines, tmp_path, what):
    assert load_light(changed(machines, tmp_path / "model", OF_MACHINES[what])) is None


def test_a_support_outside_the_features_is_refused_and_one_inside_is_answered(mix, tmp_path):
    def support(last):
        def change(config, arrays):
            spec(n_support=3)(config, arrays)
            arrays["member.1.inducing.transposed"] = arrays["member.1.inducing.transposed"][:3].copy()
            arrays["member.1.inducing.support"] = np.array([0, 1, last], np.int32)

        return change

    assert load_light(changed(mix, tmp_path / "outside", support(10**6))) is None
    light = load_light(changed(mix, tmp_path / "inside", support(2)))
    assert light is not None
    assert np.isfinite(light.predict_topk(light.text_.rows(TEXTS[:3]), 2).data).all()


def test_numbers_that_overflow_are_an_error_and_no_ranking(mix, tmp_path):
    light = load_light(changed(mix, tmp_path / "model", put("member.1.Phi", slice(None), 3e38)))
    with pytest.raises(CannotAnswerError, match="not numbers"), np.errstate(all="ignore"):
        light.predict_topk(light.text_.rows(TEXTS[:3]), 2)


@pytest.mark.parametrize("n_points", [10, 11])
@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("member.1.Phi", slice(None), 3e38),
        ("member.1.Phi", (slice(None, None, 2), 0), 1e25),
        ("member.1.Phi", (3, 0), 1e25),
        ("stack.slopes", 1, 3e38),
        ("stack.places", slice(None, None, 2), 3e38),
        ("stack.offsets", 0, 3e38),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_a_prepared_mix_of_numbers_that_overflow_says_the_same(mix, tmp_path, name, place, value, n_points):
    def change(config, arrays):
        spec(n_points=n_points)(config, arrays)
        arrays["member.1.Phi"][5], arrays["member.1.b"][5] = 0, 0
        arrays[name][place] = value

    found = []
    for is_prepared in (False, True):
        light = load_light(changed(mix, tmp_path / str(is_prepared), change))
        if is_prepared:
            light.prepare()
        for k in (1, 3, 12):
            try:
                found.append(light.predict_topk(light.text_.rows(TEXTS[:20]), k).toarray())
            except CannotAnswerError:
                found.append(np.full((20, 12), np.nan))
    for expected, prepared in zip(found[:3], found[3:], strict=True):
        np.testing.assert_allclose(prepared, expected, atol=1e-4)


def test_a_prepared_mix_says_the_same_where_the_factor_model_is_sure(mix, tmp_path):
    def change(config, arrays):
        arrays["member.1.b"][:] = np.linspace(8, 14, arrays["member.1.b"].size)
        arrays["stack.slopes"][1], arrays["stack.offsets"][:] = 0.5, -5.5

    light, prepared = (load_light(changed(mix, tmp_path / name, change)) for name in "ab")
    prepared.prepare()
    rows = light.text_.rows(TEXTS)
    found, expected = (one.predict_topk(rows, 12).toarray() for one in (prepared, light))
    assert ((expected > 0.1) & (expected < 0.9)).sum() > 100
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_light_refuses_the_estimators_refuse_too(mix, machines, tmp_path):
    from labelfield import load

    chosen = [(mix, OF_MIXES[name]) for name in ("points", "latent", "not finite", "calibration")]
    chosen += [(machines, OF_MACHINES[name]) for name in ("groups", "pointers", "fewer features")]
    for place, (source, change) in enumerate(chosen):
        with pytest.raises(ModelError):
            load(changed(source, tmp_path / str(place), change))


def test_sizes_are_those_of_the_models():
    module = checks
    assert (module._N_LEVELS, module._N_KNOTS, module._N_RANKS) == (
        stack.N_LEVELS,
        calibration._N_KNOTS,
        calibration.N_RANKS,
    )
    assert (module._MOST_TREES, module._MOST_POINTS, module._MOST_MEMBERS) == (
        MOST_TREES,
        sparse.MOST_POINTS,
        MOST_MEMBERS,
    )


def test_a_covariance_without_a_factor():
    with pytest.raises(ValueError, match="not positive definite"):
        _factor(-np.eye(2), 1e-5)
