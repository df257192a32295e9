"""Multi-class Gaussian processes: sampled bounds are unbiased, classes are exchangeable, known special cases hold."""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from labelfield.inference.adam import RowAdam
from labelfield.inference.class_batches import ClassBatches
from labelfield.kernels import DensePoints, squared_exponential
from labelfield.kernels.combine import Scaled
from labelfield.likelihoods import Bernoulli, OneVsEach, RobustMax, Softmax
from labelfield.models.multiclass.model import MultiClassGP, SparseUtilities
from labelfield.models.multiclass.spec import ClassSpec, build
from labelfield.models.sampling import Rivals
from labelfield.variational.families import Full, Parsimonious, Prior, WhitenedDiagonal
from tests.models.bounds import as_csr, assert_unbiased, value_and_gradient

pytestmark = pytest.mark.usefixtures("in_double")
K, M, D, N = 7, 3, 2, 12
METHODS = {
    "own Z": {"inducing": "per_class", "posterior": "whitened_full"},
    "own Z, parsimonious": {"inducing": "per_class", "posterior": "parsimonious"},
    "shared Z": {"inducing": "free", "posterior": "whitened_diagonal"},
    "shared Z and kernel": {"inducing": "free", "kernel_per_class": False, "posterior": "full"},
    "ard": {"inducing": "free", "kernel": "se_ard", "posterior": "whitened_shared"},
    "linear": {"kernel": "linear", "posterior": "point"},
}


def random_model(n_classes=K, **options):
    spec = ClassSpec(D, n_classes, M, **{"kernel": "se", "unit_norm": False, "n_points": 10} | options)
    model = build(spec)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    return model


def classes_csr(y, n_classes=K):
    """One class per row, as a CSR tensor."""
    return as_csr(one_hot(y, n_classes))


def rows(n_rows=N, n_classes=K):
    y = torch.arange(n_rows) % n_classes
    return torch.randn(n_rows, D), classes_csr(y, n_classes)


@pytest.mark.parametrize(
    "name",
    # These two differ from others in what no draw touches.
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ("own Z, parsimonious", "shared Z and kernel") else [])
        for name in METHODS
    ],
)
def test_the_sampled_bound_and_its_gradient_are_unbiased(name):
    model = random_model(**METHODS[name])
    X, Y = rows()
    exact = value_and_gradient(model, model.elbo(X, Y, N))
    generator = torch.Generator().manual_seed(0)
    some = torch.arange(3)
    part, known = X[some], classes_csr(some % K)
    whole = value_and_gradient(model, model.elbo(part, known, N))
    draws = [
        value_and_gradient(model, model.elbo(part, known, N, n_negatives=1, generator=generator)) for _ in range(250)
    ]
    assert_unbiased(draws, whole)
    every = value_and_gradient(model, model.elbo(X, Y, N, n_negatives=K))
    torch.testing.assert_close(every, exact)


def test_rivals_drawn_by_their_scores_leave_it_unbiased():
    model = random_model(**METHODS["shared Z"])
    model.rivals = Rivals(K)
    generator = torch.Generator().manual_seed(0)
    X, known = torch.randn(2, D), classes_csr(torch.tensor([1, 4]))
    whole = value_and_gradient(model, model.elbo(X, known, N))
    for _ in range(60):  # until the table is no longer uniform
        model.elbo(X, known, N, n_negatives=2, generator=generator)
    assert model.rivals.table.diff().std() > 1e-3
    draws = [value_and_gradient(model, model.elbo(X, known, N, n_negatives=2, generator=generator)) for _ in range(400)]
    assert_unbiased(draws, whole)


@pytest.mark.parametrize(("n_drawn", "n_rivals"), [(1, 1), (2, 2)])
def test_batches_of_few_classes_leave_it_unbiased(n_drawn, n_rivals):
    """One class and one rival is the thesis' step [TH 3.36]."""
    model = random_model(**METHODS["shared Z"])
    y = torch.tensor([0] * 6 + [1] * 3 + [2] * 2 + [3])  # classes 4, 5 and 6 have no rows
    X = torch.randn(N, D)
    exact = value_and_gradient(model, model.elbo(X, classes_csr(y), N))
    batches, rng = ClassBatches(y.numpy(), n_drawn), np.random.default_rng(0)
    generator, draws = torch.Generator().manual_seed(0), []
    for batch in batches(rng.permutation(N), 4, 400, rng):
        chosen = torch.from_numpy(batch)
        weight = batches.row_weight(y[chosen])
        elbo = model.elbo(
            X[chosen], classes_csr(y[chosen]), N, n_negatives=n_rivals, row_weight=weight, generator=generator
        )
        draws.append(value_and_gradient(model, elbo))
    assert_unbiased(draws, exact)


