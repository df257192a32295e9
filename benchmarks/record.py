"""Records of measurements: one JSON object per line, one file per suite, recipe or study, only ever appended to."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.provenance import provenance
from labelfield.errors import DataError
from labelfield.models.upgrade import present_names

if TYPE_CHECKING:
    from collections.abc import Collection

    from benchmarks.suites.suite import Suite

__all__ = ["HEADLINE", "Key", "Record", "Records", "append_record", "append_study", "cell_key", "command_of"]

Record = dict[str, Any]
Key = tuple[Any, ...]
# Two records of a suite measure the same cell if they agree in these.
_KEY = ("dataset", "row", "budget", "seed")
# The scores that studies record of rows with several labels.
HEADLINE = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "ECE@1", "ECE@5")


def append_record(folder: Path, name: str, record: Record) -> Path:
    """Append a line to the file of a suite with a single write, so that lines of several processes do not mix."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    line = json.dumps(record, allow_nan=False) + "\n"
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())
    return path


def append_study(folder: Path, name: str, results: dict[str, Any], command: str) -> Path:
    """Append the results of a study or figure, with where they come from."""
    record = {"study": name, "command": command, **provenance(), "seed": 0, "results": results}
    return append_record(folder, name, record)


def command_of(record: Record) -> str:
    """Return the command that measures a record again; older records have it as a command of the package."""
    command: str = record["command"]
    return re.sub(r"^labelfield (?=bench|recipe)", "python -m benchmarks ", command)


def cell_key(record: Record) -> Key:
    """Return the key of the cell that a record measures."""
    return tuple(record.get(name) for name in _KEY)


@dataclass(frozen=True)
class Records:
    """Records by name: all runs of a suite or recipe, the last record of a study or figure. A name may have both."""

    runs: dict[str, list[Record]]
    studies: dict[str, Record]

    @classmethod
    def load(cls, folder: Path) -> Records:
        """Read all records of a folder."""
        return cls.of({path.stem: _lines(path) for path in sorted(folder.glob("*.jsonl"))})

    @classmethod
    def of(cls, lines: dict[str, list[Record]]) -> Records:
        """Tell runs from studies; lines come oldest first. Options of runs get their present names."""
        runs = {name: [_upgraded(line) for line in own if "study" not in line] for name, own in lines.items()}
        studies = {name: line for name, own in lines.items() for line in own if "study" in line}
        return cls({name: own for name, own in runs.items() if own}, studies)

    def latest(self, suite: Suite) -> dict[Key, Record]:
        """Return the last record of each cell of a suite. A skipped run counts only where nothing was ever measured.

        Runs with other options than the suite has now are left out: they measured something else.
        """
        meant: dict[Key, Any] = {
            cell.key: (cell.method, cell.peer, json.loads(json.dumps(cell.options)), cell.rank_by)
            for cell in suite.cells()
        }
        latest: dict[Key, Record] = {}
        for record in self.runs.get(suite.name, []):
            key = cell_key(record)
            how = record.get("rank_by", "probability")
            if meant.get(key) != (record.get("method"), record.get("peer"), record.get("options"), how):
                continue
            if "skipped" not in record or "skipped" in latest.get(key, {"skipped": ""}):
                latest[key] = record
        return latest

    def without_measured(self, name: str, keys: Collection[Key]) -> Records:
        """Return these records without what was measured of some cells of a suite; their skipped runs stay."""
        kept = [run for run in self.runs.get(name, []) if "skipped" in run or cell_key(run) not in keys]
        return replace(self, runs={**self.runs, name: kept})


def _upgraded(run: Record) -> Record:
    """Return a run with the present names of our options; those of a peer are its own."""
    method = run.get("method")
    if method is None or "options" not in run:
        return run
    names = present_names(method)
    return {**run, "options": {names.get(name, name): value for name, value in run["options"].items()}}


def _lines(path: Path) -> list[Record]:
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"not JSON ({error})", path=path, line=number, fix="Remove the line.") from None
        if not isinstance(record, dict):
            raise DataError("not a JSON object", path=path, line=number, fix="Remove the line.")
        records.append(record)
    return records
