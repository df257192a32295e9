"""Uncertainty of rows: what it is made of, and that it grows away from the training rows."""

import numpy as np
import pytest
import torch
from labelfield.models.build import POSTERIORS
from labelfield.models.prediction import unexplained_share

from benchmarks.studies.trust import with_independent_features, with_permuted_features
from labelfield import MLGPFClassifier


def small(**options):
    options = {"n_latent": 8, "n_inducing": 60, "max_epochs": 6, "learning_rate": 0.05, "batch_size": 60} | options
    return MLGPFClassifier(**options)


@pytest.fixture(scope="module")
def fitted(data):
    return small().fit(data.X, data.Y)


def test_it_is_one_minus_p_where_rows_are_known_and_one_where_they_are_not(data, fitted):
    X = data.test.X
    uncertainty = fitted.predict_uncertainty(X)
    assert uncertainty.shape == (150,)
    assert uncertainty.dtype == np.float32
    p = fitted.predict_proba(X).max(axis=1)
    assert (uncertainty >= 1 - p - 1e-6).all()
    assert (uncertainty <= 1).all()
    np.testing.assert_allclose(uncertainty, 1 - p * (1 - fitted._novelty(X)), rtol=1e-5)


def test_dense_and_sparse_rows_and_blocks_agree(data, fitted, monkeypatch):
    X = data.test.X
    expected = fitted.predict_uncertainty(X)
    np.testing.assert_allclose(fitted.predict_uncertainty(X.toarray()), expected, rtol=1e-4)
    monkeypatch.setattr("labelfield.estimators.prediction.BLOCK_ROWS", 37)
    np.testing.assert_allclose(fitted.predict_uncertainty(X), expected, rtol=1e-4)
    assert fitted.predict_uncertainty(X[:0]).shape == (0,)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_no_posterior_is_surer_of_h_than_the_inducing_inputs_allow(posterior, data):
    """ν k_ii ≤ var h_p for every q(u); a stationary kernel has k_ii = 1."""
    model = small(posterior=posterior, kernel="se_ard", max_epochs=2).fit(data.X, data.Y)
    novelty = model._novelty(data.test.X)
    variances = model.predict_latent(data.test.X).h_var
    assert (novelty[:, None] <= variances + 1e-4).all()


def test_where_u_is_known_what_is_left_is_the_variance_of_h(data):
    model = small(kernel="se_ard", max_epochs=1).fit(data.X, data.Y)
    with torch.no_grad():
        model.model_.family.log_var.fill_(-30)
    novelty, variances = model._novelty(data.test.X), model.predict_latent(data.test.X).h_var
    np.testing.assert_allclose(variances, np.repeat(novelty[:, None], 8, axis=1), atol=1e-5)


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


def test_rows_of_another_kind_are_more_uncertain(data, fitted):
    X = data.test.X
    known = fitted.predict_uncertainty(X).mean()
    for other in (with_permuted_features(X), with_independent_features(X)):
        assert other.nnz == X.nnz
        assert fitted.predict_uncertainty(other).mean() > known + 0.01
        assert fitted._novelty(other).mean() > fitted._novelty(X).mean()


def test_an_ensemble_averages_over_its_members(data):
    model = small(ensemble=2, max_epochs=2).fit(data.X, data.Y)
    X = data.test.X
    novelty = np.mean([member._novelty(X) for member in (model, *model.others_)], axis=0)
    expected = 1 - model.predict_proba(X).max(axis=1) * (1 - novelty)
    np.testing.assert_allclose(model.predict_uncertainty(X), expected, rtol=1e-4)


def test_an_empty_row_under_a_linear_kernel_is_unknown(data):
    model = small(kernel="linear", max_epochs=1).fit(data.X, data.Y)
    assert model._novelty(np.zeros((1, 200), np.float32)).tolist() == [1.0]


def test_processes_with_kernels_of_their_own_are_averaged(data):
    model = small(kernel="se_per_process", max_epochs=2).fit(data.X, data.Y)
    rows = torch.from_numpy(model._rows(data.test.X[:4]).toarray())
    with torch.no_grad():
        share = unexplained_share(model.model_, rows, model.model_.frame())
    np.testing.assert_allclose(share.numpy(), model._novelty(data.test.X[:4]), rtol=1e-4)
    assert share.shape == (4,)
