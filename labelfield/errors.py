"""What can go wrong, said once and clearly."""

from __future__ import annotations

from os import PathLike, fspath

__all__ = ["CannotAnswerError", "DataError", "LabelfieldError"]


class LabelfieldError(Exception):
    """Base of every error that labelfield raises on purpose. `exit_code` is what a command ends with."""

    exit_code = 1


class DataError(LabelfieldError, ValueError):
    """Bad data: where it is, what was found, what was expected, and what to do about it."""

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
        self.line = line
        self.found = found
        self.expected = expected
        self.fix = fix
        where = self.path or ""
        if line is not None:
            where += f":{line}"
        message = f"{where}: {found}" if where else found
        if expected:
            message += f"; expected {expected}"
        if fix:
            message += f". {fix}"
        super().__init__(message)

    def at(self, path: str | PathLike[str] | None) -> DataError:
        """The same error with its file, where that was not known yet."""
        if self.path is not None or path is None:
            return self
        return DataError(self.found, path=path, line=self.line, expected=self.expected, fix=self.fix)


class CannotAnswerError(LabelfieldError, ValueError):
    """A question that this kind of model has no answer to, such as an interval from a point estimate."""
