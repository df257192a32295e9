"""The errors that labelfield raises on purpose."""

from __future__ import annotations

from os import PathLike, fspath

__all__ = ["CannotAnswerError", "DataError", "LabelfieldError"]


class LabelfieldError(Exception):
    """Base class of the errors that labelfield raises on purpose; a command exits with `exit_code`."""

    exit_code = 1


class DataError(LabelfieldError, ValueError):
    """Bad data: where it is, what was found, what was expected, and how to fix it."""

    exit_code = 3

    def __init__(
        self,
        found: str,
        *,
        path: str | PathLike[str] | None = None,
        line: int | None = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.path = None if path is None else fspath(path)
        self.line, self.found, self.expected, self.fix = line, found, expected, fix
        where = (self.path or "") + ("" if line is None else f":{line}")
        message = f"{where}: {found}" if where else found
        if expected:
            message += f"; expected {expected}"
        super().__init__(f"{message}. {fix}" if fix else message)

    def at(self, path: str | PathLike[str] | None) -> DataError:
        """Return the same error with its file, unless that is known already."""
        if self.path is not None or path is None:
            return self
        return DataError(self.found, path=path, line=self.line, expected=self.expected, fix=self.fix)


class CannotAnswerError(LabelfieldError, ValueError):
    """A question that this kind of model has no answer to, such as an interval from a point estimate."""
