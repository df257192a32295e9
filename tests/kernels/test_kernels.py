"""Every kernel is positive semi-definite, and reads sparse rows as it reads dense ones."""

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import kernels as sk

from labelfield import Batch, Dataset
from labelfield.inducing import Free, Subspace
from labelfield.inducing.free import FreePoints
from labelfield.kernels import DotPower, Scaled, Sum, White, matern, squared_exponential
from labelfield.kernels.names import kernel_from_name, kernel_names
from labelfield.linalg.rows import dot, transposed

pytestmark = pytest.mark.usefixtures("in_double")
D, P = 7, 3
NAMES = [name for name in kernel_names() if name != "…"] + ["se_ard + linear", "matern32 + dot2 + white"]


def random_kernel(name):
    torch.manual_seed(1)
    kernel = kernel_from_name(name, D, P)
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.normal_(0, 0.5)
    return kernel


def rows(n=9, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, D)) < 0.6, rng.standard_normal((n, D)), 0).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_positive_semi_definite(name):
    K = random_kernel(name).gram(torch.tensor(rows(30), dtype=torch.float64))
    assert K.dtype == torch.float64
    assert torch.allclose(K, K.mT)
    assert torch.linalg.eigvalsh(K).min() > -1e-9


@pytest.mark.parametrize("name", NAMES)
def test_sparse_rows_equal_dense_rows(name):
    kernel = random_kernel(name).float()
    dense = torch.tensor(rows())
    sparse = Batch.gather(Dataset(rows(), np.zeros((9, 1))), slice(None)).X
    Z = torch.tensor(rows(4, 1))
    torch.testing.assert_close(kernel.cross(sparse, Z), kernel.cross(dense, Z))
    torch.testing.assert_close(kernel.diag(sparse), kernel.diag(dense))


@pytest.mark.parametrize("name", NAMES)
def test_cross_and_diag_are_parts_of_the_gram_matrix(name):
    if "white" in name:
        pytest.skip("white noise is 0 between a row and an inducing input by definition")
    kernel, X = random_kernel(name), torch.tensor(rows(), dtype=torch.float64)
    K = kernel.gram(X)
    torch.testing.assert_close(kernel.cross(X, X), K, atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(kernel.diag(X), K.diagonal(dim1=-2, dim2=-1), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (squared_exponential(0.7), sk.RBF(0.7)),
        (matern(0.5, 1.3), sk.Matern(1.3, nu=0.5)),
        (matern(1.5, 0.8), sk.Matern(0.8, nu=1.5)),
        (matern(2.5, 2.0), sk.Matern(2.0, nu=2.5)),
        (DotPower(1), sk.DotProduct(0.0)),
        (DotPower(3), sk.DotProduct(0.0) ** 3),
        (Sum(Scaled(squared_exponential(), 2.0), White(0.3)), 2.0 * sk.RBF(1.0) + sk.WhiteKernel(0.3)),
    ],
)
def test_equal_to_scikit_learn(ours, theirs):
    X = rows().astype(np.float64)
    torch.testing.assert_close(ours.double().gram(torch.tensor(X)).detach().numpy(), theirs(X), atol=1e-9, rtol=1e-6)


def test_one_length_per_process_is_each_kernel_in_turn():
    stacked, X = squared_exponential(n_processes=2), torch.tensor(rows(), dtype=torch.float64)
    with torch.no_grad():
        stacked.log_inverse_length.copy_(torch.tensor([0.5, -0.3]))
    for p, length in enumerate((np.exp(-0.5), np.exp(0.3))):
        torch.testing.assert_close(stacked.gram(X)[p], squared_exponential(length).gram(X))
        torch.testing.assert_close(stacked.cross(X, X[:2])[p], squared_exponential(length).cross(X, X[:2]))


@pytest.mark.parametrize("name", ["se_ard + linear", "matern52_ard", "linear_ard", "se_per_process", "dot2"])
def test_gradients(name):
    kernel = random_kernel(name)
    Z = torch.tensor(rows(4, 1), dtype=torch.float64, requires_grad=True)
    X = torch.tensor(rows(), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: (kernel.cross(X, z), kernel.gram(z)), (Z,))


@pytest.mark.parametrize("name", ["se", "se_ard", "linear", "matern32_ard", "se_ard + linear"])
@pytest.mark.parametrize("unit_norm", [True, False])
def test_subspace_equals_free_when_the_basis_spans_everything(name, unit_norm):
    kernel = random_kernel(name)
    Z = torch.tensor(rows(5, 2), dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(D, D)).Q
    free = Free(Z, unit_norm=unit_norm).points()
    subspace = Subspace(Z @ basis.T, basis, unit_norm=unit_norm).points()
    X = torch.tensor(rows(), dtype=torch.float64)
    torch.testing.assert_close(kernel.cross(X, free), kernel.cross(X, subspace))
    torch.testing.assert_close(kernel.gram(free), kernel.gram(subspace))


def test_projected_rows_equal_their_rows():
    kernel, X = random_kernel("se + linear"), torch.tensor(rows(), dtype=torch.float64)
    subspace = Subspace(torch.randn(4, 3), torch.randn(3, D))
    points = subspace.points()
    torch.testing.assert_close(kernel.cross(subspace.project(X), points), kernel.cross(X, points))
    torch.testing.assert_close(kernel.diag(subspace.project(X)), kernel.diag(X))
    with pytest.raises(ValueError, match="no weights per feature"):
        random_kernel("se_ard").cross(subspace.project(X), points)


def test_unknown_names():
    for name in ("cubic", "se_ard + cubic", "dot0", ""):
        with pytest.raises(ValueError, match="expected linear"):
            kernel_from_name(name, D, P)


def test_relevance():
    assert kernel_from_name("se + linear", D, P).feature_relevance() is None
    relevance = kernel_from_name("se_ard + linear_ard", D, P).feature_relevance()
    torch.testing.assert_close(relevance, torch.full((D,), 2.0))


def test_a_support_is_zero_elsewhere():
    """Inducing inputs with values on some features are those with zeros on the others."""
    X = torch.tensor(rows(), dtype=torch.float64)
    d = X.shape[1]
    support = torch.tensor([0, 2, d - 1], dtype=torch.int32)
    Z = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    some = Free(torch.zeros(4, 3, dtype=torch.float64), n_features=d, unit_norm=False)
    some.fill(Z, support)
    full = torch.zeros(4, d, dtype=torch.float64)
    full[:, support.long()] = Z
    for name in ("se_ard", "se_linear_ard", "linear"):
        kernel = kernel_from_name(name, d, 1).double()
        for x in (X, X.to_sparse_csr()):
            torch.testing.assert_close(kernel.cross(x, some.points()), kernel.cross(x, full))
        torch.testing.assert_close(kernel.gram(some.points()), kernel.gram(full))


def test_gradients_of_sparse_products():
    X = torch.tensor(rows(), dtype=torch.float64).to_sparse_csr()
    W = torch.randn(X.shape[1], 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda W: dot(X, W), [W])
    inducing = Free(torch.randn(4, X.shape[1], dtype=torch.float64), unit_norm=True)
    weights = torch.rand(X.shape[1], dtype=torch.float64, requires_grad=True)

    def gram(Zt, weights):
        return FreePoints(Zt).gram(weights)

    assert torch.autograd.gradcheck(gram, [inducing.transposed.detach().requires_grad_(), weights])


def test_transposed():
    X = torch.tensor(rows(), dtype=torch.float64)
    torch.testing.assert_close(transposed(X.to_sparse_csr()).to_dense(), X.T)
