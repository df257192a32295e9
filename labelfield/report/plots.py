"""The figures of the page. Each function draws facts and says nothing of its own; captions are in `sections`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelfield.metrics.probabilities import Reliability
from labelfield.report.identity import Curve
from labelfield.report.markup import plain
from labelfield.report.scores import Band, Doubt
from labelfield.report.svg import ACCENT, MUTED, OTHER, THIRD, drawing, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "bound_plot",
    "confusion_plot",
    "contribution_plot",
    "doubt_plot",
    "found_plot",
    "missed_plot",
    "reliability_plot",
    "validation_plot",
]

# Inches: as wide as a phone is in points, so that text is about as large as that around it.
_WIDTH, _HEIGHT = 5.1, 3.2
_COLOURS = (ACCENT, OTHER, THIRD)
_MARKERS = ("o", "s", "^")
_STYLES = ("-", "--", ":")
# With fewer predictions than this a frequency is mostly chance.
_FEW = 10
# More epochs than this are a line: marks would hide it.
_MOST_MARKS = 60


def _figure(height: float = _HEIGHT) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH, height), layout="constrained")


def _style(number: int, n_points: int = 0) -> dict[str, Any]:
    """Colour and mark of the number-th line: never a colour alone. Of very many points only some have a mark."""
    return {
        "color": _COLOURS[number % 3],
        "marker": _MARKERS[number % 3],
        "markevery": max(1, n_points // _MOST_MARKS),
    }


def _in_percent(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def bound_plot(curves: Sequence[Curve], what: str) -> str:
    """The bound, or what else was recorded, against time: of the first member strong, of others thin; stages one after
    the other."""
    with drawing("bound"):
        figure = _figure()
        axes = figure.subplots()
        for curve in curves[1:]:
            axes.plot(curve.seconds, curve.bound, color=MUTED, linewidth=1)
        first = curves[0]
        stages = list(dict.fromkeys(first.stage))
        for number, stage in enumerate(stages):
            own = [i for i, name in enumerate(first.stage) if name == stage]
            x, y = [first.seconds[i] for i in own], [first.bound[i] for i in own]
            axes.plot(x, y, **_style(number, len(x)), label=stage, markersize=4)
        axes.set(xlabel="seconds of training", ylabel=f"{what}, nats a row")
        axes.set_xlim(left=0)
        _cut_below(axes, [value for curve in curves for value in curve.bound])
        if len(stages) > 1:
            axes.legend(loc="lower right")
        return to_svg(figure, "bound", f"The {what} in nats a row against seconds of training.")


def _cut_below(axes: Axes, values: Sequence[float]) -> None:
    """Begin the axis where it matters: what happened in the very first epochs would flatten all the rest."""
    finite = np.sort([value for value in values if np.isfinite(value)])
    if finite.size < 5:
        return
    top, low = float(finite[-1]), float(finite[finite.size // 5])
    reach = top - 2.5 * (top - low)
    if reach > finite[0]:
        axes.set_ylim(reach, top + 0.05 * (top - reach))


def validation_plot(scores: dict[str, list[tuple[float, float]]]) -> str:
    """Scores of validation rows after each epoch, as pairs of seconds and percent."""
    with drawing("validation"):
        figure = _figure()
        axes = figure.subplots()
        for number, (name, points) in enumerate(scores.items()):
            x, y = zip(*points, strict=True)
            axes.plot(x, y, **_style(number, len(x)), linestyle=_STYLES[number % 3], label=name, markersize=4)
        axes.set(xlabel="seconds of training", ylabel="% on validation rows")
        axes.set_xlim(left=0)
        _legend_above(axes, len(scores))
        return to_svg(figure, "validation", "Scores on validation rows against seconds of training.")


def _legend_above(axes: Axes, n: int, handles: Sequence[Any] | None = None) -> None:
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 0.99), "ncols": n}
    axes.legend(handles=handles, **place, handlelength=1.6, columnspacing=1.2)


def found_plot(bands: Sequence[Band], is_each: bool) -> str:
    """Of the true labels in each band, the share among the first k."""
    with drawing("found"):
        figure = _figure()
        axes = figure.subplots()
        x = np.arange(len(bands))
        for number, k in enumerate(bands[0].found):
            y = [band.found[k] if band.n_true else np.nan for band in bands]
            line = "none" if is_each else _STYLES[number % 3]
            axes.plot(x, y, linestyle=line, **_style(number), label=f"in the first {k}" if k > 1 else "named first")
        _band_axis(axes, bands, is_each)
        axes.set_ylim(-0.02, 1.02)
        _in_percent(axes.yaxis)
        if len(bands[0].found) > 1:
            _legend_above(axes, len(bands[0].found))
        return to_svg(figure, "found", "The share of true labels that are found, by how frequent they are in training.")


def missed_plot(bands: Sequence[Band]) -> str:
    """Of the rows of each class, the share that is taken for another."""
    with drawing("missed"):
        figure = _figure(4.2)
        axes = figure.subplots()
        missed = [1 - band.found[1] if band.n_true else 0.0 for band in bands]
        axes.bar(np.arange(len(bands)), missed, 0.7, color=ACCENT)
        _band_axis(axes, bands, is_each=True)
        axes.set(ylabel="taken for another class", ylim=(0, max(1.08 * max(missed), 0.01)))
        axes.grid(visible=False, axis="x")
        _in_percent(axes.yaxis)
        return to_svg(figure, "missed", "The share of the rows of each class that is taken for another.")


def confusion_plot(confusion: NDArray[np.int64], names: Sequence[str]) -> str:
    """Rows of each class by what they are taken for, where that is wrong."""
    from matplotlib.patches import Rectangle

    with drawing("confusion"):
        figure = _figure(4.2)
        axes = figure.subplots()
        n = len(confusion)
        most = max(int((confusion * ~np.eye(n, dtype=np.bool_)).max()), 1)
        for true, named in np.ndindex(n, n):
            value = int(confusion[true, named])
            if true == named or not value:
                continue
            # Never so dark that the number on it cannot be read.
            axes.add_patch(
                Rectangle((named - 0.47, true - 0.47), 0.94, 0.94, color=ACCENT, alpha=0.5 * value / most, linewidth=0)
            )
            axes.annotate(f"{value:,}", (named, true), ha="center", va="center", fontsize=9 if n > 8 else 10)
        for place in range(n):
            axes.annotate("·", (place, place), ha="center", va="center", color=MUTED)
        shown = [_short(str(name), 9) for name in names[:n]]
        axes.set_xticks(range(n), shown)
        axes.set_yticks(range(n), shown)
        if max(map(len, shown)) * n > 40:
            _lean(axes)
        axes.set(xlim=(-0.55, n - 0.45), ylim=(n - 0.45, -0.55), xlabel="taken for", ylabel="class of the row")
        axes.grid(visible=False)
        return to_svg(figure, "confusion", "How many rows of each class are taken for each other class.")


def contribution_plot(bands: Sequence[Band], k: int, is_each: bool) -> str:
    """What each band adds to P@k and, where there is such, to PSP@k."""
    with drawing("contribution"):
        figure = _figure()
        axes = figure.subplots()
        x, has_psp = np.arange(len(bands)), k in bands[0].psp
        width = 0.38 if has_psp else 0.6
        precise = [band.precision[k] for band in bands]
        axes.bar(x - (width / 2 + 0.01 if has_psp else 0), precise, width, color=ACCENT, label=f"P@{k}")
        if has_psp:
            psp = [band.psp[k] for band in bands]
            axes.bar(
                x + width / 2 + 0.01, psp, width, facecolor="none", edgecolor=OTHER, hatch="////", label=f"PSP@{k}"
            )
            _legend_above(axes, 2)
        _band_axis(axes, bands, is_each)
        axes.set_ylim(bottom=0, top=None if any(precise) else 0.01)
        axes.grid(visible=False, axis="x")
        _in_percent(axes.yaxis)
        return to_svg(figure, "contribution", f"What each band of labels adds to P@{k} and PSP@{k}.")


def _band_axis(axes: Axes, bands: Sequence[Band], is_each: bool) -> None:
    names = [_short(band.name) for band in bands]
    axes.set_xticks(range(len(bands)), names)
    if max(map(len, names)) * len(names) > 46:  # characters that fit side by side
        _lean(axes)
    axes.set_xlabel("" if is_each else "training rows with the label")
    axes.set_xlim(-0.6, len(bands) - 0.4)


def _lean(axes: Axes) -> None:
    """Names that do not fit side by side lean."""
    axes.tick_params("x", labelrotation=35)
    for label in axes.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")


def _short(name: str, most: int = 16) -> str:
    # A dollar would begin mathematics.
    name = plain(name)
    return (name if len(name) <= most else name[: most - 1] + "…").replace("$", r"\$")


def reliability_plot(curves: dict[int, Reliability]) -> str:
    """Observed against stated frequencies, and below how often each probability was said."""
    from matplotlib.ticker import FuncFormatter

    with drawing("reliability"):
        figure = _figure(4.2)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
        above.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        n_curves = len(curves)
        for number, (k, curve) in enumerate(curves.items()):
            colour, is_many = _COLOURS[number], curve.count >= _FEW
            label = "first label" if k == 1 else f"first {k} labels"
            above.plot(
                curve.confidence[is_many],
                curve.frequency[is_many],
                marker=_MARKERS[number],
                linestyle=_STYLES[number],
                color=colour,
                label=label,
            )
            is_few = (curve.count > 0) & ~is_many
            above.plot(
                curve.confidence[is_few],
                curve.frequency[is_few],
                marker=_MARKERS[number],
                markerfacecolor="none",
                linestyle="none",
                color=colour,
            )
            step = curve.edges[1] - curve.edges[0]
            width = step * 0.86 / n_curves
            below.bar(curve.edges[:-1] + step * 0.07 + number * width, curve.count, width, align="edge", color=colour)
        above.set(ylabel="how often it held", xlim=(0, 1), ylim=(-0.02, 1.02))
        below.set(xlabel="probability that was said", ylabel="times said")
        if max(int(curve.count.max()) for curve in curves.values()) > 50 * _FEW:
            below.set_yscale("log")
            below.set_ylim(bottom=0.8)
            below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        _in_percent(above.yaxis)
        _in_percent(below.xaxis)
        if n_curves > 1:
            _legend_above(above, n_curves)
        return to_svg(figure, "reliability", "How often predictions held against the probability that was said.")


def doubt_plot(found: Doubt) -> str:
    """How often the first label is wrong, from the surest tenth of the rows to the least sure."""
    with drawing("doubt"):
        figure = _figure(4.2)
        axes = figure.subplots()
        x = np.arange(1, len(found.tenths) + 1)
        errors = [tenth.error for tenth in found.tenths]
        wrong = axes.bar(x, errors, 0.8, color=ACCENT, label="wrong")
        overall = axes.axhline(
            found.error, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), label="wrong of all rows"
        )
        (said,) = axes.plot(
            x,
            [tenth.uncertainty for tenth in found.tenths],
            marker="s",
            linestyle="--",
            color=OTHER,
            label="uncertainty",
        )
        axes.set(xlabel="tenths of the rows, the surest first", ylabel="first label wrong", xticks=x)
        axes.set_xlim(0.4, len(x) + 0.6)
        axes.set_ylim(0, min(1.02, 1.08 * max([*errors, *(tenth.uncertainty for tenth in found.tenths), 0.02])))
        axes.grid(visible=False, axis="x")
        _in_percent(axes.yaxis)
        _legend_above(axes, 3, [wrong, overall, said])
        return to_svg(figure, "doubt", "How often the first label is wrong, by tenths of the rows, the surest first.")
