"""Deskewing: centre images and remove their slant."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelfield.errors import DataError

__all__ = ["deskew"]

# Images that are processed at a time: few enough that their copies stay in cache.
_BLOCK = 512
# Below this variance along y (in pixels²) a shape is a horizontal line, which has no slant.
_FLAT = 1e-2


def deskew(images: NDArray[Any]) -> NDArray[np.float32]:
    """Move the centre of mass of each image (N, H, W) of non-negative values to the middle, and remove its slant.

    Pixel (v, u) of the result, counted from the middle, is (ȳ + v, x̄ + u + α v) of the image, with bilinear
    interpolation between pixels and 0 beyond the edge. With α = μ11 / μ02, x and y of the result are uncorrelated.
    """
    images = np.asarray(images, np.float32)
    if images.ndim != 3:
        raise ValueError(f"images of shape {images.shape}; expected (images, rows, columns)")
    if images.size and float(images.min()) < 0:
        fix = "Use another row_transform than deskew."
        raise DataError("an image with values below 0", expected="values of at least 0", fix=fix)
    result = np.empty_like(images)
    for start in range(0, images.shape[0], _BLOCK):
        result[start : start + _BLOCK] = _deskew(images[start : start + _BLOCK])
    return result


def _deskew(images: NDArray[np.float32]) -> NDArray[np.float32]:
    n, height, width = images.shape
    y, x = (np.arange(size) - (size - 1) / 2 for size in (height, width))
    mass = images.sum(2, dtype=np.float64)  # per row
    total = mass.sum(1)
    total[total == 0] = 1  # an empty image stays as it is
    moment = np.asarray(images @ x.astype(np.float32), np.float64)  # Σ_x x I, per row
    centre_y, centre_x = mass @ y / total, moment.sum(1) / total
    v = y - centre_y[:, None]
    variance = (mass * v**2).sum(1) / total
    is_flat = variance < _FLAT
    slant = np.where(is_flat, 0, (moment * v).sum(1) / total / np.where(is_flat, 1, variance))
    # The shift along x depends only on the row of the result, so moving rows first and then pixels is bilinear.
    upright = _moved(images, centre_y)
    shift = centre_x[:, None] + slant[:, None] * y
    return _moved(upright.reshape(n * height, width), shift.ravel()).reshape(n, height, width)


def _moved(lines: NDArray[np.float32], shift: NDArray[np.float64]) -> NDArray[np.float32]:
    """Move each line (L, n, …): entry i becomes entry i + shift, interpolated linearly, and 0 beyond the ends."""
    n_lines, length = lines.shape[:2]
    padded = np.zeros((n_lines, length + 2, *lines.shape[2:]), np.float32)
    padded[:, 1:-1] = lines
    whole = np.floor(shift)
    place = np.arange(1, length + 2) + whole.astype(np.intp)[:, None]
    np.clip(place, 0, length + 1, out=place)
    taken = padded[np.arange(n_lines)[:, None], place]
    part = (shift - whole).astype(np.float32).reshape(-1, *[1] * (lines.ndim - 1))
    return np.asarray(taken[:, :-1] * (1 - part) + taken[:, 1:] * part)
