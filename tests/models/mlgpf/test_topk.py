"""The labels found are those of the full integral, for any variances and any block size."""

from functools import partial

import pytest
import torch

from labelfield.models.calibration import N_RANKS, Calibration, ranks_of
from labelfield.models.mlgpf.spec import LIKELIHOODS, Spec, build
from labelfield.models.mlgpf.topk import top_k, top_k_of_mean
from labelfield.models.mlgpf.weighting import ranked_calibrated
from labelfield.variational.families import Moments


@pytest.fixture
def few_candidates(monkeypatch):
    """A cheap look that names few labels, so that others must be found."""
    monkeypatch.setattr("labelfield.models.mlgpf.topk._LEAST_CANDIDATES", 6)
    monkeypatch.setattr("labelfield.models.mlgpf.topk._FIRST_CANDIDATES", 6)
    monkeypatch.setattr("labelfield.models.mlgpf.topk._CANDIDATES", 1)


def draw(generator, scale, **options):
    """A model of 900 labels of widely different variances."""
    model = build(Spec(3, 900, n_latent=6, n_inducing=2, **options))
    with torch.no_grad():
        spread = torch.randn(900, 1, generator=generator).exp() * scale
        model.Phi.copy_(spread * torch.randn(900, 6, generator=generator))
        model.b.copy_((-3 - 4 * torch.rand(900, generator=generator)) / model.likelihood.scale)
    return model


def draw_calibration(generator, has_lead):
    calibration = Calibration(has_lead)
    calibration.knots.copy_(torch.tensor([-6.0, -4.0, -2.0, 0.0]))
    calibration.slopes.copy_(0.3 + torch.rand(5, generator=generator))
    calibration.offsets.copy_(-torch.rand(N_RANKS, generator=generator).cumsum(0))
    if has_lead:
        calibration.lead.copy_(torch.tensor([-3.0, 0.5]))
    return calibration


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("block", [1 << 22, 4000])
@pytest.mark.parametrize("is_calibrated", [False, True])
@pytest.mark.parametrize("n_models", [1, 3])
@pytest.mark.usefixtures("few_candidates")
def test_weighted_top_k_is_that_of_all_labels(likelihood, scale, block, is_calibrated, n_models, monkeypatch):
    """Against p times weight of all labels, with p calibrated by the place in the ranking by p alone."""
    monkeypatch.setattr("labelfield.models.mlgpf.topk.BLOCK_ENTRIES", block)
    generator = torch.Generator().manual_seed(1)
    models = [draw(generator, scale, likelihood=likelihood) for _ in range(n_models)]
    calibration = draw_calibration(generator, has_lead=n_models > 1) if is_calibrated else None
    weight = torch.rand(900, dtype=torch.float64, generator=generator).mul(3).exp()
    X = torch.zeros(50, 3)
    with torch.no_grad():
        h = [Moments(torch.randn(50, 6, generator=generator), torch.rand(50, 6, generator=generator)) for _ in models]
        f = [model.utilities(own, X) for model, own in zip(models, h, strict=True)]
        p = torch.stack([model.likelihood.predict_proba(*one) for model, one in zip(models, f, strict=True)]).mean(0)
        rank = partial(top_k, models[0], h[0], X) if n_models == 1 else partial(top_k_of_mean, models, f)
        labels, values = ranked_calibrated(rank, 7, calibration, weight)
        if calibration is not None:
            order = p.sort(dim=1, descending=True, stable=True).indices
            p = calibration(p, ranks_of(order[:, :N_RANKS], slice(0, 900)))
    expected = (p * weight).sort(dim=1, descending=True).values[:, :7]
    assert (p.topk(7, dim=1).indices.sort(1).values != labels.sort(1).values).any()  # it is another ranking
    torch.testing.assert_close(values, p.gather(1, labels), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(values * weight[labels], expected, rtol=1e-4, atol=1e-7)


def test_the_inverse_of_a_calibration():
    calibration = draw_calibration(torch.Generator().manual_seed(0), has_lead=False)
    p = torch.logspace(-30, -0.05, 200, dtype=torch.float64)
    torch.testing.assert_close(calibration.log_inverse(calibration(p)), p.log(), rtol=1e-6, atol=1e-6)
    # No probability becomes less than that of 0.
    assert calibration.log_inverse(calibration(torch.zeros(1, dtype=torch.float64))).item() == -torch.inf


@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("block", [1 << 22, 4000])
def test_top_k_is_that_of_the_integral(scale, block, monkeypatch):
    """The cheap look orders by a formula that is off where variances differ widely: nothing may be overlooked."""
    monkeypatch.setattr("labelfield.models.mlgpf.topk.BLOCK_ENTRIES", block)
    monkeypatch.setattr("labelfield.models.mlgpf.topk._LEAST_CANDIDATES", 4)
    monkeypatch.setattr("labelfield.models.mlgpf.topk._CANDIDATES", 1)
    generator = torch.Generator().manual_seed(0)
    model = draw(generator, scale)
    with torch.no_grad():
        h = Moments(torch.randn(50, 6, generator=generator), torch.rand(50, 6, generator=generator) + 0.1)
        labels, values = top_k(model, h, torch.zeros(50, 3), 4)
        p = model.likelihood.predict_proba(*model.utilities(h, torch.zeros(50, 3)))
    expected = p.sort(dim=1, descending=True, stable=True)
    torch.testing.assert_close(values, expected.values[:, :4], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(p.gather(1, labels), values, rtol=1e-5, atol=1e-6)
