"""The multi-label factor model as its users meet it: what it learns, and what it alone can answer."""

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import expit

import labelfield
from labelfield import DataError, MLGPFClassifier, metrics
from labelfield.estimators.mlgpf import without_known
from labelfield.models.mlgpf.condition import condition
from labelfield.models.mlgpf.spec import Spec, build
from labelfield.variational.families import Moments


def small(**options):
    sizes = {"n_latent": 8, "n_inducing": 30, "max_epochs": 15, "batch_size": 100, "learning_rate": 0.05}
    return MLGPFClassifier(**sizes | options)


@pytest.fixture(scope="module")
def data(few_words):
    return few_words


@pytest.fixture(scope="module")
def fitted(data):
    return small().fit(data.X, data.Y)


class TestLearning:
    def test_it_beats_popularity(self, data, fitted):
        ours = metrics.precision_at_k(data.test.Y, fitted.predict_topk(data.test.X), 5)
        assert ours > 1.3 * metrics.precision_at_k(data.test.Y, metrics.popularity(data.Y, data.test.n_rows), 5)

    def test_training_raises_the_bound(self, data, fitted):
        bound = fitted.bound(data.X, data.Y)["bound"]
        assert bound > small(max_epochs=1).fit(data.X, data.Y).bound(data.X, data.Y)["bound"]

    def test_one_class_per_row(self):
        rng = np.random.default_rng(0)
        y = np.arange(120) % 3
        X = np.eye(3)[y] + 0.1 * rng.random((120, 3))
        names = np.array(["cat", "dog", "eel"])
        model = small(batch_size=30).fit(X, names[y])
        assert model.classes_.tolist() == names.tolist()
        assert model.score(X, names[y]) > 0.95

    def test_a_label_with_no_positive_and_one_with_all(self):
        Y = np.zeros((20, 3), int)
        Y[:, 1] = 1
        Y[:7, 2] = 1
        P = small(max_epochs=20).fit(np.random.default_rng(0).random((20, 5)), Y).predict_proba(np.eye(5))
        assert np.isfinite(P).all()
        assert (P[:, 0] < 0.3).all()
        assert (P[:, 1] > 0.7).all()

    @pytest.mark.parametrize("label_linear", ["off", "point", "mean_field"])
    @pytest.mark.parametrize("n_negatives", [0, 5])
    def test_a_margin_learns_and_ranks_unseen_labels_last(self, data, label_linear, n_negatives):
        """Labels without a positive row must not come first, however far a row is from all others."""
        Y = sparse.hstack([sparse.csr_array((data.n_rows, 4)), data.Y], format="csr")
        options = {"label_linear": label_linear, "n_negatives": n_negatives, "likelihood": "squared_hinge"}
        model = small(**options).fit(data.X, sparse.csr_array(Y))
        lists = model.predict_topk(data.test.X, 5)
        floor = metrics.precision_at_k(data.test.Y, metrics.popularity(data.Y, data.test.n_rows), 5)
        ours = sparse.csr_array(lists[:, 4:])
        assert metrics.precision_at_k(data.test.Y, ours, 5) > 1.3 * floor
        strange = sparse.vstack([data.test.X, sparse.csr_array((1, 60)), 100 * sparse.eye_array(60)], format="csr")
        assert model.predict_topk(sparse.csr_array(strange), 5).indices.min() >= 4

    def test_a_label_can_begin_to_hold(self, data):
        Y = sparse.csr_array(data.Y).tolil()
        Y[:, 3] = 0
        model = small(likelihood="squared_hinge").partial_fit(data.X, Y.tocsr())
        before = model.predict_proba(data.X)[:, 3].mean()
        Y[:, 3] = 1
        for _ in range(5):
            model.partial_fit(data.X, Y.tocsr())
        assert model.predict_proba(data.X)[:, 3].mean() > before + 0.2

    def test_the_cost_of_a_margin_is_kept(self, data, tmp_path):
        model = small(likelihood="squared_hinge", hinge_cost=0.3, max_epochs=3).fit(data.X, data.Y)
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m")
        assert again.model_.likelihood.cost == again.spec_.hinge_cost == 0.3
        assert "squared hinge with cost 0.3" in again.summary()
        np.testing.assert_array_equal(again.predict_proba(data.test.X), model.predict_proba(data.test.X))
        for wrong in ({"likelihood": "hinge"}, {"hinge_cost": 0.0}, {"hinge_cost": -1}):
            with pytest.raises(ValueError, match="expected"):
                small(**wrong).fit(data.X, data.Y)

    def test_rare_labels_may_count_more(self, data):
        """They are then thought likelier, and the frequent ones less so."""
        options = {"calibrate": False, "max_epochs": 10}
        plain, weighted = (small(propensity=p, **options).fit(data.X, data.Y) for p in (0.0, 1.0))
        means = [model.predict_proba(data.test.X).mean(0) for model in (plain, weighted)]
        order = np.argsort(plain.label_counts_)
        rare, frequent = order[:5], order[-3:]
        assert means[1][rare].mean() > means[0][rare].mean()
        assert means[1][frequent].mean() < means[0][frequent].mean()

    def test_projected_rows_train_like_rows(self, data):
        options = {"inducing": "subspace", "kernel": "se", "rank": 30, "max_epochs": 2}
        once, each = (small(precompute=p, **options).fit(data.X, data.Y) for p in (True, False))
        np.testing.assert_allclose(once.predict_proba(data.test.X), each.predict_proba(data.test.X), atol=2e-3)


