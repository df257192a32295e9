"""Pictures of training runs: the bound and test scores by epoch, from records of runs, and the weights of features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.saving import save_svg
from benchmarks.paths import DATA, records_folder
from benchmarks.record import Key, Record, Records
from benchmarks.suites.suite import Suite
from labelfield.errors import LabelfieldError

__all__ = ["draw_curves", "draw_relevance"]

_COLOURS = ("#c2571a", "#1a6fc2", "#2e8b57", "#7a4fa3", "#b8860b", "#555555", "#c23b6f")
# The start is far below everything else, and would flatten the rest into a line.
_SKIPPED_EPOCHS = 2
_ERROR = "error rate %"
_WRITTEN = ", as written"
_AXES = {"bound": "bound, nats per row", "P@1": "P@1, test rows, %", _ERROR: "error, test rows, %"}


def draw_curves(options: dict[str, Any]) -> dict[str, Any]:
    """Draw each quantity of `of` after each epoch: a panel for each data set or group of rows, a curve for each row.

    Several random starts give their mean, and with `band` a band of that many standard deviations on either side. Where
    the rows of a panel were also run as their paper has them, those runs are drawn, under their own names.
    """
    quantities = [options["of"]] if isinstance(options["of"], str) else options["of"]
    suite: Suite = options["runs_of"]
    cells = Records.load(records_folder(suite.path)).latest(suite)
    rows = options.get("rows") or [row.name for row in suite.rows]
    panels = options.get("panels")
    groups = (
        [(name, suite.datasets[0], own) for name, own in panels.items()]
        if panels
        else [(dataset, dataset, rows) for dataset in suite.datasets]
    )
    shape = (len(quantities), len(groups)) if len(groups) > 1 else (1, len(quantities))
    size = (1 + 3.4 * shape[1], 3.4 * shape[0])
    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    ends: dict[str, dict[str, dict[str, float]]] = {}
    for line, quantity in zip(axes.reshape(len(quantities), len(groups)), quantities, strict=True):
        for axis, (title, dataset, own) in zip(line, groups, strict=True):
            shown = _shown(suite, cells, dataset, own)
            for (style, colour), name in zip(cycle(product(("-", "--"), _COLOURS)), shown, strict=False):
                runs = _runs(cells, dataset, name, quantity)
                if not len(runs):
                    plt.close(figure)
                    again = f"python -m benchmarks recipe run {suite.name}"
                    raise LabelfieldError(f"{suite.name}: {name} on {dataset} was not run; use `{again}`")
                _curve(axis, name, (colour, style), runs, options.get("band"))
                ends.setdefault(f"{quantity} at the end", {}).setdefault(title, {})[name] = float(runs[:, -1].mean())
            axis.set(title=title, xlabel="epoch")
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=8, loc="upper right" if quantity == _ERROR else "lower right")
        line[0].set_ylabel(_AXES[quantity])
    return {"figure": save_svg(figure, options["picture"]), "runs of": suite.name, **ends}


def _shown(suite: Suite, cells: dict[Key, Record], dataset: str, rows: Sequence[str]) -> list[str]:
    """Return these rows as written, if all were run so: what they maximise is a bound of the evidence.

    Otherwise these are the rows of our settings; some exist only as written.
    """
    written = [name + _WRITTEN for name in rows]
    run = {row for (its_dataset, row, _, _), record in cells.items() if its_dataset == dataset and "history" in record}
    known = {row.name for row in suite.rows}
    return written if run.issuperset(written) else [name for name in rows if name in known]


def _runs(cells: dict[Key, Record], dataset: str, row: str, quantity: str) -> NDArray[np.float64]:
    """Return values by (start, epoch). With one class per row, the error in percent is 100 minus P@1."""
    key = "P@1" if quantity == _ERROR else quantity
    found = [
        record["history"][key]
        for (its_dataset, its_row, _, _), record in cells.items()
        if (its_dataset, its_row) == (dataset, row) and key in record.get("history", {})
    ]
    runs = np.array(found, float)
    return 100 - runs if quantity == _ERROR else runs


def _curve(axis: Any, name: str, look: tuple[str, str], runs: NDArray[np.float64], band: float | None) -> None:
    colour, style = look
    epochs = np.arange(1, runs.shape[1] + 1)[_SKIPPED_EPOCHS:]
    mean = runs.mean(0)[_SKIPPED_EPOCHS:]
    axis.plot(epochs, mean, color=colour, ls=style, lw=1.6, label=name)
    if band is not None and len(runs) > 1:
        half = band * runs.std(0, ddof=1)[_SKIPPED_EPOCHS:]
        axis.fill_between(epochs, mean - half, mean + half, color=colour, alpha=0.25, lw=0)


def draw_relevance(options: dict[str, Any]) -> dict[str, Any]:
    """Draw the learned weights of all features, the largest first, with a panel for each data set."""
    import labelfield

    figure, axes = plt.subplots(1, len(options["datasets"]), figsize=(10, 3), layout="constrained")
    found: dict[str, Any] = {}
    for axis, (dataset, own) in zip(np.atleast_1d(axes), options["datasets"].items(), strict=True):
        data = labelfield.read(DATA / dataset)
        model = labelfield.MLGPFClassifier(**options["model"], **own, device=options["device"]).fit(data.X, data.Y)
        relevance = model.model_.kernel.feature_relevance()
        assert relevance is not None
        weights = np.sort(relevance.detach().cpu().double().sqrt().numpy().ravel())[::-1]
        axis.plot(np.arange(1, len(weights) + 1), weights, color=_COLOURS[1], lw=1.6)
        axis.set(title=dataset, xlabel="feature, by its weight", ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
        half = float(np.mean(weights < weights[0] / 2))
        found[dataset] = {"largest": float(weights[0]), "median": float(np.median(weights)), "below half of it": half}
        print(dataset, found[dataset], flush=True)
    np.atleast_1d(axes)[0].set_ylabel("weight")
    return {"figure": save_svg(figure, options["picture"]), **found}
