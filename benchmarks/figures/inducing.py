"""Inducing images before and after training, per class or shared by all classes."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.saving import save_png
from benchmarks.studies.multiclass import read_mnist

__all__ = ["draw"]

_N_SHOWN, _N_COLUMNS = 6, 10
# Enough for shades of red and grey; noise in more colours does not compress.
_N_COLOURS = 128


def draw(options: dict[str, Any]) -> dict[str, Any]:
    """Train a model and draw its images; return its error and how far the images have moved."""
    import labelfield

    options = dict(options)
    picture = options.pop("picture")
    (X, y), (X_test, y_test) = read_mnist("train"), read_mnist("test")
    model = labelfield.GPClassifier(**options)
    prepared = model.prepare(X, y)
    before = _images(model)
    model.train_prepared(prepared)
    after = _images(model)
    start = "centres of each class" if options["inducing"] == "per_class" else "centres"
    moved = np.linalg.norm(after - before, axis=(-2, -1)) / np.linalg.norm(before, axis=(-2, -1))
    error = 100 * float(np.mean(model.predict(X_test) != y_test))
    return {
        "figure": _draw(before, after, picture, start),
        "error": error,
        "moved, as a share of their norms": float(moved.mean()),
    }


def _images(model: Any) -> NDArray[np.float32]:
    """Return images (columns, images per column, side, side): a column for each class, or ten columns if shared."""
    inducing = model.model_.utilities.inducing
    of_class = getattr(inducing, "Z", None)  # (K, M, D); shared ones are stored as (D, M)
    Z = (inducing.transposed.T if of_class is None else of_class).detach().cpu().numpy().copy()
    side = int(Z.shape[-1] ** 0.5)
    n_columns = Z.shape[0] if Z.ndim == 3 else _N_COLUMNS
    return np.asarray(Z.reshape(n_columns, -1, side, side))


def _draw(before: NDArray[np.float32], after: NDArray[np.float32], name: str, start: str) -> str:
    """Draw the images before training above those after it."""
    strips = [_strip(images[:, :_N_SHOWN]) for images in (before, after)]
    figure, axes = plt.subplots(2, 1, figsize=(7, 9), layout="constrained")
    for axis, strip, title in zip(axes, strips, (f"before training: {start}", "after: red is below zero"), strict=True):
        axis.imshow(strip, cmap="RdGy", vmin=-1, vmax=1)
        axis.set_title(title, loc="left")
        axis.set_axis_off()
    return save_png(figure, name, 100, _N_COLOURS)


def _strip(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (K, n, side, side) as one picture, with classes side by side and their images below each other."""
    n_classes, n_images, side, _ = images.shape
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.asarray(padded.transpose(1, 2, 0, 3).reshape(n_images * (side + 2), n_classes * (side + 2)))
