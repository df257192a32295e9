"""What all classifiers share: every question of the protocol, forms of rows and labels, seeds, copies, partial fits."""

import copy
import inspect
import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from method_cases import (
    CASES,
    ENSEMBLES,
    LINEAR,
    MIXES,
    N_FEATURES,
    N_LABELS,
    N_TEST,
    SINGLE,
    TEST,
    TRAIN,
    WORDS,
    fitted,
)
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.validation import check_is_fitted

from labelfield import CannotAnswerError, DataError, load
from labelfield.estimators.classifier import training_bytes
from labelfield.estimators.protocol import FittedClassifier
from labelfield.methods import METHODS

X = TEST.X
NONE = sparse.csr_array((0, N_FEATURES))
ONE_OF_EACH = ["mlgpf", "one_vs_each", "svdkl", "topics", "linear", "auto", "ensemble of mlgpf"]
TRAINED_AGAIN = [*SINGLE, *LINEAR, "auto", "ensemble of mlgpf"]


def every(cases=CASES, **having):
    """Run a test for these classifiers, or for those of them that have or lack answers."""
    chosen = [name for name, case in cases.items() if all(getattr(case, what) == has for what, has in having.items())]
    return pytest.mark.parametrize("name", chosen)


def fresh(name, **options):
    return clone(CASES[name].estimator).set_params(**options)


def fit(name, rows=TRAIN, **options):
    return fresh(name, **options).fit(rows.X, CASES[name].labels(rows))


def copied(model):
    return pickle.loads(pickle.dumps(model))


def in_lists(Y):
    return [Y.indices[a:b].tolist() for a, b in pairwise(Y.indptr)]


