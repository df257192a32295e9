"""Deep kernels: q(f) is what dense formulas give, bounds are unbiased, processes start where the network stopped."""

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from labelfield.likelihoods.monte_carlo import expected_mixed_softmax, expected_softmax
from labelfield.linalg.toeplitz import toeplitz
from labelfield.models.deep.spec import DeepSpec, build
from tests.linalg.dense import kronecker_product
from tests.models.bounds import as_csr, assert_unbiased, value_and_gradient

pytestmark = pytest.mark.usefixtures("in_double")
Q, K, N = 4, 3, 6
# Overlapping, in any order, of one to three features.
SUBSETS = {1: ((2,), (0,), (2,)), 2: ((1, 0), (2, 3)), 3: ((3, 0, 1), (1, 2, 0))}
SIZE = {1: 9, 2: 6, 3: 5}
each_dimension = pytest.mark.parametrize("d", [1, 2, 3])
each_posterior = pytest.mark.parametrize("posterior", ["whitened_kronecker", "kronecker"])
each_moments = pytest.mark.parametrize("moments", ["exact", "sampled"])
KERNELS = [("se", True), ("matern32", True), ("se", False), ("matern12", False)]
each_kernel = pytest.mark.parametrize(("kernel", "kernel_per_process"), KERNELS)


def random_model(d=1, n_labels=K, network=None, **options):
    spec = DeepSpec(
        n_features=Q, n_labels=n_labels, network=None, n_outputs=Q, subsets=SUBSETS[d], grid_size=SIZE[d], **options
    )
    model = build(spec, network or torch.nn.Identity())
    with torch.no_grad():
        for name, parameter in model.processes.named_parameters():
            parameter.normal_(0, 0.3 if name == "family.factor" else 0.5)
            if name == "kernel.log_inverse_length":
                parameter.add_(1)  # lengths of about a step: longer ones would need jitter
        model.processes.family.factor.diagonal(dim1=-2, dim2=-1).add_(0.7)
        model.processes.grid.centre.normal_()
        model.processes.grid.scale.uniform_(0.8, 1.5)
        model.A.normal_()
        model.b.normal_()
    return model


def labels(is_multilabel, n_labels=K, n_rows=N):
    """Return dense (N, K) and CSR labels: one class per row, or several labels, with none in the first row."""
    dense = torch.zeros(n_rows, n_labels)
    if is_multilabel:
        dense = (torch.rand(n_rows, n_labels) < 0.4).double()
        dense[0] = 0
    else:
        dense[torch.arange(n_rows), torch.arange(n_rows) % n_labels] = 1
    return dense, as_csr(dense)


def keys(u):
    """Keys' convolution with a = -½, as he wrote it."""
    u = u.abs()
    near, far = (1.5 * u - 2.5) * u**2 + 1, ((-0.5 * u + 2.5) * u - 4) * u + 2
    return torch.where(u < 1, near, torch.where(u < 2, far, 0.0))


def interpolation(grid, h, process):
    """The matrix (B, m) from the values of a process on all points of the grid to those at rows."""
    z = grid.squash(h)[:, grid.subsets[process]]
    points = torch.linspace(-1 - grid.step, 1 + grid.step, grid.n_points)
    each = keys((z.unsqueeze(-1) - points) / grid.step)  # (B, d, n)
    whole = each[:, 0]
    for k in range(1, each.shape[1]):
        whole = (whole.unsqueeze(2) * each[:, k].unsqueeze(1)).flatten(1)
    return whole


def dense_f(model, h):
    """Means (J, B) and covariances (J, B, B) of f at rows, from all of q(u)."""
    processes = model.processes
    prior = processes.prior()
    mean, root = processes.family.values(prior), kronecker_product(processes.family.roots(prior))
    W = torch.stack([interpolation(processes.grid, h, j) for j in range(len(mean))])
    return (W @ mean.unsqueeze(-1)).squeeze(-1), W @ (root @ root.mT) @ W.mT


