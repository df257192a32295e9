"""What deep kernels have learned about digits [DKL, figure 3]: correlations of images, and the mixing."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.saving import save_png
from benchmarks.studies.multiclass import read_mnist

__all__ = ["draw"]

# The digits whose processes are shown, and how many test images of each digit.
_SHOWN, _N_EACH = (2, 3, 6, 8), 50
# Few enough shades that a palette of 256 colours has room for them and for those of the letters.
_N_SHADES = 48


def draw(options: dict[str, Any]) -> dict[str, Any]:
    """Train a model and draw it; return what the picture shows, and scores of the model and of its network before."""
    import labelfield
    from labelfield import metrics

    (X, y), (X_test, y_test) = read_mnist("train"), read_mnist("test")
    model = labelfield.DeepKernelClassifier(**options).fit(X, y)
    rows = np.concatenate([np.flatnonzero(y_test == digit)[:_N_EACH] for digit in range(10)])
    correlations = _correlations(model, X_test[rows])
    mixing = model.model_.A.detach().cpu().numpy()

    def quality(P: NDArray[np.float32]) -> dict[str, float]:
        error = 100 * float(np.mean(P.argmax(1) != y_test))
        return {"error": error, "nlpd": float(metrics.nlpd(y_test, P))}

    off = ~np.eye(len(mixing), dtype=bool)
    return {
        "figure": _draw(correlations, mixing),
        **quality(model.predict_proba(X_test)),
        "network before": quality(model.baseline_proba(X_test)),
        "mean correlation": _pairs(correlations, y_test[rows]),
        "mean size of A": {
            "on the diagonal": float(np.abs(np.diag(mixing)).mean()),
            "off it": float(np.abs(mixing[off]).mean()),
        },
    }


def _correlations(model: Any, X: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return k_j(h_j(x), h_j(x')) / σ_j² (S, n, n) of the processes shown, each on one feature, not interpolated."""
    import torch

    processes = model.model_.processes
    found = []
    with torch.no_grad():
        z = processes.grid.squash(torch.from_numpy(model.transform(X)).to(processes.grid.centre)).double()
        for j in _SHOWN:
            own = z[:, processes.grid.subsets[j, 0]]
            k = processes.kernel.of_lag((own.unsqueeze(1) - own).abs().flatten())
            # Processes may share a kernel. It is 1 at lag 0: σ_j² is a factor of its own.
            found.append(k[j if len(k) > 1 else 0].view(len(own), -1).cpu().numpy())
    return np.stack(found)


def _pairs(correlations: NDArray[np.float64], digits: NDArray[np.int64]) -> dict[str, float]:
    """Return means over the processes shown, for pairs of images: both, one or none of the process's own digit."""
    found: dict[str, list[float]] = {"within the own digit": [], "own digit and others": [], "between the others": []}
    apart = ~np.eye(len(digits), dtype=bool)
    for digit, k in zip(_SHOWN, correlations, strict=True):
        own = digits == digit
        for values, (left, right) in zip(found.values(), ((own, own), (own, ~own), (~own, ~own)), strict=True):
            values.append(float(k[np.logical_and.outer(left, right) & apart].mean()))
    return {name: float(np.mean(values)) for name, values in found.items()}


def _draw(correlations: NDArray[np.float64], mixing: NDArray[np.float32]) -> str:
    """Draw a square for each process on the left, its images in the order of their digits, and A on the right."""
    figure = plt.figure(figsize=(9.6, 4.5), layout="constrained")
    halves = figure.add_gridspec(1, 2)
    left, right = figure.add_subfigure(halves[0]), figure.add_subfigure(halves[1])
    squares = left.subplots(2, 2, sharex=True, sharey=True)
    middles = (np.arange(10) + 0.5) * _N_EACH - 0.5
    for axes, digit, k in zip(squares.flat, _SHOWN, correlations, strict=True):
        shades = axes.imshow(k, cmap=plt.get_cmap("viridis", _N_SHADES), vmin=0, vmax=1, interpolation_stage="data")
        axes.set_title(f"process {digit}", fontsize=9, pad=3)
        axes.set(xticks=middles, yticks=middles, xticklabels=range(10), yticklabels=range(10))
        axes.label_outer()
    _finish(left, squares, shades, "correlation of test images, by digit", (0, 0.5, 1))
    axes = right.subplots()
    largest = float(np.abs(mixing).max())
    shades = axes.imshow(mixing, cmap=plt.get_cmap("RdBu", _N_SHADES + 1), vmin=-largest, vmax=largest)
    axes.set(xticks=range(10), yticks=range(10))
    axes.set_xlabel("process", fontsize=9)
    axes.set_ylabel("class", fontsize=9)
    _finish(right, np.array([axes]), shades, "mixing A of processes into classes", (-1, -0.5, 0, 0.5, 1))
    return save_png(figure, "deep_kernels.png", 150, 256)


def _finish(part: Any, squares: NDArray[Any], shades: Any, title: str, ticks: tuple[float, ...]) -> None:
    """Add a title and a colour bar, and remove the frames."""
    part.suptitle(title, fontsize=11)
    bar = part.colorbar(shades, ax=squares, shrink=0.6, ticks=ticks)
    bar.outline.set_visible(False)
    for axes in (bar.ax, *squares.flat):
        axes.tick_params(length=0, labelsize=8)
        axes.spines[:].set_visible(False)
