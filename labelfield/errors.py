"""The errors that labelfield raises on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath


class LabelfieldError(Exception):
    """Base class of the errors that labelfield raises on purpose; a command exits with `exit_code`."""

    exit_code = 1


class DataError(LabelfieldError, ValueError):
    """Bad data: where it is, what was found, what was expected, and how to fix it."""

    exit_code = 3
    # What a file holds may be of any length; a message is for a person.
    _longest = 300

    def __init__(
        self,
        found: str,
        expected: str | None = None,
        fix: str | None = None,
        *,
        path: str | PathLike[str] | None = None,
        line: int | None = None,
    ) -> None:
        self.path = None if path is None else fspath(path)
        found, expected = self._cropped(found), None if expected is None else self._cropped(expected)
        self.line, self.found, self.expected, self.fix = line, found, expected, fix
        where = (self.path or "") + ("" if line is None else f":{line}")
        message = f"{where}: {found}" if where else found
        if expected:
            message += f"; expected {expected}"
        message = f"{message}. {fix}" if fix else message
        super().__init__(" ".join(message.splitlines()))  # names in a file, and of files, may have line breaks

    def _cropped(self, text: str) -> str:
        return text if len(text) <= self._longest else f"{text[: self._longest - 1]}…"

    def at(self, path: str | PathLike[str] | None, line: int | None = None) -> DataError:
        """Return the same error with its file and line, unless the file is known already."""
        if self.path is not None:
            return self
        line = line if self.line is None else self.line
        return DataError(self.found, self.expected, self.fix, path=path, line=line)


@contextmanager
def locating(path: str | PathLike[str] | None, line: int | None = None) -> Iterator[None]:
    """Add the file and the line to a DataError that is raised inside and does not name its file."""
    try:
        yield
    except DataError as error:
        raise error.at(path, line) from None


class CannotAnswerError(LabelfieldError, ValueError):
    """A question that this kind of model cannot answer, such as the bound of linear machines."""


def no_numbers() -> CannotAnswerError:
    """Return the error for probabilities that are no numbers, which nobody would notice in a ranking."""
    return CannotAnswerError(
        "the model gives probabilities that are not numbers; its weights are damaged, or the rows are too large. "
        "Scale the rows, or train the model again"
    )
