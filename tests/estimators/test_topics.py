"""The topic classifier as its users meet it."""

import pickle
import signal
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import labelfield
from labelfield import DataError, TopicClassifier, synth
from labelfield.inference.signals import Interrupted
from labelfield.models import artifact
from labelfield.models.artifact import ModelError

ALGORITHMS = ("em", "online_em", "gibbs")
N_LABELS = 30
NAMES = np.array([f"label {number:02d}" for number in range(N_LABELS)])


@pytest.fixture(scope="module")
def data():
    return synth.make_topics(600, 100, 25, 5, seed=3).split(1 / 3)


@pytest.fixture(scope="module")
def X(data):
    return data.X


@pytest.fixture(scope="module")
def Y(data):
    """With five labels that no row has."""
    return wider(data.Y)


@pytest.fixture(scope="module")
def few(X, Y):
    return X[:80], Y[:80].toarray()


def wider(Y):
    return sparse.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], N_LABELS))


def small(**options):
    sizes = {"n_topics": 5, "max_epochs": 40, "batch_size": 100, "n_draws": 4}
    return TopicClassifier(**sizes | {"device": "cpu"} | options)


def tiny(**options):
    return small(**{"n_topics": 3, "max_epochs": 4, "batch_size": 40} | options)


@pytest.fixture(scope="module")
def models(X, Y):
    """One of each algorithm, and one of one class a row."""
    epochs = {"em": 40, "online_em": 10, "gibbs": 30}
    found = {name: small(algorithm=name, max_epochs=epochs[name]).fit(X, Y) for name in ALGORITHMS}
    first = np.array([row[0] if len(row) else 0 for row in np.split(Y.indices, Y.indptr[1:-1])]) % 4
    return found | {"classes": small(n_topics=None).fit(X, np.array(["ant", "bee", "cat", "dog"])[first])}


@pytest.fixture(scope="module")
def fitted(models):
    return models["em"]


@pytest.fixture(autouse=True, scope="module")
def brief():
    """The sampler may begin anywhere."""
    with patch("labelfield.inference.topics._EM_BEFORE_GIBBS", 4):
        yield


def arrays(estimator):
    return {name: value.numpy().copy() for name, value in estimator.model_.state_dict().items()}


def assert_same_arrays(a, b):
    a, b = arrays(a), arrays(b)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def differ(a, b):
    return not np.array_equal(a.model_.V.numpy(), b.model_.V.numpy())


def auc(model, X, Y):
    """Over all entries of labels that hold in some rows."""
    Y = Y.toarray()
    varies = Y.any(0)
    return roc_auc_score(Y[:, varies].ravel(), model.predict_proba(X)[:, : Y.shape[1]][:, varies].ravel())


def bounds(model):
    return np.array([epoch["bound"] for epoch in model.history_])


class TestLearning:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_rows_are_told_apart_which_popularity_does_not(self, algorithm, models, data):
        truth = wider(data.test.Y).toarray()
        popular = np.broadcast_to(models["em"].label_counts_, truth.shape)
        varies = truth.any(0)
        by_popularity = roc_auc_score(truth[:, varies].ravel(), popular[:, varies].ravel())
        assert auc(models[algorithm], data.test.X, wider(data.test.Y)) > by_popularity + 0.05
        P = models[algorithm].predict_proba(data.test.X)
        each = [roc_auc_score(truth[:, label], P[:, label]) for label in range(8)]
        assert np.mean(each) > 0.65  # 0.5 by popularity

    def test_one_class_a_row(self, models, X):
        model = models["classes"]
        P = model.predict_proba(X)
        np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
        np.testing.assert_array_equal(model.predict(X), model.classes_[P.argmax(1)])
        assert set(model.predict(X)) <= {"ant", "bee", "cat", "dog"}
        assert model.spec_.n_topics == 4

    def test_two_classes_have_a_topic_each_unasked(self):
        rng = np.random.default_rng(0)
        y = rng.integers(2, size=150)
        X = np.c_[y + 0.3 * rng.standard_normal(150), np.ones(150)]
        model = TopicClassifier(device="cpu").fit(X, y == 1)
        assert model.spec_.n_topics == 2
        assert model.score(X, y == 1) > 0.9
        assert model.decision_function(X).shape == (150,)
        np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X))

    def test_em_never_lowers_its_bound(self, X, Y):
        for options in ({}, {"n_gradient_steps": 0}):
            found = bounds(
                small(learn_hyper=False, tolerance=0.0, max_epochs=30, calibrated=False, **options).fit(X, Y)
            )
            assert len(found) == 30
            assert (np.diff(found) > -1e-6 * np.abs(found[1:])).all()
            assert found[-1] > found[0] + 0.1

    def test_the_exact_solution_is_where_many_gradient_steps_lead(self, few):
        options = {"learn_hyper": False, "max_epochs": 6}
        exact, near, far = (tiny(n_gradient_steps=n, **options).fit(*few) for n in (0, 100, 1))
        distance = [np.abs(exact.predict_proba(few[0]) - m.predict_proba(few[0])).max() for m in (near, far)]
        assert distance[0] < 1e-3 < distance[1]

    def test_tolerance_ends_a_run(self, X, Y):
        slack = small(tolerance=1e-2, max_epochs=200).fit(X, Y)
        strict = small(tolerance=1e-4, max_epochs=200).fit(X, Y)
        assert slack.n_iter_ < strict.n_iter_ < 200
        found = bounds(slack)
        assert abs(found[-1] - found[-2]) <= 1e-2 * abs(found[-1])

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_a_time_budget_ends_a_run(self, algorithm, few):
        model = tiny(algorithm=algorithm, max_epochs=10**6, time_budget=0.05, tolerance=0.0, n_draws=3).fit(*few)
        assert model.n_iter_ < 10**5
        assert 0.05 <= model.history_[-1]["seconds"] < 2
        assert np.isfinite(model.predict_proba(few[0])).all()

    def test_a_time_budget_ends_an_epoch_of_many_steps(self, few):
        steps = []
        model = tiny(algorithm="online_em", batch_size=1, time_budget=1e-6)
        model.fit(*few, on_step=lambda run, n_steps: steps.append(n_steps))
        assert steps == [80]  # the first of them
        assert model.n_iter_ == 1

    def test_validation(self, data):
        model = tiny(algorithm="gibbs", max_epochs=2).fit(data.X, data.Y, validation=(data.test.X, data.test.Y))
        scores = [epoch["scores"]["P@1"] for epoch in model.history_]
        assert len(scores) == 2
        truth, best = data.test.Y.toarray(), model.predict_topk(data.test.X, 1).indices
        assert scores[-1] == pytest.approx(100 * truth[np.arange(len(best)), best].mean())


