"""`python -m benchmarks.plots`: draw docs/images from the records."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from benchmarks.record import ROOT, load_studies

IMAGES = ROOT / "docs" / "images"
_DEVICES = {"scale": ("2 cores", "#c2571a"), "gpu-scale": ("H200", "#1a6fc2")}
# Lines of the deep kernel layer: how the record calls them, and the names and colours they have here.
_LAYERS = {
    "d = 1": ("ours, 1 feature", "#7d330a"),
    "d = 2": ("ours, 2 features", "#c2571a"),
    "d = 3": ("ours, 3 features", "#e0894c"),
    "gpytorch grid, d = 1": ("GPyTorch, on a grid", "#1a6fc2"),
    "gpytorch free, d = 1": ("GPyTorch, free", "#0e3d6b"),
}
# Names at the ends of lines are so many points below each other at least.
_LINE_HEIGHT = 12.0


def _curve(axes: Any, results: dict[str, float], name: str, colour: str, unit: float = 1.0) -> None:
    x, y = [int(key) for key in results], [unit * value for value in results.values()]
    axes.plot(x, y, "o-", color=colour)
    axes.annotate(name, (x[-1], y[-1]), xytext=(6, 0), textcoords="offset points", color=colour, va="center")


def scale(records: dict[str, dict[str, Any]]) -> Any:
    """What a step costs against labels, against the entries of a row, and its memory against the parameters."""
    figure, (labels, entries, memory) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    for key, (name, colour) in _DEVICES.items():
        if key not in records:
            continue
        found = records[key]["results"]
        _curve(labels, found["step_seconds_by_labels"], name, colour, 1000)
        _curve(entries, found["step_seconds_by_nonzeros"], name, colour, 1000)
    found = records["scale"]["results"]
    _curve(memory, found["peak_mb_by_labels"], "peak of a run", "#333333")
    _curve(memory, found["parameters_mb_by_labels"], "parameters", "#888888")
    labels.set(xscale="log", xlabel="labels", ylabel="milliseconds a step", title="flat in the labels")
    entries.set(xlabel="entries of a row", title="at most linear in the entries")
    memory.set(xscale="log", xlabel="labels", ylabel="MB", title="memory grows with the parameters")
    for axes in (labels, entries, memory):
        axes.set_ylim(0)
        axes.margins(x=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def deep_scaling(results: dict[str, Any]) -> Any:
    """Seconds of the bound and its gradient against inducing points m, and both relative to the smallest m."""
    figure, (seconds, growth) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    ends: dict[Any, list[tuple[float, float, str, str]]] = {seconds: [], growth: []}
    for key, (name, colour) in _LAYERS.items():
        curve = {int(m): value for m, value in results[f"seconds, {key}"].items()}
        first, start = next(iter(curve.items()))
        for axes, m_unit, unit in ((seconds, 1, 1.0), (growth, first, start)):
            x, y = [m / m_unit for m in curve], [value / unit for value in curve.values()]
            axes.plot(x, y, "o-", color=colour, markersize=4)
            ends[axes].append((x[-1], y[-1], name, colour))
    most = max(x for x, *_ in ends[growth])
    growth.plot([1, most], [1, most], "--", color="#888888", zorder=0)
    ends[growth].append((most, most, "linear in m", "#888888"))
    seconds.set(xlabel="inducing points m", ylabel="seconds", title="bound and gradient of the layer")
    growth.set(xlabel="times as many inducing points", ylabel="times as long", title="relative to the smallest m")
    for axes in (seconds, growth):
        axes.set(xscale="log", yscale="log")
        axes.spines[["top", "right"]].set_visible(False)
    figure.draw_without_rendering()  # heights are now as they will be
    for axes, named in ends.items():
        _name_ends(axes, named)
    return figure


def _name_ends(axes: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """Names of lines that end at (x, y), right of them all, moved up where they would cover each other."""
    at, points, right = -float("inf"), 72 / axes.figure.dpi, max(x for x, *_ in ends)
    for _, y, name, colour in sorted(ends, key=lambda end: end[1]):
        height = points * axes.transData.transform((right, y))[1]
        at = max(height, at + _LINE_HEIGHT)
        axes.annotate(name, (right, y), xytext=(8, at - height), textcoords="offset points", color=colour, va="center")


def main() -> None:
    mpl.rcParams["svg.hashsalt"] = "labelfield"  # the same picture from the same record
    records = load_studies()
    IMAGES.mkdir(exist_ok=True)
    scale(records).savefig(IMAGES / "scale.svg", metadata={"Date": None})
    if "deep-scaling" in records:
        figure = deep_scaling(records["deep-scaling"]["results"])
        figure.savefig(IMAGES / "deep-scaling.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
