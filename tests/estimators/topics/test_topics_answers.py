"""What fitted topics answer: probabilities, topics and their features, samples, what to ask for next."""

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import NotFittedError
from topic_cases import ALGORITHMS, N_LABELS, NAMES, small, tiny, wider

ALL = (*ALGORITHMS, "classes")


@pytest.mark.parametrize("name", ALL)
def test_the_many_ways_to_predict_agree(name, models, data):
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
    np.testing.assert_allclose(np.concatenate([model.predict_proba(X[s]) for s in (slice(7), slice(7, None))]), P, 1e-5)
    np.testing.assert_allclose(model.predict_proba(X.toarray()), P, rtol=1e-6)
    assert model.predict_proba(X[:0]).shape == (0, P.shape[1])
    assert model.predict_topk(X[:1], 1000).nnz == P.shape[1]


def test_score_is_the_share_of_rows_that_are_right(models, data):
    X, Y = data.test.X, wider(data.test.Y)
    right = (models["em"].predict(X) != Y).sum(1) == 0
    assert models["em"].score(X, Y) == pytest.approx(right.mean())
    y = models["classes"].predict(X)
    assert models["classes"].score(X, y) == 1


def test_labels_that_never_hold_are_alike_and_improbable(models, X):
    for name in ALGORITHMS:
        P = models[name].predict_proba(X)
        assert models[name].spec_.n_placed == 25
        assert (P[:, 25:] == P[:, 25:26]).all()
        assert 0 < P[:, 25:].mean() < P[:, :25].mean() / 5


def test_lists_of_labels(few):
    X, Y = few
    known = Y.any(0)
    lists = [NAMES[np.flatnonzero(row)].tolist() for row in Y]
    model, without = tiny().fit(X, lists), tiny().fit(X, Y[:, known])
    assert model.label_kind_ == "lists"
    np.testing.assert_array_equal(model.classes_, NAMES[known])
    np.testing.assert_array_equal(model.predict_proba(X), without.predict_proba(X))
    assert model.score(X, lists) == without.score(X, Y[:, known])


def test_dense_rows_give_what_sparse_ones_do(fitted, X, Y):
    dense = small().fit(X.toarray(), Y.toarray())
    np.testing.assert_allclose(dense.predict_proba(X), fitted.predict_proba(X), rtol=1e-5, atol=1e-7)


def test_rows_far_from_all_others(models, X):
    """Nothing overflows; one of the classes holds however little the model would give it."""
    model = small(n_topics=2, row_transform="none", max_epochs=3).fit(X, models["classes"].predict(X))
    for scale in (1e4, -1e4):
        P = model.predict_proba(X * scale)
        np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
        np.testing.assert_allclose(model.transform(X * scale).sum(1), 1, rtol=1e-5)
        assert np.isfinite(model.decision_function(X * scale)).all()


