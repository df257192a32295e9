"""The bound: sampled negatives are unbiased in value and gradient; batches add up to the whole."""

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield import Batch, Dataset, synth
from labelfield.inference.source import ResidentSource, Sizes, TensorSource
from labelfield.models.mlgpf.spec import INDUCING, LIKELIHOODS, Spec, build
from labelfield.models.mlgpf.start import start
from labelfield.variational.families import POSTERIORS


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(120, 60, 40, seed=1)


def make(data, **options):
    spec = Spec(60, 40, n_latent=4, n_inducing=10, rank=8, **options)
    model = build(spec)
    start(model, spec, data.X, data.Y, seed=0)
    return model


def whole(data):
    return Batch.gather(data, slice(None))


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_sampled_negatives_are_unbiased(likelihood, data):
    model = make(data, likelihood=likelihood)
    with torch.no_grad():
        model.b += 0.3  # away from its prior, if it has one
    batch = Batch.gather(data, slice(0, 5))
    exact = model.elbo(batch.X, batch.Y, 120)
    model.zero_grad()
    exact.bound().backward()
    exact_gradient = torch.cat([model.Phi.grad.to_dense().flatten(), model.family.mean.grad.flatten()]).double()
    values, gradients, n_draws = [], [], 300
    generator = torch.Generator().manual_seed(0)
    for _ in range(n_draws):
        model.zero_grad()
        estimate = model.elbo(batch.X, batch.Y, 120, n_negatives=3, generator=generator)
        estimate.bound().backward()
        values.append(estimate.bound().item())
        gradients.append(torch.cat([model.Phi.grad.to_dense().flatten(), model.family.mean.grad.flatten()]).double())
    assert np.std(values) > 0
    assert abs(np.mean(values) - exact.bound().item()) < 4 * np.std(values) / np.sqrt(n_draws)
    gradients = torch.stack(gradients)
    error = (gradients.mean(0) - exact_gradient) / (gradients.std(0) / n_draws**0.5 + 1e-9)
    moving = gradients.std(0) > 1e-9
    # Standard scores of an unbiased estimate: of variance 1, none of them far out.
    assert error[moving].abs().max() < 5.5
    assert 0.5 < error[moving].square().mean() < 1.6  # they are not independent of each other


def test_batches_add_up_to_the_whole(data):
    model = make(data)
    with torch.no_grad():
        exact = model.elbo(whole(data).X, whole(data).Y, 120)
        parts = [model.elbo(b.X, b.Y, 40).fit for b in (Batch.gather(data, slice(i, i + 40)) for i in (0, 40, 80))]
    torch.testing.assert_close(sum(parts), exact.fit, rtol=1e-5, atol=1e-3)


def test_enough_negatives_are_all_labels(data):
    model = make(data)
    batch = whole(data)
    a = model.elbo(batch.X, batch.Y, 120, n_negatives=40)
    torch.testing.assert_close(a.bound(), model.elbo(batch.X, batch.Y, 120).bound())


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("inducing", INDUCING)
def test_every_make_learns(posterior, inducing, data):
    model = make(data, posterior=posterior, inducing=inducing, kernel="se")
    batch = whole(data)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
    first = model.elbo(batch.X, batch.Y, 120).bound().item()
    for _ in range(25):
        optimiser.zero_grad()
        loss = -model.elbo(batch.X, batch.Y, 120).bound()
        loss.backward()
        optimiser.step()
    assert -loss.item() > first + 50


def test_unknown_parts_are_refused():
    with pytest.raises(ValueError, match="posterior"):
        Spec(3, 2, 1, 1, posterior="best")
    with pytest.raises(ValueError, match="inducing"):
        Spec(3, 2, 1, 1, inducing="nowhere")
    with pytest.raises(ValueError, match="at least 1"):
        Spec(3, 2, 0, 1)