@each_dimension
@each_posterior
@each_kernel
def test_moments_are_those_of_dense_formulas(d, posterior, kernel, kernel_per_process):
    """Near the middle and far outside, where features are held back."""
    model = random_model(d, posterior=posterior, kernel=kernel, kernel_per_process=kernel_per_process)
    h = torch.cat([torch.randn(8, Q), 30 * torch.randn(2, Q)])
    mean, covariance = dense_f(model, h)
    f = model.latent(h)
    torch.testing.assert_close(f.mean.T, mean)
    torch.testing.assert_close(f.var.T, covariance.diagonal(dim1=-2, dim2=-1), rtol=1e-7, atol=1e-8)
    g = model.utilities(f)
    torch.testing.assert_close(g.mean, f.mean @ model.A.T + model.b)
    independent = torch.einsum("kj,bj,kj->bk", model.A, f.var, model.A)
    torch.testing.assert_close(g.var, independent)


@each_kernel
def test_the_prior_of_a_process_is_its_kernel_on_the_grid(kernel, kernel_per_process):
    """k(z, z') = variance ∏_d k_d(z_d - z'_d), with a variance and lengths of its own or one for all."""
    model = random_model(2, kernel=kernel, kernel_per_process=kernel_per_process)
    processes, n = model.processes, SIZE[2]
    K = kronecker_product(toeplitz(processes.prior().columns))
    assert len(K) == (2 if kernel_per_process else 1)
    points = torch.arange(n) * processes.grid.step
    along = processes.kernel.of_lag((points[:, None] - points).abs().flatten()).view(-1, 2, n, n)
    for j, (first, second) in enumerate(along):
        whole = torch.kron(first, second) * processes.log_variance[j].exp()
        torch.testing.assert_close(K[j], whole)
        torch.testing.assert_close(processes.prior_variance()[j], whole[0, 0])


@each_posterior
@pytest.mark.parametrize("d", [1, 2])
def test_draws_go_together_across_rows(d, posterior):
    """The mean and covariance of T draws of f at all rows, within five standard errors; processes are independent."""
    model, h, T = random_model(d, posterior=posterior), torch.randn(4, Q), 20_000
    with torch.no_grad():
        draws = model.processes.draw(h, T, torch.Generator().manual_seed(3))
        mean, covariance = dense_f(model, h)
    J = model.A.shape[1]
    assert draws.shape == (T, 4, J)
    whole = torch.block_diag(*covariance)
    centred = draws.movedim(2, 1).reshape(T, -1) - mean.flatten()
    size = whole.diagonal()
    assert (centred.mean(0).abs() <= 5 * (size / T).sqrt()).all()
    error = ((size[:, None] * size + whole**2) / T).sqrt()
    assert ((centred.T @ centred / T - whole).abs() <= 5 * error).all()
    again = model.processes.draw(h, 2, torch.Generator().manual_seed(3))
    assert torch.equal(again, model.processes.draw(h, 2, torch.Generator().manual_seed(3)))


def brute_force(model, h, dense, T=20_000):
    """The fit by T draws of u from dense Gaussians, and its standard error."""
    mean, covariance = dense_f(model, h)
    noise = torch.randn(len(mean), h.shape[0], T, generator=torch.Generator().manual_seed(7))
    # Of f at all rows, which is an image of u.
    f = mean.unsqueeze(-1) + torch.linalg.cholesky(covariance + 1e-9 * torch.eye(h.shape[0])) @ noise
    g = torch.einsum("kj,jbt->tbk", model.A, f) + model.b
    if model.is_multilabel:
        each = -binary_cross_entropy_with_logits(g, dense.expand_as(g), reduction="none").sum((1, 2))
    else:
        each = (g.log_softmax(2) * dense).sum((1, 2))
    return float(each.mean()), float(each.std() / T**0.5)


def repeated(model, h, Y, n_repeats=40, **options):
    """The mean and standard error of estimates of the fit."""
    generator = torch.Generator().manual_seed(11)
    fits = torch.stack([model.elbo(h, Y, len(h), generator=generator, **options).fit for _ in range(n_repeats)])
    return float(fits.mean()), float(fits.std() / n_repeats**0.5)


@each_moments
@pytest.mark.parametrize("likelihood", ["softmax", "bernoulli"])
@pytest.mark.parametrize("d", [1, 2])
@torch.no_grad()
def test_the_bound_is_that_of_brute_force(d, likelihood, moments):
    """Within five standard errors. Several labels with exact moments need no draws."""
    model = random_model(d, likelihood=likelihood, moments=moments, n_samples=60, n_points=40)
    h, (dense, Y) = torch.randn(N, Q), labels(likelihood == "bernoulli")
    value, error = brute_force(model, h, dense)
    estimate, own_error = repeated(model, h, Y)
    assert (own_error < 1e-12) == ((likelihood, moments) == ("bernoulli", "exact"))
    assert abs(estimate - value) <= 5 * (error**2 + own_error**2) ** 0.5
    assert error < 0.02 * abs(value)
    elbo = model.elbo(h, Y, 10 * N)
    torch.testing.assert_close(elbo.kl, model.processes.kl().sum())
    assert abs(float(elbo.fit) / 10 - value) <= 5 * (error**2 + 40 * own_error**2) ** 0.5