class TestAnswers:
    def test_probabilities_are_the_integral_over_f(self, data, fitted):
        latent = fitted.predict_latent(data.test.X[:5])
        draws = np.random.default_rng(0).standard_normal((20_000, 1, 1))
        f = latent.f_mean + np.sqrt(latent.f_var) * draws
        raw = fitted.predict_proba(data.test.X[:5], calibrated=False)
        np.testing.assert_allclose(raw, expit(f).mean(0), atol=0.015)

    def test_rankings_are_those_of_all_probabilities(self, data, fitted):
        P = fitted.predict_proba(data.test.X)
        lists = fitted.predict_topk(data.test.X, 7)
        ranked = metrics.top_k(P, 7)
        np.testing.assert_array_equal(np.sort(ranked.labels, axis=1), lists.indices.reshape(-1, 7))

    def test_what_it_learned(self, data, fitted):
        correlation = fitted.label_correlation()
        assert correlation.shape == (30, 30)
        np.testing.assert_allclose(np.diag(correlation), 1, rtol=1e-5)
        np.testing.assert_allclose(fitted.label_correlation([3, 5]), correlation[[3, 5]][:, [3, 5]], rtol=1e-5)
        assert fitted.feature_relevance().shape == (60,)
        assert small(kernel="se", max_epochs=1).fit(np.eye(4), np.eye(4)).feature_relevance() is None

    def test_blocks_over_labels_change_nothing(self, data, fitted, monkeypatch):
        X, Y = data.test.X, data.test.Y
        known = sparse.csr_array(Y.multiply(sparse.random_array(Y.shape, density=0.3, rng=0).astype(bool)))

        def answers():
            lists = fitted.predict_topk(X, 7), fitted.predict(X), fitted.condition(X, known)
            interval, latent = fitted.predict_interval(X), fitted.predict_latent(X)
            return fitted.predict_proba(X), fitted.decision_function(X), *interval, *latent, *lists

        whole, bound = answers(), fitted.bound(X, Y)
        monkeypatch.setattr("labelfield.models.mlgpf.topk.BLOCK_ENTRIES", 1000)
        monkeypatch.setattr("labelfield.models.mlgpf.predict.BLOCK_ROWS", 37)
        for now, then in zip(answers(), whole, strict=True):
            found, expected = (part.toarray() if sparse.issparse(part) else part for part in (now, then))
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
        assert fitted.bound(X, Y) == pytest.approx(bound, rel=1e-6)