class TestAnswers:
    @every()
    def test_probabilities(self, name):
        model, has_classes = fitted(name), CASES[name].has_classes
        for is_calibrated in (True, False):
            P = model.predict_proba(X, calibrated=is_calibrated)
            assert P.shape == (N_TEST, N_LABELS)
            assert P.dtype == np.float32
            assert ((P >= 0) & (P <= 1)).all()
            if has_classes:
                np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
        assert model.classes_.tolist() == (WORDS.tolist() if has_classes else list(range(N_LABELS)))

    @every()
    def test_a_calibration_was_learned_and_keeps_the_ranking(self, name):
        model = fitted(name)
        assert model.settings_.held_out == (64 if name in MIXES else 32)
        raw, P = (model.predict_proba(X, calibrated=is_calibrated) for is_calibrated in (False, True))
        assert not np.array_equal(raw, P)
        # Two labels may get the same probability, never the other order. The first of equals is before the others.
        in_order = np.take_along_axis(P, (-raw).argsort(1, kind="stable")[:, ::-1], 1)
        assert (np.diff(in_order) >= -1e-6).all()

    @every()
    def test_the_ways_to_predict_agree(self, name):
        model = fitted(name)
        P = model.predictor_.separate_proba(model.rows(X))
        lists = model.predict_topk(X, 2)
        assert np.diff(lists.indptr).tolist() == [2] * N_TEST
        assert lists.has_sorted_indices
        columns, values = (part.reshape(N_TEST, 2) for part in (lists.indices, lists.data))
        np.testing.assert_allclose(np.take_along_axis(P, columns, 1), values, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.sort(values, 1), np.sort(P, 1)[:, -2:], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(model.predict_topk(X, 99).toarray(), P, rtol=1e-5, atol=1e-6)
        raw = model.predictor_.separate_proba(model.rows(X), calibrated=False)
        np.testing.assert_array_equal(np.sort(np.take_along_axis(raw, columns, 1), 1), np.sort(raw, 1)[:, -2:])
        found = model.predict(X)
        if CASES[name].has_classes:
            np.testing.assert_array_equal(found, WORDS[P.argmax(1)])
        else:
            np.testing.assert_array_equal(found.toarray(), P >= 0.5)
            chosen = model.predict(X, k=2)
            np.testing.assert_array_equal(chosen.indices, lists.indices)
            assert set(chosen.data) == {1}

    @every()
    def test_the_decision_function_is_of_raw_probabilities(self, name):
        model = fitted(name)
        raw, scores = model.predictor_.separate_proba(model.rows(X), calibrated=False), model.decision_function(X)
        p = np.exp(scores) if model.predictor_.is_exclusive else expit(scores)
        np.testing.assert_allclose(p, raw, rtol=1e-4, atol=1e-6)
        log_odds = model.predictor_.log_odds(model.rows(X))
        np.testing.assert_allclose(expit(log_odds), raw, rtol=1e-4, atol=1e-6)

    @every()
    def test_intervals_grow_with_the_level(self, name):
        model = fitted(name)
        low, high = model.predict_interval(X, 0.9)
        assert low.shape == high.shape == (N_TEST, N_LABELS)
        assert low.dtype == high.dtype == np.float32
        assert (low >= 0).all()
        assert (high <= 1).all()
        assert (low < high).all()
        lower, higher = model.predict_interval(X, 0.99)
        assert (lower <= low).all()
        assert (higher >= high).all()
        for level in (0, 1, 1.5, -0.1):
            with pytest.raises(ValueError, match=f"level={level}; expected between 0 and 1"):
                model.predict_interval(X, level)

    @every()
    def test_uncertainty_is_of_the_first_label(self, name):
        model = fitted(name)
        found, best = model.predict_uncertainty(X), model.predict_topk(X, 3)
        assert found.shape == (N_TEST,)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, 1 - best.max(axis=1).toarray().ravel(), atol=1e-6)
        np.testing.assert_allclose(model.predict_uncertainty(X, best), found, atol=1e-6)

    @every(has_latent=True)
    def test_latent_moments(self, name):
        latent = fitted(name).predict_latent(X)
        assert latent.f_mean.shape == latent.f_var.shape == (N_TEST, N_LABELS)
        assert np.isfinite(latent.f_mean).all()
        if CASES[name].has_latent and name != "point" and "plain" not in name:
            assert (latent.f_var > 0).all()
        else:
            assert not latent.f_var.any()  # a point estimate
        if latent.h_mean is not None:
            assert latent.h_mean.shape == latent.h_var.shape == (N_TEST, fitted(name).spec_.n_latent)

    @every(has_latent=False)
    def test_no_latent_processes_in_topics(self, name):
        assert_cannot(lambda: fitted(name).predict_latent(X))

    @every(has_bound=True)
    def test_the_bound(self, name):
        bound = fitted(name).bound(TRAIN.X, CASES[name].labels(TRAIN))
        assert bound["bound"] == pytest.approx(bound["fit"] - bound["kl"])
        assert bound["fit"] < 0 <= bound["kl"]

    @every(has_bound=False)
    def test_no_bound_of_topics_and_ensembles(self, name):
        assert_cannot(lambda: fitted(name).bound(X, CASES[name].labels(TEST)))

    @every()
    def test_all_of_the_protocol_is_there(self, name):
        model = fitted(name)
        for attribute in {**FittedClassifier.__annotations__, **vars(FittedClassifier)}:
            if not attribute.startswith("_") or attribute in FittedClassifier.__annotations__:
                assert hasattr(model, attribute), attribute
        assert METHODS[model.method].load() is type(model if name in MIXES else model.members()[0])
        assert model.summary()
        assert "\n" not in model.summary()
        assert model.n_parameters() > 0
        assert training_bytes(model) >= 0
        assert model.label_names() == (WORDS.tolist() if CASES[name].has_classes else list("01234"))
        assert model.feature_names() is None
        assert (
            model.label_counts_.tolist()
            == np.bincount(model.encode(CASES[name].labels(TRAIN), 320).indices, minlength=N_LABELS).tolist()
        )
        assert (model.n_rows_, model.n_features_in_) == (320, N_FEATURES)
        assert len(model.history_) == model.n_iter_ > 0

    @every()
    def test_what_a_model_has_not_learned_is_none(self, name):
        model = fitted(name)
        is_ensemble, has_topics = name in ENSEMBLES | MIXES, model.method == "topics"
        relevance = model.feature_relevance()
        assert relevance is None or relevance.shape == (N_FEATURES,)
        assert (model.topics() is not None) == (has_topics and not is_ensemble)
        predictor = model.predictor_
        loadings = predictor.loadings()
        has_none = model.method in ("one_vs_each", "softmax", "robustmax", "linear") or name == "auto, fast"
        assert loadings is None if has_none else len(loadings) == N_LABELS
        has_processes = CASES[name].has_latent and not is_ensemble and model.method != "svdkl" and name != "point"
        assert (predictor.processes() is not None) == has_processes
        assert (predictor.baseline() is not None) == name.startswith("svdkl") - (name == "svdkl, plain")
        assert (predictor.first_labels(2) is not None) == (has_topics and not is_ensemble)

    def test_a_budget_of_time_is_the_most_that_training_costs(self):
        model = fresh("mlgpf", time_budget=1e-6)
        assert model.training_cost(model.prepare(TRAIN.X, TRAIN.Y)).seconds == 1e-6


