"""Cubic interpolation is exact for quadratics, of third order elsewhere, and what a dense matrix of weights gives."""

import math
from itertools import pairwise

import pytest
import torch
from gpytorch.utils.interpolation import Interpolation
from hypothesis import given
from hypothesis import strategies as st

from labelfield.linalg.interpolation import banded_window_forms, cubic_weights, interpolate, locate

N = 8


def quadratic(forms, cells, weights):
    """wᵀ S w (B, J, d) in each dimension, from the blocks of S around the windows."""
    J, d = forms.shape[:2]
    blocks = forms[torch.arange(J)[:, None], torch.arange(d), cells]
    return torch.einsum("bjda,bjdac,bjdc->bjd", weights, blocks, weights)


def doubles(*shape, seed=0, n_points=N):
    """Coordinates within the grid."""
    generator = torch.Generator().manual_seed(seed)
    return 1 + (n_points - 3) * torch.rand(*shape, dtype=torch.float64, generator=generator)


def at(u, x, n_points):
    cells, t = locate(x, n_points)
    return interpolate(u, cells, cubic_weights(t), n_points)


def dense_weights(x, n_points):
    """The weights (…, n) of all points."""
    cells, t = locate(x, n_points)
    places = cells.unsqueeze(-1) + torch.arange(4)
    return torch.zeros(*x.shape, n_points, dtype=x.dtype).scatter(-1, places, cubic_weights(t))


def grid_values(function, n_points, d):
    """f on the points of a grid (1, n^d, 1), the last dimension running fastest."""
    axes = [torch.arange(n_points, dtype=torch.float64)] * d
    points = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).view(-1, d)
    return function(points).view(1, -1, 1)


@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(4, 7), st.integers(0, 9999)
)
def test_equal_to_a_dense_product_of_weights(B, J, T, d, n_points, seed):
    torch.manual_seed(seed)
    x, u = doubles(B, J, d, seed=seed, n_points=n_points), torch.randn(J, n_points**d, T, dtype=torch.float64)
    dense = dense_weights(x, n_points)
    joint = dense[:, :, 0]
    for k in range(1, d):
        joint = (joint.unsqueeze(-1) * dense[:, :, k].unsqueeze(-2)).flatten(-2)
    torch.testing.assert_close(at(u, x, n_points), torch.einsum("bjm,jmt->bjt", joint, u))


@given(st.lists(st.floats(1, N - 2), min_size=1, max_size=5))
def test_weights_sum_to_one_over_four_points_around_x(x):
    x = torch.tensor(x, dtype=torch.float64)
    cells, t = locate(x, N)
    assert ((cells >= 0) & (cells <= N - 4) & (t >= 0) & (t <= 1)).all()
    torch.testing.assert_close(cells + 1 + t, x)
    torch.testing.assert_close(cubic_weights(t).sum(-1), torch.ones_like(x))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_exact_on_the_grid(d):
    u = torch.randn(1, N**d, 1, dtype=torch.float64)
    inside = torch.cartesian_prod(*[torch.arange(1.0, N - 1, dtype=torch.float64)] * d).view(-1, 1, d)
    expected = u.view(*[N] * d)[(slice(1, N - 1),) * d].reshape(-1)
    assert torch.equal(at(u, inside, N).flatten(), expected)


@pytest.mark.parametrize("d", [1, 2])
def test_exact_for_quadratics(d):
    def function(points):
        return (2 - 3 * points + 0.5 * points.square()).prod(-1)

    x = doubles(50, 1, d)
    torch.testing.assert_close(at(grid_values(function, N, d), x, N).flatten(), function(x).flatten())


@pytest.mark.parametrize("d", [1, 2])
def test_third_order_in_the_step(d):
    """Each halving of the step divides the error by eight."""
    x = torch.rand(400, 1, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    errors = []
    for cells_per_unit in (16, 32, 64):
        n_points = cells_per_unit + 3

        def function(points, scale=cells_per_unit):
            return ((points - 1) / scale * 3).sin().prod(-1) + ((points - 1) / scale).sum(-1).exp()

        error = at(grid_values(function, n_points, d), 1 + x * cells_per_unit, n_points).flatten()
        errors.append((error - function(1 + x * cells_per_unit).flatten()).abs().max().item())
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(2.8 < order < 3.2 for order in orders), orders


def test_equal_to_gpytorch_in_the_interior():
    """The same function: of points on the grid, each may choose its window."""
    x = doubles(60, 2, seed=3)
    grid = [torch.arange(N, dtype=torch.float64)] * 2
    indices, values = Interpolation().interpolate(grid, x)
    theirs = torch.zeros(60, N * N, dtype=torch.float64).scatter_add(1, indices, values)
    u = torch.randn(1, N * N, 1, dtype=torch.float64)
    torch.testing.assert_close(at(u, x.unsqueeze(1), N).view(-1, 1), theirs @ u[0])


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 2), st.integers(4, 9), st.integers(0, 9999))
def test_quadratic_forms_are_dense_ones(B, J, d, n_points, seed):
    torch.manual_seed(seed)
    W, x = torch.randn(J, d, n_points, n_points, dtype=torch.float64), doubles(B, J, d, seed=seed, n_points=n_points)
    w = dense_weights(x, n_points)
    cells, t = locate(x, n_points)
    forms = quadratic(banded_window_forms(W), cells, cubic_weights(t))
    torch.testing.assert_close(forms, torch.einsum("bjdn,jdnm,bjdm->bjd", w, W @ W.mT, w))


