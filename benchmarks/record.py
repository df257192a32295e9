"""The records that tables are made from, and where they and the data are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.measuring import Measured, isolated, measured
from labelfield.bench import append_record, data_folder, load_records, records_folder
from labelfield.bench.provenance import accelerator, provenance
from labelfield.bench.records import runs_and_studies

__all__ = [
    "DATA",
    "HEADLINE",
    "RECORDS",
    "ROOT",
    "Measured",
    "accelerator",
    "isolated",
    "load_studies",
    "measured",
    "write_record",
]

ROOT = Path(__file__).parents[1]
RECORDS = records_folder()
DATA = data_folder()
# The scores that a table of several labels a row shows.
HEADLINE = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "ECE@1", "ECE@5")


def write_record(
    name: str, results: dict[str, Any], *, seed: int = 0, command: str | None = None, folder: Path = RECORDS
) -> Path:
    """Append what was measured, with where it comes from, to the records of a study."""
    record = {
        "study": name,
        "command": command or f"labelfield bench {name}",
        **provenance(),
        "seed": seed,
        "results": results,
    }
    return append_record(folder, name, record)


def load_studies() -> dict[str, dict[str, Any]]:
    """The last record of each study."""
    return runs_and_studies(load_records(RECORDS))[1]
