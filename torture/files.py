"""Hostile files: whatever is done to one, it is read as it was, read as it says, or refused in one clear line."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from random import Random

from labelfield.errors import LabelfieldError
from torture.readers import READERS, Originals, Wrong, equal
from torture.running import Trial

_LONGEST_MESSAGE = 700


def make_trial(name: str) -> Trial:
    """Return the trial of a reader, with its original files in a new folder."""
    reader = READERS[name]
    base = Path(tempfile.mkdtemp())
    reader.make(base)
    originals = Originals(base)
    warnings.simplefilter("ignore")
    before = reader.check(base, None)
    assert not isinstance(before, Wrong), before
    warnings.simplefilter("error", RuntimeWarning)  # arithmetic on what nobody checked

    def trial(seed: int) -> str | None:
        folder = originals.restore()
        is_checked = reader.change(folder, Random(f"{name}/{seed}"))
        try:
            found = reader.check(folder, before)
        except (LabelfieldError, FileExistsError) as error:  # the second: a place that is never written to
            return _flaw_of(str(error))
        if isinstance(found, Wrong):
            return found.what
        return "changed, and nobody noticed" if is_checked and not equal(before, found) else None

    return trial


def _flaw_of(message: str) -> str | None:
    """Return what is wrong with a message: it is one line, and a person can read it."""
    if not message.strip() or "\n" in message:
        return f"a message of several lines, or none: {message[:80]!r}"
    return f"a message of {len(message)} characters" if len(message) > _LONGEST_MESSAGE else None
