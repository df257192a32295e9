"""Inducing images before and after training, of each class or shared by all, as a picture."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.multiclass import read_mnist
from benchmarks.record import ROOT

__all__ = ["run"]

_IMAGES = ROOT / "docs" / "images"
_N_SHOWN, _N_COLUMNS = 6, 10
# Enough for shades of red and grey; noise in all colours does not compress.
_N_COLOURS = 128


def run(options: dict[str, Any]) -> dict[str, Any]:
    """Train, draw, and say how good the model is and how far the images have moved."""
    import labelfield

    options = dict(options)
    picture = _IMAGES / options.pop("picture")
    (X, y), (X_test, y_test) = read_mnist("train"), read_mnist("test")
    model = labelfield.GPClassifier(**options)
    prepared = model.prepare(X, y)
    before = _images(model)
    model.train_prepared(prepared)
    after = _images(model)
    _draw(before, after, picture, "centres of each class" if options["inducing"] == "per_class" else "centres")
    moved = np.linalg.norm(after - before, axis=(-2, -1)) / np.linalg.norm(before, axis=(-2, -1))
    error = 100 * float(np.mean(model.predict(X_test) != y_test))
    return {
        "figure": f"docs/images/{picture.name}",
        "error": error,
        "moved, as a share of their norms": float(moved.mean()),
    }


def _images(model: Any) -> NDArray[np.float32]:
    """(columns, images of a column, side, side): a column for each class, or for a tenth of those that are shared."""
    inducing = model.model_.utilities.inducing
    of_class = getattr(inducing, "Z", None)  # (K, M, D); shared ones are stored as (D, M)
    Z = (inducing.transposed.T if of_class is None else of_class).detach().cpu().numpy().copy()
    side = int(Z.shape[-1] ** 0.5)
    n_columns = Z.shape[0] if Z.ndim == 3 else _N_COLUMNS
    return np.asarray(Z.reshape(n_columns, -1, side, side))


def _draw(before: NDArray[np.float32], after: NDArray[np.float32], path: Path, start: str) -> None:
    """Above as they start, below as they end."""
    strips = [_strip(images[:, :_N_SHOWN]) for images in (before, after)]
    figure, axes = plt.subplots(2, 1, figsize=(7, 9), layout="constrained")
    for axis, strip, title in zip(axes, strips, (f"before training: {start}", "after: red is below zero"), strict=True):
        axis.imshow(strip, cmap="RdGy", vmin=-1, vmax=1)
        axis.set_title(title, loc="left")
        axis.set_axis_off()
    drawn = BytesIO()
    figure.savefig(drawn, dpi=100)
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(_N_COLOURS).save(path, optimize=True)


def _strip(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """(K, n, side, side) as one picture with classes side by side and their images below each other."""
    n_classes, n_images, side, _ = images.shape
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.asarray(padded.transpose(1, 2, 0, 3).reshape(n_images * (side + 2), n_classes * (side + 2)))
