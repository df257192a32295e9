"""Every finite feature has four grid points around it, and the grid follows where most features lie."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelfield.inducing.grid import LEAST_GRID, Grid

C = 0.8  # where features begin to be held back
HUGE = 2.0**100  # 1e30, exact in float32 too
ANY = (
    st.floats(-HUGE, HUGE, width=32, allow_subnormal=False)
    | st.floats(-3, 3, width=32, allow_subnormal=False)
    | st.sampled_from([HUGE, -HUGE, 0.0, C, -C])
)
SOME = st.lists(ANY, min_size=1, max_size=8)


def one_feature(n_points=8, centre=0.0, scale=1.0, dtype=torch.float64):
    grid = Grid(n_points, ((0,),), 1).to(dtype)
    grid.centre.fill_(centre)
    grid.scale.fill_(scale)
    return grid


def column(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype).unsqueeze(1)


@given(SOME, SOME, st.integers(LEAST_GRID, 300), st.sampled_from([torch.float32, torch.float64]))
def test_every_finite_feature_has_four_points_around_it(followed, values, n_points, dtype):
    """This includes features far from those that the grid was placed on, where |z| < 1 rounds to 1."""
    grid, h = one_feature(n_points, dtype=dtype), column(values, dtype).requires_grad_()
    grid.follow(column(followed, dtype))
    z = grid.squash(h)
    assert (z.abs() <= 1).all()
    cells, t = grid.locate(h)
    assert cells.min() >= 0
    assert cells.max() <= n_points - 4
    assert t.min() >= 0
    assert t.max() <= 1
    # Each lies so far between the second and the third point of its cell.
    torch.testing.assert_close(-1 - grid.step + (cells[..., 0] + 1 + t[..., 0]) * grid.step, z)
    z.sum().backward()
    slope = h.grad * grid.scale
    assert (slope >= -1e-5).all()
    assert (slope <= 1 + 1e-5).all()


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20), st.floats(-5, 5), st.floats(0.01, 100))
def test_moderate_features_are_strictly_inside_and_keep_their_order(values, centre, scale):
    h = column(sorted(values))
    z = one_feature(centre=centre, scale=scale).squash(h)
    assert (z.abs() < 1).all()
    assert (z.diff(dim=0) >= 0).all()
    apart = h.diff(dim=0) > 1e-2 * h[1:].abs().maximum(h[:-1].abs()).clamp_min(1)
    assert (z.diff(dim=0)[apart] > 0).all()


@given(st.floats(-C, C), st.floats(-5, 5), st.floats(0.01, 100))
def test_linear_up_to_c(s, centre, scale):
    z = one_feature(centre=centre, scale=scale).squash(column([centre + scale * s]))
    torch.testing.assert_close(z, column([s]), atol=1e-9, rtol=0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_continuous_and_once_differentiable_at_c(sign):
    grid, e = one_feature(centre=1.0, scale=2.0), 1e-7
    h = (1 + 2 * sign * column([C - e, C, C + e])).requires_grad_()
    z = grid.squash(h)
    torch.testing.assert_close(z, sign * column([C - e, C, C + e]), atol=1e-12, rtol=0)
    (slope,) = torch.autograd.grad(z.sum(), h)
    torch.testing.assert_close(slope, torch.full_like(slope, 0.5), atol=1e-6, rtol=0)
    far = torch.tensor([[1 + 2 * sign * (C + 0.2)]], dtype=torch.float64, requires_grad=True)
    z = grid.squash(far)
    # x = 1: half of what is left is used, at a quarter of the slope.
    torch.testing.assert_close(z, column([sign * 0.9]))
    torch.testing.assert_close(torch.autograd.grad(z.sum(), far)[0], column([0.125]))


@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_not_finite_is_not_a_number_and_spares_the_rest(bad, dtype):
    grid = one_feature(dtype=dtype)
    cells, t = grid.locate(column([0.3, bad], dtype))
    assert t[1].isnan()
    assert (cells >= 0).all()
    assert (cells <= grid.n_points - 4).all()
    alone = grid.locate(column([0.3], dtype))
    assert torch.equal(cells[:1], alone[0])
    assert torch.equal(t[:1], alone[1])


@pytest.mark.parametrize("draw", ["standard_normal", "standard_cauchy", "standard_exponential", "random"])
def test_it_follows_99_percent_of_the_features(draw):
    """On each side ½ % is held back, however heavy the tails."""
    rng = np.random.default_rng(0)
    h = torch.from_numpy(getattr(rng, draw)((5000, 3)) * [1e-3, 1, 1e3] + [5, -1, 1e4]).float()
    grid = Grid(10, ((0,), (1,), (2,)), 3)
    grid.follow(h)
    s = (h.double() - grid.centre.double()) / grid.scale.double()
    for held in ((s > C + 1e-3).double().mean(0), (s < -C - 1e-3).double().mean(0)):
        assert (held <= 0.005).all()
    # The constant offset 5 is so large beside 1e-3 that the first is near the least scale; the others use all of it.
    for held in ((s > C - 1e-3).double().mean(0), (s < -C + 1e-3).double().mean(0)):
        assert (held[1:] >= 0.0045).all()


@given(ANY, st.integers(1, 4))
def test_constant_features_are_in_the_middle(value, n_rows):
    grid = one_feature(dtype=torch.float32)
    grid.follow(torch.full((n_rows, 1), value))
    assert grid.scale > 0
    assert grid.scale.isfinite()
    z = grid.squash(torch.tensor([[value], [value * (1 + 1e-4)]]))
    assert z[0].abs() < 1e-3
    # Others that are as good as the same are close by.
    assert z[1].abs() < 0.2


@pytest.mark.parametrize("subsets", [((2, 0), (0, 2), (1, 0)), ((3,), (3,), (0,)), ((1, 2, 3), (3, 1, 0))])
def test_subsets_may_overlap_and_be_in_any_order(subsets):
    torch.manual_seed(0)
    h = torch.randn(6, 4)
    grid = Grid(9, subsets, 4)
    grid.follow(h)
    cells, t = grid.locate(h)
    assert (grid.n_processes, grid.n_dimensions) == (len(subsets), len(subsets[0]))
    for process, subset in enumerate(subsets):
        for dimension, feature in enumerate(subset):
            alone = one_feature(9, grid.centre[feature], grid.scale[feature], torch.float32)
            expected = alone.locate(h[:, feature : feature + 1])
            assert torch.equal(cells[:, process, dimension], expected[0][:, 0, 0])
            assert torch.equal(t[:, process, dimension], expected[1][:, 0, 0])


@given(st.integers(1, 5), st.integers(LEAST_GRID, 40))
def test_a_feature_each_is_what_gathering_gives(n_features, n_points):
    torch.manual_seed(n_points)
    h = torch.randn(3, n_features)
    in_order = Grid(n_points, tuple((q,) for q in range(n_features)), n_features)
    turned = Grid(n_points, tuple((q,) for q in reversed(range(n_features))), n_features)
    for a, b in zip(in_order.locate(h), turned.locate(h), strict=True):
        assert torch.equal(a, b.flip(1))


@given(st.integers(LEAST_GRID, 40), st.floats(-10, 10), st.floats(0.1, 10))
def test_points_and_their_features(n_points, centre, scale):
    """n - 2 points from -1 to 1 and one beyond each end; features at points of the linear part are at these points."""
    grid = one_feature(n_points, centre, scale)
    lags = grid.lags(torch.device("cpu"))
    assert lags.dtype == torch.float64
    points = -1 - grid.step + lags
    torch.testing.assert_close(points[[1, -2]], torch.tensor([-1.0, 1.0], dtype=torch.float64))
    features = grid.features()
    torch.testing.assert_close(features, centre + scale * points.unsqueeze(0))
    inner = points.abs() < C
    torch.testing.assert_close(grid.squash(features.T)[inner].squeeze(1), points[inner], atol=1e-12, rtol=1e-12)
