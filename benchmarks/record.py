"""Records of what was measured: one JSON object a line, one file a suite, only ever appended to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from labelfield.bench.suite import Suite
from labelfield.errors import DataError

__all__ = ["Record", "append_record", "cell_key", "latest_of", "load_records", "runs_and_studies"]

Record = dict[str, Any]
# What makes two records of a suite measurements of the same thing.
_KEY = ("dataset", "row", "budget", "seed")


def append_record(folder: Path, name: str, record: Record) -> Path:
    """Add a line to the file of a suite, in one piece: lines that several processes add at once do not mix."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    line = json.dumps(record, allow_nan=False) + "\n"
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())
    return path


def load_records(folder: Path) -> dict[str, list[Record]]:
    """All records, by the name of their suite, the oldest first."""
    return {path.stem: _lines(path) for path in sorted(folder.glob("*.jsonl"))}


def runs_and_studies(records: dict[str, list[Record]]) -> tuple[dict[str, list[Record]], dict[str, Record]]:
    """All runs of each suite or recipe, and the last record of each study or figure. A name may have both."""
    runs = {name: [line for line in lines if "study" not in line] for name, lines in records.items()}
    studies = {name: line for name, lines in records.items() for line in lines if "study" in line}
    return {name: lines for name, lines in runs.items() if lines}, studies


def _lines(path: Path) -> list[Record]:
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"no JSON ({error})", path=path, line=number, fix="Remove the line.") from None
        if not isinstance(record, dict):
            raise DataError("no JSON object", path=path, line=number, fix="Remove the line.")
        records.append(record)
    return records


def cell_key(record: Record) -> tuple[Any, ...]:
    """The key of the cell that a record is of."""
    return tuple(record.get(name) for name in _KEY)


def _latest_cells(records: Iterable[Record]) -> dict[tuple[Any, ...], Record]:
    """The last record of each cell; one that was passed over counts only where nothing was ever measured."""
    latest: dict[tuple[Any, ...], Record] = {}
    for record in records:
        key = cell_key(record)
        if "skipped" not in record or "skipped" in latest.get(key, {"skipped": ""}):
            latest[key] = record
    return latest


def latest_of(suite: Suite, records: Iterable[Record]) -> dict[tuple[Any, ...], Record]:
    """The last record of each cell as the suite has it now: with other options something else was measured."""
    meant: dict[tuple[Any, ...], Any] = {
        cell.key: (cell.method, cell.peer, _as_recorded(cell.options)) for cell in suite.cells()
    }

    def is_meant(record: Record) -> bool:
        wanted = meant.get(cell_key(record))
        return wanted == (record.get("method"), record.get("peer"), record.get("options"))

    return _latest_cells(filter(is_meant, records))


def _as_recorded(options: dict[str, Any]) -> Any:
    return json.loads(json.dumps(options))