@pytest.mark.parametrize("name", METHODS)
def test_a_step_touches_the_parameters_of_its_classes_alone(name):
    torch.set_default_dtype(torch.float32)  # as in training
    model = random_model(**METHODS[name])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimiser = RowAdam(list(model.parameters()), lr=0.1)
    X, Y = torch.randn(2, D), classes_csr(torch.tensor([1, 4]))
    generator = torch.Generator().manual_seed(0)
    classes = model._choose(Y.col_indices().long(), 1, torch.Generator().manual_seed(0)).labels
    (-model.elbo(X, Y, N, n_negatives=1, generator=generator).bound()).backward()
    optimiser.update(torch.zeros(()))
    others = torch.ones(K, dtype=torch.bool)
    others[classes] = False
    for key in per_class(model):
        changed = (model.state_dict()[key] != before[key]).reshape(K, -1).any(1)
        assert not changed[others].any(), key
        assert changed[~others].all(), key


def per_class(model):
    """Return the names of the parameters that have one row per class."""
    names = {"b"}
    for module_name, module in model.named_modules():
        names |= {f"{module_name}.{parameter}" for parameter in getattr(module, "per_process", ())}
    return names


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("likelihood", ["one_vs_each", "robustmax"])
def test_permuting_the_classes_permutes_the_result(name, likelihood):
    model = random_model(likelihood=likelihood, **METHODS[name])
    order = torch.randperm(K)
    other = random_model(likelihood=likelihood, **METHODS[name])
    state, own = model.state_dict(), per_class(model)
    other.load_state_dict({key: value[order] if key in own else value for key, value in state.items()})
    X, Y = rows()
    y = Y.col_indices().long()
    with torch.no_grad():
        ours, theirs = model.moments(X), other.moments(X)
        torch.testing.assert_close(ours.mean[:, order], theirs.mean)
        torch.testing.assert_close(ours.var[:, order], theirs.var)
        place = torch.argsort(order)
        permuted = classes_csr(place[y])
        torch.testing.assert_close(model.elbo(X, Y, N).bound(), other.elbo(X, permuted, N).bound())


def small_problem(family, n_rows=6, n_classes=3):
    """Z at the rows, one fixed kernel: only q is learned."""
    X = torch.randn(n_rows, D, generator=torch.Generator().manual_seed(1))

    class AtRows(torch.nn.Module):
        def points(self):
            return DensePoints(X)

    kernel = Scaled(squared_exponential(1.0), 2.0).requires_grad_(False)
    utilities = SparseUtilities(kernel, AtRows(), family(n_rows, n_classes), 1e-10)
    model = MultiClassGP(utilities, torch.zeros(n_classes), OneVsEach(20))
    model.b.requires_grad_(False)
    Y = classes_csr(torch.arange(n_rows) % n_classes, n_classes)

    def bound():
        return model.elbo(X, Y, n_rows).bound()

    learned = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.LBFGS(learned, max_iter=300, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def closure():
        optimiser.zero_grad()
        loss = -bound()
        loss.backward()
        return loss

    optimiser.step(closure)
    return float(bound().detach())


def test_parsimonious_with_z_at_the_rows_is_optimal_here_too():
    """The best Gaussian q has a covariance (K⁻¹ + Λ)⁻¹ with Λ diagonal, which is in the family [FSGP 8]."""
    assert small_problem(Parsimonious) == pytest.approx(small_problem(Full), abs=1e-4)


def test_two_classes_are_binary_classification_with_the_difference_kernel():
    """f_1 - f_0 has the kernel 2k. With opposite means and the prior's covariance the divergences agree as well."""
    kernel, Z, X = squared_exponential(0.7), torch.randn(M, D), torch.randn(N, D)

    class Given(torch.nn.Module):
        def points(self):
            return DensePoints(Z)

    family, m = WhitenedDiagonal(M, 2), torch.randn(M)
    with torch.no_grad():
        family.mean.copy_(torch.stack([-m, m]))
    model = MultiClassGP(SparseUtilities(kernel, Given(), family, 1e-10), torch.zeros(2), OneVsEach(20))
    y = torch.arange(N) % 2
    ours = model.elbo(X, classes_csr(y, 2), N)
    double = Scaled(kernel, 2.0)
    binary = WhitenedDiagonal(M, 1)
    with torch.no_grad():
        binary.mean.copy_(2**0.5 * m[None])
    prior = Prior(double.gram(Z), 1e-10)
    f = binary.moments(prior, double.cross(X, Z).mT, double.diag(X))
    fit = (f.mean[:, 0] * y).sum() - Bernoulli(20).expected_softplus(f.mean, f.var)
    torch.testing.assert_close(ours.fit, fit)
    torch.testing.assert_close(ours.kl, binary.kl(prior).sum())


def test_likelihoods_that_need_all_classes_refuse_samples():
    X, Y = rows()
    for likelihood in (RobustMax(), Softmax()):
        model = random_model()
        model.likelihood = likelihood
        with pytest.raises(ValueError, match="needs all classes"):
            model.elbo(X, Y, N, n_negatives=1)
