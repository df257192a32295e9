"""Where the repository keeps data sets, records, suites, recipes and pictures."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["DATA", "IMAGES", "MADE", "RECIPES", "RECORDS", "ROOT", "SUITES", "records_folder"]

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "records"
SUITES = ROOT / "benchmarks" / "suites"
RECIPES = ROOT / "recipes"
# Data sets that `python -m benchmarks.suites.making` has made; they are not part of the repository.
MADE = ROOT / "benchmarks" / "made"
IMAGES = ROOT / "docs" / "images"
# Data sets are looked up here by name.
DATA = Path(os.environ.get("LABELFIELD_DATA") or ROOT.parent / "shared" / "data")


def records_folder(file: Path) -> Path:
    """Return the default folder for the records of a suite or recipe: the repository's, or ./records for other files.

    Records go by the name of the file, and somebody's own steps.yaml is not the repository's study `steps`.
    """
    return RECORDS if file.resolve().parent in (SUITES, RECIPES) else Path("records")
