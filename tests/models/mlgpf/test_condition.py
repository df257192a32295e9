"""Moments given known labels are those of the Laplace approximation."""

import torch

from labelfield.models.mlgpf.condition import condition
from labelfield.models.mlgpf.spec import Spec, build
from labelfield.variational.families import Moments


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
