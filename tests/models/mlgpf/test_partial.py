"""The bound of rows whose labels were observed in part is that of the observed entries alone."""

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield import Batch, synth
from labelfield.csr import as_positives
from labelfield.data.mask import Mask
from labelfield.inference.source import DatasetSource, MaskedSource
from labelfield.linalg.partial import PartialLabels
from labelfield.models.mlgpf.spec import LIKELIHOODS, Spec, build
from labelfield.models.mlgpf.start import start
from tests.models.bounds import assert_unbiased, value_and_gradient

ROWS = np.array([3, 77, 5, 0, 119, 42])


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(120, 60, 40, seed=1)


def make(data, likelihood):
    spec = Spec(60, 40, n_latent=4, n_inducing=10, likelihood=likelihood)
    model = build(spec)
    start(model, spec, data.X, data.Y, seed=0)
    return model


def batch_of(data, hidden, is_missing):
    """Return some rows of which these entries are hidden, by the places that are missing or by those that are not."""
    mask = Mask(as_positives(sparse.csr_array(hidden if is_missing else ~hidden)), is_missing)
    seen = type(data)(data.X, mask.hides(data.Y))
    return MaskedSource(DatasetSource(seen), mask).batch(ROWS, torch.device("cpu"))


@pytest.fixture(scope="module", params=[0.2, 0.7])
def hidden(request):
    return np.random.default_rng(0).random((120, 40)) < request.param


@pytest.mark.parametrize("is_missing", [False, True])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_it_is_the_sum_over_observed_entries(likelihood, is_missing, hidden, data):
    model, (X, labels) = make(data, likelihood), batch_of(data, hidden, is_missing)
    assert isinstance(labels, PartialLabels)
    f = model.utilities(model.latent(X)[0], X)
    # One entry at a time, each a batch of one row and one label.
    each = torch.zeros((), dtype=torch.float64)
    truth = data.Y.toarray()[ROWS]
    for i, k in zip(*np.nonzero(~hidden[ROWS]), strict=True):
        y = torch.full((1, 1), float(truth[i, k])).to_sparse_csr()
        column = y.col_indices().long()
        each = each + model.likelihood.expected_log_prob(f.mean[i, k].view(1, 1), f.var[i, k].view(1, 1), y, column)
    expected = model.elbo(X, labels.Y, len(ROWS))._replace(fit=each)
    found, naive = (value_and_gradient(model, elbo) for elbo in (model.elbo(X, labels, len(ROWS)), expected))
    # The derivative by a variance is in closed form, and that of the quadrature only nearly so.
    torch.testing.assert_close(found[0], naive[0], rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found, naive, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_sampled_negatives_are_unbiased(likelihood, data):
    hidden = np.random.default_rng(1).random((120, 40)) < 0.4
    model, (X, labels), generator = make(data, likelihood), batch_of(data, hidden, True), torch.Generator()
    generator.manual_seed(0)
    exact = value_and_gradient(model, model.elbo(X, labels, 120)).double()
    draws = []
    for _ in range(300):
        elbo = model.elbo(X, labels, 120, n_negatives=5, generator=generator)
        draws.append(value_and_gradient(model, elbo).double())
    error = torch.stack(draws).std(0) / 300**0.5
    is_rounding = error < 1e-4 * exact.abs().max()
    assert_unbiased([torch.where(is_rounding, exact, draw) for draw in draws], exact)
    assert (~is_rounding).sum() > 50


def test_nothing_hidden_is_the_plain_bound(data):
    model, batch = make(data, "bernoulli"), Batch.gather(data, ROWS)
    X, labels = batch_of(data, np.zeros((120, 40), bool), True)
    assert torch.equal(model.elbo(X, labels, 120).bound(), model.elbo(batch.X, batch.Y, 120).bound())