class TestConditioning:
    def test_what_is_known_helps_to_find_the_rest(self, data, fitted):
        """Knowing one label helps to find the others; a known label is not listed; nothing known changes nothing."""
        Y = data.test.Y
        has_two = np.flatnonzero(np.diff(Y.indptr) >= 2)
        X, Y = data.test.X[has_two], sparse.csr_array(Y[has_two])
        first = sparse.csr_array(
            (np.ones(len(has_two)), (np.arange(len(has_two)), Y.indices[Y.indptr[:-1]])), shape=Y.shape
        )
        rest = sparse.csr_array(Y - first)
        rest.eliminate_zeros()
        listed = fitted.condition(X, first, k=5)
        assert np.diff(listed.indptr).tolist() == [5] * len(has_two)
        assert listed.multiply(first).nnz == 0
        nothing = fitted.condition(X, sparse.csr_array(Y.shape), k=5)
        np.testing.assert_allclose(nothing.toarray(), fitted.predict_topk(X, 5).toarray(), rtol=1e-4)
        unaided = without_known(fitted.predict_topk(X, 6), first, 5)
        assert metrics.precision_at_k(rest, listed, 3) > metrics.precision_at_k(rest, unaided, 3)
        for wrong, message in ((first[:3], "observed has shape"), (7 * first, "values other than")):
            with pytest.raises(DataError, match=message):
                fitted.condition(X, wrong)
        for k in (0, 2.5, True, None):
            with pytest.raises(ValueError, match="expected an integer of at least 1"):
                fitted.condition(X, first, k)

    def test_it_finds_the_mode(self):
        """Newton's steps end where the gradient of log q(h) p(y | h) vanishes."""
        generator = torch.Generator().manual_seed(0)
        model = build(Spec(3, 6, n_latent=4, n_inducing=2))
        torch.nn.init.normal_(model.Phi, std=2.0, generator=generator)
        h = Moments(torch.randn(5, 4, generator=generator), torch.rand(5, 4, generator=generator) + 0.2)
        observed = torch.tensor([[1.0, 0, 0, -1, 0, 1], *[[0, 1.0, 0, 0, -1, 0]] * 4]).to_sparse_csr()
        with torch.no_grad():
            found = condition(model, h, torch.zeros(5, 3), observed)
        estimate = found.mean.clone().requires_grad_()
        f = estimate @ model.Phi.detach().T + model.b.detach()
        signs = observed.to_dense()
        log_density = (torch.nn.functional.logsigmoid(signs * f) * signs.abs()).sum()
        log_density = log_density - 0.5 * ((estimate - h.mean) ** 2 / h.var).sum()
        log_density.backward()
        assert estimate.grad.abs().max() < 1e-3
        assert (found.var <= h.var + 1e-6).all()


class TestPartialFit:
    def test_it_goes_on_learning(self, data):
        model = small(batch_size=50)
        for first in range(0, 300, 100):
            model.partial_fit(data.X[first : first + 100], data.Y[first : first + 100])
        before = model.bound(data.X, data.Y)["bound"]
        for _ in range(4):
            model.partial_fit(data.X, data.Y)
        assert model.bound(data.X, data.Y)["bound"] > before
        assert model.history_[-1]["bound"] > model.history_[0]["bound"]
        with pytest.raises(DataError, match="labels"):
            model.partial_fit(data.X, data.Y[:, :3])

    def test_it_never_falls_silent(self, data):
        """Whatever ended the training before: epochs without change, or time that was over."""
        model = small(n_iter_no_change=1, time_budget=1e-9, batch_size=50).fit(data.X, data.Y)
        for _ in range(3):
            before = model.predict_proba(data.test.X)
            model.partial_fit(data.X, data.Y)
            assert not np.array_equal(before, model.predict_proba(data.test.X))

    def test_an_interrupted_call_leaves_nothing_to_the_next(self, data, monkeypatch):
        """Its steps do not count for the next rows, and the model answers as it is, not as it was."""
        model = small(batch_size=50).partial_fit(data.X, data.Y)
        before, elbo, n_calls = model.predict_proba(data.test.X), type(model.model_).elbo, []

        def interrupted(*args, **options):
            n_calls.append(1)
            if len(n_calls) > 3:
                raise KeyboardInterrupt
            return elbo(*args, **options)

        monkeypatch.setattr(type(model.model_), "elbo", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(data.X, data.Y)
        now = model.predict_proba(data.test.X)
        assert not np.array_equal(now, before)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(data.test.X), now)
        steps = []
        monkeypatch.setattr(
            type(model.model_), "elbo", lambda *args, **options: steps.append(1) or elbo(*args, **options)
        )
        model.partial_fit(data.X[:100], data.Y[:100])
        assert len(steps) == 2
        assert model.n_iter_ == 2

    def test_labels_keep_their_columns(self):
        X, y = np.eye(4), np.array(["a", "b", "c", "b"])
        model = small(n_inducing=4, max_epochs=1).fit(X, y)
        alone = model.bound(X[1:2], y[1:2])["fit"]
        assert alone == pytest.approx(model.bound(X[[1, 1]], y[[1, 1]])["fit"] / 2, rel=1e-5)
        model.partial_fit(X[1:3], y[1:3])
        with pytest.raises(DataError, match="the label 'z'"):
            model.partial_fit(X[:1], np.array(["z"]))
        indicators = small(n_inducing=4, max_epochs=1).fit(X, np.eye(4, dtype=int))
        for wrong in (np.eye(4, 3, dtype=int), np.eye(4, 5, dtype=int)):
            with pytest.raises(DataError, match="labels; expected 4"):
                indicators.bound(X, wrong)

    def test_no_weight_waits_for_held_out_rows(self, data):
        model = small(label_linear="point")
        for _ in range(2):
            model.partial_fit(data.X, data.Y)
        assert not model.model_.label_linear.waiting.any()
        assert (model.model_.label_linear.weights != 0).float().mean() > 0.95