@each_posterior
def test_batches_of_a_partition_have_the_whole_bound_as_their_mean(posterior):
    """Up to rounding, in value and gradient, with exact moments and several labels per row."""
    model, h, (dense, _) = random_model(2, likelihood="bernoulli", posterior=posterior), torch.randn(N, Q), labels(True)
    whole = value_and_gradient(model, model.elbo(h, as_csr(dense), N))
    parts = [
        value_and_gradient(model, model.elbo(h[part], as_csr(dense[part]), N)) for part in torch.randperm(N).view(3, 2)
    ]
    torch.testing.assert_close(torch.stack(parts).mean(0), whole)
    assert (torch.stack(parts).std(0) > 1e-3).any()


@each_moments
def test_drawn_labels_leave_the_bound_and_its_gradient_unbiased(moments):
    model = random_model(n_labels=8, likelihood="bernoulli", moments=moments, n_points=40)
    h, (dense, _) = torch.randn(3, Q), labels(True, 8, 3)
    dense[:, 3:] = 0
    Y, generator = as_csr(dense), torch.Generator().manual_seed(0)
    exact = random_model(n_labels=8, likelihood="bernoulli", n_points=40)
    exact.load_state_dict(model.state_dict())
    whole = value_and_gradient(exact, exact.elbo(h, Y, N))
    draws = [value_and_gradient(model, model.elbo(h, Y, N, n_negatives=2, generator=generator)) for _ in range(150)]
    assert_unbiased(draws, whole)
    if moments == "exact":
        every = value_and_gradient(model, model.elbo(h, Y, N, n_negatives=8))
        torch.testing.assert_close(every, whole)


@each_moments
def test_softmax_batches_and_draws_leave_the_bound_and_its_gradient_unbiased(moments):
    """One draw per step, from a random batch, as in training."""
    model = random_model(moments=moments)
    h, (dense, Y) = torch.randn(N, Q), labels(False)
    many = random_model(moments="exact")
    many.load_state_dict(model.state_dict())
    many.n_samples = 20_000
    generator = torch.Generator().manual_seed(0)
    exact = value_and_gradient(many, many.elbo(h, Y, N, generator=generator))
    draws = []
    for _ in range(200):
        part = torch.randperm(N, generator=generator)[:3]
        draws.append(value_and_gradient(model, model.elbo(h[part], as_csr(dense[part]), N, generator=generator)))
    assert_unbiased(draws, exact)  # whose own error is a tenth of the mean's


@each_dimension
@each_posterior
@pytest.mark.parametrize("kernel_per_process", [True, False])
def test_processes_start_as_the_plain_network(d, posterior, kernel_per_process):
    """In the linear part, where almost all features are; and surer than the prior."""
    model = random_model(d, posterior=posterior, kernel_per_process=kernel_per_process)
    h = torch.randn(500, Q) * torch.tensor([0.1, 1, 10, 3]) + torch.tensor([0, -2, 5, 1])
    model.processes.start(h)
    grid = model.processes.grid
    s = (h - grid.centre) / grid.scale
    linear = (s.abs() <= 0.8).all(1)
    assert linear.double().mean() > 0.95
    f, g = model.latent(h), model.utilities(model.latent(h))
    torch.testing.assert_close(f.mean[linear], model.sums(h)[linear], rtol=1e-6, atol=1e-6)
    logits = torch.stack([h[:, list(subset)].sum(1) for subset in SUBSETS[d]], 1) @ model.A.T + model.b
    torch.testing.assert_close(g.mean[linear], logits[linear], rtol=1e-6, atol=1e-5)
    prior = kronecker_product(model.processes.prior().roots)
    K = (prior @ prior.mT).expand(model.A.shape[1], -1, -1)
    W = torch.stack([interpolation(grid, h, j) for j in range(model.A.shape[1])])
    share = f.var.T / ((W @ K) * W).sum(-1)
    assert (share > 1e-6).all()
    assert (share < 0.25).all()
    assert model.processes.kl().isfinite().all()


