"""The figures of the page. Each function draws facts and adds no words of its own; captions are in `sections`."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from labelfield.inference.run import Epoch
from labelfield.metrics.probabilities import Reliability
from labelfield.report.markup import plain
from labelfield.report.scores import Band, Errors
from labelfield.report.svg import ACCENT, MUTED, OTHER, THIRD, drawing, to_svg

P = ParamSpec("P")

# Inches: as wide as a phone is in points, so that text is about as large as the text of the page.
_WIDTH, _HEIGHT = 5.1, 3.2
_COLOURS = (ACCENT, OTHER, THIRD)
_MARKERS = ("o", "s", "^")
_STYLES = ("-", "--", ":")
_DASHED = (0, (4, 3))
# With fewer predictions than this a frequency is mostly chance.
FEW = 10
# With more epochs than this, marks would hide the line.
_MOST_MARKS = 60


def _svg(
    name: str, height: float = _HEIGHT, **subplots: Any
) -> Callable[[Callable[Concatenate[Any, P], str]], Callable[P, str]]:
    """Turn a function that draws on axes and returns what it shows into one that returns the SVG."""

    def decorate(draw: Callable[Concatenate[Any, P], str]) -> Callable[P, str]:
        @wraps(draw)
        def make(*args: P.args, **kwargs: P.kwargs) -> str:
            with drawing(name):
                figure = Figure(figsize=(_WIDTH, height), layout="constrained")
                label = draw(figure.subplots(**subplots), *args, **kwargs)
                return to_svg(figure, name, label)

        return make

    return decorate


def _style(number: int, n_points: int = 0) -> dict[str, Any]:
    """Return the colour and mark of a line: never a colour alone. Of very many points only some get marks."""
    place = number % 3
    return {"color": _COLOURS[place], "marker": _MARKERS[place], "markevery": max(1, n_points // _MOST_MARKS)}


def _in_percent(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


@_svg("bound")
def bound_plot(axes: Axes, curves: Sequence[Sequence[Epoch]], what: str) -> str:
    """Draw the bound, or the log-likelihood, against time, by stage; other members of an ensemble as thin lines."""
    for curve in curves[1:]:
        axes.plot([epoch.seconds for epoch in curve], [epoch.bound for epoch in curve], color=MUTED, linewidth=1)
    stages = list(dict.fromkeys(epoch.stage for epoch in curves[0]))
    for number, stage in enumerate(stages):
        x, y = zip(*((epoch.seconds, epoch.bound) for epoch in curves[0] if epoch.stage == stage), strict=True)
        axes.plot(x, y, **_style(number, len(x)), label=stage, markersize=4)
    axes.set(xlabel="seconds of training", ylabel=f"{what}, nats per row", xlim=(0, None))
    _cut_below(axes, [epoch.bound for curve in curves for epoch in curve])
    if len(stages) > 1:
        axes.legend(loc="lower right")
    return f"The {what} in nats per row against seconds of training."


def _cut_below(axes: Axes, values: Sequence[float]) -> None:
    """Start the axis where it matters: the very first epochs would flatten all the others."""
    finite = np.sort([value for value in values if np.isfinite(value)])
    if finite.size < 5:
        return
    top, low = float(finite[-1]), float(finite[finite.size // 5])
    reach = top - 2.5 * (top - low)
    if reach > finite[0]:
        axes.set_ylim(reach, top + 0.05 * (top - reach))


@_svg("validation")
def validation_plot(axes: Axes, scores: dict[str, list[tuple[float, float]]]) -> str:
    """Draw scores on validation rows after each epoch, given as pairs of seconds and percent."""
    for number, (name, points) in enumerate(scores.items()):
        x, y = zip(*points, strict=True)
        axes.plot(x, y, **_style(number, len(x)), linestyle=_STYLES[number % 3], label=name, markersize=4)
    axes.set(xlabel="seconds of training", ylabel="% on validation rows", xlim=(0, None))
    _legend_above(axes, len(scores))
    return "Scores on validation rows against seconds of training."


def _legend_above(axes: Axes, n: int, handles: Sequence[Any] | None = None) -> None:
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 0.99), "ncols": n}
    axes.legend(handles=handles, **place, handlelength=1.6, columnspacing=1.2)


@_svg("found")
def found_plot(axes: Axes, bands: Sequence[Band], is_each: bool) -> str:
    """Draw the share of the true labels in each band that are among the first k."""
    for number, k in enumerate(bands[0].found):
        y = [band.found[k] if band.n_true else np.nan for band in bands]
        line = "none" if is_each else _STYLES[number % 3]
        label = f"in the first {k}" if k > 1 else "ranked first"
        axes.plot(np.arange(len(bands)), y, linestyle=line, **_style(number), label=label)
    _band_axis(axes, bands, is_each)
    axes.set_ylim(-0.02, 1.02)
    _in_percent(axes.yaxis)
    if len(bands[0].found) > 1:
        _legend_above(axes, len(bands[0].found))
    return "The share of true labels that are found, by how frequent they are in training."


@_svg("decide")
def decision_plot(
    axes: Axes, automatic: NDArray[np.float64], precision: NDArray[np.float64], promised: dict[str, float]
) -> str:
    """Draw the precision of tags against the share of rows that get tags, and mark the rule that is promised."""
    axes.plot(automatic, precision, color=ACCENT)
    axes.plot([promised["automatic"]], [promised["precision"]], color=OTHER, marker="s", markersize=9, linestyle="none")
    least = min(float(np.nanmin([*precision, promised["precision"]])), 0.95)
    beyond = 0.05 * (1 - least)  # too little for a tick above 100 %
    axes.set(xlabel="rows tagged automatically", ylabel="tags that are right")
    axes.set(xlim=(0, 1.02), ylim=(least - beyond, 1 + beyond))
    _in_percent(axes.xaxis)
    _in_percent(axes.yaxis)
    return "The share of tags that are right against the share of rows that are tagged, with the promised rule marked."


@_svg("missed", 4.2)
def missed_plot(axes: Axes, bands: Sequence[Band]) -> str:
    """Draw the share of the rows of each class that are taken for another."""
    missed = [1 - band.found[1] if band.n_true else 0.0 for band in bands]
    axes.bar(np.arange(len(bands)), missed, 0.7, color=ACCENT)
    _band_axis(axes, bands, is_each=True)
    axes.set(ylabel="taken for another class", ylim=(0, max(1.08 * max(missed), 0.01)))
    axes.grid(visible=False, axis="x")
    _in_percent(axes.yaxis)
    return "The share of the rows of each class that are taken for another."


@_svg("confusion", 4.2)
def confusion_plot(axes: Axes, confusion: NDArray[np.int64], names: Sequence[str]) -> str:
    """Draw how many rows of each class are taken for each other class."""
    n = len(confusion)
    most = max(int((confusion * ~np.eye(n, dtype=np.bool_)).max()), 1)
    for true, named in np.ndindex(n, n):
        value = int(confusion[true, named])
        if true == named:
            axes.annotate("·", (true, true), ha="center", va="center", color=MUTED)
        elif value:
            # Light enough for the number on it to be readable.
            corner, alpha = (named - 0.47, true - 0.47), 0.5 * value / most
            axes.add_patch(Rectangle(corner, 0.94, 0.94, color=ACCENT, alpha=alpha, linewidth=0))
            axes.annotate(f"{value:,}", (named, true), ha="center", va="center", fontsize=9 if n > 8 else 10)
    shown = [_short(str(name), 9) for name in names[:n]]
    axes.set_yticks(range(n), shown)
    _name_columns(axes, shown, 40)
    axes.set(xlim=(-0.55, n - 0.45), ylim=(n - 0.45, -0.55), xlabel="taken for", ylabel="true class")
    axes.grid(visible=False)
    return "How many rows of each class are taken for each other class."


@_svg("contribution")
def contribution_plot(axes: Axes, bands: Sequence[Band], k: int, is_each: bool) -> str:
    """Draw the contribution of each band to P@k and, for several labels per row, to PSP@k."""
    x, has_psp = np.arange(len(bands)), k in bands[0].psp
    width = 0.38 if has_psp else 0.6
    shift = width / 2 + 0.01 if has_psp else 0
    precise = [band.precision[k] for band in bands]
    axes.bar(x - shift, precise, width, color=ACCENT, label=f"P@{k}")
    if has_psp:
        psp = [band.psp[k] for band in bands]
        axes.bar(x + shift, psp, width, facecolor="none", edgecolor=OTHER, hatch="////", label=f"PSP@{k}")
        _legend_above(axes, 2)
    _band_axis(axes, bands, is_each)
    axes.set_ylim(bottom=0, top=None if any(precise) else 0.01)
    axes.grid(visible=False, axis="x")
    _in_percent(axes.yaxis)
    return f"What each band of labels adds to P@{k} and PSP@{k}."


def _band_axis(axes: Axes, bands: Sequence[Band], is_each: bool) -> None:
    _name_columns(axes, [_short(band.name) for band in bands], 46)
    axes.set(xlabel="" if is_each else "training rows with the label", xlim=(-0.6, len(bands) - 0.4))


def _name_columns(axes: Axes, names: Sequence[str], most: int) -> None:
    """Write names below columns; rotate them if more characters than `most` would stand side by side."""
    axes.set_xticks(range(len(names)), names)
    if max(map(len, names)) * len(names) > most:
        axes.tick_params("x", labelrotation=35)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def _short(name: str, most: int = 16) -> str:
    name = plain(name)
    # A dollar would begin mathematics.
    return (name if len(name) <= most else name[: most - 1] + "…").replace("$", r"\$")


@_svg("reliability", 4.2, nrows=2, sharex=True, height_ratios=(3.2, 1))
def reliability_plot(axes: Sequence[Axes], curves: dict[int, Reliability]) -> str:
    """Draw how often predictions are right against their probability, and below how many there are."""
    above, below = axes
    above.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=_DASHED)
    for number, (k, curve) in enumerate(curves.items()):
        is_many, style = curve.count >= FEW, _style(number)
        is_few = (curve.count > 0) & ~is_many
        label = "first label" if k == 1 else f"first {k} labels"
        above.plot(curve.confidence[is_many], curve.frequency[is_many], _STYLES[number], label=label, **style)
        style |= {"markerfacecolor": "none", "linestyle": "none"}
        above.plot(curve.confidence[is_few], curve.frequency[is_few], **style)
        step = curve.edges[1] - curve.edges[0]
        width = step * 0.86 / len(curves)
        below.bar(
            curve.edges[:-1] + step * 0.07 + number * width, curve.count, width, align="edge", color=_COLOURS[number]
        )
    above.set(ylabel="share that is right", xlim=(0, 1), ylim=(-0.02, 1.02))
    below.set(xlabel="predicted probability", ylabel="predictions")
    if max(int(curve.count.max()) for curve in curves.values()) > 50 * FEW:
        below.set_yscale("log")
        below.set_ylim(bottom=0.8)
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _in_percent(above.yaxis)
    _in_percent(below.xaxis)
    if len(curves) > 1:
        _legend_above(above, len(curves))
    return "How often predictions are right against their probability."


@_svg("errors", 4.2)
def errors_plot(axes: Axes, found: Errors) -> str:
    """Draw how often the first label is wrong, from the surest tenth of the rows to the least sure."""
    x = np.arange(1, len(found.tenths) + 1)
    errors, uncertainty = [tenth.error for tenth in found.tenths], [tenth.uncertainty for tenth in found.tenths]
    wrong = axes.bar(x, errors, 0.8, color=ACCENT, label="wrong")
    overall = axes.axhline(found.error, color=MUTED, linewidth=1.2, linestyle=_DASHED, label="wrong in all rows")
    (line,) = axes.plot(x, uncertainty, marker="s", linestyle="--", color=OTHER, label="uncertainty")
    axes.set(xlabel="tenths of the rows, surest first", ylabel="first label wrong", xticks=x)
    axes.set(xlim=(0.4, len(x) + 0.6), ylim=(0, min(1.02, 1.08 * max([*errors, *uncertainty, 0.02]))))
    axes.grid(visible=False, axis="x")
    _in_percent(axes.yaxis)
    _legend_above(axes, 3, [wrong, overall, line])
    return "How often the first label is wrong, by tenths of the rows, surest first."