class TestAnswers:
    @pytest.mark.parametrize("name", [*ALGORITHMS, "classes"])
    def test_the_many_ways_to_predict_agree(self, name, models, data):
        model, X = models[name], data.test.X
        P = model.predict_proba(X)
        assert P.shape == (X.shape[0], model.classes_.size)
        assert ((P >= 0) & (P <= 1)).all()
        best = model.predict_topk(X, 3)
        assert (np.diff(best.indptr) == 3).all()
        rows = np.arange(X.shape[0])[:, None]
        np.testing.assert_allclose(-np.sort(-P[rows, best.indices.reshape(-1, 3)]), -np.sort(-P, 1)[:, :3], rtol=1e-6)
        np.testing.assert_array_equal(best.data, P[rows, best.indices.reshape(-1, 3)].ravel())
        if name != "classes":
            np.testing.assert_array_equal(model.predict(X).toarray(), P >= 0.5)
            np.testing.assert_array_equal(model.predict(X, k=3).toarray(), best.toarray() > 0)
            raw = model.predict_proba(X, calibrated=False)
            np.testing.assert_array_equal(model.decision_function(X) > 0, raw > 0.5)
        np.testing.assert_allclose(
            np.concatenate([model.predict_proba(X[s]) for s in (slice(7), slice(7, None))]), P, 1e-5
        )
        np.testing.assert_allclose(model.predict_proba(X.toarray()), P, rtol=1e-6)
        assert model.predict_proba(X[:0]).shape == (0, P.shape[1])
        assert model.predict_topk(X[:1], 1000).nnz == P.shape[1]

    def test_score_is_the_share_of_rows_that_are_right(self, models, data):
        X, Y = data.test.X, wider(data.test.Y)
        right = (models["em"].predict(X) != Y).sum(1) == 0
        assert models["em"].score(X, Y) == pytest.approx(right.mean())
        y = models["classes"].predict(X)
        assert models["classes"].score(X, y) == 1

    def test_labels_that_never_hold_are_alike_and_improbable(self, models, X):
        for name in ALGORITHMS:
            P = models[name].predict_proba(X)
            assert models[name].spec_.n_placed == 25
            assert (P[:, 25:] == P[:, 25:26]).all()
            assert 0 < P[:, 25:].mean() < P[:, :25].mean() / 5

    def test_lists_of_labels(self, fitted, X, Y):
        lists = [NAMES[row].tolist() for row in np.split(Y.indices, Y.indptr[1:-1])]
        model = small().fit(X, lists)
        assert model.label_kind_ == "lists"
        np.testing.assert_array_equal(model.classes_, NAMES[:25])
        without = small().fit(X, Y[:, :25])
        np.testing.assert_array_equal(model.predict_proba(X), without.predict_proba(X))
        assert model.score(X, lists) == without.score(X, Y[:, :25])
        dense = small().fit(X.toarray(), Y.toarray())
        np.testing.assert_allclose(dense.predict_proba(X), fitted.predict_proba(X), rtol=1e-5, atol=1e-7)

    def test_topics_by_name(self, models):
        for model in models.values():
            found = model.topics(4)
            assert sorted(topic.number for topic in found) == list(range(model.spec_.n_topics))
            shares = [topic.share for topic in found]
            assert shares == sorted(shares, reverse=True)
            assert sum(shares) == pytest.approx(1, rel=1e-5)
            V = model.model_.mean_weights().numpy()
            for topic in found:
                weights = [weight for _, weight in topic.labels]
                assert len(weights) == 4
                assert weights == sorted(weights, reverse=True)
                assert weights[0] == V[:, topic.number].max()
        assert {name for topic in models["classes"].topics() for name, _ in topic.labels} == {
            "ant",
            "bee",
            "cat",
            "dog",
        }
        called = models["em"].topics(1, label_names=NAMES.tolist())[0]
        assert called.labels[0][0] == NAMES[int(models["em"].topics(1)[0].labels[0][0])]
        assert len(models["em"].topics(1000)[0].labels) == 25

    def test_planted_topics_are_found(self, models, data):
        """Labels that often go together are of the same topic."""
        Y = data.Y.toarray()
        together = np.corrcoef(Y.T)
        pairs = [[int(name) for name, _ in topic.labels] for topic in models["em"].topics(2)]
        assert sum(together[first, second] > np.median(together[first]) for first, second in pairs) >= 4

    def test_features_of_topics(self, fitted):
        found = fitted.top_features(2, 6)
        weights = [weight for _, weight in found]
        assert weights == sorted(weights, reverse=True)
        W = fitted.model_.W[0, :-1, 2].numpy()
        assert found[0] == (int(W.argmax()), W.max())
        words = [f"word {d}" for d in range(100)]
        assert fitted.top_features(np.int64(2), 1, words)[0][0] == words[int(W.argmax())]
        for topic in (-1, 5, 1.0, "a", None):
            with pytest.raises(ValueError, match=r"topic=.*; expected a number from 0 to 4"):
                fitted.top_features(topic)
        for ask in (lambda: fitted.topics(0), lambda: fitted.top_features(0, 0), lambda: fitted.topics(2.5)):
            with pytest.raises(ValueError, match="expected an integer of at least 1"):
                ask()

    def test_features_of_several_views_are_folded(self, few):
        model = tiny(row_transform="unit + sqrt").fit(*few)
        assert model.spec_.n_features == 200
        assert {d for d, _ in model.top_features(0, 100)} == set(range(100))

    @pytest.mark.parametrize("name", [*ALGORITHMS, "classes"])
    def test_proportions(self, name, models, data):
        shares = models[name].transform(data.test.X)
        assert shares.shape == (data.test.n_rows, models[name].spec_.n_topics)
        assert (shares >= 0).all()
        np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)

    def test_fit_transform(self, few):
        found = tiny().fit_transform(*few)
        np.testing.assert_array_equal(found, tiny().fit(*few).transform(few[0]))
        masked = tiny().fit_transform(*few, missing=[[0]] * 80)
        assert not np.array_equal(masked, found)

    @pytest.mark.parametrize("algorithm", ["em", "gibbs"])
    def test_samples_are_as_frequent_as_they_are_probable(self, algorithm, models, X):
        model, n = models[algorithm], 4000
        for row in (0, 1):
            rows = sparse.csr_array(sparse.vstack([X[[row]]] * n))
            drawn = model.sample(rows, random_state=5)
            assert drawn.shape == (n, N_LABELS)
            assert set(np.unique(drawn.data)) == {1}
            P = model.predict_proba(X[[row]], calibrated=False)[0].astype(np.float64)
            error = np.sqrt(P * (1 - P) / n)
            assert (np.abs(drawn.mean(0) - P) < 4.5 * error + 1e-6).all()
            others = P[25:].sum()  # labels that have no place, all together
            assert abs(drawn[:, 25:].sum() / n - others) < 5 * np.sqrt(others / n)

    def test_samples_of_very_probable_labels(self, models, X):
        """Far more counts than labels: neither memory nor frequencies suffer."""
        model, n = pickle.loads(pickle.dumps(models["gibbs"])), 2000
        model.model_.W[:, -1] += torch.tensor([30.0, 3.0, 4.5, 0.0, 0.0])
        rows = sparse.csr_array(sparse.vstack([X[[2]]] * n))
        P = model.predict_proba(X[[2]], calibrated=False)[0].astype(np.float64)
        drawn = model.sample(rows, random_state=1)
        assert (np.abs(drawn.mean(0) - P) < 5 * np.sqrt(P * (1 - P) / n) + 1e-3).all()
        assert drawn[:, 25:].nnz > 0

    def test_samples_have_a_seed(self, fitted, X):
        a, b, c = (fitted.sample(X, random_state=seed).toarray() for seed in (1, 1, 2))
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
        assert fitted.sample(X[:0]).shape == (0, N_LABELS)

    @pytest.mark.parametrize("name", [*ALGORITHMS, "classes"])
    def test_doubts(self, name, models, X):
        model = models[name]
        found, P = model.doubts(X), model.predict_proba(X).astype(np.float64).clip(1e-30, 1 - 1e-12)
        entropy = -P * np.log(P) - (1 - P) * np.log1p(-P)
        np.testing.assert_allclose(found.rows, entropy.sum(1), rtol=1e-4)
        np.testing.assert_allclose(found.labels, entropy.sum(0), rtol=1e-4)
        rows, labels = model.most_uncertain(X, 3)
        np.testing.assert_array_equal(rows, np.argsort(-found.rows, kind="stable")[:3])
        np.testing.assert_array_equal(labels, model.classes_[np.argsort(-found.labels, kind="stable")[:3]])

    def test_rows_far_from_all_others(self, models, X):
        """No overflow; one of the classes holds however little the model would give it."""
        model = small(n_topics=2, row_transform="none", max_epochs=3).fit(X, models["classes"].predict(X))
        for scale in (1e4, -1e4):
            P = model.predict_proba(X * scale)
            np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
            np.testing.assert_allclose(model.transform(X * scale).sum(1), 1, rtol=1e-5)
            assert np.isfinite(model.decision_function(X * scale)).all()

    def test_nothing_is_known_before_the_fit(self, X):
        for ask in ("predict", "predict_proba", "predict_topk", "transform", "sample", "doubts", "most_uncertain"):
            with pytest.raises(NotFittedError):
                getattr(tiny(), ask)(X)
        with pytest.raises(NotFittedError):
            tiny().topics()
        with pytest.raises(NotFittedError):
            tiny().top_features(0)


