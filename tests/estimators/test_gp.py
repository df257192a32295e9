"""Multi-class processes as their users meet them: likelihoods, negatives, posteriors, and classes of every kind."""

import pickle
from functools import partial

import numpy as np
import pytest
from scipy import sparse

import labelfield
from labelfield import DataError, GPClassifier, synth
from labelfield.inference.signals import Interrupted
from labelfield.models.multiclass.spec import CONSTRAINTS, LIKELIHOODS

WORDS = np.array(["cat", "dog", "eel"])
POSTERIORS = [posterior for posterior in CONSTRAINTS["posterior"].words if posterior != "point"]
INDUCING = CONSTRAINTS["inducing"].words
# Ways to look at some classes alone.
SAMPLED = {
    "negatives": {"n_negatives": 2},
    "important negatives": {"n_negatives": 2, "negative_sampling": "importance"},
    "few classes per batch": {"n_negatives": 4, "classes_per_batch": 8, "negative_sampling": "importance"},
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
    return small(**{"max_epochs": 1} | options)


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

    def test_where_it_is_sure_the_largest_mean_is_the_most_probable(self, likelihood, rings, fitted):
        raw = fitted[likelihood].predict_proba(rings.test.X, calibrated=False)
        latent = fitted[likelihood].predict_latent(rings.test.X)
        is_sure = raw.max(1) > 0.9
        assert is_sure.any()
        np.testing.assert_array_equal(latent.f_mean.argmax(1)[is_sure], raw.argmax(1)[is_sure])

    def test_calibration_keeps_the_ranking(self, likelihood, rings, fitted):
        model = fitted[likelihood]
        assert model.settings_.held_out == 30
        assert model.model_.calibration.power != 1
        raw, P = (model.predict_proba(rings.test.X, calibrated=c) for c in (False, True))
        np.testing.assert_array_equal(raw.argsort(1, kind="stable"), P.argsort(1, kind="stable"))

    def test_training_raises_the_bound(self, likelihood, rings, fitted):
        y = WORDS[rings.Y.indices]
        bound = fitted[likelihood].bound(rings.X, y)
        assert bound["fit"] < 0 < bound["kl"]
        assert bound["bound"] > tiny(likelihood=likelihood).fit(rings.X, y).bound(rings.X, y)["bound"]

    def test_the_same_seed_gives_the_same_arrays(self, likelihood, few):
        a, b, c = (
            arrays(tiny(likelihood=likelihood, random_state=s).fit(few.X, few.Y.indices.copy())) for s in (3, 3, 4)
        )
        assert_same_arrays(a, b)
        assert not np.array_equal(a["utilities.family.mean"], c["utilities.family.mean"])


@pytest.mark.parametrize("inducing", INDUCING)
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_every_posterior_with_every_kind_of_inducing_inputs(posterior, inducing, few):
    for per_class in (True, False):
        model = tiny(posterior=posterior, inducing=inducing, kernel_per_class=per_class)
        model.fit(few.X, few.Y.indices)
        assert np.isfinite(model.predict_proba(few.X)).all()
        assert np.isfinite(model.bound(few.X, few.Y.indices)["bound"])


class TestSomeClassesAlone:
    def test_a_step_may_look_at_some_classes_alone(self, clock):
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

    def test_all_classes_can_be_asked_for(self, few):
        assert tiny(n_negatives=0, classes_per_batch=2).fit(few.X, few.Y.indices).n_negatives_ is None

    @pytest.mark.parametrize("likelihood", ["robustmax", "softmax"])
    @pytest.mark.parametrize(
        "options", [{"n_negatives": 1}, {"classes_per_batch": 2}, {"negative_sampling": "importance"}]
    )
    def test_likelihoods_that_need_all_classes_say_so(self, likelihood, options, few):
        with pytest.raises(ValueError, match=f"likelihood='{likelihood}' needs all classes in each step"):
            tiny(likelihood=likelihood, **options).fit(few.X, few.Y.indices)


class TestCheckpoints:
    @pytest.mark.parametrize(
        ("how", "stop_after"), [("softmax", 19), ("important negatives", 7), ("few classes per batch", 19)]
    )
    def test_an_interrupted_run_resumes_to_the_same_arrays(
        self, how, stop_after, clock, tmp_path, interrupt_after, monkeypatch
    ):
        """Before and after rows that were held out join, with negatives that are drawn by what was learned of them."""
        monkeypatch.setattr("labelfield.models.sampling._LEAST_STEPS", 3)
        (X, y), path = clock[0], tmp_path / "checkpoint.safetensors"
        model = partial(small, max_epochs=3, batch_size=36, **SAMPLED.get(how, {"likelihood": how}))
        whole = model().fit(X, y)
        with pytest.raises(Interrupted, match="SIGTERM"):
            model().fit(X, y, checkpoint=path, on_step=interrupt_after(stop_after))
        assert_same_arrays(arrays(whole), arrays(model().fit(X, y, checkpoint=path, resume=True)))

    def test_a_checkpoint_of_something_else_is_refused(self, few, tmp_path):
        X, y, path = few.X, few.Y.indices, tmp_path / "checkpoint.safetensors"
        tiny().fit(X, y, checkpoint=path)
        for options in (
            {"likelihood": "robustmax"},
            {"kernel_per_class": True},
            {"n_negatives": 1},
            {"classes_per_batch": 2},
            {"n_points": 7},
        ):
            with pytest.raises(DataError, match="another model or other training data"):
                tiny(**options).fit(X, y, checkpoint=path, resume=True)
        with pytest.raises(DataError, match="another model or other training data"):
            tiny().fit(X, y[::-1].copy(), checkpoint=path, resume=True)


def test_partial_fit_goes_on_learning(few):
    model = tiny(classes_per_batch=2)
    bounds = []
    for _ in range(6):
        model.partial_fit(few.X, few.Y.indices)
        bounds.append(model.bound(few.X, few.Y.indices)["bound"])
    assert bounds[-1] > bounds[0]
    # What draws the batches is as long as the training rows, and no part of a copy.
    assert len(pickle.dumps(model)) < 1.01 * len(pickle.dumps(pickle.loads(pickle.dumps(model))))


class TestClasses:
    @pytest.mark.parametrize(
        "names",
        [
            np.array(["b", "a", "c"]),
            np.array(["b", "a", "c"], object),  # as tables have them
            np.array([100, 3, 7]),
            np.array([1, -1]),
            np.array([True, False]),
            np.array([2.0, 1.0, 0.0]),
        ],
        ids=["words", "words in a table", "numbers with gaps", "signs", "booleans", "whole floats"],
    )
    def test_all_names_of_classes(self, names, tmp_path):
        rows = synth.make_rings(120, len(names), noise=0.05, seed=3)
        y = names[rows.Y.indices]
        model = small(max_epochs=5).fit(rows.X, y)
        assert model.classes_.tolist() == sorted(names.tolist())
        assert model.score(rows.X, y) > 0.5
        assert set(model.predict(rows.X).tolist()) <= set(names.tolist())
        assert model.bound(rows.X, y.tolist()) == model.bound(rows.X, y)
        assert model.decision_function(rows.X).shape == ((120,) if len(names) == 2 else (120, 3))
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu")
        np.testing.assert_array_equal(again.predict(rows.X), model.predict(rows.X))

    def test_forms_of_classes(self, few):
        y = few.Y.indices
        other = tiny().fit(few.X, y)
        for Y in (np.eye(3, dtype=int)[y], few.Y, [[int(i)] for i in y]):
            model = tiny().fit(few.X, Y)
            np.testing.assert_array_equal(model.predict(few.X), other.predict(few.X))
            assert model.score(few.X, Y) == other.score(few.X, y)
            assert model.bound(few.X, Y) == other.bound(few.X, y)

    def test_one_class(self, few):
        for y, name in ((np.full(120, "cat"), "cat"), (np.full(120, 7), "7")):
            with pytest.raises(DataError, match=f"y has one class, '{name}'; expected at least two classes"):
                tiny().fit(few.X, y)

    @pytest.mark.parametrize("inducing", INDUCING)
    def test_a_class_with_one_row(self, inducing, few):
        X, y = np.r_[few.X.toarray(), [[9, 9]]], np.r_[few.Y.indices, 3]
        P = tiny(inducing=inducing).fit(X, y).predict_proba(X)
        assert P.shape == (121, 4)
        assert np.isfinite(P).all()

    @pytest.mark.parametrize("Y", [np.ones((120, 3), int), [["a", "b"], *[["a"]] * 119], np.zeros((120, 3), int)])
    def test_rows_that_have_not_one_class(self, Y, few):
        message = "row 0 has [023] labels; expected one class .*row. Use MLGPFClassifier"
        with pytest.raises(DataError, match=message):
            tiny().fit(few.X, Y)
        model = tiny().partial_fit(few.X, few.Y.indices)
        if isinstance(Y, np.ndarray):
            for ask in (model.partial_fit, model.bound, model.score):
                with pytest.raises(DataError, match=message):
                    ask(few.X, Y)


class TestAnswers:
    def test_blocks_change_nothing(self, rings, few, fitted, monkeypatch):
        own = tiny(inducing="per_class").fit(few.X, few.Y.indices)
        models = (fitted["one_vs_each"], rings.test.X, WORDS[rings.test.Y.indices]), (own, few.X, few.Y.indices)

        def answers(model, X):
            return model.predict_proba(X), model.predict_uncertainty(X), *model.predict_latent(X)[:2]

        whole = [(answers(model, X), model.bound(X, y)) for model, X, y in models]
        for name in ("BLOCK_ENTRIES", "_SUBSET_ENTRIES"):
            monkeypatch.setattr(f"labelfield.models.multiclass.predict.{name}", 40)
        assert len(own.predictor_.class_blocks()) == 3
        for (model, X, y), (expected, bound) in zip(models, whole, strict=True):
            for now, then in zip(answers(model, X), expected, strict=True):
                np.testing.assert_allclose(now, then, rtol=1e-4, atol=1e-5)
            assert model.bound(X, y) == pytest.approx(bound, rel=1e-5)

    def test_feature_relevance(self, few, fitted):
        assert fitted["softmax"].feature_relevance().shape == (2,)
        X = np.c_[few.X.toarray(), np.random.default_rng(0).standard_normal(120)]
        relevance = small(kernel_per_class=True, max_epochs=20).fit(X, few.Y.indices).feature_relevance()
        assert relevance[2] < relevance[:2].min()
        assert tiny(kernel="se").fit(few.X, few.Y.indices).feature_relevance() is None
        point = tiny(posterior="point").fit(few.X, few.Y.indices)
        squares = (point.model_.utilities.weights.detach().numpy() ** 2).mean(0)
        np.testing.assert_allclose(point.feature_relevance(), point.row_transform_.fold(squares), rtol=1e-5)

    def test_uncertainty_grows_away_from_the_rows(self, rings, fitted):
        model = fitted["one_vs_each"]
        near, far = model.predict_uncertainty(rings.X), model.predict_uncertainty(100 * rings.X)
        assert near.mean() < 0.5
        assert (far > near.mean()).all()  # all classes are about as probable


class TestSizes:
    @pytest.mark.parametrize("inducing", INDUCING)
    def test_more_of_everything_than_there_is(self, inducing):
        X, y = np.random.default_rng(0).standard_normal((8, 5)), np.arange(8) % 3
        model = tiny(inducing=inducing, n_inducing=100, batch_size=1000, classes_per_batch=50).fit(X, y)
        assert (model.spec_.n_inducing, model.settings_.batch_size) == (8, 8)
        assert np.isfinite(model.predict_proba(X)).all()

    @pytest.mark.parametrize("value", [0.0, 1.0])
    def test_constant_features(self, value):
        X, y = np.full((30, 3), value), np.arange(30) % 3
        for inducing in INDUCING:
            assert np.isfinite(tiny(inducing=inducing).fit(X, y).predict_proba(X)).all()

    @pytest.mark.parametrize("per_class", [False, True])
    def test_of_very_many_features_inducing_inputs_see_the_frequent_ones(self, per_class, tmp_path):
        """They are 0 on the others, before and after saving, whether kernels are shared or each class has its own."""
        X = sparse.random(60, 9000, 0.01, format="csr", dtype=np.float32, random_state=0)
        y = np.random.default_rng(0).integers(3, size=60)
        model = tiny(inducing="free", kernel_per_class=per_class, kernel="se_ard").fit(X, y)
        assert model.spec_.n_support == 8192
        model.save(tmp_path / "m")
        np.testing.assert_array_equal(labelfield.load(tmp_path / "m").predict_proba(X), model.predict_proba(X))

    def test_features_far_from_0_are_like_any_others(self):
        """Years and altitudes: their distances would drown in the rounding of their squares."""
        rng = np.random.default_rng(0)
        X = np.c_[rng.integers(2000, 2024, 300), rng.standard_normal(300)]
        y = (X[:, 0] > 2012).astype(int)
        there, here = (small(max_epochs=15).fit(rows, y).predict_proba(rows) for rows in (X, X - [2012, 0]))
        assert np.mean(there.argmax(1) == y) > 0.95
        np.testing.assert_allclose(there, here, atol=0.02)
