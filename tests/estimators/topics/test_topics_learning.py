"""The topic classifier learns, by each algorithm, and ends when it should."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score
from topic_cases import ALGORITHMS, N_LABELS, auc, bounds, small, tiny, wider

from labelfield import TopicClassifier, metrics, synth
from labelfield.linalg.rows import to_tensor
from labelfield.topics.density import label_probabilities


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rows_are_told_apart_which_popularity_does_not(algorithm, models, data):
    truth = wider(data.test.Y).toarray()
    popular = np.broadcast_to(models["em"].label_counts_, truth.shape)
    varies = truth.any(0)
    by_popularity = roc_auc_score(truth[:, varies].ravel(), popular[:, varies].ravel())
    assert auc(models[algorithm], data.test.X, wider(data.test.Y)) > by_popularity + 0.05
    P = models[algorithm].predict_proba(data.test.X)
    each = [roc_auc_score(truth[:, label], P[:, label]) for label in range(8)]
    assert np.mean(each) > 0.65  # 0.5 by popularity


def test_one_class_per_row(models, X):
    model = models["classes"]
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(X), model.classes_[P.argmax(1)])
    assert set(model.predict(X)) <= {"ant", "bee", "cat", "dog"}
    assert model.spec_.n_topics == 4


def test_codes_of_categories_become_indicators():
    rng = np.random.default_rng(0)
    X = np.c_[rng.integers(4, size=(400, 3)), rng.random((400, 1))]
    y = X[:, 0] % 2 == 0  # which no line through the codes can tell
    model = TopicClassifier(row_transform="coded", max_epochs=20, device="cpu").fit(X, y)
    assert model.spec_.n_features > X.shape[1]
    assert np.mean(model.predict(X) == y) > 0.9


def test_two_classes_have_a_topic_each_by_default():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=150)
    X = np.c_[y + 0.3 * rng.standard_normal(150), np.ones(150)]
    model = TopicClassifier(device="cpu").fit(X, y == 1)
    assert model.spec_.n_topics == 2
    assert model.score(X, y == 1) > 0.9
    assert model.decision_function(X).shape == (150,)
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X))


@pytest.mark.parametrize("n_gradient_steps", [2, 0])
def test_em_never_lowers_its_bound(n_gradient_steps, X, Y):
    options = {"learn_hyper": False, "tol": 0.0, "max_epochs": 30, "calibrate": False}
    found = bounds(small(n_gradient_steps=n_gradient_steps, **options).fit(X, Y))
    assert len(found) == 30
    assert (np.diff(found) > -1e-6 * np.abs(found[1:])).all()
    assert found[-1] > found[0] + 0.1


def test_the_exact_solution_is_where_many_gradient_steps_lead(few):
    options = {"learn_hyper": False, "max_epochs": 6}
    exact, near, far = (tiny(n_gradient_steps=n, **options).fit(*few) for n in (0, 100, 1))
    distance = [np.abs(exact.predict_proba(few[0]) - m.predict_proba(few[0])).max() for m in (near, far)]
    assert distance[0] < 1e-3 < distance[1]


def test_the_tolerance_ends_a_run(X, Y):
    slack, strict = (small(tol=tol, max_epochs=200).fit(X, Y) for tol in (1e-2, 1e-4))
    assert slack.n_iter_ < strict.n_iter_ < 200
    found = bounds(slack)
    assert abs(found[-1] - found[-2]) <= 1e-2 * abs(found[-1])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_time_budget_ends_a_run(algorithm, few):
    model = tiny(algorithm=algorithm, max_epochs=10**6, time_budget=0.05, tol=0.0, n_draws=3).fit(*few)
    assert model.n_iter_ < 10**5
    assert 0.05 <= model.history_[-1]["seconds"] < 2
    assert np.isfinite(model.predict_proba(few[0])).all()


def test_a_time_budget_ends_an_epoch_of_many_steps(few):
    steps = []
    model = tiny(algorithm="online_em", batch_size=1, time_budget=1e-6)
    model.fit(*few, on_step=lambda run, n_steps: steps.append(n_steps))
    assert steps == [80]  # the first of them
    assert model.n_iter_ == 1


def test_validation(data):
    model = tiny(algorithm="gibbs", max_epochs=2).fit(data.X, data.Y, validation=(data.test.X, data.test.Y))
    scores = [epoch["scores"]["P@1"] for epoch in model.history_]
    assert len(scores) == 2
    truth, best = data.test.Y.toarray(), model.predict_topk(data.test.X, 1).indices
    assert scores[-1] == pytest.approx(100 * truth[np.arange(len(best)), best].mean())


def test_planted_topics_are_found(models, data):
    """Labels that often go together are of the same topic."""
    together = np.corrcoef(data.Y.toarray().T)
    pairs = [[int(name) for name, _ in topic.labels] for topic in models["em"].topics(2)]
    assert sum(together[first, second] > np.median(together[first]) for first, second in pairs) >= 4


def test_a_sampler_that_ended_early_counts_its_draws_alike(few):
    """Where 8 draws are asked for, 4 sweeps keep 2."""
    V = tiny(algorithm="gibbs", n_draws=8).fit(*few).model_.V.numpy()
    assert len(V) == 8
    assert (V[:4] == V[0]).all()
    assert (V[4:] == V[4]).all()
    assert not np.array_equal(V[0], V[4])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
class TestExtremes:
    def test_one_topic(self, algorithm, few):
        """All that features can say is how many labels a row has."""
        model = tiny(algorithm=algorithm, n_topics=1).fit(*few)
        np.testing.assert_array_equal(model.transform(few[0]), 1)
        best = model.predict_topk(few[0], 1).indices
        if algorithm != "gibbs":  # it averages several draws
            assert (best == best[0]).all()
        assert (few[1].sum(0)[best] > 0.6 * few[1].sum(0).max()).all()
        assert [(topic.number, topic.share) for topic in model.topics()] == [(0, 1.0)]

    def test_as_many_topics_as_labels(self, algorithm, few):
        assert np.isfinite(tiny(algorithm=algorithm, n_topics=N_LABELS).fit(*few).predict_proba(few[0])).all()

    def test_features_that_say_nothing(self, algorithm, few):
        """Constant rows, and empty ones: each label is as probable as it is frequent."""
        Y = few[1]
        for X in (np.full((80, 1), 1e30), np.zeros((80, 3))):
            model = tiny(algorithm=algorithm, max_epochs=10, learn_hyper=False).fit(X, Y)
            P = model.predict_proba(X)
            np.testing.assert_allclose(P, P[:1].repeat(80, 0), rtol=1e-6)
            assert np.corrcoef(P[0], Y.mean(0))[0, 1] > 0.8
            np.testing.assert_allclose(P[0].sum(), Y.mean(0).sum(), rtol=0.5)

    def test_rows_without_labels_and_labels_of_every_row(self, algorithm, few):
        X, Y = few[0], few[1].copy()
        Y[::2], Y[:, 7] = 0, 1
        P = tiny(algorithm=algorithm).fit(X, Y).predict_proba(X)
        assert np.isfinite(P).all()
        assert (P.argmax(1) == 7).all()
        Y[::2] = 0
        assert np.isfinite(tiny(algorithm=algorithm).fit(X, Y).predict_proba(X)).all()

    def test_one_row_and_one_label(self, algorithm, few):
        X, Y = few
        assert tiny(algorithm=algorithm).fit(X[:1], np.ones((1, 3))).predict_proba(X).shape == (80, 3)
        one = tiny(algorithm=algorithm, n_topics=1).fit(X, Y[:, :1] == 1)
        assert one.predict_proba(X).shape == (80, 1)


@pytest.mark.parametrize(("scale", "options"), [(1e-20, {}), (1e10, {}), (1e30, {}), (1e3, {"row_transform": "none"})])
def test_values_of_all_sizes(scale, options, few):
    X = few[0] * scale
    assert np.isfinite(tiny(**options).fit(X, few[1]).predict_proba(X)).all()


@pytest.mark.parametrize("n_labels", [2_000, 1_000_000])
def test_labels_that_never_hold_change_little(n_labels):
    """They change neither what topics are, nor when EM ends."""
    data = synth.make_topics(300, 40, 20, 4, seed=2)
    wide = sparse.csr_array((data.Y.data, data.Y.indices, data.Y.indptr), shape=(300, n_labels))
    few, many = (small(n_topics=4, max_epochs=60).fit(data.X, Y) for Y in (data.Y, wide))
    assert abs(few.n_iter_ - many.n_iter_) < 15
    P, _ = label_probabilities(to_tensor(many.rows(data.X)), many.model_.drawn())
    Y = data.Y[:, many.model_.labels.numpy()]
    ours, theirs = metrics.auc(data.Y, few.predict_proba(data.X)), metrics.auc(Y, P.numpy())
    assert theirs > ours - 0.02
    assert float(many.model_.V[0].sum(0).min()) > 0.8, "topics are of labels that hold"
