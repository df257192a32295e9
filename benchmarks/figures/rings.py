"""Rings around each other, one class each: data that no line separates."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.figures.saving import save_png
from labelfield import synth

__all__ = ["draw"]

_N_COLOURS = 64


def draw(options: dict[str, Any]) -> dict[str, Any]:
    """Draw points by class; return the mean radius of each ring."""
    data = synth.make_rings(options["n_rows"], seed=0)
    points, ring = np.asarray(data.X.todense()), data.Y.indices
    figure, axis = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
    radii = {}
    for k, name in enumerate(data.label_names or ()):
        own = points[ring == k]
        radii[name] = float(np.linalg.norm(own, axis=1).mean())
        axis.plot(*own.T, ".", markersize=3, label=name)
    axis.set_aspect("equal")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="upper right")
    return {"figure": save_png(figure, options["picture"], 100, _N_COLOURS), "mean radius": radii}