class TestSaving:
    @pytest.mark.parametrize("name", [*ALGORITHMS, "classes"])
    def test_a_saved_model_answers_the_same(self, name, models, data, tmp_path):
        model, X = models[name], data.test.X
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu")
        assert_same_arrays(model, again)
        for ask in ("predict_proba", "transform", "decision_function"):
            np.testing.assert_array_equal(getattr(again, ask)(X), getattr(model, ask)(X))
        assert again.topics() == model.topics() or name != "classes"
        assert [(t.number, t.share) for t in again.topics()] == [(t.number, t.share) for t in model.topics()]
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
            patch("labelfield.estimators.saving.load_artifact", lambda path: changed),
            pytest.raises(ModelError) as caught,
        ):
            labelfield.load("model")
        assert str(caught.value).startswith("model: ")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    @pytest.mark.parametrize("name", ["V", "rest", "W", "r", "precision", "eta", "share"])
    def test_numbers(self, name, saved):
        array = saved[1][name]
        for changed in (array[:0], array * float("nan"), array.double(), array.unsqueeze(0), array.repeat(2, 1, 1)):
            self.damage(saved, arrays={name: changed})
        if name != "W":
            self.damage(saved, arrays={name: -array})

    def test_labels(self, saved):
        labels = saved[1]["labels"]
        for changed in (
            labels.flip(0),
            labels - 1 - labels[0],
            labels + N_LABELS,
            labels * 0,
            labels.int(),
            labels[1:],
        ):
            self.damage(saved, arrays={"labels": changed})
        counts = saved[1]["training.label_counts"]
        for changed in (-counts - 1, counts[1:], counts.float()):
            self.damage(saved, arrays={"training.label_counts": changed})
        self.damage(saved, arrays={"surplus": labels})

    def test_sizes(self, saved):
        spec = saved[0]["spec"]
        for name in spec:
            for value in (spec[name] + 1, 0, -1, 10**9, 10**18, 2.0, True, None, "3"):
                self.damage(saved, config={"spec": spec | {name: value}})
            if name != "is_exclusive":  # which older folders do not say
                self.damage(saved, config={"spec": {key: value for key, value in spec.items() if key != name}})
        self.damage(saved, config={"spec": spec | {"n_placed": spec["n_labels"] + 1}})

    def test_descriptions(self, saved):
        options = saved[0]["options"]
        for change in ({"algorithm": "magic"}, {"n_topics": 0}, {"threshold": "high"}, {"nonsense": 1}):
            self.damage(saved, config={"options": options | change})
        for change in ({"label_kind": "poem"}, {"n_rows": -1}, {"history": [{"epoch": "a"}]}, {"row_transform": "x"}):
            self.damage(saved, config=change)
        for name in ("spec", "options", "history", "label_kind"):
            self.damage((saved[0] | {name: None}, *saved[1:]))


