"""Where data sets, records and peers are."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["SUITES", "checkout", "data_folder", "peers_folder", "records_folder"]

# Those that come with the package.
SUITES = Path(__file__).parent / "suites"


def checkout() -> Path | None:
    """The repository that this package lies in, or None where it was installed without one."""
    root = Path(__file__).parents[2]
    return root if (root / "benchmarks" / "run.py").exists() else None


def data_folder() -> Path:
    """Where data sets are looked up by name: LABELFIELD_DATA, or beside the repository, or `data` here."""
    if "LABELFIELD_DATA" in os.environ:
        return Path(os.environ["LABELFIELD_DATA"])
    root = checkout()
    return Path("data") if root is None else root.parent / "shared" / "data"


def records_folder(file: Path | None = None) -> Path:
    """The records of the repository, or `records` here, as it is for the suites and recipes of files elsewhere.

    Records go by the name of the file, and one's own steps.yaml is not the repository's study `steps`.
    """
    root = checkout()
    if root is None:
        return Path("records")
    is_ours = file is None or file.resolve().parent in (SUITES.resolve(), (root / "recipes").resolve())
    return root / "benchmarks" / "records" if is_ours else Path("records")


def peers_folder() -> Path:
    """Where the environments of peers are kept: LABELFIELD_PEERS, or the user's cache."""
    if "LABELFIELD_PEERS" in os.environ:
        return Path(os.environ["LABELFIELD_PEERS"])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "labelfield" / "peers"
