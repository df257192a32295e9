"""The multi-class classifier as its users meet it."""

import pickle
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from labelfield.models.build_multiclass import CLASS_INDUCING, CLASS_POSTERIORS, LIKELIHOODS
from scipy import sparse
from sklearn.exceptions import NotFittedError

import labelfield
from labelfield import DataError, GPClassifier, synth
from labelfield.inference.signals import Interrupted
from labelfield.models import artifact
from labelfield.models.artifact import ModelError

WORDS = np.array(["cat", "dog", "eel"])
# Ways to look at some classes alone.
SAMPLED = {
    "rivals": {"n_negatives": 2},
    "important rivals": {"n_negatives": 2, "rivals": "importance"},
    "few classes a batch": {"n_negatives": 4, "classes_per_batch": 8, "rivals": "importance"},
}


@pytest.fixture(scope="module")
def rings():
    """Enough rows for a calibration."""
    return synth.make_rings(400, 3, noise=0.1, seed=1).split(0.25)


@pytest.fixture(scope="module")
def few():
    return synth.make_rings(120, 3, noise=0.1, seed=2)


@pytest.fixture(scope="module")
def clock():
    """More classes than a batch has, and enough rows for a calibration."""
    y = np.arange(2 * 312) % 24
    angle = 2 * np.pi * y / 24
    X = np.c_[np.cos(angle), np.sin(angle)] + 0.03 * np.random.default_rng(0).standard_normal((len(y), 2))
    return (X[:312], y[:312]), (X[312:], y[312:])


def small(**options):
    return GPClassifier(**{"n_inducing": 10, "max_epochs": 9, "batch_size": 100, "learning_rate": 0.2} | options)


def tiny(**options):
    return small(**{"max_epochs": 2} | options)


@pytest.fixture(scope="module")
def fitted(rings):
    return {name: small(likelihood=name).fit(rings.X, WORDS[rings.Y.indices]) for name in LIKELIHOODS}


def arrays(estimator):
    return {name: value.numpy().copy() for name, value in estimator.model_.state_dict().items()}


