"""On a small dense problem our bound and its gradient are GPyTorch's."""

import gpytorch
import numpy as np
import pytest
import torch

from labelfield import Batch, Dataset
from labelfield.inducing import Free
from labelfield.kernels import squared_exponential
from labelfield.likelihoods import Bernoulli
from labelfield.models.mlgpf.model import MLGPF
from labelfield.variational.families import WhitenedFull

N, D, K, P, M = 12, 3, 5, 2, 4


class Theirs(gpytorch.models.ApproximateGP):
    def __init__(self, Z, mean, factor, lengths):
        q = gpytorch.variational.CholeskyVariationalDistribution(M, batch_shape=torch.Size([P]))
        strategy = gpytorch.variational.VariationalStrategy(self, Z.expand(P, M, D), q, learn_inducing_locations=True)
        strategy._variational_distribution.variational_mean.data.copy_(mean.T)
        strategy._variational_distribution.chol_variational_covar.data.copy_(factor)
        strategy.variational_params_initialized.fill_(1)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=torch.Size([P]))
        self.covar_module = gpytorch.kernels.RBFKernel(ard_num_dims=D)
        self.covar_module.lengthscale = lengths

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.usefixtures("in_double")
def test_value_and_gradient():
    X = torch.randn(N, D)
    Y = (torch.rand(N, K) < 0.4).double()
    Z, mean, Phi, b = torch.randn(M, D), torch.randn(M, P), torch.randn(K, P), torch.randn(K)
    factor = torch.eye(M).repeat(P, 1, 1) * 0.5 + 0.1 * torch.randn(P, M, M).tril()
    lengths = torch.tensor([0.7, 1.0, 1.6])

    kernel = squared_exponential(n_features=D)
    kernel.log_inverse_length.data.copy_(-lengths.log())
    family = WhitenedFull(M, P)
    family.mean.data.copy_(mean.T)
    family.factor.data.copy_(factor)
    ours = MLGPF(
        kernel, Free(Z, unit_norm=False), family, Phi.clone(), b.clone(), likelihood=Bernoulli(20), jitter=1e-4
    )
    labels = Batch.gather(Dataset(np.zeros((N, 1)), Y.numpy()), slice(None)).Y
    estimate = ours.elbo(X, labels, N)
    estimate.bound().backward()

    with (
        gpytorch.settings.cholesky_jitter(double_value=1e-4),
        gpytorch.settings.fast_computations(False, False, False),
    ):
        theirs = Theirs(Z, mean, factor, lengths)
        theirs.train()
        h = theirs(X)
        their_Phi, their_b = Phi.clone().requires_grad_(), b.clone().requires_grad_()
        f_mean = h.mean.T @ their_Phi.T + their_b
        f_var = h.variance.T @ their_Phi.square().T
        quadrature = gpytorch.utils.quadrature.GaussHermiteQuadrature1D(20)
        softplus = quadrature(torch.nn.functional.softplus, torch.distributions.Normal(f_mean, f_var.sqrt()))
        bound = (Y * f_mean).sum() - softplus.sum() - theirs.variational_strategy.kl_divergence().sum()
        bound.backward()

    torch.testing.assert_close(estimate.bound(), bound, rtol=1e-5, atol=1e-5)
    q = theirs.variational_strategy._variational_distribution
    for name, a, c in (
        ("mean", family.mean.grad, q.variational_mean.grad),
        ("factor", family.factor.grad.tril(), q.chol_variational_covar.grad.tril()),
        ("Phi", ours.Phi.grad, their_Phi.grad),
        ("b", ours.b.grad, their_b.grad),
        ("Z", ours.inducing.transposed.grad.T, theirs.variational_strategy.inducing_points.grad.sum(0)),
    ):
        torch.testing.assert_close(a, c, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