class Bound(torch.nn.Module):
    """The bound as a function of features, from the same random numbers at each call."""

    def __init__(self, model, Y):
        super().__init__()
        self.model, self.Y = model, Y

    def forward(self, h):
        return self.model.elbo(h, self.Y, 2 * N, generator=torch.Generator().manual_seed(5)).bound()


@pytest.mark.parametrize(
    ("likelihood", "moments", "posterior", "d", "kernel", "kernel_per_process"),
    [
        ("softmax", "exact", "whitened_kronecker", 1, "se", True),
        ("softmax", "exact", "kronecker", 2, "matern32", False),
        ("softmax", "sampled", "whitened_kronecker", 2, "matern52", True),
        ("softmax", "sampled", "kronecker", 1, "matern52", False),
        ("softmax", "exact", "whitened_kronecker", 3, "matern32", True),
        ("bernoulli", "exact", "whitened_kronecker", 2, "se", False),
        ("bernoulli", "exact", "kronecker", 1, "matern32", True),
        ("bernoulli", "sampled", "kronecker", 2, "se", True),
        ("bernoulli", "sampled", "whitened_kronecker", 1, "matern32", False),
    ],
)
def test_gradients(likelihood, moments, posterior, d, kernel, kernel_per_process):
    """With respect to features, q(u), kernels, variances, A and b. The jitter is tiny, since its size has no
    gradient."""
    options = {
        "kernel": kernel,
        "kernel_per_process": kernel_per_process,
        "n_samples": 2,
        "n_points": 60,
        "jitter": 1e-10,
    }
    model = random_model(d, likelihood=likelihood, moments=moments, posterior=posterior, **options)
    bound = Bound(model, labels(likelihood == "bernoulli")[1])
    names = [name for name, _ in bound.named_parameters()]
    assert len(names) == 6

    def value(h, *parameters):
        return functional_call(bound, dict(zip(names, parameters, strict=True)), (h,))

    inputs = [torch.randn(N, Q), *(p.detach().clone() for p in bound.parameters())]
    # In full where that is quick; else in a random direction of each input.
    full = d == 1 and posterior == "whitened_kronecker"
    assert torch.autograd.gradcheck(value, [x.requires_grad_() for x in inputs], fast_mode=not full)


# Predicting


@torch.no_grad()
def test_the_mixed_softmax_is_that_of_brute_force():
    """Within five standard errors of the draws, plus the error of 4096 points of a Sobol sequence."""
    mean, var, A, b = torch.randn(5, 4), 2 * torch.rand(5, 4), torch.randn(3, 4), torch.randn(3)
    ours = expected_mixed_softmax(mean, var, A, b, 4096)
    f = mean + var.sqrt() * torch.randn(40_000, 5, 4, generator=torch.Generator().manual_seed(1))
    each = (f @ A.T + b).softmax(2)
    assert ((ours - each.mean(0)).abs() <= 5 * each.std(0) / 200 + 5e-4).all()
    torch.testing.assert_close(ours.sum(1), torch.ones(5))
    torch.testing.assert_close(expected_mixed_softmax(mean, 0 * var, A, b, 8), (mean @ A.T + b).softmax(1))


@torch.no_grad()
def test_the_mixed_softmax_without_mixing_is_the_softmax():
    mean, var = torch.randn(6, 4), 2 * torch.rand(6, 4)
    eye, nothing = torch.eye(4), torch.zeros(4)
    torch.testing.assert_close(
        expected_mixed_softmax(mean, var, eye, nothing, 8192), expected_softmax(mean, var, 8192), atol=1e-3, rtol=0
    )
    # Classes by falling E exp(f) get the same draws.
    order = (mean + var / 2).argsort(1, descending=True)
    mean, var = mean.gather(1, order), var.gather(1, order)
    torch.testing.assert_close(expected_mixed_softmax(mean, var, eye, nothing, 16), expected_softmax(mean, var, 16))


@torch.no_grad()
def test_utilities_that_go_together_keep_their_difference():
    """Utilities of the same process, however uncertain; independent ones would make the probabilities more equal."""
    A, b = torch.tensor([[3.0], [3.0]]), torch.tensor([0.0, 1.0])
    ours = expected_mixed_softmax(torch.randn(4, 1), torch.full((4, 1), 25.0), A, b, 64)
    torch.testing.assert_close(ours, b.softmax(0).expand(4, 2))


