"""`python -m benchmarks.plots`: draw docs/images from the records."""

from __future__ import annotations

import json
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from benchmarks.record import RECORDS, ROOT

IMAGES = ROOT / "docs" / "images"
_DEVICES = {"scale": ("2 cores", "#c2571a"), "gpu-scale": ("H200", "#1a6fc2")}


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


def main() -> None:
    mpl.rcParams["svg.hashsalt"] = "labelfield"  # the same picture from the same record
    records = {path.stem: json.loads(path.read_text()) for path in RECORDS.glob("*.json")}
    IMAGES.mkdir(exist_ok=True)
    scale(records).savefig(IMAGES / "scale.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
