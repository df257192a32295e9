"""Files and folders that are written either whole or not at all."""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

_SCRATCH = ".labelfield-"


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """Make a temporary folder beside the target, on the same file system; at exit remove it, and parents left empty."""
    missing = [parent for parent in (target.parent, *target.parent.parents) if not parent.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=target.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for parent in missing:
            with suppress(OSError):  # not empty: the target was written
                parent.rmdir()


@contextmanager
def temporary_folder(inside: Path | None = None) -> Iterator[Path]:
    """Make a folder that is removed at exit. Where that is denied it stays: Python's own class would try for ever."""
    folder = Path(tempfile.mkdtemp(prefix="labelfield-", dir=inside))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replacing_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to, which replaces the target if the block succeeds. A symbolic link keeps pointing to it.

    A target that exists and is not a regular file, such as a device or a folder, is never replaced.
    """
    with suppress(RuntimeError):  # of a link to itself, before Python 3.13
        target = target.resolve()
    if target.is_symlink() and not target.exists():
        raise FileExistsError(f"{target} is a link to itself; choose another name or remove it")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{target} is not a file; choose another name")
    with _scratch(target) as scratch:
        new = scratch / "new"
        try:
            yield new
        except OSError as error:
            if error.filename is not None and os.fspath(error.filename) == os.fspath(new):
                error.filename = str(target)  # what the user knows of
            raise
        os.replace(new, target)


@contextmanager
def replacing_folder(target: Path, ours: Collection[str]) -> Iterator[Path]:
    """Yield a folder to fill, which replaces the target if the block succeeds.

    An existing folder is replaced only if every file in it, at any depth, is one of `ours` (paths within the folder),
    so that no file of the user's is ever removed.
    """
    require_only_ours(target, ours)
    with _scratch(target) as scratch:
        new, old = scratch / "new", scratch / "old"
        new.mkdir()
        yield new
        if target.exists() and _exchange(new, target):
            return
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(new, target)
        except OSError:
            if old.exists():
                os.replace(old, target)
            raise


def _exchange(a: Path, b: Path) -> bool:
    """Let two folders change places in one step, where the system can: then there is no moment without either."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # another system
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def exchange_folders(a: Path, b: Path) -> None:
    """Let two folders beside each other change places."""
    if not _exchange(a, b):
        with _scratch(a) as scratch:
            os.replace(a, scratch / "a")
            try:
                os.replace(b, a)
            except OSError:
                os.replace(scratch / "a", a)
                raise
            os.replace(scratch / "a", b)


def require_only_ours(target: Path, ours: Collection[str]) -> None:
    """Raise FileExistsError if the target is not a folder or contains anything but `ours` and their parents.

    A `*` in one of `ours` stands for anything.
    """
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{target} is not a folder; choose another name or remove it")
    parents = {str(parent) for path in ours for parent in PurePosixPath(path).parents}
    for entry in target.rglob("*"):
        name = entry.relative_to(target).as_posix()
        is_left_over = name.startswith(_SCRATCH)  # by a process that was killed
        if not (any(fnmatchcase(name, own) for own in ours) or is_left_over or (name in parents and entry.is_dir())):
            raise FileExistsError(
                f"{target} contains {name}, which labelfield did not write; choose another name or remove it"
            )


def sweep(folder: Path) -> None:
    """Remove the temporary folders that killed processes left behind."""
    for entry in folder.glob(f"{_SCRATCH}*"):
        shutil.rmtree(entry, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file is on disk, so that it can be renamed without losing its contents in a crash."""
    with open(path, "rb") as written:
        os.fsync(written.fileno())
