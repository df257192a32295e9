"""Writing that either happens whole or leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

__all__ = ["refuse_strangers", "replacing_file", "replacing_folder", "sweep", "sync"]

_SCRATCH = ".labelfield-"


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A fresh folder beside the target, on the same file system, gone at the end; so are parents made in vain."""
    missing = [parent for parent in (target.parent, *target.parent.parents) if not parent.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=target.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for parent in missing:
            with suppress(OSError):  # not empty: the target is there
                parent.rmdir()


@contextmanager
def replacing_file(target: Path) -> Iterator[Path]:
    """A path to write to; it takes the target's place when the block ends well. A link stays one, to the new file.

    What is no file, such as a device or a folder, is never replaced.
    """
    target = target.resolve()
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{target} is not a file; choose another name")
    with _scratch(target) as scratch:
        new = scratch / "new"
        yield new
        os.replace(new, target)


@contextmanager
def replacing_folder(target: Path, ours: Collection[str]) -> Iterator[Path]:
    """A folder to fill; it takes the target's place when the block ends well.

    An existing folder is replaced only if every file in it, at any depth, is one of `ours` (paths within the folder):
    nothing of a stranger's is removed.
    """
    refuse_strangers(target, ours)
    with _scratch(target) as scratch:
        new, old = scratch / "new", scratch / "old"
        new.mkdir()
        yield new
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(new, target)
        except OSError:
            if old.exists():
                os.replace(old, target)
            raise


def _strangers(folder: Path, ours: Collection[str]) -> list[str]:
    """What lies in a folder, other than `ours` and the folders they lie in."""
    parents = {str(parent) for path in ours for parent in PurePosixPath(path).parents}
    inside = (entry.relative_to(folder).as_posix() for entry in folder.rglob("*"))
    return [
        name
        for name in inside
        if name not in ours
        and not name.startswith(_SCRATCH)  # left by a process that was killed
        and not (name in parents and (folder / name).is_dir())
    ]


def refuse_strangers(target: Path, ours: Collection[str]) -> None:
    """Raise FileExistsError if the target is no folder, or holds anything but `ours`."""
    if target.exists():
        strange = [target.name] if not target.is_dir() else _strangers(target, ours)
        if strange:
            raise FileExistsError(
                f"{target} exists and {strange[0]} in it is not ours; choose another name or remove it"
            )


def sweep(folder: Path) -> None:
    """Remove what killed processes left behind."""
    for entry in folder.glob(f"{_SCRATCH}*"):
        shutil.rmtree(entry, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file is on the disk: a rename must not be there before what it names."""
    with open(path, "rb") as written:
        os.fsync(written.fileno())
