"""Run the cells of a suite, each in a fresh process, and record each as soon as it is done."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measuring.processes import ProcessGroup, run_process
from benchmarks.paths import ROOT
from benchmarks.peers.environments import ENVIRONMENTS, PEERS, MissingPeerError, python_of
from benchmarks.provenance import commit, machine, provenance
from benchmarks.record import Record, Records, append_record
from benchmarks.suites.data import BenchData, locate
from benchmarks.suites.suite import Cell, Suite, check_options
from labelfield.data import read_predictions
from labelfield.errors import DataError
from labelfield.methods import METHODS, SEVERAL
from labelfield.metrics import evaluate

__all__ = ["Choices", "is_failure", "run_cells"]

_K = 5
# How the reason begins if something was run and failed; other reasons say what was missing.
_FAILED = "ended with"
_OURS = [sys.executable, "-m", "benchmarks.suites.ours"]


@dataclass(frozen=True)
class Choices:
    """How to run a suite: where data and records are, the device, how many cells at once, and which cells."""

    data: Path
    records: Path
    device: str | None = None
    jobs: int = 1
    again: bool = False
    wanted: Callable[[Cell], bool] = lambda _: True
    command: str = ""


def run_cells(suite: Suite, choices: Choices) -> Iterator[tuple[Cell, Record]]:
    """Run the wanted cells and append the record of each; skip those already measured.

    A measurement counts if it was made at this commit, on this machine, with the same data. A cell without its data
    set or peer gets a record that says why, and so does a cell that fails.
    """
    check_options(suite)
    done = {} if choices.again else Records.load(choices.records).latest(suite)

    def undone(cells: Iterable[Cell], data: BenchData | None = None) -> list[Cell]:
        return [cell for cell in cells if not _is_done(done.get(cell.key), cell, choices, data)]

    cells = undone(filter(choices.wanted, suite.cells()))
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        own = [cell for cell in cells if cell.dataset == dataset]
        with tempfile.TemporaryDirectory(prefix="labelfield-bench-") as scratch:
            try:
                data = BenchData(locate(dataset, choices.data), Path(scratch))
                data.fingerprint  # noqa: B018  # read now: a mistake in the data concerns all of their cells
                own = undone(own, data)
                if not all(_is_of_classes(cell, data) for cell in own):
                    data.text  # noqa: B018  # written once: cells that run at the same time read the same files
            except (DataError, OSError) as error:
                results: Iterator[tuple[Cell, Record]] = iter([(cell, {"skipped": str(error)}) for cell in own])
            else:
                results = _measure_all(own, data, suite, choices)
            for cell, result in results:
                yield cell, _record(suite.name, cell, result, choices)


def _is_done(record: Record | None, cell: Cell, choices: Choices, data: BenchData | None) -> bool:
    """Return whether a cell was measured; without the data, this is known only of records that do not name theirs."""
    return (
        record is not None
        and "skipped" not in record
        and record.get("commit") == commit()
        and record.get("machine") == machine()
        and record.get("device") == _device(cell, choices)
        and not commit().endswith("+changes")  # such code cannot be identified
        and ("data" not in record or (data is not None and record["data"] == data.fingerprint))
    )


def is_failure(record: Record) -> bool:
    """Return whether something was run and failed."""
    return str(record.get("skipped", "")).startswith(_FAILED)


def _device(cell: Cell, choices: Choices) -> str | None:
    return None if cell.peer else choices.device


def _record(suite: str, cell: Cell, result: Record, choices: Choices) -> Record:
    packages = ENVIRONMENTS[PEERS[cell.peer].environment].versions if cell.peer else None
    what = {"peer": cell.peer} if cell.peer else {"method": cell.method}
    record = {
        "suite": suite,
        "dataset": cell.dataset,
        "row": cell.row,
        "budget": cell.budget,
        "seed": cell.seed,
        **what,
        "options": cell.options,
        **({} if cell.rank_by == "probability" else {"rank_by": cell.rank_by}),
        "device": _device(cell, choices),
        "command": choices.command,
        **provenance(packages),
        **result,
    }
    append_record(choices.records, suite, record)
    return record


def _measure_all(cells: list[Cell], data: BenchData, suite: Suite, choices: Choices) -> Iterator[tuple[Cell, Record]]:
    """Yield each cell as soon as it is done; ending this early ends the processes of the others too."""
    threads, group = max(1, _cores() // choices.jobs), ProcessGroup()
    measure = partial(_measure, suite=suite, data=data, device=choices.device, threads=threads, group=group)
    if choices.jobs == 1:
        yield from ((cell, measure(cell)) for cell in cells)
        return
    with ThreadPoolExecutor(choices.jobs) as pool:
        waiting = {pool.submit(measure, cell): cell for cell in cells}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            group.end()


def _is_of_classes(cell: Cell, data: BenchData) -> bool:
    """Return whether a method takes one class per row, and the data set has that."""
    return cell.method is not None and METHODS[cell.method].labels != SEVERAL and data.has_classes


def _measure(
    cell: Cell,
    *,
    suite: Suite,
    data: BenchData,
    device: str | None,
    threads: int,
    group: ProcessGroup,
) -> Record:
    """Run a cell in a process of its own; return its costs and scores."""
    classes = _is_of_classes(cell, data)
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
            "wanted": list(suite.scores),
            "rank_by": cell.rank_by,
            "by_epoch": suite.by_epoch,
        }
        command = _OURS
        search = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {"OMP_NUM_THREADS": str(threads), "PYTHONHASHSEED": "0", "PYTHONPATH": search}
        if cell.peer:
            peer = PEERS[cell.peer]
            task["options"] = options = {**peer.options, **cell.options}
            if (view := options.pop("row_transform", None)) is not None:
                task["train"], task["test"] = map(str, data.transformed(view))
            environment["PYTHONPATH"] = ""  # nothing of ours
            try:
                command = [str(python_of(peer.environment)), str(peer.path)]
            except MissingPeerError as error:
                return {"skipped": str(error)}
        path = folder / "task.json"
        path.write_text(json.dumps(task), encoding="utf-8")
        finished = run_process([*command, str(path)], log=folder / "log", environment=environment, group=group)
        if finished.code:
            said = finished.errors.splitlines() or ["it said nothing"]
            return {"skipped": f"{_FAILED} {finished.code}: {said[-1]}"}
        try:
            answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
            truth, training = data.truth(classes)
            ranked = read_predictions(folder / "predictions.txt", truth.shape[0], truth.shape[1])
        except (DataError, OSError, ValueError) as error:
            return {"skipped": f"{_FAILED} an answer that cannot be scored: {error}"}
    scores: dict[str, Any] = _finite({**evaluate(truth, ranked, training), **answer.pop("scores", {})})
    return {
        "data": data.fingerprint,
        "threads": threads,
        "seconds": finished.seconds,
        "cpu_seconds": finished.cpu_seconds,
        "peak_mb": finished.peak_mb,
        "model_mb": answer.pop("model_bytes") / 2**20,
        **_finite(answer),
        "scores": scores,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Drop what JSON has no number for, such as a score of no rows or a bound that diverged."""
    return {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}


def _cores() -> int:
    """Return how many cores this process, and so everything it starts, may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
