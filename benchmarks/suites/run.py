"""Running the cells of a suite, each in a fresh process, and recording each when it is done."""

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

from labelfield.bench.environments import ENVIRONMENTS, PEERS, MissingPeerError, python_of
from labelfield.bench.files import BenchData, locate
from labelfield.bench.places import data_folder, records_folder
from labelfield.bench.processes import Together, run_process
from labelfield.bench.provenance import commit, machine, provenance
from labelfield.bench.records import Record, append_record, latest_of, load_records
from labelfield.bench.suite import Cell, Suite, check_options
from labelfield.data import read_predictions
from labelfield.errors import DataError
from labelfield.metrics import evaluate

__all__ = ["Choices", "is_failure", "run_cells"]

_K = 5
# How the reason begins where something was run and failed; others say what was missing.
_FAILED = "ended with"
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
    """Run what is wanted and was not measured yet at this commit on this machine with these data; append each record
    when it is made.

    A cell whose data set or peer is missing gets a record that says why; one that fails, too.
    """
    check_options(suite)
    folder = choices.records or records_folder(suite.path)
    done = {} if choices.again else latest_of(suite, load_records(folder).get(suite.name, []))

    def undone(cells: Iterable[Cell], data: BenchData | None = None) -> list[Cell]:
        return [cell for cell in cells if not _is_done(done.get(cell.key), cell, choices, data)]

    cells = undone(cell for cell in suite.cells() if choices.wanted is None or choices.wanted(cell))
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        own = [cell for cell in cells if cell.dataset == dataset]
        with tempfile.TemporaryDirectory(prefix="labelfield-bench-") as scratch:
            try:
                data = BenchData(locate(dataset, choices.data or data_folder()), Path(scratch))
                data.fingerprint  # noqa: B018  # read now: what is wrong with them concerns all of their cells
                own = undone(own, data)
                if not all(_is_of_classes(cell, data) for cell in own):
                    data.text  # noqa: B018  # written once: cells that run at the same time read the same files
            except (DataError, OSError) as error:
                results: Iterator[tuple[Cell, Record]] = iter([(cell, {"skipped": str(error)}) for cell in own])
            else:
                results = _measure_all(own, data, suite, choices)
            for cell, result in results:
                yield cell, _record(folder, cell, result, choices)


def _is_done(record: Record | None, cell: Cell, choices: Choices, data: BenchData | None) -> bool:
    """Before the data are read, only what was recorded without a word on its data is."""
    return (
        record is not None
        and "skipped" not in record
        and record.get("commit") == commit()
        and record.get("machine") == machine()
        and record.get("device") == _device(cell, choices)
        and not commit().endswith("+changes")  # which code that was nobody knows
        and ("data" not in record or (data is not None and record["data"] == data.fingerprint))
    )


def is_failure(record: Record) -> bool:
    """Whether something was run, and failed."""
    return str(record.get("skipped", "")).startswith(_FAILED)


def _device(cell: Cell, choices: Choices) -> str | None:
    return None if cell.peer else choices.device


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
        "device": _device(cell, choices),
        "command": choices.command,
        **provenance(packages),
        **result,
    }
    append_record(folder, cell.suite, record)
    return record


def _measure_all(cells: list[Cell], data: BenchData, suite: Suite, choices: Choices) -> Iterator[tuple[Cell, Record]]:
    """Each as soon as it is done; whatever ends this early ends the others too."""
    threads, together = max(1, _cores() // choices.jobs), Together()
    measure = partial(_measure, suite=suite, data=data, device=choices.device, threads=threads, together=together)
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
            together.end()


def _is_of_classes(cell: Cell, data: BenchData) -> bool:
    """Whether a method takes one class a row, and the data set has that."""
    return cell.method not in (None, "mlgpf", "topics") and data.has_classes


def _measure(
    cell: Cell,
    *,
    suite: Suite,
    data: BenchData,
    device: str | None,
    threads: int,
    together: Together,
) -> Record:
    """One cell in a process of its own: what it cost and how it scored."""
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
            "by_epoch": suite.by_epoch,
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
        finished = run_process([*command, str(path)], log=folder / "log", environment=environment, together=together)
        if finished.code:
            told = finished.errors.splitlines() or ["it said nothing"]
            return {"skipped": f"{_FAILED} {finished.code}: {told[-1]}"}
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
    """Without what JSON has no number for, such as a score of nothing or a bound that was lost."""
    return {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}


def _cores() -> int:
    """Those that this process may use, and so everything it starts."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
