"""Uncertainty of rows: what it is made of, and that it grows away from the training rows."""

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield import EnsembleClassifier, MLGPFClassifier, synth
from labelfield.models.sparse import unexplained_share
from labelfield.variational.families import POSTERIORS


def small(**options):
    options = {"n_latent": 8, "n_inducing": 40, "max_epochs": 6, "learning_rate": 0.05, "batch_size": 60} | options
    return MLGPFClassifier(**options)


@pytest.fixture(scope="module")
def fitted(data):
    return small().fit(data.X, data.Y)


def novelty(model, X):
    return model.predictor_.novelty(model.rows(X))


def test_it_is_one_minus_p_where_rows_are_known_and_one_where_they_are_not(data, fitted):
    X = data.test.X
    uncertainty = fitted.predict_uncertainty(X)
    assert uncertainty.shape == (100,)
    assert uncertainty.dtype == np.float32
    p = fitted.predict_proba(X).max(axis=1)
    assert (uncertainty >= 1 - p - 1e-6).all()
    assert (uncertainty <= 1).all()
    np.testing.assert_allclose(uncertainty, 1 - p * (1 - novelty(fitted, X)), rtol=1e-5)


def test_dense_and_sparse_rows_and_blocks_agree(data, fitted, monkeypatch):
    X = data.test.X
    expected = fitted.predict_uncertainty(X)
    np.testing.assert_allclose(fitted.predict_uncertainty(X.toarray()), expected, rtol=1e-4)
    monkeypatch.setattr("labelfield.models.mlgpf.predict.BLOCK_ROWS", 37)
    np.testing.assert_allclose(fitted.predict_uncertainty(X), expected, rtol=1e-4)
    assert fitted.predict_uncertainty(X[:0]).shape == (0,)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_no_posterior_is_surer_of_h_than_the_inducing_inputs_allow(posterior, data):
    """ν k_ii ≤ var h_p for every q(u); a stationary kernel has k_ii = 1."""
    model = small(posterior=posterior, kernel="se_ard", max_epochs=2).fit(data.X, data.Y)
    variances = model.predict_latent(data.test.X).h_var
    assert (novelty(model, data.test.X)[:, None] <= variances + 1e-4).all()


def test_where_u_is_known_what_is_left_is_the_variance_of_h(data):
    model = small(kernel="se_ard", max_epochs=1).fit(data.X, data.Y)
    with torch.no_grad():
        model.model_.family.log_var.fill_(-30)
    variances = model.predict_latent(data.test.X).h_var
    np.testing.assert_allclose(variances, np.repeat(novelty(model, data.test.X)[:, None], 8, axis=1), atol=1e-5)


@pytest.mark.parametrize("kernel", ["se", "se_per_process", "se_ard", "matern32", "matern12_ard"])
def test_far_rows_are_as_uncertain_as_the_prior(kernel):
    """k(x, Z) vanishes as x moves away, and with it all that was learned."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)).astype(np.float32)
    Y = (X @ rng.standard_normal((3, 5)) > 0).astype(int)
    model = small(kernel=kernel, row_transform="none", max_epochs=10).fit(X, Y)
    direction = np.array([[1.0, 2.0, -1.0]], np.float32)
    at = [0.0, 2.0, 8.0, 1000.0]
    moved = X[:1] + np.array(at, np.float32)[:, None] * direction
    uncertainty, h_var = model.predict_uncertainty(moved), model.predict_latent(moved).h_var
    assert (np.diff(uncertainty) > -1e-3).all()
    assert uncertainty[0] < 0.9
    assert uncertainty[-1] > 0.999
    assert (h_var[0] < 0.9).any()
    np.testing.assert_allclose(h_var[-1], 1, atol=1e-3)


def with_permuted_features(X):
    """Each row as it was, under other words: one permutation of the columns for all rows."""
    order = np.random.default_rng(0).permutation(X.shape[1])
    return sparse.csr_array((X.data, order[X.indices], X.indptr), shape=X.shape)


def with_independent_features(X):
    """Each word as frequent as it was, but in rows drawn for it alone."""
    rng, columns = np.random.default_rng(0), sparse.csc_array(X)
    rows = [rng.choice(X.shape[0], count, replace=False) for count in np.diff(columns.indptr)]
    return sparse.csr_array(sparse.csc_array((columns.data, np.concatenate(rows), columns.indptr), shape=X.shape))


def test_rows_of_another_kind_are_more_uncertain():
    data = synth.make_multilabel(600, 200, 40, seed=4).split(0.25)  # as wide as words are many
    model, X = small(n_inducing=60).fit(data.X, data.Y), data.test.X
    for other in (with_permuted_features(X), with_independent_features(X)):
        assert other.nnz == X.nnz
        assert model.predict_uncertainty(other).mean() > model.predict_uncertainty(X).mean() + 0.01
        assert novelty(model, other).mean() > novelty(model, X).mean()


def test_an_ensemble_averages_over_its_members(data):
    model = EnsembleClassifier(estimator=small(max_epochs=2), n_members=2).fit(data.X, data.Y)
    X = data.test.X
    mean = np.mean([novelty(member, X) for member in model.members()], axis=0)
    expected = 1 - model.predict_proba(X).max(axis=1) * (1 - mean)
    np.testing.assert_allclose(model.predict_uncertainty(X), expected, rtol=1e-4)


def test_an_empty_row_under_a_linear_kernel_is_unknown(data):
    model = small(kernel="linear", max_epochs=1).fit(data.X, data.Y)
    assert novelty(model, np.zeros((1, 60), np.float32)).tolist() == [1.0]


def test_processes_with_kernels_of_their_own_are_averaged(data):
    model = small(kernel="se_per_process", max_epochs=2).fit(data.X, data.Y)
    rows = torch.from_numpy(model.rows(data.test.X[:4]).toarray())
    with torch.no_grad():
        kernel, (points, prior) = model.model_.kernel, model.model_.inducing_state()
        share = unexplained_share(kernel, points, prior, rows)
        kxx, explained = kernel.diag(rows), prior.whiten(kernel.cross(rows, points).mT).square().sum(-2)
    np.testing.assert_allclose(share.numpy(), novelty(model, data.test.X[:4]), rtol=1e-4)
    assert share.shape == (4,)
    assert explained.shape == (8, 4)
    torch.testing.assert_close(share, ((kxx - explained) / kxx).mean(0), rtol=1e-4, atol=1e-5)