class TestSeeds:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_the_same_seed_gives_the_same_arrays(self, algorithm, few):
        before = torch.get_rng_state()
        a, b, c = (tiny(algorithm=algorithm, random_state=seed).fit(*few) for seed in (3, 3, 4))
        assert_same_arrays(a, b)
        assert differ(a, c)
        assert torch.equal(torch.get_rng_state(), before)

    def test_fitting_twice_is_like_fitting_once(self, few):
        twice = tiny().fit(few[0][:50], few[1][:50] == 1)
        assert_same_arrays(twice.fit(*few), tiny().fit(*few))

    # Steps: 4 of each epoch of online EM, 1 of the others.
    @pytest.mark.parametrize(("algorithm", "stop_after"), [("em", 1), ("em", 4), ("gibbs", 2), ("gibbs", 5)])
    @pytest.mark.parametrize("masked", [False, True])
    def test_an_interrupted_run_resumes(self, algorithm, stop_after, masked, few, tmp_path, interrupt_after):
        self.resume(algorithm, stop_after, masked, few, tmp_path, interrupt_after)

    @pytest.mark.parametrize("stop_after", [1, 4, 6, 11])
    def test_so_does_an_interrupted_run_online(self, stop_after, few, tmp_path, interrupt_after):
        self.resume("online_em", stop_after, stop_after == 6, few, tmp_path, interrupt_after)

    def resume(self, algorithm, stop_after, masked, few, tmp_path, interrupt_after):
        hidden = {"missing": np.random.default_rng(0).random(few[1].shape) < 0.2} if masked else {}
        options = {"algorithm": algorithm, "max_epochs": 6, "batch_size": 25, "n_draws": 3, "tolerance": 0.0}
        path, interrupt = tmp_path / "checkpoint.safetensors", interrupt_after(stop_after, signal.SIGINT)
        with pytest.raises(Interrupted, match="SIGINT"):
            tiny(**options).fit(*few, **hidden, checkpoint=path, on_step=interrupt)
        assert interrupt.steps == stop_after
        steps, resumed, whole = [], tiny(**options), tiny(**options).fit(*few, **hidden)
        resumed.fit(*few, **hidden, checkpoint=path, resume=True, on_step=lambda run, n: steps.append(n))
        n_steps = 4 if algorithm == "online_em" else 1
        assert steps == [n_steps] * (6 * n_steps - stop_after)
        assert_same_arrays(whole, resumed)
        np.testing.assert_array_equal(bounds(whole), bounds(resumed))
        rates = [[epoch["learning_rate"] for epoch in model.history_] for model in (whole, resumed)]
        assert rates[0] == rates[1]

    def test_a_run_may_go_on_longer(self, few, tmp_path):
        path = tmp_path / "c"
        tiny(max_epochs=3).fit(*few, checkpoint=path)
        longer = tiny(max_epochs=7, time_budget=100).fit(*few, checkpoint=path, resume=True)
        assert_same_arrays(longer, tiny(max_epochs=7).fit(*few))

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_a_checkpoint_of_something_else_is_refused(self, algorithm, few, tmp_path):
        path, (X, Y) = tmp_path / "c", few
        tiny(algorithm=algorithm).fit(X, Y, checkpoint=path)
        other = {"em": "gibbs", "gibbs": "online_em", "online_em": "em"}[algorithm]
        changes = [{"algorithm": other}, {"n_topics": 2}, {"weight_scale": 1.0}, {"shape_strength": 2.0}]
        changes += [{"learn_hyper": False}, {"random_state": 1}, {"n_gradient_steps": 3}, {"row_transform": "log"}]
        message = "the checkpoint was made with another .*; expected the same options and data"
        for change in changes:
            with pytest.raises(DataError, match=message):
                tiny(**{"algorithm": algorithm} | change).fit(X, Y, checkpoint=path, resume=True)
        hidden = np.zeros(Y.shape, bool)
        hidden[:, 2] = True
        for arguments in (
            {"X": X[::-1], "Y": Y},
            {"X": X, "Y": Y[::-1]},
            {"X": X, "Y": Y, "missing": hidden},
            {"X": X, "Y": Y, "observed": hidden},
        ):
            with pytest.raises(DataError, match=message):
                tiny(algorithm=algorithm).fit(**arguments, checkpoint=path, resume=True)

    def test_what_was_observed_and_what_was_not_are_not_the_same(self, few, tmp_path):
        """The same places, of which no label holds."""
        X, Y = few
        places = np.zeros(Y.shape, bool)
        places[:, 27:] = True
        Y = Y * 0
        Y[:, 27] = 1
        tiny().fit(X, Y, observed=places, checkpoint=tmp_path / "c")
        with pytest.raises(DataError, match="another model or other training data"):
            tiny().fit(X, np.roll(Y, -10, 1), missing=places, checkpoint=tmp_path / "c", resume=True)

    def test_a_damaged_checkpoint(self, few, tmp_path):
        tiny().fit(*few, checkpoint=tmp_path / "c")
        (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-9] + b"something")
        with pytest.raises(DataError, match="checkpoint is damaged"):
            tiny().fit(*few, checkpoint=tmp_path / "c", resume=True)