class TestSizes:
    """As a user would expect, or one clear error."""

    def test_one_label(self):
        model = small(max_epochs=2).fit(np.eye(6), (np.arange(6) % 2)[:, None].astype(bool))
        assert model.predict_proba(np.eye(6)).shape == (6, 1)

    def test_named_labels_in_lists(self):
        model = small(max_epochs=1, n_inducing=3).fit(np.eye(3), [["a", "b"], [], ["b"]])
        assert model.classes_.tolist() == ["a", "b"]
        assert model.label_names() == ["a", "b"]

    @pytest.mark.parametrize("options", [{}, {"inducing": "subspace", "kernel": "se"}, {"kernel": "linear"}])
    def test_empty_constant_and_duplicate_rows(self, options):
        X = np.zeros((30, 4))
        X[10:20] = 1
        X[20:] = [1, 2, 3, 4]
        model = small(max_epochs=2, **options).fit(X, np.eye(3, dtype=int)[np.arange(30) % 3])
        assert np.isfinite(model.predict_proba(X)).all()

    def test_more_of_everything_than_there_is(self):
        X, Y = np.random.default_rng(0).random((8, 5)), np.eye(8, dtype=int)
        model = small(max_epochs=2, n_inducing=100, n_latent=50, batch_size=1000).fit(X, Y)
        assert model.spec_.n_inducing == 8
        subspace = {"inducing": "subspace", "max_epochs": 2}
        model = small(kernel="se", rank=500, **subspace).fit(X, Y)
        assert model.spec_.rank == 5
        low_rank = np.outer(np.arange(1, 9), np.ones(5))
        model = small(rank=4, **subspace).fit(low_rank, Y)
        assert np.isfinite(model.bound(low_rank, np.eye(8))["bound"])

    @pytest.mark.parametrize("size", [{"n_latent": 10**9}, {"batch_size": 600, "n_latent": 10**8}])
    def test_sizes_beyond_the_memory_are_refused_before_they_are_tried(self, size, data):
        message = r"lower batch_size, n_latent or n_inducing \(training needs about .*GiB.*; n_latent=1000"
        with pytest.raises(MemoryError, match=message):
            small(**size).fit(data.X, data.Y)

    def test_failed_allocations_say_what_to_lower(self, data, monkeypatch):
        monkeypatch.setattr("labelfield.estimators.classifier.free_bytes", lambda device: None)
        with pytest.raises(MemoryError, match="lower batch_size, n_latent or n_inducing"):
            small(n_latent=10**13).fit(data.X, data.Y)

    def test_out_of_memory_in_a_step_says_what_to_lower(self, data, monkeypatch):
        def explode(*args, **options):
            raise torch.OutOfMemoryError("tried to allocate 1 TB")

        monkeypatch.setattr("labelfield.models.mlgpf.model.MLGPF.elbo", explode)
        for method in ("fit", "partial_fit"):
            with pytest.raises(MemoryError, match="lower batch_size, n_latent or n_inducing"):
                getattr(small(), method)(data.X, data.Y)

    def test_of_very_many_features_inducing_inputs_see_the_frequent_ones(self, tmp_path):
        X = sparse.random(60, 9000, 0.01, format="csr", dtype=np.float32, rng=0)
        model = small(kernel="se_ard", max_epochs=1, row_transform="unit").fit(
            X, np.eye(3, dtype=int)[np.arange(60) % 3]
        )
        assert model.spec_.n_support == 8192
        model.save(tmp_path / "m")
        np.testing.assert_array_equal(labelfield.load(tmp_path / "m").predict_proba(X), model.predict_proba(X))
