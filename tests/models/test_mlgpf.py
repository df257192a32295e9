"""The bound: sampled negatives are unbiased in value and gradient; batches add up to the whole."""

import numpy as np
import pytest
import torch

from labelfield import Batch, synth
from labelfield.models.build import INDUCING, POSTERIORS, Spec, build, start


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


def test_sampled_negatives_are_unbiased(data):
    model = make(data)
    batch = Batch.gather(data, slice(0, 5))
    exact = model.elbo(batch.X, batch.Y, 120)
    model.zero_grad()
    exact.bound().backward()
    exact_gradient = torch.cat([model.Phi.grad.to_dense().flatten(), model.family.mean.grad.flatten()]).double()
    values, gradients = [], []
    generator = torch.Generator().manual_seed(0)
    for _ in range(600):
        model.zero_grad()
        estimate = model.elbo(batch.X, batch.Y, 120, n_negatives=3, generator=generator)
        estimate.bound().backward()
        values.append(estimate.bound().item())
        gradients.append(torch.cat([model.Phi.grad.to_dense().flatten(), model.family.mean.grad.flatten()]).double())
    assert np.std(values) > 0
    assert abs(np.mean(values) - exact.bound().item()) < 4 * np.std(values) / np.sqrt(600)
    gradients = torch.stack(gradients)
    error = (gradients.mean(0) - exact_gradient) / (gradients.std(0) / 600**0.5 + 1e-9)
    moving = gradients.std(0) > 1e-9
    # Standard scores of an unbiased estimate: of variance 1, none of them far out.
    assert error[moving].abs().max() < 5.5
    assert 0.7 < error[moving].square().mean() < 1.4


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
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    first = model.elbo(batch.X, batch.Y, 120).bound().item()
    for _ in range(60):
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
