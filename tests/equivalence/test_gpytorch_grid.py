"""On a small problem our bound on a grid, its parts and its gradients are GPyTorch's.

Theirs differs in three ways that have nothing to do with the bound, and are undone here:

1. Its grid goes a little beyond the bounds it is given: these are chosen so that the points are ours.
2. With two features its prior has the first one varying fastest, its interpolation the last. Lengths change places.
3. Its prior has a jitter of 1e-3 that no setting changes. With one feature ours is as large; with two, where ours is on
   each factor and theirs on the product, both have almost none.

Near the boundary it takes the nearest point; our features stay inside.
"""

import gpytorch
import pytest
import torch

from labelfield.models.deep.spec import DeepSpec, build
from tests.linalg.dense import kronecker_product
from tests.models.bounds import as_csr

pytestmark = pytest.mark.usefixtures("in_double")
N, J, K = 10, 3, 4
SIZE = {1: 9, 2: 6}
VARIANCE = 1.7
TINY = 1e-10


class TinyJitter(gpytorch.variational.GridInterpolationVariationalStrategy):
    """Theirs, with another constant."""

    @property
    def prior_distribution(self):
        out = self.model.forward(self.inducing_points)
        return gpytorch.distributions.MultivariateNormal(out.mean, out.lazy_covariance_matrix.add_jitter(TINY))


class Theirs(gpytorch.models.ApproximateGP):
    def __init__(self, d, lengths, mean, factor):
        n = SIZE[d]
        end = (1 + 2 / (n - 3)) * (n - 2) / n
        q = gpytorch.variational.CholeskyVariationalDistribution(n**d, batch_shape=torch.Size([J]))
        kind = gpytorch.variational.GridInterpolationVariationalStrategy if d == 1 else TinyJitter
        strategy = kind(self, n, [(-end, end)] * d, q)
        q.variational_mean.data.copy_(mean)
        q.chol_variational_covar.data.copy_(factor)
        strategy.variational_params_initialized.fill_(1)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=torch.Size([J]))
        rbf = gpytorch.kernels.RBFKernel(ard_num_dims=d, batch_shape=torch.Size([J]))
        rbf.lengthscale = lengths.flip(-1).unsqueeze(1)
        self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=torch.Size([J]))
        self.covar_module.outputscale = VARIANCE

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("d", [1, 2])
def test_value_and_gradient(d):
    n = SIZE[d]
    dense = (torch.rand(N, K) < 0.4).double()
    h, A, b = 1.5 * torch.rand(N, J * d) - 0.75, torch.randn(K, J), torch.randn(K)
    mean, lengths = torch.randn(J, n**d), 0.3 + 0.3 * torch.rand(J, d)
    factor = 0.5 * torch.eye(n) + 0.1 * torch.randn(J, d, n, n).tril()

    subsets = tuple(tuple(range(d * j, d * j + d)) for j in range(J))
    jitter = 1e-3 / VARIANCE if d == 1 else TINY  # ours is a share of the variance
    options = {"posterior": "kronecker", "likelihood": "bernoulli", "n_points": 20, "jitter": jitter}
    ours = build(DeepSpec(J * d, K, None, J * d, subsets, n, **options), torch.nn.Identity())
    processes, q = ours.processes, ours.processes.family
    with torch.no_grad():
        processes.kernel.log_inverse_length.copy_(-lengths.view(processes.kernel.log_inverse_length.shape).log())
        processes.log_variance.fill_(VARIANCE).log_()
        q.mean.copy_(mean)
        q.factor.copy_(factor)
        ours.A.copy_(A)
        ours.b.copy_(b)
    our_h = h.clone().requires_grad_()  # the grid is where they are: in its linear part z = h
    estimate = ours.elbo(our_h, as_csr(dense), N)
    estimate.bound().backward()

    with gpytorch.settings.fast_computations(False, False, False):
        theirs = Theirs(d, lengths, mean, kronecker_product(factor))
        theirs.train()
        their_h, their_A, their_b = (x.clone().requires_grad_() for x in (h, A, b))
        f = theirs(torch.stack([their_h[:, list(subset)] for subset in subsets]))
        kl = theirs.variational_strategy.kl_divergence()
        quadrature = gpytorch.utils.quadrature.GaussHermiteQuadrature1D(20)
        g_mean, g_var = f.mean.T @ their_A.T + their_b, f.variance.T @ their_A.square().T
        softplus = quadrature(torch.nn.functional.softplus, torch.distributions.Normal(g_mean, g_var.sqrt()))
        bound = (dense * g_mean).sum() - softplus.sum() - kl.sum()
        bound.backward()

    points = torch.linspace(-1 - processes.grid.step, 1 + processes.grid.step, n)
    torch.testing.assert_close(theirs.variational_strategy.grid, points.unsqueeze(1).expand(n, d))
    with torch.no_grad():
        moments = processes.moments(h)
        torch.testing.assert_close(moments.mean.T, f.mean)
        torch.testing.assert_close(moments.var.T, f.variance)
        torch.testing.assert_close(processes.kl(), kl, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(estimate.bound(), bound, rtol=1e-6, atol=1e-6)

    their_q = theirs.variational_strategy._variational_distribution
    # By each factor of the product, through the product.
    leaf = factor.clone().requires_grad_()
    kronecker_product(leaf).backward(their_q.chol_variational_covar.grad.tril())
    scale = theirs.covar_module
    # Theirs are softplus of what is learned.
    by_length = scale.base_kernel.raw_lengthscale.grad / torch.sigmoid(scale.base_kernel.raw_lengthscale.detach())
    by_variance = scale.raw_outputscale.grad / torch.sigmoid(scale.raw_outputscale.detach())
    ours_by_length = processes.kernel.log_inverse_length.grad.view(J, d)
    for name, a, c in (
        ("h", our_h.grad, their_h.grad),
        ("mean", q.mean.grad, their_q.variational_mean.grad),
        ("factor", q.factor.grad.tril(), leaf.grad.tril()),
        ("length", ours_by_length, -lengths * by_length.view(J, d).flip(-1)),
        ("variance", processes.log_variance.grad, VARIANCE * by_variance),
        ("A", ours.A.grad, their_A.grad),
        ("b", ours.b.grad, their_b.grad),
    ):
        assert a.abs().max() > 1e-2
        torch.testing.assert_close(a, c, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