@pytest.mark.parametrize("likelihood", ["softmax", "bernoulli"])
@pytest.mark.parametrize("is_plain", [False, True])
@torch.no_grad()
def test_predictions_do_not_depend_on_the_rows_beside_them(likelihood, is_plain):
    model = random_model(2, likelihood=likelihood, is_plain=is_plain)
    h, order = torch.randn(20, Q), torch.randperm(20)
    whole = model.predict_proba(model.latent(h))
    assert whole.shape == (20, K)
    if likelihood == "softmax":
        torch.testing.assert_close(whole.sum(1), torch.ones(20))
    permuted = model.predict_proba(model.latent(h[order]))
    torch.testing.assert_close(permuted, whole[order], rtol=1e-12, atol=1e-14)
    parts = torch.cat([model.predict_proba(model.latent(part)) for part in h.split(7)])
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)


@torch.no_grad()
def test_several_labels_are_predicted_with_the_uncertainty_of_f():
    model = random_model(likelihood="bernoulli", n_points=60)
    g = model.utilities(model.latent(torch.randn(5, Q)))
    draws = g.mean + g.var.sqrt() * torch.randn(40_000, 5, K, generator=torch.Generator().manual_seed(2))
    each = draws.sigmoid()
    ours = model.predict_proba(model.latent(torch.zeros(0, Q)))
    assert ours.shape == (0, K)
    ours = model.bernoulli.predict_proba(*g)
    assert ((ours - each.mean(0)).abs() <= 5 * each.std(0) / 200).all()


@each_dimension
@pytest.mark.parametrize("likelihood", ["softmax", "bernoulli"])
@torch.no_grad()
def test_the_plain_model_is_a_layer_on_sums_of_features(d, likelihood):
    model, h = random_model(d, likelihood=likelihood, is_plain=True), torch.randn(5, Q)
    sums = torch.stack([h[:, list(subset)].sum(1) for subset in SUBSETS[d]], 1)
    logits = sums @ model.A.T + model.b
    expected = logits.softmax(1) if likelihood == "softmax" else logits.sigmoid()
    f = model.latent(h)
    torch.testing.assert_close(f.mean, sums)
    assert not f.var.any()
    torch.testing.assert_close(model.predict_proba(f), expected)
    model.keep_baseline()
    model.A.zero_()  # what comes later
    torch.testing.assert_close(model.baseline.predict_proba(model.sums(h)), expected)


@pytest.mark.parametrize("n_labels", [3, 5])
@pytest.mark.parametrize("likelihood", ["softmax", "bernoulli"])
def test_the_plain_objective_is_the_log_likelihood(likelihood, n_labels):
    """A square mixing, the identity, is not trained yet."""
    model, h = random_model(n_labels=n_labels, likelihood=likelihood), torch.randn(N, Q)
    dense, Y = labels(likelihood == "bernoulli", n_labels)
    if likelihood == "bernoulli":
        dense[:, -2:] = 0
        Y = as_csr(dense)
    logits = model.sums(h) @ model.A.T + model.b
    if likelihood == "softmax":
        loss = cross_entropy(logits, dense.argmax(1), reduction="sum")
    else:
        loss = binary_cross_entropy_with_logits(logits, dense, reduction="sum")
    elbo = model.plain_log_prob(h, Y, 5 * N)
    torch.testing.assert_close(elbo.fit, -5 * loss)
    assert elbo.kl == 0
    elbo.bound().backward()
    assert (model.A.grad is None or not model.A.grad.any()) == (n_labels == model.A.shape[1])
    assert model.b.grad.any()
    if likelihood == "bernoulli":
        generator = torch.Generator().manual_seed(0)
        drawn = [
            value_and_gradient(model, model.plain_log_prob(h, Y, N, n_negatives=1, generator=generator))
            for _ in range(100)
        ]
        assert_unbiased(drawn, value_and_gradient(model, model.plain_log_prob(h, Y, N)))


def test_what_is_not_finite_in_a_row_stays_in_that_row():
    model, h = random_model(2), torch.randn(4, Q)
    good = model.latent(h)
    h[2] = float("nan")
    f = model.latent(h)
    others = torch.tensor([0, 1, 3])
    assert f.mean[2].isnan().all()
    torch.testing.assert_close(f.mean[others], good.mean[others])
    torch.testing.assert_close(f.var[others], good.var[others])