def assert_same_arrays(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
class TestEachLikelihood:
    def test_it_tells_rings_apart(self, likelihood, rings, fitted):
        assert fitted[likelihood].score(rings.test.X, WORDS[rings.test.Y.indices]) > 0.9

    def test_the_many_ways_to_predict_agree(self, likelihood, rings, fitted):
        model, X = fitted[likelihood], rings.test.X
        P = model.predict_proba(X)
        assert P.shape == (100, 3)
        assert ((P >= 0) & (P <= 1)).all()
        np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
        assert model.classes_.tolist() == WORDS.tolist()
        np.testing.assert_array_equal(model.predict(X), WORDS[P.argmax(1)])
        lists = model.predict_topk(X, 2)
        assert np.diff(lists.indptr).tolist() == [2] * 100
        np.testing.assert_allclose(lists.max(1).toarray().ravel(), P.max(1), rtol=1e-6)
        np.testing.assert_array_equal(model.predict_topk(X, 99).toarray(), P)
        raw = model.predict_proba(X, calibrated=False)
        np.testing.assert_allclose(np.exp(model.decision_function(X)), raw, rtol=1e-4)
        latent = model.predict_latent(X)
        assert latent.f_mean.shape == latent.f_var.shape == (100, 3)
        assert (latent.f_var > 0).all()
        # The largest mean is not always the most probable class, but where it is sure it is.
        is_sure = raw.max(1) > 0.9
        np.testing.assert_array_equal(latent.f_mean.argmax(1)[is_sure], raw.argmax(1)[is_sure])

    def test_calibration_keeps_the_ranking(self, likelihood, rings, fitted):
        model = fitted[likelihood]
        assert model.settings_.held_out == 30
        assert model.model_.calibration.power != 1
        raw, P = (model.predict_proba(rings.test.X, calibrated=c) for c in (False, True))
        assert not np.array_equal(raw, P)
        np.testing.assert_array_equal(raw.argsort(1, kind="stable"), P.argsort(1, kind="stable"))

    def test_the_bound_can_be_asked_for(self, likelihood, rings, fitted):
        y = WORDS[rings.Y.indices]
        bound = fitted[likelihood].bound(rings.X, y)
        assert bound["bound"] == pytest.approx(bound["fit"] - bound["kl"])
        assert bound["fit"] < 0 < bound["kl"]
        assert bound["bound"] > tiny(likelihood=likelihood).fit(rings.X, y).bound(rings.X, y)["bound"]

    def test_a_saved_model_predicts_the_same(self, likelihood, rings, fitted, tmp_path):
        assert_saved(fitted[likelihood], rings.test.X, tmp_path / "m")
        assert labelfield.load(tmp_path / "m", device="cpu").classes_.tolist() == WORDS.tolist()

    def test_the_same_seed_gives_the_same_arrays(self, likelihood, few):
        a, b, c = (
            arrays(tiny(likelihood=likelihood, random_state=s).fit(few.X, few.Y.indices.copy())) for s in (3, 3, 4)
        )
        assert_same_arrays(a, b)
        assert not np.array_equal(a["utilities.family.mean"], c["utilities.family.mean"])


def assert_saved(model, X, folder):
    model.save(folder)
    again = labelfield.load(folder, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "options",
    [
        {"posterior": "point"},
        {"rivals": "importance", "n_negatives": 1},
        {"inducing": "per_class", "posterior": "parsimonious", "classes_per_batch": 2},
        {"inducing": "fixed", "own_kernel": True, "posterior": "full", "row_transform": "unit"},
    ],
)
def test_every_make_can_be_saved_and_go_on(options, few, tmp_path):
    model = tiny(**options).fit(few.X, few.Y.indices)
    assert_saved(model, few.X, tmp_path / "m")
    again = labelfield.load(tmp_path / "m", device="cpu").partial_fit(few.X, few.Y.indices)
    assert again.n_iter_ == 3
    assert not np.array_equal(again.predict_proba(few.X), model.predict_proba(few.X))


@pytest.mark.parametrize("inducing", CLASS_INDUCING)
@pytest.mark.parametrize("posterior", CLASS_POSTERIORS)
def test_every_posterior_with_every_kind_of_inducing_inputs(posterior, inducing, few):
    for own_kernel in (True, False):
        model = tiny(posterior=posterior, inducing=inducing, own_kernel=own_kernel, max_epochs=1)
        model.fit(few.X, few.Y.indices)
        assert np.isfinite(model.predict_proba(few.X)).all()
        assert np.isfinite(model.bound(few.X, few.Y.indices)["bound"])


def test_a_step_may_look_at_some_classes_alone(clock):
    train, (X, y) = clock
    sizes = {"n_inducing": 24, "max_epochs": 4, "batch_size": 24}
    whole = small(**sizes).fit(*train)
    P = whole.predict_proba(X)
    assert whole.score(X, y) > 0.95
    for options, least, most in zip(SAMPLED.values(), (0.8, 0.8, 0.5), (0.3, 0.3, 0.7), strict=True):
        model = small(**sizes, **options).fit(*train)
        assert model.n_negatives_ == options["n_negatives"]
        assert model.score(X, y) > least
        assert 0 < np.abs(model.predict_proba(X) - P).sum(1).mean() / 2 < most


def test_all_classes_can_be_asked_for(few):
    assert tiny(n_negatives=0, classes_per_batch=2).fit(few.X, few.Y.indices).n_negatives_ is None


@pytest.mark.parametrize("likelihood", ["robustmax", "softmax"])
@pytest.mark.parametrize("options", [{"n_negatives": 1}, {"classes_per_batch": 2}])
def test_likelihoods_that_need_all_classes_say_so(likelihood, options, few):
    with pytest.raises(ValueError, match=f"likelihood='{likelihood}' needs all classes in each step"):
        tiny(likelihood=likelihood, **options).fit(few.X, few.Y.indices)


@pytest.mark.parametrize(("how", "stop_after"), [("softmax", 19), ("important rivals", 7), ("few classes a batch", 19)])
def test_an_interrupted_run_resumes_to_the_same_arrays(how, stop_after, clock, tmp_path, interrupt_after, monkeypatch):
    """Before and after rows that were held out join, with rivals that are drawn by what was learned of them."""
    monkeypatch.setattr("labelfield.models.sampling._LEAST_STEPS", 3)
    (X, y), path = clock[0], tmp_path / "checkpoint.safetensors"
    options = SAMPLED.get(how, {"likelihood": how})
    model = partial(small, max_epochs=3, batch_size=36, **options)
    whole = model().fit(X, y)
    with pytest.raises(Interrupted, match="SIGTERM"):
        model().fit(X, y, checkpoint=path, on_step=interrupt_after(stop_after))
    assert_same_arrays(arrays(whole), arrays(model().fit(X, y, checkpoint=path, resume=True)))


def test_a_checkpoint_of_something_else_is_refused(few, tmp_path):
    X, y, path = few.X, few.Y.indices, tmp_path / "checkpoint.safetensors"
    tiny().fit(X, y, checkpoint=path)
    others = ({"likelihood": "robustmax"}, {"own_kernel": True}, {"n_negatives": 1}, {"classes_per_batch": 2})
    for options in others:
        with pytest.raises(DataError, match="another model or other training data"):
            tiny(**options).fit(X, y, checkpoint=path, resume=True)


class TestPartialFit:
    def test_classes_that_come_later_can_be_announced(self, few):
        y = WORDS[few.Y.indices]
        model = tiny()
        for part in (slice(0, 40), slice(40, 120)):
            model.partial_fit(few.X[part], y[part], classes=["cat", "dog", "eel", "fox"])
        assert model.classes_.tolist() == ["cat", "dog", "eel", "fox"]
        assert (model.n_rows_, model.n_iter_) == (120, 2)
        model.partial_fit(few.X[:2], ["fox", "fox"])
        assert model.label_counts_.tolist() == [40, 40, 40, 2]
        with pytest.raises(DataError, match="the label 'gnu'"):
            model.partial_fit(few.X[:1], ["gnu"])
        with pytest.raises(DataError, match="classes differ"):
            model.partial_fit(few.X, y, classes=["cat", "dog"])

    def test_it_goes_on_learning(self, few):
        model = tiny(classes_per_batch=2)
        bounds = []
        for _ in range(6):
            model.partial_fit(few.X, few.Y.indices)
            bounds.append(model.bound(few.X, few.Y.indices)["bound"])
        assert bounds[-1] > bounds[0]
        copy = pickle.loads(pickle.dumps(model))
        assert copy._class_batches is None  # as long as the training rows
        np.testing.assert_array_equal(copy.predict_proba(few.X), model.predict_proba(few.X))


CLASSES = {
    "words": np.array(["b", "a", "c"]),
    "words in a table": np.array(["b", "a", "c"], object),
    "numbers with gaps": np.array([100, 3, 7]),
    "signs": np.array([1, -1]),
    "booleans": np.array([True, False]),
    "whole floats": np.array([2.0, 1.0, 0.0]),
}


@pytest.mark.parametrize("case", CLASSES)
def test_whatever_classes_are_called(case, tmp_path):
    names = CLASSES[case]
    rows = synth.make_rings(120, len(names), noise=0.05, seed=3)
    y = names[rows.Y.indices]
    model = small(max_epochs=5).fit(rows.X, y)
    assert model.classes_.tolist() == sorted(names.tolist())
    assert model.score(rows.X, y) > 0.5
    assert set(model.predict(rows.X).tolist()) <= set(names.tolist())
    assert model.bound(rows.X, y.tolist()) == model.bound(rows.X, y)
    assert_saved(model, rows.X, tmp_path / "m")
    assert model.decision_function(rows.X).shape == ((120,) if len(names) == 2 else (120, 3))
    if len(names) == 2:
        np.testing.assert_array_equal(model.decision_function(rows.X) > 0, model.predict(rows.X) == model.classes_[1])


@pytest.mark.parametrize("form", ["indicators", "sparse indicators", "lists"])
def test_forms_of_classes(form, few):
    y = few.Y.indices
    Y = {
        "indicators": np.eye(3, dtype=int)[y],
        "sparse indicators": few.Y,
        "lists": [[int(i)] for i in y],
    }[form]
    model, other = tiny().fit(few.X, Y), tiny().fit(few.X, y)
    np.testing.assert_array_equal(model.predict(few.X), other.predict(few.X))
    assert model.score(few.X, Y) == other.score(few.X, y)
    assert model.bound(few.X, Y) == other.bound(few.X, y)


def test_dense_and_sparse_rows_agree(rings, few, fitted):
    X, model = rings.test.X, fitted["one_vs_each"]
    for other in (X.toarray(), X.toarray().astype(np.float64), sparse.csc_matrix(X), sparse.coo_array(X)):
        np.testing.assert_allclose(model.predict_proba(other), model.predict_proba(X), rtol=1e-5, atol=1e-6)
    dense, other = (tiny().fit(X, few.Y.indices).predict_proba(few.X) for X in (few.X, few.X.toarray()))
    np.testing.assert_allclose(dense, other, rtol=1e-5)


def test_blocks_change_nothing(rings, few, fitted, monkeypatch):
    own = tiny(inducing="per_class").fit(few.X, few.Y.indices)
    models = (fitted["one_vs_each"], rings.test.X, WORDS[rings.test.Y.indices]), (own, few.X, few.Y.indices)
    whole = [(model.predict_proba(X), model.bound(X, y)) for model, X, y in models]
    for name in ("_BLOCK_ENTRIES", "_PART_ENTRIES"):
        monkeypatch.setattr(f"labelfield.estimators.gp.{name}", 40)
    assert len(own._class_blocks()) == 3
    for (model, X, y), (P, bound) in zip(models, whole, strict=True):
        np.testing.assert_allclose(model.predict_proba(X), P, rtol=1e-5, atol=1e-6)
        assert model.bound(X, y) == pytest.approx(bound, rel=1e-5)


def test_feature_relevance(few, fitted):
    assert fitted["softmax"].feature_relevance().shape == (2,)
    X = np.c_[few.X.toarray(), np.random.default_rng(0).standard_normal(120)]
    relevance = small(own_kernel=True, max_epochs=20).fit(X, few.Y.indices).feature_relevance()
    assert relevance[2] < relevance[:2].min()
    for options in ({"kernel": "se"}, {"posterior": "point"}):
        with pytest.raises(ValueError, match="treats all features alike"):
            tiny(**options).fit(few.X, few.Y.indices).feature_relevance()


class TestDamagedModels:
    """By someone who also mends the checksums."""

    @pytest.fixture
    def saved(self, few, tmp_path):
        tiny(posterior="whitened_full").fit(few.X, few.Y.indices).save(tmp_path / "m")
        return artifact.load_artifact(tmp_path / "m")

    def damage(self, saved, config=None, arrays=None):
        changed = saved[0] | (config or {}), saved[1] | (arrays or {}), saved[2]
        with (
            patch("labelfield.estimators.saving.load_artifact", lambda path: changed),
            pytest.raises(ModelError) as caught,
        ):
            labelfield.load("model")
        assert str(caught.value).startswith("model: ")
        assert "\n" not in str(caught.value)

    def test_descriptions(self, saved):
        config = saved[0]
        for change in (
            {"method": "softmax"},
            {"method": "mlgpf"},
            {"label_kind": "indicator"},
            {"classes": [1, 2]},
            {"classes": [[0], [1], [2]]},
            {"n_negatives": -1},
            {"n_features": 3},
            {"options": config["options"] | {"likelihood": "bernoulli"}},
            *(
                {"spec": config["spec"] | changed}
                for changed in (
                    {"likelihood": "robustmax"},
                    {"likelihood": "bernoulli"},
                    {"posterior": "point"},
                    {"inducing": "per_class"},
                    {"rivals": "best"},
                    {"n_labels": 1},
                    {"n_labels": 4},
                    {"n_inducing": 10**13},
                    {"n_samples": 0},
                    {"n_points": 500},
                    {"epsilon": float("nan")},
                    {"scale": 0},
                    {"n_support": 1},
                    {"kernel": "__import__('os')"},
                )
            ),
        ):
            self.damage(saved, config=change)

    def test_numbers(self, saved):
        arrays = saved[1]
        for name in ("b", "utilities.family.mean", "calibration.power"):
            self.damage(saved, arrays={name: arrays[name] * float("nan")})
            self.damage(saved, arrays={name: arrays[name][:0]})
            self.damage(saved, arrays={name: arrays[name].double()})
        for name in ("calibration.power", "rows.weights", "training.label_counts"):
            self.damage(saved, arrays={name: -arrays[name]})
        self.damage(saved, arrays={"surplus": arrays["b"]})


class TestAwkwardData:
    """As a user would expect, or one clear error."""

    def test_one_class(self, few):
        for y, name in ((np.full(120, "cat"), "cat"), (np.full(120, 7), "7")):
            with pytest.raises(DataError, match=f"y has one class, '{name}'; expected at least two classes"):
                tiny().fit(few.X, y)

    @pytest.mark.parametrize("inducing", CLASS_INDUCING)
    def test_a_class_with_one_row(self, inducing, few):
        X, y = np.r_[few.X.toarray(), [[9, 9]]], np.r_[few.Y.indices, 3]
        P = tiny(inducing=inducing).fit(X, y).predict_proba(X)
        assert P.shape == (121, 4)
        assert np.isfinite(P).all()

    def test_validation(self, few):
        X, y = few.X, WORDS[few.Y.indices]
        model = tiny().fit(X, y, validation=(X[y == "dog"], y[y == "dog"]))
        assert 0 <= model.history_[-1]["scores"]["P@1"] <= 100
        with pytest.raises(DataError, match="the label 'fox'; expected labels of the first fit"):
            tiny().fit(X, y, validation=(X[:2], ["cat", "fox"]))

    @pytest.mark.parametrize("Y", [np.ones((120, 3), int), [["a", "b"], *[["a"]] * 119], np.zeros((120, 3), int)])
    def test_rows_that_have_not_one_class(self, Y, few):
        message = "row 0 has [023] labels; expected one class a row. Use MLGPFClassifier"
        with pytest.raises(DataError, match=message):
            tiny().fit(few.X, Y)
        model = tiny().partial_fit(few.X, few.Y.indices)
        if isinstance(Y, np.ndarray):
            for ask in (model.partial_fit, model.bound, model.score):
                with pytest.raises(DataError, match=message):
                    ask(few.X, Y)

    @pytest.mark.parametrize(
        ("X", "y", "message"),
        [
            (np.eye(3), [0, 1], "X has 3 rows and Y has 2"),
            (np.array([[np.nan], [1]]), [0, 1], "X contains NaN"),
            (np.eye(2), [0, np.nan], "y contains NaN"),
            (np.eye(2), np.array(["a", np.nan], object), "y contains NaN"),
            (np.eye(2), np.array(["a", None], object), "y contains NaN"),
            (np.eye(2), np.array(["a", 3], object), "one kind of label"),
            (np.eye(2), [0.5, 1.5], "continuous"),
            (np.eye(2), None, "requires y"),
            (np.zeros((0, 3)), [], "0 sample"),
            (np.eye(2), np.array([[0, 2], [1, 0]]), "not binary"),
        ],
    )
    def test_refused(self, X, y, message):
        with pytest.raises(ValueError, match=message):
            tiny().fit(X, y)

    @pytest.mark.parametrize("inducing", CLASS_INDUCING)
    def test_more_of_everything_than_there_is(self, inducing):
        X, y = np.random.default_rng(0).standard_normal((8, 5)), np.arange(8) % 3
        model = tiny(inducing=inducing, n_inducing=100, batch_size=1000, classes_per_batch=50).fit(X, y)
        assert (model.spec_.n_inducing, model.settings_.batch_size) == (8, 8)
        assert np.isfinite(model.predict_proba(X)).all()

    @pytest.mark.parametrize("value", [0.0, 1.0])
    def test_constant_features(self, value):
        X, y = np.full((30, 3), value), np.arange(30) % 3
        for inducing in CLASS_INDUCING:
            assert np.isfinite(tiny(inducing=inducing).fit(X, y).predict_proba(X)).all()

    def test_one_row_and_none(self, rings, fitted):
        model, X = fitted["robustmax"], rings.test.X
        np.testing.assert_allclose(model.predict_proba(X[[3]]), model.predict_proba(X)[[3]], rtol=1e-4, atol=1e-6)
        assert model.predict(X[[3]]).shape == (1,)
        none = sparse.csr_array((0, 2))
        assert model.predict(none).shape == (0,)
        for ask in (model.predict_proba, model.predict_topk, model.decision_function):
            assert ask(none).shape == (0, 3)
        assert model.predict_latent(none).f_var.shape == (0, 3)

    def test_wrong_width_and_nothing_fitted(self, fitted):
        with pytest.raises(ValueError, match="X has 3 features, but GPClassifier is expecting 2"):
            fitted["softmax"].predict(np.eye(3))
        fresh = tiny()
        for ask in (fresh.predict, fresh.predict_proba, fresh.predict_topk, fresh.decision_function, fresh.save):
            with pytest.raises(NotFittedError):
                ask(np.eye(2))
        with pytest.raises(NotFittedError):
            fresh.score(np.eye(2), [0, 1])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"likelihood": "bernoulli"}, "likelihood='bernoulli'; expected one of one_vs_each"),
            ({"kernel": "cubic"}, "kernel"),
            ({"posterior": "best"}, "posterior"),
            ({"posterior": "point", "kernel": "se"}, "needs kernel='linear'"),
            ({"posterior": "point", "likelihood": "robustmax"}, "has no gradient"),
            ({"inducing": "subspace"}, "inducing"),
            ({"rivals": "all"}, "rivals"),
            ({"own_kernel": "yes"}, "own_kernel='yes'; expected True or False"),
            ({"epsilon": 0.7}, "epsilon=0.7; expected .* at most 0.5"),
            ({"scale": 0}, "scale"),
            ({"n_samples": 0}, "n_samples"),
            ({"n_negatives": -1}, "n_negatives"),
            ({"classes_per_batch": 0}, "classes_per_batch"),
            ({"row_transform": "cube"}, "transform"),
            ({"device": "tpu"}, "device"),
        ],
    )
    def test_wrong_options(self, options, message, few):
        with pytest.raises(ValueError, match=message):
            tiny(**options).fit(few.X, few.Y.indices)

    def test_sizes_beyond_the_memory_are_refused_before_they_are_tried(self, few, monkeypatch):
        monkeypatch.setattr("labelfield.estimators.training.free_bytes", lambda device: 1000)
        with pytest.raises(MemoryError, match=r"lower batch_size or n_inducing \(training needs about"):
            tiny().fit(few.X, few.Y.indices)


