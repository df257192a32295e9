"""Writing that either happens whole or leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing_file", "replacing_folder"]


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A fresh folder beside the target, on the same file system, gone at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def replacing_file(target: Path) -> Iterator[Path]:
    """A path to write to; it takes the target's place when the block ends well."""
    with _scratch(target) as scratch:
        new = scratch / "new"
        yield new
        os.replace(new, target)


@contextmanager
def replacing_folder(target: Path, ours: Collection[str]) -> Iterator[Path]:
    """A folder to fill; it takes the target's place when the block ends well.

    An existing folder is replaced only if every name in it is one of `ours`: nothing of a stranger's is removed.
    """
    if target.exists():
        strange = [target.name] if not target.is_dir() else [e.name for e in target.iterdir() if e.name not in ours]
        if strange:
            raise FileExistsError(
                f"{target} exists and {strange[0]} in it is not ours; choose another name or remove it"
            )
    with _scratch(target) as scratch:
        new = scratch / "new"
        new.mkdir()
        yield new
        if target.exists():
            os.replace(target, scratch / "old")
        os.replace(new, target)