def test_quadratic_forms_of_a_large_grid():
    n_points = 300
    W = torch.randn(2, 1, n_points, n_points, dtype=torch.float64, requires_grad=True)
    x = doubles(5, 2, 1, n_points=n_points)
    w, (cells, t) = dense_weights(x, n_points), locate(x, n_points)
    ours = quadratic(banded_window_forms(W), cells, cubic_weights(t))
    dense = torch.einsum("bjdn,jdnm,bjdm->bjd", w, W @ W.mT, w)
    torch.testing.assert_close(ours, dense)
    torch.testing.assert_close(*(torch.autograd.grad(forms.sin().sum(), W) for forms in (ours, dense)))


@pytest.mark.parametrize(("d", "T"), [(1, 1), (1, 3), (2, 1), (2, 2)])
def test_gradients_of_interpolation(d, T):
    u, x = torch.randn(2, 5**d, T, dtype=torch.float64, requires_grad=True), doubles(4, 2, d, n_points=5)
    assert torch.autograd.gradcheck(lambda u, x: at(u, x, 5), (u, x.requires_grad_()))


def test_any_order_in_memory():
    """Cells, weights and values that are views of others."""
    x, u = doubles(2, 3, 4).permute(2, 0, 1)[..., :1], torch.randn(3, N, 2, dtype=torch.float64).permute(2, 1, 0)
    cells, t = locate(x, N)
    weights = torch.stack(cubic_weights(t).unbind(-1)).movedim(0, -1)
    W = torch.randn(N, N, 1, 2, dtype=torch.float64).permute(3, 2, 0, 1)
    results = [
        (interpolate(u, cells, weights, N), quadratic(banded_window_forms(W), cells, weights))
        for u, W, cells, weights in ((u, W, cells, weights), [a.contiguous() for a in (u, W, cells, weights)])
    ]
    torch.testing.assert_close(*results)


def test_gradients_of_weights_and_forms():
    t = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(cubic_weights, (t,))
    W = torch.randn(2, 2, 6, 6, dtype=torch.float64, requires_grad=True)
    x = doubles(3, 2, 2, n_points=6)

    def value(W, x):
        cells, t = locate(x, 6)
        return quadratic(banded_window_forms(W), cells, cubic_weights(t))

    assert torch.autograd.gradcheck(value, (W, x.requires_grad_()))


def test_coordinates_outside_have_a_valid_window():
    cells, _ = locate(torch.tensor([2.0, 0.99, N - 1.99, float("inf"), -3.0, float("nan")]), N)
    assert ((cells >= 0) & (cells <= N - 4)).all()


def test_shapes_that_do_not_fit_are_errors():
    cells, t = locate(torch.ones(1, 1, 1), 5)
    with pytest.raises(ValueError, match="values for 5"):
        interpolate(torch.ones(1, 6, 1), cells, cubic_weights(t), 5)
    assert locate(torch.ones(0, 2), 5)[1].shape == (0, 2)


def test_not_a_number_spreads():
    x = torch.tensor([[[float("nan")]], [[2.5]]], dtype=torch.float64, requires_grad=True)
    u = torch.randn(1, N, 1, dtype=torch.float64, requires_grad=True)
    cells, t = locate(x, N)
    weights = cubic_weights(t)
    values = interpolate(u, cells, weights, N)
    forms = quadratic(banded_window_forms(torch.eye(N, dtype=torch.float64))[None, None], cells, weights)
    for result in (values, forms):
        assert result.isnan().flatten().tolist() == [True, False]
    (values.sum() + forms.sum()).backward()
    assert x.grad.isnan().flatten().tolist() == [True, False]
    assert u.grad.isnan().any()