class TestTopics:
    @pytest.mark.parametrize("name", ALL)
    def test_they_come_by_their_share_with_their_first_labels(self, name, models):
        model = models[name]
        found, V = model.topics(4), model.model_.V.mean(0).numpy()
        assert sorted(topic.number for topic in found) == list(range(model.spec_.n_topics))
        shares = [topic.share for topic in found]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1, rel=1e-5)
        for topic in found:
            weights = [weight for _, weight in topic.labels]
            assert len(weights) == 4
            assert weights == sorted(weights, reverse=True)
            assert weights[0] == V[:, topic.number].max()

    def test_labels_have_names(self, models):
        words = {name for topic in models["classes"].topics() for name, _ in topic.labels}
        assert words == {"ant", "bee", "cat", "dog"}
        called = models["em"].topics(1, label_names=NAMES.tolist())[0]
        assert called.labels[0][0] == NAMES[int(models["em"].topics(1)[0].labels[0][0])]
        assert len(models["em"].topics(1000)[0].labels) == 25

    def test_features(self, fitted):
        found = fitted.top_features(2, 6)
        weights = [weight for _, weight in found]
        assert weights == sorted(weights, reverse=True)
        W = fitted.model_.W[0, :-1, 2].numpy()
        assert found[0] == (int(W.argmax()), W.max())
        words = [f"word {d}" for d in range(100)]
        assert fitted.top_features(np.int64(2), 1, words)[0][0] == words[int(W.argmax())]

    def test_features_of_several_views_are_folded(self, few):
        model = tiny(row_transform="unit + sqrt").fit(*few)
        assert model.spec_.n_features == 200
        assert {d for d, _ in model.top_features(0, 100)} == set(range(100))

    @pytest.mark.parametrize(
        ("ask", "message"),
        [
            *(
                (lambda model, topic=topic: model.top_features(topic), r"topic=.*; expected a number from 0 to 4")
                for topic in (-1, 5, 1.0, "a", None, True)
            ),
            (lambda model: model.topics(0), "n=0; expected an integer of at least 1"),
            (lambda model: model.topics(2.5), "n=2.5; expected an integer of at least 1"),
            (lambda model: model.top_features(0, 0), "n=0; expected an integer of at least 1"),
            (lambda model: model.top_features(0, feature_names=["a"]), "1 feature names; expected 100"),
            (lambda model: model.topics(3, label_names=["a", "b"]), "2 label names; expected 30"),
        ],
    )
    def test_what_does_not_exist_is_refused(self, ask, message, fitted):
        with pytest.raises(ValueError, match=message):
            ask(fitted)

    @pytest.mark.parametrize("name", ALL)
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


class TestSamples:
    @pytest.mark.parametrize("algorithm", ["em", "gibbs"])
    def test_labels_are_as_frequent_as_they_are_probable(self, algorithm, models, X):
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

    def test_very_probable_labels(self, models, X):
        """Far more counts than labels: neither memory nor frequencies suffer."""
        model, n = pickle.loads(pickle.dumps(models["gibbs"])), 2000
        model.model_.W[:, -1] += torch.tensor([30.0, 3.0, 4.5, 0.0, 0.0])
        rows = sparse.csr_array(sparse.vstack([X[[2]]] * n))
        P = model.predict_proba(X[[2]], calibrated=False)[0].astype(np.float64)
        drawn = model.sample(rows, random_state=1)
        assert (np.abs(drawn.mean(0) - P) < 5 * np.sqrt(P * (1 - P) / n) + 1e-3).all()
        assert drawn[:, 25:].nnz > 0

    def test_they_have_a_seed(self, fitted, X):
        a, b, c = (fitted.sample(X, random_state=seed).toarray() for seed in (1, 1, 2))
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
        assert fitted.sample(X[:0]).shape == (0, N_LABELS)


@pytest.mark.parametrize("name", ALL)
def test_entropy_says_what_to_ask_for_next(name, models, X):
    model = models[name]
    found, P = model.label_entropy(X), model.predict_proba(X).astype(np.float64).clip(1e-30, 1 - 1e-12)
    entropy = -P * np.log(P) - (1 - P) * np.log1p(-P)
    np.testing.assert_allclose(found.rows, entropy.sum(1), rtol=1e-4)
    np.testing.assert_allclose(found.labels, entropy.sum(0), rtol=1e-4)
    rows, labels = model.most_uncertain(X, 3)
    np.testing.assert_array_equal(rows, np.argsort(-found.rows, kind="stable")[:3])
    np.testing.assert_array_equal(labels, model.classes_[np.argsort(-found.labels, kind="stable")[:3]])


def test_nothing_is_known_before_the_fit(X):
    asked = ("predict", "predict_proba", "predict_topk", "predict_interval", "predict_uncertainty", "decision_function")
    for ask in (*asked, "transform", "sample", "label_entropy", "most_uncertain"):
        with pytest.raises(NotFittedError):
            getattr(tiny(), ask)(X)
    for ask in (lambda: tiny().topics(), lambda: tiny().top_features(0)):
        with pytest.raises(NotFittedError):
            ask()
