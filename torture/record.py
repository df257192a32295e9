"""Counts of what was tried: a line of JSON for each run, from which the next run goes on."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDS = Path(__file__).with_name("records.jsonl")


def read_records(path: Path | None = None) -> list[dict[str, Any]]:
    """Return all runs, oldest first."""
    path = path or RECORDS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def next_seed(kind: str, case: str, path: Path | None = None) -> int:
    """Return the first seed that no run of this case has tried."""
    known = (one for one in read_records(path) if (one["kind"], one["case"]) == (kind, case))
    return max((one["first_seed"] + one["tried"] for one in known), default=0)


def _without_folders(text: str) -> str:
    """Return a message without the folders of this machine."""
    return re.sub(r"/(?:[^\s/'\"]+/)+", "", text)


def add_record(kind: str, case: str, first_seed: int, tried: int, failures: list[Any], seconds: float) -> None:
    """Write down a run: how many trials, and which of them failed."""
    found = {
        "kind": kind,
        "case": case,
        "first_seed": first_seed,
        "tried": tried,
        "failed": len(failures),
        "failures": [f"{failure.seed}: {_without_folders(failure.what)}"[:200] for failure in failures[:5]],
        "seconds": round(seconds, 1),
        "commit": _commit(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with open(RECORDS, "a", encoding="utf-8") as file:
        file.write(json.dumps(found, ensure_ascii=False) + "\n")


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def totals() -> list[tuple[str, str, int, int]]:
    """Return for each kind and case how many trials there were, and how many failed."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in read_records():
        counts = found.setdefault((one["kind"], one["case"]), [0, 0])
        counts[0] += one["tried"]
        counts[1] += one["failed"]
    return [(kind, case, tried, failed) for (kind, case), (tried, failed) in sorted(found.items())]
