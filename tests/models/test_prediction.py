"""Rankings are exact whatever the variances; conditioned variances are those of the Laplace approximation."""

import pytest
import torch

from labelfield.models.build import Spec, build
from labelfield.models.prediction import condition, top_k
from labelfield.variational import Moments


@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("block", [1 << 22, 4000])
def test_top_k_is_that_of_the_integral(scale, block, monkeypatch):
    """The cheap look orders by a formula that is off where variances differ widely: nothing may be overlooked."""
    monkeypatch.setattr("labelfield.models.prediction._BLOCK_ENTRIES", block)
    monkeypatch.setattr("labelfield.models.prediction._LEAST_CANDIDATES", 4)
    monkeypatch.setattr("labelfield.models.prediction._CANDIDATES", 1)
    generator = torch.Generator().manual_seed(0)
    model = build(Spec(3, 900, n_latent=6, n_inducing=2))
    with torch.no_grad():
        spread = torch.randn(900, 1, generator=generator).exp() * scale
        model.Phi.copy_(spread * torch.randn(900, 6, generator=generator))
        model.b.copy_(-3 - 4 * torch.rand(900, generator=generator))
        h = Moments(torch.randn(50, 6, generator=generator), torch.rand(50, 6, generator=generator) + 0.1)
        labels, values = top_k(model, h, torch.zeros(50, 3), 4)
        p = model.likelihood.predict_proba(*model.utilities(h, torch.zeros(50, 3)))
    expected = p.sort(dim=1, descending=True, stable=True)
    torch.testing.assert_close(values, expected.values[:, :4], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(p.gather(1, labels), values, rtol=1e-5, atol=1e-6)


def test_conditioned_variances_are_the_diagonal_of_the_inverse_curvature():
    generator = torch.Generator().manual_seed(0)
    model = build(Spec(3, 7, n_latent=4, n_inducing=2))
    h = Moments(torch.randn(6, 4, generator=generator), torch.rand(6, 4, generator=generator) + 0.2)
    observed = torch.randint(-1, 2, (6, 7), generator=generator).float()
    observed[2] = 0
    with torch.no_grad():
        model.Phi.normal_(0, 1.5, generator=generator)
        found = condition(model, h, torch.zeros(6, 3), observed.to_sparse_csr())
        for i in range(6):
            p = torch.sigmoid(model.Phi @ found.mean[i] + model.b)
            curvature = observed[i].abs() * p * (1 - p)
            precision = torch.diag(1 / h.var[i]) + model.Phi.T @ torch.diag(curvature) @ model.Phi
            torch.testing.assert_close(found.var[i], torch.linalg.inv(precision).diagonal(), rtol=1e-4, atol=1e-5)