def assert_cannot(ask):
    with pytest.raises(CannotAnswerError) as caught:
        ask()
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


class TestForms:
    @every()
    def test_dense_and_sparse_rows_and_their_types_agree(self, name):
        model, unsorted = fitted(name), sparse.csr_matrix(X)
        for a, b in pairwise(unsorted.indptr):
            unsorted.indices[a:b] = unsorted.indices[a:b][::-1].copy()
            unsorted.data[a:b] = unsorted.data[a:b][::-1].copy()
        unsorted.has_sorted_indices = False
        dense = X.toarray()
        for other in (dense, dense.astype(np.float64).tolist(), sparse.csc_matrix(X), sparse.coo_array(X), unsorted):
            np.testing.assert_allclose(model.predict_proba(other), model.predict_proba(X), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(model.predict_uncertainty(dense), model.predict_uncertainty(X), rtol=1e-4)

    @every()
    def test_one_row_and_none(self, name):
        model, has_classes = fitted(name), CASES[name].has_classes
        np.testing.assert_allclose(model.predict_proba(X[[3]]), model.predict_proba(X)[[3]], rtol=1e-4, atol=1e-6)
        assert model.predict(NONE).shape == ((0,) if has_classes else (0, N_LABELS))
        for ask in (model.predict_proba, model.predict_topk, model.decision_function):
            assert ask(NONE).shape == (0, N_LABELS)
        assert model.predict_uncertainty(NONE).shape == (0,)
        if CASES[name].has_latent:
            assert model.predict_latent(NONE).f_var.shape == (0, N_LABELS)
        if model.evidence_ is not None:
            assert model.predict_interval(NONE)[0].shape == (0, N_LABELS)

    @pytest.mark.parametrize("name", ONE_OF_EACH)
    def test_wrong_width(self, name):
        message = f"X has 3 features, but {type(fitted(name)).__name__} is expecting {N_FEATURES}"
        for ask in (fitted(name).predict, fitted(name).predict_uncertainty, fitted(name).decision_function):
            with pytest.raises(ValueError, match=message):
                ask(np.eye(3))

    @every()
    def test_how_many_labels_must_be_a_count(self, name):
        for k in (0, -1, 2.5, True, None, "3"):
            with pytest.raises(ValueError, match=f"k={k!r}; expected an integer of at least 1"):
                fitted(name).predict_topk(X, k)

    @pytest.mark.parametrize("name", ["mlgpf", "svdkl, labels", "topics", "linear", "auto"])
    def test_every_form_of_labels(self, name):
        lists = in_lists(TRAIN.Y)
        for Y in (TRAIN.Y.toarray().astype(int), sparse.lil_array(TRAIN.Y), [set(row) for row in lists]):
            np.testing.assert_array_equal(fresh(name).prepare(TRAIN.X, Y).Y.toarray(), TRAIN.Y.toarray())
        model = fresh(name).fit(TRAIN.X, lists)
        np.testing.assert_array_equal(model.predict_proba(X), fitted(name).predict_proba(X))

    @every()
    def test_score_takes_every_form_of_labels(self, name):
        model, expected = fitted(name), fitted(name).score(X, CASES[name].labels(TEST))
        assert 0 < expected <= 1
        if CASES[name].has_classes:
            indicators = (TEST.y[:, None] == WORDS).astype(int)
            forms = TEST.y.tolist(), indicators, sparse.csr_array(indicators)
        else:
            forms = in_lists(TEST.Y), TEST.Y.toarray()
        assert [model.score(X, Y) for Y in forms] == [expected] * len(forms)
        weights = np.arange(N_TEST)
        assert model.score(X, CASES[name].labels(TEST), sample_weight=weights) != expected

    @every(SINGLE | LINEAR, has_classes=True)
    def test_two_classes_have_one_decision(self, name):
        y = np.where(TRAIN.y < "c", "no", "yes")
        sizes = {"n_topics": 2} if "topics" in name else {}
        model = fresh(name, **sizes).fit(TRAIN.X, y)
        scores = model.decision_function(X)
        assert scores.shape == (N_TEST,)
        np.testing.assert_array_equal(scores > 0, model.predict(X) == "yes")

    @pytest.mark.parametrize(
        "name", ["mlgpf", "one_vs_each", "svdkl", "svdkl, labels", "topics", *LINEAR, "auto, fast"]
    )
    def test_awkward_rows(self, name):
        """All 0, all the same, and features that training never saw."""
        empty, constant = np.zeros((30, 4)), np.ones((30, 4))
        mixed = np.r_[empty[:10], constant[:10], np.arange(40).reshape(10, 4) % 7]
        unseen = np.array([[0, 0, 0, 5.0]])
        Y = np.eye(3, dtype=int)[np.arange(30) % 3]
        y = WORDS[np.arange(30) % 3] if CASES[name].has_classes else Y
        for rows in (empty, constant, mixed, mixed * [1, 1, 1, 0]):
            if "svdkl" in name and rows.std() == 0:
                with pytest.raises(ValueError, match="the same features for all rows"):
                    fresh(name).fit(rows, y)
                continue
            model = fresh(name).fit(rows, y)
            for asked in (rows, unseen):
                assert np.isfinite(model.predict_proba(asked)).all()


class TestRefused:
    @pytest.mark.parametrize(
        ("rows", "Y", "message"),
        [
            (np.eye(3), np.eye(2, 3), "X has 3 rows and Y has 2"),
            (np.array([[np.nan], [1]]), [0, 1], "X contains NaN"),
            (np.eye(2), np.array([[0, 2], [1, 0]]), "not binary"),
            (np.eye(2), sparse.csr_array(np.array([[0, 0.5], [1, 0]])), "not binary"),
            (np.zeros((0, 3)), np.zeros((0, 2)), "0 sample"),
            (np.zeros((3, 0)), np.zeros((3, 2)), "0 feature"),
            (np.eye(3), np.zeros((3, 0)), "no labels"),
            (np.eye(2), None, "requires y"),
            (np.eye(2), [0.5, 1.5], "continuous"),
            (np.eye(2), np.array(["a", 3], object), "one kind of label"),
            (np.eye(2), [[10**9], [3, 4]], "label number 1000000000"),
        ],
    )
    def test_bad_data(self, rows, Y, message):
        for name in ONE_OF_EACH:
            with pytest.raises(ValueError, match=message):
                fresh(name).fit(rows, Y)

    @every()
    def test_nothing_is_answered_before_fit(self, name):
        model = fresh(name)
        rows = (model.predict, model.predict_proba, model.predict_topk, model.decision_function, model.rows)
        for ask in (*rows, model.predict_interval, model.predict_uncertainty, model.predict_latent):
            with pytest.raises(NotFittedError, match="is not fitted yet; call fit first"):
                ask(X)
        with pytest.raises(NotFittedError):
            model.save("nowhere")
        for ask in (model.summary, model.label_names, model.feature_relevance, model.topics, model.members):
            if ask != model.members or name in ENSEMBLES | MIXES:
                with pytest.raises(NotFittedError):
                    ask()
        with pytest.raises(NotFittedError):
            model.score(X, CASES[name].labels(TEST))
        assert not hasattr(model, "classes_")

    @every()
    def test_a_fit_that_fails_leaves_nothing_of_the_one_before(self, name):
        model = copied(fitted(name))
        check_is_fitted(model)
        with pytest.raises(ValueError, match="X contains NaN"):
            model.fit(np.full((5, 2), np.nan), CASES[name].labels(TEST)[:5])
        with pytest.raises(NotFittedError):
            check_is_fitted(model)
        with pytest.raises(NotFittedError):
            model.predict(X)

    @pytest.mark.parametrize("name", ONE_OF_EACH)
    def test_devices(self, name, monkeypatch):
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        prefix = "estimator__" if name in ENSEMBLES else ""
        for device, message in (("tpu", "device='tpu'"), ("cuda", "sees no CUDA device"), ("cpu:x", "device='cpu:x'")):
            with pytest.raises(ValueError, match=message):
                fit(name, **{f"{prefix}device": device})
        with pytest.raises(ValueError, match="device='tpu'"):
            fitted(name).to("tpu")

    @pytest.mark.parametrize("name", ONE_OF_EACH)
    def test_seeds(self, name):
        prefix = "estimator__" if name in ENSEMBLES else ""
        for seed in (-1, 10**30, "one", 1.5, True):
            with pytest.raises(ValueError, match=f"random_state={seed!r}; expected an integer"):
                fit(name, **{f"{prefix}random_state": seed})

    @every()
    def test_validation_labels_that_are_not_known(self, name):
        Y = ["cat", "fox"] if CASES[name].has_classes else [[1], [7]]
        with pytest.raises(DataError, match=r"the label '(fox|7)'; expected labels of the first fit"):
            fresh(name).fit(TRAIN.X, CASES[name].labels(TRAIN), validation=(X[:2], Y))


class TestMemory:
    @every(SINGLE | LINEAR)
    def test_sizes_beyond_the_memory_are_refused_before_they_are_tried(self, name, monkeypatch):
        monkeypatch.setattr("labelfield.estimators.classifier.free_bytes", lambda device: 100)
        hint = CASES[name].estimator.blueprint.memory_hint.split(",")[0].split(" or ")[0]
        with pytest.raises(MemoryError, match=rf"out of memory: lower {hint}.*\(training needs about .*GiB"):
            fit(name)

    @every(SINGLE | LINEAR)
    def test_allocations_that_fail_in_training_say_what_to_lower(self, name, monkeypatch):
        model = fresh(name)
        data = model.prepare(TRAIN.X, CASES[name].labels(TRAIN))
        monkeypatch.setattr(model.trainer_, "train", exploding(torch.OutOfMemoryError("tried to allocate 1 TB")))
        hint = model.blueprint.memory_hint.split(",")[0]
        with pytest.raises(MemoryError, match=rf"out of memory: lower {hint}.*\(tried to allocate 1 TB\)"):
            model.train_prepared(data)

    @pytest.mark.parametrize("name", ["mlgpf", "softmax", "svdkl", "topics"])
    def test_allocations_that_fail_in_prediction_say_what_to_lower(self, name, monkeypatch):
        place = {"mlgpf": "latent", "softmax": "moments", "svdkl": "latent", "topics": "predict_proba"}[name]
        error = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        monkeypatch.setattr(type(fitted(name).model_), place, exploding(error))
        with pytest.raises(MemoryError, match="lower the number of rows"):
            fitted(name).predict_proba(X)

    def test_a_failed_prediction_leaves_gradients_on(self):
        model = fit("mlgpf")
        model.model_.likelihood.n_points = 0
        with pytest.raises(ValueError, match="n_points"):
            model.predict_proba(X)
        assert torch.is_grad_enabled()


def exploding(error):
    def explode(*args, **options):
        raise error

    return explode


class TestCopies:
    @every()
    def test_copies_answer_the_same(self, name):
        model = fitted(name)
        P = model.predict_proba(X)
        copy = copied(model)
        np.testing.assert_array_equal(copy.predict_proba(X), P)
        np.testing.assert_array_equal(copy.predict_uncertainty(X), model.predict_uncertainty(X))

    @every()
    def test_copies_hold_no_training_and_are_as_small_after_predicting(self, name):
        model = copied(fitted(name))
        before = len(pickle.dumps(model))
        model.predict_proba(X)
        assert len(pickle.dumps(model)) <= 1.01 * before
        assert before < 100_000

    @every()
    def test_it_works_in_inference_mode(self, name):
        model = copied(fitted(name))
        with torch.inference_mode():
            for _ in range(2):
                np.testing.assert_array_equal(model.predict_topk(X).data, fitted(name).predict_topk(X).data)

    @every()
    def test_options_are_kept_as_they_were_given(self, name):
        given = CASES[name].estimator.get_params()
        found = fitted(name).get_params()
        assert set(given) == set(found)
        assert all(found[option] == value for option, value in given.items() if option != "estimator")
        assert set(inspect.signature(type(fitted(name))).parameters) == set(fitted(name).get_params(deep=False))


class TestPipelines:
    def test_pipelines_and_searches(self):
        model = make_pipeline(MaxAbsScaler(), fresh("mlgpf"))
        assert model.fit(TRAIN.X, TRAIN.Y).predict_proba(X).shape == (N_TEST, N_LABELS)
        search = GridSearchCV(fresh("one_vs_each", max_epochs=1), {"n_inducing": [1, 2]}, cv=2).fit(TRAIN.X, TRAIN.y)
        assert search.best_params_["n_inducing"] in (1, 2)


class TestTraining:
    @pytest.mark.parametrize("name", TRAINED_AGAIN)
    def test_the_same_seed_gives_the_same_bits_also_when_watched(self, name):
        """Neither the question what training costs nor scores after each epoch change what is trained."""
        model = fresh(name)
        data = model.prepare(TRAIN.X, CASES[name].labels(TRAIN))
        cost = model.training_cost(data)
        assert cost.n_bytes == training_bytes(model)
        assert 0 < cost.seconds < 60
        assert cost.stages == model.trainer_.stage_settings()
        model.train_prepared(data, validation=(X, CASES[name].labels(TEST)))
        np.testing.assert_array_equal(model.predict_proba(X), fitted(name).predict_proba(X))
        # Of a mix the whole is scored, which is there at the end.
        scored, last = (model.history_[-1:], model) if name in MIXES else (model.history_, model.members()[0])
        assert all(set(epoch["scores"]) == {"P@1", "P@3", "P@5"} for epoch in scored)
        first, truth = last.predict_topk(X, 1).indices, last.encode(CASES[name].labels(TEST), N_TEST).toarray()
        expected = 100 * truth[np.arange(N_TEST), first].mean()
        # The last epoch of a sampler is one draw; the model is the mean over several.
        tolerance = 30 if "gibbs" in name else 1e-4
        assert model.history_[-1]["scores"]["P@1"] == pytest.approx(expected, abs=tolerance)

    @pytest.mark.parametrize("name", ["mlgpf", "one_vs_each", "svdkl", "topics"])
    def test_another_seed_does_not(self, name):
        assert not np.array_equal(fit(name, random_state=4).predict_proba(X), fitted(name).predict_proba(X))

    def test_seeds_may_be_drawn(self):
        drawn = [prepared_seed(np.random.RandomState(5)) for _ in range(2)]
        assert drawn[0] == drawn[1]
        assert len({prepared_seed(None) for _ in range(3)}) > 1


def prepared_seed(random_state):
    model = fresh("mlgpf", random_state=random_state)
    model.prepare(X, TEST.Y)
    return model.settings_.seed


class TestPartialFit:
    @every(SINGLE)
    def test_counts_and_epochs_go_on_and_later_labels_can_be_announced(self, name):
        has_classes = CASES[name].has_classes
        known = sorted([*WORDS, "fox"])
        Y = TRAIN.y if has_classes else [[known[i] for i in row] for row in in_lists(TRAIN.Y)]
        model = fresh(name)
        for part in (slice(0, 100), slice(100, 320)):
            model.partial_fit(TRAIN.X[part], Y[part], classes=known)
        model.partial_fit(X[:2], ["fox", "fox"] if has_classes else [["fox"], ["fox", "ant"]], classes=known)
        assert model.classes_.tolist() == known
        assert model.n_rows_ == 322
        assert [epoch["epoch"] for epoch in model.history_] == [0, 1, 2]
        assert model.n_iter_ == 3
        expected = np.bincount(model.encode(Y, 320).indices, minlength=6)
        expected[known.index("fox")] += 2
        expected[0] += 0 if has_classes else 1
        assert model.label_counts_.tolist() == expected.tolist()
        with pytest.raises(DataError, match="the label 'gnu'"):
            model.partial_fit(X[:1], ["gnu"] if has_classes else [["gnu"]])
        with pytest.raises(DataError, match="classes differ"):
            model.partial_fit(X[:1], Y[:1], classes=["ant", "bee"])
        assert model.n_rows_ == 322

    @every(SINGLE)
    def test_it_goes_on_from_a_fit_and_from_a_copy(self, name):
        model, labels = copied(fitted(name)), CASES[name].labels(TRAIN)
        for number in (1, 2):
            before = model.predict_proba(X)
            model.partial_fit(TRAIN.X, labels)
            assert not np.array_equal(before, model.predict_proba(X))
            assert model.n_iter_ == len(model.history_) == fitted(name).n_iter_ + number
            assert model.n_rows_ == 320 * (number + 1)
            model = copied(model)

    def test_the_optimiser_goes_on_from_call_to_call(self):
        for name in ("mlgpf", "one_vs_each", "svdkl"):
            labels = CASES[name].labels(TRAIN)
            once, again = (fresh(name).partial_fit(TRAIN.X, labels) for _ in range(2))
            again.to("cpu")  # a new optimiser
            for model in (once, again):
                model.partial_fit(TRAIN.X, labels)
            assert not np.array_equal(once.predict_proba(X), again.predict_proba(X))

    @every(ENSEMBLES | LINEAR | MIXES)
    def test_ensembles_and_machines_cannot_be_fitted_in_parts(self, name):
        for model in (fresh(name), fitted(name)):
            with pytest.raises(CannotAnswerError, match="cannot be fitted in parts"):
                model.partial_fit(TRAIN.X, CASES[name].labels(TRAIN))


class TestAfterFit:
    """Options and attributes that are changed after fit do not make a model contradict itself."""

    def test_a_folder_has_the_options_of_its_model(self, tmp_path):
        model = copy.deepcopy(fitted("one_vs_each"))
        before = model.summary()
        model.set_params(likelihood="softmax", n_inducing=-1).save(tmp_path / "m")
        found = load(tmp_path / "m", device="cpu")
        assert (found.likelihood, found.summary(), model.summary()) == ("one_vs_each", before, before)
        np.testing.assert_array_equal(found.predict_proba(X), model.predict_proba(X))

    def test_learned_attributes_are_read_only(self):
        with pytest.raises(AttributeError, match="read-only"):
            fitted("mlgpf").model_ = None

    @pytest.mark.parametrize("name", ["mlgpf", "topics", "svdkl"])
    def test_an_interrupted_step_counts_no_rows(self, name, monkeypatch):
        model = copy.deepcopy(fitted(name))
        n_rows, counts, P = model.n_rows_, model.label_counts_, model.predict_proba(X)

        def interrupt(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(type(model.trainer_), "train_more", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(TRAIN.X, CASES[name].labels(TRAIN))
        assert model.n_rows_ == n_rows
        np.testing.assert_array_equal(model.label_counts_, counts)
        np.testing.assert_array_equal(model.predict_proba(X), P)

    def test_half_a_step_of_topics_is_taken_back(self, monkeypatch):
        model = copy.deepcopy(fitted("topics"))
        model.partial_fit(TRAIN.X, CASES["topics"].labels(TRAIN))
        P = model.predict_proba(X)

        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(type(model.trainer_), "_find_shares", interrupt)  # after the model has changed
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(TRAIN.X, CASES["topics"].labels(TRAIN))
        np.testing.assert_array_equal(model.predict_proba(X), P)

    def test_named_columns_of_an_indicator_may_be_named_again(self):
        model, names = fresh("mlgpf"), list("abcde")
        for _ in range(2):
            model.partial_fit(TRAIN.X, TRAIN.Y, classes=names)
        with pytest.raises(DataError, match="classes differ"):
            model.partial_fit(TRAIN.X, TRAIN.Y, classes=names[:3])

    def test_a_number_of_labels_is_not_for_classes(self):
        with pytest.raises(ValueError, match="several labels per row"):
            fitted("one_vs_each").predict(X, k=2)
