"""Why a request gets no answer: a status, one sentence that says what to do, and headers."""

from __future__ import annotations


class RefusedError(Exception):
    """A request that is refused. The message never has a path of this machine."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


def require_few(n_items: int, most: int) -> None:
    """Refuse more documents at once than may wait. Asked before each is looked at: of millions, that takes seconds."""
    if n_items > most:
        raise RefusedError(413, f"{n_items} documents in one request; send at most {most}")


def busy(message: str, seconds: int = 1) -> RefusedError:
    """Return a 503 that says when to come back."""
    return RefusedError(503, message, {"Retry-After": str(seconds)})
