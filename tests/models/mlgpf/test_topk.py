"""The labels found are those of the full integral, for any variances and any block size."""

import pytest
import torch

from labelfield.models.mlgpf.spec import Spec, build
from labelfield.models.mlgpf.topk import top_k
from labelfield.variational.families import Moments


@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("block", [1 << 22, 4000])
def test_top_k_is_that_of_the_integral(scale, block, monkeypatch):
    """The cheap look orders by a formula that is off where variances differ widely: nothing may be overlooked."""
    monkeypatch.setattr("labelfield.models.mlgpf.topk.BLOCK_ENTRIES", block)
    monkeypatch.setattr("labelfield.models.mlgpf.topk._LEAST_CANDIDATES", 4)
    monkeypatch.setattr("labelfield.models.mlgpf.topk._CANDIDATES", 1)
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
