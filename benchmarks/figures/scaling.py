"""The pictures of docs/BENCHMARKS.md and of the guides: what a step costs, against labels and inducing points."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from benchmarks.figures.saving import save_svg
from benchmarks.record import Record

__all__ = ["draw_scaling"]

_DEVICES = {"scale": ("2 cores", "#c2571a"), "gpu-scale": ("H200", "#1a6fc2")}
# Lines of the deep kernel layer: the key in the record, and the name and colour in the picture.
_LAYERS = {
    "d = 1": ("ours, 1 feature", "#7d330a"),
    "d = 2": ("ours, 2 features", "#c2571a"),
    "d = 3": ("ours, 3 features", "#e0894c"),
    "gpytorch grid, d = 1": ("GPyTorch, on a grid", "#1a6fc2"),
    "gpytorch free, d = 1": ("GPyTorch, free", "#0e3d6b"),
}
# Least distance between names at the ends of lines, in points.
_LINE_HEIGHT = 12.0


def _curve(axes: Any, results: dict[str, float], name: str, colour: str, unit: float = 1.0) -> None:
    x, y = [int(key) for key in results], [unit * value for value in results.values()]
    axes.plot(x, y, "o-", color=colour)
    axes.annotate(name, (x[-1], y[-1]), xytext=(6, 0), textcoords="offset points", color=colour, va="center")


def _scale(records: dict[str, Record]) -> Any:
    """Draw the cost of a step against labels and against entries per row, and its memory beside the parameters."""
    figure, (labels, entries, memory) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    for key, (name, colour) in _DEVICES.items():
        found = records[key]["results"]
        _curve(labels, found["step_seconds_by_labels"], name, colour, 1000)
        _curve(entries, found["step_seconds_by_nonzeros"], name, colour, 1000)
    found = records["scale"]["results"]
    _curve(memory, found["peak_mb_by_labels"], "peak of a run", "#333333")
    _curve(memory, found["parameters_mb_by_labels"], "parameters", "#888888")
    labels.set(xscale="log", xlabel="labels", ylabel="milliseconds per step", title="flat in the labels")
    entries.set(xlabel="entries per row", title="at most linear in the entries")
    memory.set(xscale="log", xlabel="labels", ylabel="MB", title="memory grows with the parameters")
    for axes in (labels, entries, memory):
        axes.set_ylim(0)
        axes.margins(x=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _deep_scaling(results: dict[str, Any]) -> Any:
    """Draw seconds of the bound and its gradient against inducing points m, also relative to the smallest m."""
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
    figure.draw_without_rendering()  # from here on heights are final
    for axes, named in ends.items():
        _name_ends(axes, named)
    return figure


def _name_ends(axes: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """Write the names of lines right of their ends (x, y), moved up where they would cover each other."""
    at, points, right = -float("inf"), 72 / axes.figure.dpi, max(x for x, *_ in ends)
    for _, y, name, colour in sorted(ends, key=lambda end: end[1]):
        height = points * axes.transData.transform((right, y))[1]
        at = max(height, at + _LINE_HEIGHT)
        axes.annotate(name, (right, y), xytext=(8, at - height), textcoords="offset points", color=colour, va="center")


def draw_scaling(studies: dict[str, Record]) -> list[str]:
    """Draw both pictures from the records of studies; return their paths."""
    deep = _deep_scaling(studies["deep-scaling"]["results"])
    return [save_svg(_scale(studies), "scale.svg"), save_svg(deep, "deep-scaling.svg")]
