"""Variants of factor models that the papers name: where Z starts and lives, and ranking by mean utility."""

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield import CannotAnswerError, GPClassifier, MLGPFClassifier, TopicClassifier, metrics, synth
from labelfield.linalg.rows import to_tensor


def small(**options):
    return MLGPFClassifier(**{"n_latent": 5, "n_inducing": 12, "max_epochs": 3, "random_state": 1, **options})


def inputs_of(model):
    """Return Z (M, D) as the kernel sees it."""
    points = model.model_.inducing.points()
    Z = points.A @ points.basis.T if hasattr(points, "A") else points.Zt.T
    return Z.detach().numpy()


@pytest.mark.parametrize("inducing", ["fixed", "subspace_fixed"])
def test_z_starts_at_random_rows_and_stays_there(inducing, few_words):
    """SE-F: every inducing input is a training row, none twice; the same with a basis of the whole space."""
    model = small(inducing=inducing, inducing_start="rows", rank=60, kernel="se").fit(few_words.X, few_words.Y)
    X = model.rows(few_words.X).toarray()
    distances = np.abs(inputs_of(model)[:, None] - X[None]).max(2)
    assert (distances.min(1) < 1e-4).all()
    assert len(set(distances.argmin(1))) == 12
    other = small(inducing=inducing, inducing_start="rows", rank=60, kernel="se", random_state=2)
    assert not np.allclose(inputs_of(other.fit(few_words.X, few_words.Y)), inputs_of(model))


def test_a_fixed_subspace_of_the_whole_space_is_fixed_z(few_words):
    """From the same Z, the bound and its gradients by all that is learned are those of fixed inputs."""
    models = [small(inducing=i, inducing_start="rows", rank=60, kernel="se") for i in ("fixed", "subspace_fixed")]
    for model in models:
        model.prepare(few_words.X, few_words.Y)
    fixed, subspace = (model.model_ for model in models)
    assert not subspace.inducing.A.requires_grad
    assert not subspace.inducing.basis.requires_grad
    with torch.no_grad():
        fixed.inducing.transposed.copy_(torch.from_numpy(inputs_of(models[1]).T))
        fixed.b.copy_(subspace.b)
    X = to_tensor(models[0].rows(few_words.X))
    Y = to_tensor(few_words.Y.astype(np.float32))
    found = []
    for model in (fixed, subspace):
        bound = model.elbo(X, Y, few_words.n_rows).bound()
        bound.backward()
        found.append([bound.detach(), model.Phi.grad, model.family.mean.grad, model.b.grad])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-2)


def test_learned_subspace_moves_and_fixed_does_not(few_words):
    fixed, learned = (
        small(inducing=i, rank=10, kernel="se").fit(few_words.X, few_words.Y) for i in ("subspace_fixed", "subspace")
    )
    start = small(inducing="subspace", rank=10, kernel="se")
    start.prepare(few_words.X, few_words.Y)
    assert np.array_equal(inputs_of(fixed), inputs_of(start))
    assert not np.allclose(inputs_of(learned), inputs_of(start))


def test_z_has_values_on_as_many_features_as_asked():
    data = synth.make_multilabel(60, 9000, 10, seed=1)
    classes = data.X.indices[data.X.indptr[:-1]] % 2
    for model, labels in ((small(max_epochs=1), data.Y), (GPClassifier(max_epochs=1, n_inducing=5), classes)):
        for asked, kept in ((None, 8192), (0, 0), (500, 500), (9000, 0), (10**6, 0)):
            model.set_params(n_support=asked).prepare(data.X, labels)
            assert model.spec_.n_support == kept
    # A feature beyond the most frequent ones has a value where it is asked for.
    model = small(max_epochs=1, n_support=0, inducing_start="rows", kernel="se", label_linear="off")
    model.prepare(data.X, data.Y)
    assert (
        np.count_nonzero(np.abs(inputs_of(model)).max(0))
        == np.unique(
            data.X[[int(np.abs(model.rows(data.X).toarray() - z).sum(1).argmin()) for z in inputs_of(model)]].indices
        ).size
    )


@pytest.fixture(scope="module")
def model(few_words):
    return small(max_epochs=10, posterior="whitened_full").fit(few_words.X, few_words.Y)


class TestRankingByMeanUtility:
    def test_it_is_the_order_of_the_means(self, model, few_words, monkeypatch):
        X = few_words.test.X
        f_mean = model.predict_latent(X).f_mean
        for entries in (1 << 23, 700):  # all labels at once, and a few at a time
            monkeypatch.setattr("labelfield.models.mlgpf.topk.BLOCK_ENTRIES", entries)
            for k in (1, 4, 30, 99):
                found = metrics.top_k(model.predict_topk(X, k, rank_by="utility"), min(k, 30))
                expected = metrics.top_k(f_mean, min(k, 30))
                np.testing.assert_array_equal(found.labels, expected.labels)
                np.testing.assert_allclose(found.scores, 1 / (1 + np.exp(-expected.scores)), rtol=1e-4, atol=1e-6)

    def test_scores_are_those_of_that_order(self, model, few_words):
        X, Y = few_words.test.X, few_words.test.Y
        lists = model.predict_topk(X, 5, rank_by="utility")
        found = metrics.evaluate(Y, lists, few_words.Y, rank_by="utility")
        plain = metrics.evaluate(Y, model.predict_latent(X).f_mean)
        assert found["P@3"] == plain["P@3"]

    def test_given_known_labels_it_is_the_utility_at_the_most_probable_h(self, model, few_words):
        X, Y = few_words.test.X, few_words.test.Y
        known = np.zeros(Y.shape, np.float32)
        known[::2, 3], known[::3, 7] = 1, -1
        blocks = model.predictor_.given(model.rows(X), sparse.csr_array(known))
        f = np.concatenate([model.model_.means(h, x).detach().numpy() for _, x, h in blocks])
        f[known != 0] = -np.inf
        found = metrics.top_k(model.condition(X, known, 4, rank_by="utility"), 4)
        np.testing.assert_array_equal(found.labels, metrics.top_k(f, 4).labels)
        nothing = model.condition(X, 0 * known, 4, rank_by="utility")
        assert (nothing != model.predict_topk(X, 4, rank_by="utility")).nnz == 0
        with pytest.raises(ValueError, match="expected 'probability' or 'utility'"):
            model.condition(X, known, rank_by="propensity")

    def test_others_cannot(self, few_words):
        model = TopicClassifier(n_topics=3, max_epochs=2).fit(few_words.X, few_words.Y)
        with pytest.raises(CannotAnswerError, match="factor models"):
            model.predict_topk(few_words.X, 3, rank_by="utility")