class TestOnline:
    def test_a_store_in_mapped_memory_gives_the_same(self, data, tmp_path):
        labelfield.write(labelfield.Dataset(data.X, data.Y), tmp_path / "store")
        mapped = labelfield.read(tmp_path / "store")
        assert isinstance(mapped.X.data, np.memmap) or isinstance(mapped.X.data.base, np.memmap)
        models = [tiny(algorithm="online_em").fit(rows.X, rows.Y) for rows in (data, mapped)]
        assert_same_arrays(*models)
        np.testing.assert_array_equal(models[1].predict_proba(mapped.X), models[0].predict_proba(data.X))

    def test_no_batch_is_larger_than_asked_for(self, few):
        steps = []
        tiny(algorithm="online_em", batch_size=50, max_epochs=1).fit(*few, on_step=lambda run, n: steps.append(n))
        assert steps == [2, 2]

    def test_partial_fit_learns(self, X, Y, data):
        model, alone = small(), small()
        for _ in range(3):
            for first in range(0, 400, 100):
                model.partial_fit(X[first : first + 100], Y[first : first + 100])
        alone.partial_fit(X[:100], Y[:100])
        truth = wider(data.test.Y)
        assert auc(model, data.test.X, truth) > auc(alone, data.test.X, truth)
        assert model.n_iter_ == len(model.history_) == 12
        assert model.n_rows_ == 1200
        np.testing.assert_array_equal(model.label_counts_, 3 * Y.sum(0))
        rates = [epoch["learning_rate"] for epoch in model.history_]
        assert rates == sorted(rates, reverse=True)
        seconds = [epoch["seconds"] for epoch in model.history_]
        assert seconds == sorted(seconds)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("is_loaded", [False, True])
    def test_partial_fit_of_few_rows_forgets_little(self, algorithm, is_loaded, models, X, Y, tmp_path):
        models[algorithm].save(tmp_path / "m")
        model = (
            labelfield.load(tmp_path / "m", device="cpu")
            if is_loaded
            else pickle.loads(pickle.dumps(models[algorithm]))
        )
        last = model.model_.V[-1].numpy().copy()
        model.partial_fit(X[:20], Y[:20])
        V = model.model_.V[0].numpy()
        assert V.shape == (N_LABELS, 5)
        np.testing.assert_allclose(V.sum(0), 1, rtol=1e-4)
        assert 0 < np.abs(V[:25] - last).sum(0).max() < 0.3
        assert model.n_rows_ == 420
        assert auc(model, X, Y) > auc(models[algorithm], X, Y) - 0.04
        model.save(tmp_path / "n")
        np.testing.assert_array_equal(labelfield.load(tmp_path / "n").predict_proba(X), model.predict_proba(X))

    def test_partial_fit_with_labels_that_come_later(self, X):
        y = np.array(["b", "a"])[np.arange(400) % 2]
        model = tiny().partial_fit(X[:50], np.full(50, "b"), classes=["a", "b", "c"])
        for _ in range(3):
            model.partial_fit(X, y)
        np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
        P = model.predict_proba(X)
        assert (P[:, 2] < P[:, :2].min(1)).all()
        with pytest.raises(DataError, match="classes differ"):
            model.partial_fit(X, y, classes=["a", "b"])
        with pytest.raises(DataError, match="has the label 'd'"):
            model.partial_fit(X[:2], ["a", "d"])

    def test_partial_fit_of_lists(self, few):
        lists = [[f"l{number}" for number in np.flatnonzero(row)] for row in few[1]]
        names = [f"l{number}" for number in range(N_LABELS)]
        model = tiny().partial_fit(few[0][:40], lists[:40], classes=names).partial_fit(few[0][40:], lists[40:])
        assert model.classes_.tolist() == sorted(names)
        ragged = tiny().partial_fit(few[0], lists)
        assert ragged.label_kind_ == "lists"
        single = tiny(n_topics=2).partial_fit(few[0][:4], [["u"], ["v"], ["u"], ["w"]])
        assert single.classes_.tolist() == ["u", "v", "w"]

    def test_a_first_part_without_any_label(self, X, Y):
        model = tiny().partial_fit(X[:10], Y[:10] * 0).partial_fit(X, Y)
        assert np.isfinite(model.predict_proba(X)).all()

    def test_partial_fit_of_missing_labels(self, X, Y):
        """What is not a number counts for nothing, whether or not other parts have such entries."""
        Y = Y.toarray()
        holes = Y.copy()
        holes[:, :3] = np.nan
        model = tiny()
        for part, labels in ((slice(0, 200), Y), (slice(200, 300), holes), (slice(300, 400), Y)):
            model.partial_fit(X[part], labels[part])
            np.testing.assert_allclose(model.model_.V.sum(1), 1, rtol=1e-4)
        seen = np.r_[0:200, 300:400]
        np.testing.assert_array_equal(model.label_counts_[:3], Y[seen, :3].sum(0))
        zeros = tiny()
        for part, labels in ((slice(0, 200), Y), (slice(200, 300), np.nan_to_num(holes)), (slice(300, 400), Y)):
            zeros.partial_fit(X[part], labels[part])
        means = [m.predict_proba(X)[:, :3].mean() for m in (model, zeros)]
        assert means[0] > 1.05 * means[1]  # what is missing is no zero
        first = tiny().partial_fit(X, holes)
        assert (first.label_counts_[:3] == 0).all()