@pytest.mark.parametrize("n_negatives", [None, 3])
def test_labels_that_hold_may_count_more(n_negatives, data):
    """Σ_k c_k^y log p(y_k): with c = 1 the plain bound, and in general the sum over entries."""
    model, batch = make(data), Batch.gather(data, slice(0, 30))
    weight = torch.linspace(0.2, 3, 40)

    def fit(**options):
        generator = torch.Generator().manual_seed(0)
        return model.elbo(batch.X, batch.Y, 30, n_negatives=n_negatives, generator=generator, **options).fit

    with torch.no_grad():
        torch.testing.assert_close(fit(positive_weight=torch.ones(40)), fit(), rtol=1e-6, atol=1e-4)
        f = model.utilities(model.latent(batch.X)[0], batch.X)
        rows, columns = batch.Y.to_dense().nonzero(as_tuple=True)
        nodes, weights = np.polynomial.hermite_e.hermegauss(10)
        draws = f.mean[rows, columns] + f.var[rows, columns].sqrt() * torch.tensor(nodes, dtype=torch.float32)[:, None]
        share = torch.tensor(weights / weights.sum(), dtype=torch.float32)
        positive = share @ torch.nn.functional.logsigmoid(draws)
        expected = fit() + ((weight[columns] - 1) * positive).sum()
        torch.testing.assert_close(fit(positive_weight=weight).float(), expected.float(), rtol=1e-4, atol=1e-2)


def test_projected_rows_that_stay_on_a_device_are_those_in_memory(data):
    """A resident source of projected rows, as on a GPU, gives the batches of one in memory."""
    model, rows = make(data, inducing="subspace", kernel="se"), np.array([5, 0, 77, 3])
    projected = model.inducing.project(whole(data).X)
    there, here = ResidentSource(data, torch.device("cpu"), projected), TensorSource(projected, data)
    sizes = there.fixed_sizes(4)
    assert sizes.X == 0
    assert there.fits(rows, sizes)
    for X, Y in (there.batch(rows, torch.device("cpu")), there.gather(torch.from_numpy(rows), sizes)):
        expected_X, expected_Y = here.batch(rows, torch.device("cpu"))
        assert torch.equal(X.coordinates, expected_X.coordinates)
        assert torch.equal(X.norms, expected_X.norms)
        assert torch.equal(Y.to_dense(), expected_Y.to_dense())
        torch.testing.assert_close(model.elbo(X, Y, 120), model.elbo(expected_X, expected_Y, 120))


def test_entries_that_fill_up_a_batch_change_nothing(data):
    """Batches of fixed shapes for a GPU have entries of value 0 at their end."""
    model, rows = make(data), np.array([5, 0, 77, 3])
    source = ResidentSource(data, torch.device("cpu"))
    X, Y = source.batch(rows, torch.device("cpu"))
    batch = Batch.gather(data, rows)
    assert torch.equal(X.to_dense(), batch.X.to_dense())
    assert torch.equal(Y.to_dense(), batch.Y.to_dense())
    sizes = source.fixed_sizes(4)
    assert source.fits(rows, sizes)
    filled = source.gather(torch.from_numpy(rows), Sizes(sizes.X + 11, sizes.Y + 5))
    assert filled[0].values().numel() == sizes.X + 11
    assert torch.equal(filled[0].to_dense(), X.to_dense())
    bounds, gradients = [], []
    for part in ((X, Y), filled):
        model.zero_grad()
        bound = model.elbo(*part, 120).bound()
        bound.backward()
        bounds.append(bound)
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(*bounds)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_predictions_follow_every_change_of_a_parameter(data):
    model, batch = make(data), Batch.gather(data, slice(0, 9))
    with torch.no_grad():
        before = model.latent(batch.X)[0]
        torch.testing.assert_close(model.latent(batch.X, model.inducing_state())[0], before)
        model.inducing.transposed.mul_(-0.5)
        assert not torch.equal(before.mean, model.latent(batch.X)[0].mean)
        model.load_state_dict(make(data).state_dict())
        torch.testing.assert_close(model.latent(batch.X)[0], before)


def test_rows_without_entries_can_be_resident(data):
    empty = Dataset(sparse.csr_array((6, 5), dtype=np.float32), sparse.csr_array((6, 3), dtype=np.float32))
    source = ResidentSource(empty, torch.device("cpu"))
    X, Y = source.gather(torch.arange(3), source.fixed_sizes(3))
    assert X.shape == (3, 5)
    assert Y.values().numel() == 0
