"""Images set upright: what stays, what is straightened, and that it does not matter where a shape stood."""

import numpy as np
import pytest

from labelfield.data.transform import deskew

SIDE = 28


def ellipse(slant=0.0, down=0.0, right=0.0):
    """A smooth upright ellipse, sheared along its rows and moved."""
    v = np.arange(SIDE)[:, None] - (SIDE - 1) / 2 - down
    u = np.arange(SIDE)[None] - (SIDE - 1) / 2 - right - slant * v
    return np.exp(-(u**2) / (2 * 1.5**2) - v**2 / (2 * 3.5**2)).astype(np.float32)


def moments(image):
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    total = image.sum()
    centre = (image * y).sum() / total, (image * x).sum() / total
    return *centre, (image * (y - centre[0]) * (x - centre[1])).sum() / total


def test_an_upright_image_stays_as_it_is():
    np.testing.assert_allclose(deskew(ellipse()[None])[0], ellipse(), atol=1e-5)


@pytest.mark.parametrize("slant", [-0.6, 0.25, 0.8])
def test_a_slant_is_removed(slant):
    image = ellipse(slant)
    upright = deskew(image[None])[0]
    assert abs(moments(image)[2]) > 2
    np.testing.assert_allclose(moments(upright), 0, atol=1e-2)
    np.testing.assert_allclose(upright, ellipse(), atol=0.06)  # what interpolation blurs


def test_where_a_shape_stands_does_not_matter():
    image = ellipse(0.3)
    image[:4] = image[-4:] = image[:, :4] = image[:, -4:] = 0  # so that nothing is lost over the edge
    moved = np.roll(image, (3, -2), (0, 1))
    np.testing.assert_allclose(deskew(moved[None]), deskew(image[None]), atol=1e-5)
    np.testing.assert_allclose(deskew(ellipse(0.3, 1.4, -2.7)[None])[0], ellipse(), atol=0.1)


def test_empty_and_flat_images():
    images = np.zeros((3, SIDE, SIDE), np.float32)
    images[1, 5, 3:20] = 1  # one row has no slant, and goes to the middle
    images[2, 9, 9] = 4
    upright = deskew(images)
    np.testing.assert_array_equal(upright[0], 0)
    np.testing.assert_allclose(upright.sum((1, 2)), [0, 17, 4])
    np.testing.assert_allclose(upright[1, 13:15].sum(0)[6:22], 1)
    assert np.isfinite(upright).all()


def test_images_are_independent_of_each_other():
    images = np.random.default_rng(0).random((7, 9, 12))
    whole = deskew(images)
    np.testing.assert_array_equal(np.concatenate([deskew(images[i : i + 2]) for i in range(0, 7, 2)]), whole)
    np.testing.assert_allclose(deskew(images[3:4])[0], whole[3], atol=1e-6)
    assert deskew(images[:0]).shape == (0, 9, 12)


def test_bilinear_like_scipy():
    from scipy.ndimage import affine_transform

    image = np.random.default_rng(1).random((11, 8)).astype(np.float32)
    y, x = np.mgrid[:11, :8]
    total = image.sum()
    cy, cx = (image * y).sum() / total, (image * x).sum() / total
    slant = (image * (y - cy) * (x - cx)).sum() / (image * (y - cy) ** 2).sum()
    matrix, middle = np.array([[1, 0], [slant, 1]]), np.array([5, 3.5])
    expected = affine_transform(image, matrix, np.array([cy, cx]) - matrix @ middle, order=1, mode="grid-constant")
    np.testing.assert_allclose(deskew(image[None])[0], expected, atol=1e-5)


def test_refused():
    with pytest.raises(ValueError, match="below 0"):
        deskew(-np.ones((1, 3, 3)))
    with pytest.raises(ValueError, match="shape"):
        deskew(np.ones((3, 3)))
