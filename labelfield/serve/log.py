"""One line of JSON per event on stderr. Texts of documents are never part of it unless that is asked for."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import threading
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

# Events of which there may be thousands per second, and how long they wait to be written together: every write lets
# the computing thread have its turn first.
_MANY, _SOON_S = "request", 0.05
_JSON = json.JSONEncoder(ensure_ascii=True, default=str).encode


class Log:
    """Writes events; `with_text` allows the texts of documents and messages that may quote them."""

    def __init__(self, with_text: bool = False, file: IO[str] | None = None) -> None:
        self.with_text, self.file = with_text, file
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()

    def __call__(self, event: str, level: str = "info", *, text: Any = None, **facts: Any) -> None:
        """Write an event with its facts."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "event": event, **facts}
        if self.with_text and text is not None:
            line["text"] = text
        with self._lock:
            self._lines.append(_JSON(line) + "\n")
            if event == _MANY and level == "info":
                with suppress(RuntimeError):  # no event loop runs in this thread
                    self._timer = self._timer or asyncio.get_running_loop().call_later(_SOON_S, self.flush)
                    return
        self.flush()

    def flush(self) -> None:
        """Write the lines that wait."""
        with self._lock:
            file, text, self._lines, self._timer = self.file or sys.stderr, "".join(self._lines), [], None
            file.write(text)
            file.flush()

    def failure(self, event: str, error: BaseException, **facts: Any) -> None:
        """Write what failed and where in our code; the message may quote a document, and is left out by default."""
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{Path(one.filename).name}:{one.lineno}" for one in frames]
        self(event, "error", error=type(error).__name__, where=where[-6:], text=str(error), **facts)


class LineHandler(logging.Handler):
    """Passes what other packages log on as lines of ours."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; an exception by its type alone."""
        facts: dict[str, Any] = {"logger": record.name}
        if record.exc_info and record.exc_info[0] is not None:
            facts["error"] = record.exc_info[0].__name__
        message = str(record.msg) if not self.log.with_text else record.getMessage()
        lines = message.splitlines() or [""]
        if lines[0].startswith("Traceback"):  # the type of the error, without its message, and where it was raised
            lines = [lines[-1].partition(":")[0]]
            facts["where"] = re.findall(r'([^/"]+)", line (\d+)', message)[-4:]
        self.log("message", record.levelname.lower(), message=lines[0][:200], **facts)