MASKS = {
    "boolean": lambda mask: mask,
    "numbers": lambda mask: mask.astype(int),
    "sparse": sparse.csr_array,
    "lists": lambda mask: [np.flatnonzero(row).tolist() for row in mask],
    "nested": lambda mask: mask.tolist(),
}


class TestMissing:
    @pytest.fixture(scope="class")
    @classmethod
    def hidden(cls, few):
        return np.random.default_rng(1).random(few[1].shape) < 0.3

    @pytest.fixture(scope="class")
    @classmethod
    def masked(cls, few, hidden):
        return {name: tiny(algorithm=name).fit(*few, missing=hidden) for name in ALGORITHMS}

    @pytest.mark.parametrize("form", MASKS)
    def test_all_forms_say_the_same(self, form, few, hidden, masked):
        for options in ({"missing": MASKS[form](hidden)}, {"observed": MASKS[form](~hidden)}):
            assert_same_arrays(tiny().fit(*few, **options), masked["em"])

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_not_a_number(self, algorithm, few, hidden, masked):
        Y = np.where(hidden, np.nan, few[1])
        assert_same_arrays(tiny(algorithm=algorithm).fit(few[0], Y), masked[algorithm])
        assert_same_arrays(tiny(algorithm=algorithm).fit(few[0], Y.tolist()), masked[algorithm])

    def test_few_that_were_observed(self, few):
        observed = np.random.default_rng(2).random(few[1].shape) < 0.2
        a, b = tiny().fit(*few, observed=observed), tiny().fit(*few, missing=~observed)
        assert_same_arrays(a, b)
        assert np.isfinite(a.predict_proba(few[0])).all()

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_labels_that_are_hidden_count_for_nothing(self, algorithm, few, hidden, masked):
        for value in (0, 1):
            Y = np.where(hidden, value, few[1])
            assert_same_arrays(tiny(algorithm=algorithm).fit(few[0], Y, missing=hidden), masked[algorithm])
        assert differ(masked[algorithm], tiny(algorithm=algorithm).fit(few[0], np.where(hidden, 0, few[1])))

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_a_mask_that_hides_nothing_changes_nothing(self, algorithm, few):
        plain, every = tiny(algorithm=algorithm).fit(*few), np.ones(few[1].shape, bool)
        for options in ({"observed": every}, {"missing": ~every}, {"missing": [[]] * 80}):
            assert_same_arrays(tiny(algorithm=algorithm).fit(*few, **options), plain)

    def test_names_of_labels(self, few, hidden):
        lists = [NAMES[np.flatnonzero(row)].tolist() for row in few[1]]
        missing = [NAMES[np.flatnonzero(row)].tolist() for row in hidden & few[1].any(0)]
        model = tiny().fit(few[0], lists, missing=missing)
        known = few[1].any(0)
        np.testing.assert_array_equal(model.classes_, NAMES[known])
        assert_same_arrays(model, tiny().fit(few[0], few[1][:, known], missing=hidden[:, known]))
        with pytest.raises(DataError, match="'poem'"):
            tiny().fit(few[0], lists, missing=[["poem"]] * 80)

    def test_hiding_does_not_lower_probabilities_as_zeros_do(self, X, Y):
        dense = Y.toarray()
        hidden = (np.random.default_rng(3).random(dense.shape) < 0.5) & (dense > 0)
        told, untold = small().fit(X, dense, missing=hidden), small().fit(X, np.where(hidden, 0, dense))
        whole = small().fit(X, dense).predict_proba(X)
        errors = [np.abs(model.predict_proba(X)[hidden] - whole[hidden]).mean() for model in (told, untold)]
        assert errors[0] < errors[1]

    def test_what_is_wrong_with_a_mask(self, few):
        X, Y = few
        every = np.ones(Y.shape, bool)
        with pytest.raises(ValueError, match="pass observed or missing, not both"):
            tiny().fit(X, Y, observed=every, missing=~every)
        holes = np.where(np.eye(80, N_LABELS) > 0, np.nan, Y)
        for options in ({"observed": every}, {"missing": ~every}):
            with pytest.raises(ValueError, match="Y has missing entries of its own"):
                tiny().fit(X, holes, **options)
        for mask in (every, sparse.csr_array(every), [list(range(N_LABELS))] * 80):
            with pytest.raises(DataError, match="no label of any row was observed"):
                tiny().fit(X, Y, missing=mask)
        with pytest.raises(DataError, match="no label of any row was observed"):
            tiny().fit(X, Y, observed=~every)
        with pytest.raises(DataError, match="no label of any row was observed"):
            tiny().fit(X, np.full(Y.shape, np.nan))
        with pytest.raises(DataError, match="no row has a label that was observed"):
            tiny().fit(X, Y, missing=Y > 0)
        for mask in (every[1:], every[:, 1:], every[0], sparse.csr_array(every[:, 1:]), every.tolist()[1:]):
            for name in ("observed", "missing"):
                with pytest.raises(DataError, match=rf"{name} has the shape .*; expected \(80, 30\) as Y has"):
                    tiny().fit(X, Y, **{name: mask})
        with pytest.raises(DataError, match="observed has 79 rows; expected 80"):
            tiny().fit(X, Y, observed=[[0]] * 79)
        with pytest.raises(DataError, match="observed as labels of Y: Y has the label '99'"):
            tiny().fit(X, Y, observed=[[99]] * 80)
        with pytest.raises(DataError, match="observed is int; expected a matrix of 0 and 1, or a list of labels"):
            tiny().fit(X, Y, observed=3)
        for mask in (every * 2, -every.astype(int), np.where(every, np.nan, 0)):
            with pytest.raises(DataError, match="observed is not binary"):
                tiny().fit(X, Y, observed=mask)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_topics": 0}, "n_topics=0; expected an integer of at least 1"),
            ({"n_topics": 2.5}, "n_topics=2.5"),
            ({"n_topics": 31}, "n_topics=31, and there are 30 labels; expected no more topics than labels"),
            ({"algorithm": "magic"}, "algorithm='magic'; expected one of em, online_em, gibbs"),
            ({"algorithm": None}, "algorithm=None"),
            ({"n_gradient_steps": -1}, "n_gradient_steps=-1"),
            ({"max_epochs": 0}, "max_epochs=0"),
            ({"tolerance": -1}, "tolerance=-1"),
            ({"tolerance": float("nan")}, "tolerance=nan"),
            ({"batch_size": 0}, "batch_size=0"),
            ({"step_power": 0.3}, "step_power=0.3; expected a number of at least 0.5 and at most 1"),
            ({"step_offset": 0}, "step_offset=0"),
            ({"n_draws": 0}, "n_draws=0"),
            ({"weight_scale": 0}, "weight_scale=0"),
            ({"shape_strength": "much"}, "shape_strength='much'"),
            ({"learn_hyper": 1}, "learn_hyper=1; expected True or False"),
            ({"time_budget": 0}, "time_budget=0"),
            ({"row_transform": "magic"}, "row_transform='magic'"),
            ({"device": "abacus"}, "device='abacus'; expected 'auto', 'cpu' or 'cuda'"),
            ({"random_state": -1}, "random_state=-1"),
        ],
    )
    def test_wrong_options(self, options, message, few):
        with pytest.raises(ValueError, match=message) as caught:
            tiny(**options).fit(*few)
        assert "\n" not in str(caught.value)

    def test_device(self, few):
        model = tiny(device="auto").fit(*few).to("cpu")
        assert model.device == "cpu"
        assert model.model_.device.type == "cpu"
        assert np.isfinite(model.partial_fit(*few).to("cpu").partial_fit(*few).predict_proba(few[0])).all()
        if not torch.cuda.is_available():
            with pytest.raises(ValueError, match="no CUDA device"):
                tiny(device="cuda").fit(*few)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_one_topic(self, algorithm, few):
        """All that features can say is how many labels a row has."""
        model = tiny(algorithm=algorithm, n_topics=1).fit(*few)
        np.testing.assert_array_equal(model.transform(few[0]), 1)
        best = model.predict_topk(few[0], 1).indices
        if algorithm != "gibbs":  # of which several draws are averaged
            assert (best == best[0]).all()
        assert (few[1].sum(0)[best] > 0.6 * few[1].sum(0).max()).all()
        assert [(topic.number, topic.share) for topic in model.topics()] == [(0, 1.0)]

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_as_many_topics_as_labels(self, algorithm, few):
        assert np.isfinite(tiny(algorithm=algorithm, n_topics=N_LABELS).fit(*few).predict_proba(few[0])).all()

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_features_that_say_nothing(self, algorithm, few):
        """Constant rows, and empty ones: each label is as probable as it is frequent."""
        Y = few[1]
        for X in (np.full((80, 1), 1e30), np.zeros((80, 3))):
            model = tiny(algorithm=algorithm, max_epochs=10, learn_hyper=False).fit(X, Y)
            P = model.predict_proba(X)
            np.testing.assert_allclose(P, P[:1].repeat(80, 0), rtol=1e-6)
            assert np.corrcoef(P[0], Y.mean(0))[0, 1] > 0.8
            np.testing.assert_allclose(P[0].sum(), Y.mean(0).sum(), rtol=0.5)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_rows_without_labels_and_labels_of_every_row(self, algorithm, few):
        X, Y = few[0], few[1].copy()
        Y[::2], Y[:, 7] = 0, 1
        model = tiny(algorithm=algorithm).fit(X, Y)
        P = model.predict_proba(X)
        assert np.isfinite(P).all()
        assert (P.argmax(1) == 7).all()
        Y[::2] = 0
        assert np.isfinite(tiny(algorithm=algorithm).fit(X, Y).predict_proba(X)).all()

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_one_row_and_one_label(self, algorithm, few):
        X, Y = few
        assert tiny(algorithm=algorithm).fit(X[:1], np.ones((1, 3))).predict_proba(X).shape == (80, 3)
        one = tiny(algorithm=algorithm, n_topics=1).fit(X, Y[:, :1] == 1)
        assert one.predict_proba(X).shape == (80, 1)

    def test_values_of_all_sizes(self, few):
        for scale in (1e-20, 1e10, 1e30):
            model = tiny().fit(few[0] * scale, few[1])
            assert np.isfinite(model.predict_proba(few[0] * scale)).all()
        model = tiny(row_transform="none").fit(few[0] * 1e3, few[1])
        assert np.isfinite(model.predict_proba(few[0] * 1e3)).all()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda X, Y: (X, -Y), "Y is not binary"),
            (lambda X, Y: (X, 2 * Y), "Y is not binary"),
            (lambda X, Y: (X, sparse.csr_array(-Y)), "Y is not binary"),
            (lambda X, Y: (X, 0.5 * Y), "Y is not binary"),
            (lambda X, Y: (X, np.where(Y > 0, np.inf, 0)), "NaN or infinity"),
            (lambda X, Y: (X, Y * 0), "no row has a label"),
            (lambda X, Y: (X, [[]] * 80), "Y has no labels"),
            (lambda X, Y: (X, Y[:, :0]), "Y has no labels"),
            (lambda X, Y: (X, Y[:0]), "X has 80 rows and Y has 0"),
            (lambda X, Y: (X, []), "X has 80 rows and Y has 0"),
            (lambda X, Y: (X[:0], Y[:0]), "0 sample"),
            (lambda X, Y: (X, None), "requires y"),
            (lambda X, Y: (X, Y[1:]), "X has 80 rows and Y has 79"),
            (lambda X, Y: (X, Y[None]), "3 dimensions"),
            (lambda X, Y: (np.where(X.toarray() > 0, np.nan, 0), Y), "NaN"),
            (lambda X, Y: (np.where(X.toarray() > 0, np.inf, 0), Y), "infinity"),
            (lambda X, Y: (X * np.nan, Y), "NaN"),
            (lambda X, Y: (X.toarray()[:, :0], Y), "0 feature"),
        ],
    )
    @pytest.mark.parametrize("algorithm", ["em", "online_em"])
    def test_refused(self, change, message, algorithm, few):
        with pytest.raises(ValueError, match=message) as caught:
            tiny(algorithm=algorithm).fit(*change(*few))
        assert len(str(caught.value).splitlines()) <= 6

    def test_a_fit_that_fails_leaves_nothing_of_the_one_before(self, few):
        model = tiny().fit(*few)
        with pytest.raises(ValueError):
            model.fit(few[0], -few[1])
        with pytest.raises(NotFittedError):
            model.predict(few[0])

    def test_other_widths(self, fitted, X):
        with pytest.raises(ValueError, match="99 features"):
            fitted.predict(X[:, :99])
        with pytest.raises(DataError, match="Y has 29 labels; expected 30"):
            pickle.loads(pickle.dumps(fitted)).partial_fit(X, np.ones((400, 29)))

    def test_sizes_beyond_the_memory_are_refused_before_they_are_tried(self, few, monkeypatch):
        monkeypatch.setattr("labelfield.estimators.training.free_bytes", lambda device: 1000)
        with pytest.raises(MemoryError, match="lower n_topics, or batch_size with algorithm='online_em'"):
            tiny().fit(*few)


def test_a_sampler_that_ended_early_counts_its_draws_alike(few):
    """Of 8 draws asked for, 4 sweeps keep 2."""
    model = tiny(algorithm="gibbs", n_draws=8).fit(*few)
    V = model.model_.V.numpy()
    assert len(V) == 8
    assert (V[:4] == V[0]).all()
    assert (V[4:] == V[4]).all()
    assert not np.array_equal(V[0], V[4])


def test_what_training_will_cost_changes_nothing(few):
    for algorithm in ALGORITHMS:
        model = tiny(algorithm=algorithm)
        rows = model.prepare(*few)
        before = arrays(model)
        assert model.seconds_per_step(rows) > 0
        assert model.training_bytes() > 0
        assert model.n_parameters() > 3 * (100 + 25)
        assert model.summary() == f"30 labels; 3 topics by {algorithm}"
        for name, value in arrays(model).items():
            np.testing.assert_array_equal(value, before[name])
        assert_same_arrays(model.train_prepared(rows), tiny(algorithm=algorithm).fit(*few))
