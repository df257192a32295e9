"""Running the cells of a suite, each in a fresh process, and recording each when it is done."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from labelfield.bench.environments import ENVIRONMENTS, PEERS, MissingPeerError, python_of
from labelfield.bench.files import BenchData, locate
from labelfield.bench.places import data_folder, records_folder
from labelfield.bench.processes import run_process
from labelfield.bench.provenance import commit, machine, provenance
from labelfield.bench.records import Record, append_record, latest_cells, load_records
from labelfield.bench.suite import Cell, Suite
from labelfield.data import read_predictions
from labelfield.errors import DataError
from labelfield.metrics import evaluate

__all__ = ["Choices", "run_cells"]

_K = 5
_OURS = [sys.executable, "-m", "labelfield.bench.ours"]


@dataclass(frozen=True)
class Choices:
    """How a suite is run: where data and records are, on what, how many cells at a time, and which."""

    data: Path | None = None
    records: Path | None = None
    device: str | None = None
    jobs: int = 1
    again: bool = False
    wanted: Callable[[Cell], bool] | None = None
    command: str = ""


def run_cells(suite: Suite, choices: Choices) -> Iterator[tuple[Cell, Record]]:
    """Run what is wanted and was not measured yet at this commit on this machine; append each record when it is made.

    A cell whose data set or peer is missing gets a record that says why; one that fails, too.
    """
    folder = choices.records or records_folder()
    done = {} if choices.again else latest_cells(load_records(folder).get(suite.name, []))
    cells = [
        cell
        for cell in suite.cells()
        if (choices.wanted is None or choices.wanted(cell)) and not _is_done(done.get(cell.key))
    ]
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        own = [cell for cell in cells if cell.dataset == dataset]
        with tempfile.TemporaryDirectory(prefix="labelfield-bench-") as scratch:
            try:
                data = BenchData(locate(dataset, choices.data or data_folder()), Path(scratch))
                data.whole  # noqa: B018  # read now: what is wrong with it concerns all of its cells
            except (DataError, FileNotFoundError) as error:
                results: Iterator[Record] = iter([{"skipped": str(error)}] * len(own))
            else:
                results = _measure_all(own, data, suite, choices)
            for cell, result in zip(own, results, strict=True):
                yield cell, _record(folder, cell, result, choices)


def _is_done(record: Record | None) -> bool:
    return (
        record is not None
        and "skipped" not in record
        and record["commit"] == commit()
        and record["machine"] == machine()
        and not record["commit"].endswith("+changes")  # which code that was nobody knows
    )


def _record(folder: Path, cell: Cell, result: Record, choices: Choices) -> Record:
    packages = ENVIRONMENTS[PEERS[cell.peer].environment].versions if cell.peer else None
    what = {"peer": cell.peer} if cell.peer else {"method": cell.method}
    record = {
        "suite": cell.suite,
        "dataset": cell.dataset,
        "row": cell.row,
        "budget": cell.budget,
        "seed": cell.seed,
        **what,
        "options": cell.options,
        "device": None if cell.peer else choices.device,
        "command": choices.command,
        **provenance(packages),
        **result,
    }
    append_record(folder, cell.suite, record)
    return record


def _measure_all(cells: list[Cell], data: BenchData, suite: Suite, choices: Choices) -> Iterator[Record]:
    threads = max(1, _cores() // choices.jobs)
    measure = partial(_measure, data=data, wanted=suite.scores, device=choices.device, threads=threads)
    if choices.jobs == 1:
        yield from map(measure, cells)
        return
    with ThreadPoolExecutor(choices.jobs) as pool:
        yield from pool.map(measure, cells)


def _measure(cell: Cell, *, data: BenchData, wanted: tuple[str, ...], device: str | None, threads: int) -> Record:
    """One cell in a process of its own: what it cost and how it scored."""
    classes = cell.method not in (None, "mlgpf", "topics") and data.has_classes
    train, test = (data.path, data.path) if classes else data.text
    with tempfile.TemporaryDirectory(dir=data.scratch) as name:
        folder = Path(name)
        task = {
            "train": str(train),
            "test": str(test),
            "predictions": str(folder / "predictions.txt"),
            "model": str(folder / "model"),
            "answer": str(folder / "answer.json"),
            "k": _K,
            "threads": threads,
            "seed": cell.seed,
            "options": cell.options,
            "method": cell.method,
            "classes": classes,
            "device": device,
            "wanted": list(wanted),
        }
        command = _OURS
        environment = {"OMP_NUM_THREADS": str(threads), "PYTHONHASHSEED": "0"}
        if cell.peer:
            peer = PEERS[cell.peer]
            task["options"] = {**peer.options, **cell.options}
            environment["PYTHONPATH"] = ""  # nothing of ours
            try:
                command = [str(python_of(peer.environment)), str(peer.path)]
            except MissingPeerError as error:
                return {"skipped": str(error)}
        path = folder / "task.json"
        path.write_text(json.dumps(task), encoding="utf-8")
        finished = run_process([*command, str(path)], log=folder / "log", environment=environment)
        if finished.code:
            told = finished.errors.splitlines() or ["it said nothing"]
            return {"skipped": f"ended with {finished.code}: {told[-1]}"}
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        truth, training = data.truth(classes)
        ranked = read_predictions(folder / "predictions.txt", truth.shape[0], truth.shape[1])
    scores: dict[str, Any] = {**evaluate(truth, ranked, training), **answer.pop("scores", {})}
    return {
        "threads": threads,
        "seconds": finished.seconds,
        "cpu_seconds": finished.cpu_seconds,
        "peak_mb": finished.peak_mb,
        "model_mb": answer.pop("model_bytes") / 2**20,
        **answer,
        "scores": scores,
    }


def _cores() -> int:
    """Those that this process may use, and so everything it starts."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