def test_uncertainty_grows_away_from_the_rows(rings, fitted):
    model = fitted["one_vs_each"]
    near, far = model.predict_uncertainty(rings.X), model.predict_uncertainty(100 * rings.X)
    assert ((near >= 0) & (near <= 1)).all()
    assert near.mean() < 0.5
    assert (far > 0.99).all()


def test_of_very_many_features_inducing_inputs_see_the_frequent_ones(tmp_path):
    """They are 0 on the others, before and after saving, whether kernels are shared or each class has its own."""
    rng = np.random.default_rng(0)
    X = sparse.random(60, 9000, 0.01, format="csr", dtype=np.float32, random_state=0)
    y = rng.integers(3, size=60)
    for own_kernel in (False, True):
        model = tiny(inducing="free", own_kernel=own_kernel, kernel="se_ard").fit(X, y)
        assert model.spec_.n_support == 8192
        model.save(tmp_path / "m")
        np.testing.assert_array_equal(labelfield.load(tmp_path / "m").predict_proba(X), model.predict_proba(X))


def test_features_far_from_0_are_like_any_others():
    """Years and altitudes: their distances would drown in the rounding of their squares."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.integers(2000, 2024, 300), rng.standard_normal(300)]
    y = (X[:, 0] > 2012).astype(int)
    there, here = (small(max_epochs=15).fit(rows, y).predict_proba(rows) for rows in (X, X - [2012, 0]))
    assert np.mean(there.argmax(1) == y) > 0.95
    np.testing.assert_allclose(there, here, atol=0.02)


def test_a_fit_that_fails_leaves_nothing_of_the_one_before(few):
    model = tiny().fit(few.X, WORDS[few.Y.indices])
    with pytest.raises(ValueError, match="cubic"):
        model.set_params(kernel="cubic").fit(few.X, np.array(["x", "y", "z"])[few.Y.indices])
    with pytest.raises(NotFittedError):
        model.predict(few.X)


@pytest.mark.parametrize("classes", [np.array([3.0, 7.0, 100.0]), WORDS])
def test_names_survive_saving_twice(classes, few, tmp_path):
    model = tiny().fit(few.X, classes[few.Y.indices])
    model.save(tmp_path / "a")
    labelfield.load(tmp_path / "a").save(tmp_path / "b")
    named = [str(int(label)) if isinstance(label, float) else label for label in classes.tolist()]
    assert (tmp_path / "b" / "labels.txt").read_text().split() == named
    np.testing.assert_array_equal(labelfield.load(tmp_path / "b").predict(few.X), model.predict(few.X))
