"""What people said about tags: accepted, rejected and added ones, in an SQLite file that all workers share."""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

_TABLES = """
CREATE TABLE IF NOT EXISTS correction (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    model TEXT NOT NULL,
    version TEXT,
    origin TEXT NOT NULL,
    document_id TEXT,
    document TEXT NOT NULL,
    predicted TEXT NOT NULL,
    labels TEXT NOT NULL,
    learning INTEGER REFERENCES learning (number)
);
CREATE TABLE IF NOT EXISTS learning (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    progress REAL NOT NULL DEFAULT 0,
    message TEXT NOT NULL DEFAULT '',
    documents INTEGER NOT NULL,
    version TEXT
);
CREATE INDEX IF NOT EXISTS correction_by_model ON correction (model, learning);
CREATE INDEX IF NOT EXISTS correction_by_document ON correction (model, document_id, learning);
"""
_BUSY_S = 10.0
# What is said of a learning that a server did not end.
STOPPED = "the server ended before it was done"
# The largest number that SQLite has.
_MOST_NUMBER = 2**63 - 1


# What a person said: the id of a document, its texts by field, the labels that were shown with their probabilities, and
# those that are right.
Given = tuple[str | None, dict[str, str], Sequence[tuple[str, float]], Sequence[str]]


class Correction(NamedTuple):
    """A document with its right labels; `predicted` are the labels that a person was shown, with probabilities."""

    number: int
    at: str
    model: str
    document_id: str | None
    learning: int | None
    document: dict[str, str]
    predicted: list[tuple[str, float]]
    labels: list[str]


class Corrections:
    """The file of corrections. Every call opens it, so that any thread and any process may call.

    `version_of(model)` is the version of what is in a model's folder: a learning whose model is there is done, whatever
    became of the server that began it.
    """

    def __init__(self, path: Path, version_of: Callable[[str], str | None] = lambda model: None) -> None:
        self.path, self.version_of = path, version_of
        self._locks: dict[int, IO[str]] = {}

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, timeout=_BUSY_S)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_TABLES)
            if "version" not in {column[1] for column in connection.execute("PRAGMA table_info (learning)")}:
                with suppress(sqlite3.OperationalError):  # another process did it just now
                    connection.execute("ALTER TABLE learning ADD COLUMN version TEXT")  # of an older file
            with connection:
                yield connection
        finally:
            connection.close()

    def add(self, model: str, version: str | None, origin: str, given: Sequence[Given]) -> int:
        """Store corrections, all or none, and return the number of the last one; older ones of the same document ids
        that were not learned go."""
        number, now = 0, _now()
        with self._open() as connection:
            for document_id, *parts in given:
                if document_id is not None:
                    connection.execute(
                        "DELETE FROM correction WHERE model = ? AND document_id = ? AND learning IS NULL",
                        (model, document_id),
                    )
                done = connection.execute(
                    "INSERT INTO correction (at, model, version, origin, document_id, document, predicted, labels) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (now, model, version, origin, document_id, *(json.dumps(one, ensure_ascii=False) for one in parts)),
                )
                number = int(done.lastrowid or 0)
        return number

    def remove(self, number: int) -> bool:
        """Undo a correction that was not learned yet; return whether there was one."""
        if number > _MOST_NUMBER:
            return False
        with self._open() as connection:
            done = connection.execute("DELETE FROM correction WHERE number = ? AND learning IS NULL", (number,))
            return done.rowcount > 0

    def listed(self, model: str, *, new: bool = False, most: int | None = None) -> list[Correction]:
        """Return corrections of a model, the last first; only those that were not learned yet, if asked for."""
        with self._open() as connection:
            return _listed(connection, model, new=new, most=most)

    def counts(self, model: str) -> dict[str, int]:
        """Return how many corrections are new, and how many there are."""
        with self._open() as connection:
            found = connection.execute(
                "SELECT COUNT(*), COALESCE(SUM(learning IS NULL), 0) FROM correction WHERE model = ?", (model,)
            ).fetchone()
        return {"all": found[0], "new": found[1]}

    def precision_by_month(self, model: str) -> list[dict[str, Any]]:
        """Return by month how many of the tags that people looked at were right."""
        months: dict[str, list[int]] = {}
        for one in reversed(self.listed(model)):
            shown = {label for label, _ in one.predicted}
            if shown:
                month = months.setdefault(one.at[:7], [0, 0, 0])
                month[0] += 1
                month[1] += len(shown)
                month[2] += len(shown & set(one.labels))
        return [
            {"month": month, "documents": n, "tags": shown, "right": right, "precision": right / shown}
            for month, (n, shown, right) in months.items()
        ]

    # Learning

    def lock_of(self, number: int) -> int:
        """Return the open file whose holders have the right to learn: a process that inherits it is one of them."""
        return self._locks[number].fileno()

    def lock(self, model: str) -> IO[str] | None:
        """Return what only one process has, and none that ended: the right to learn; None if another has it."""
        path = self.path.with_name(f"{self.path.name}.{model}.lock")
        with ExitStack() as unless_locked:
            try:
                lock = unless_locked.enter_context(open(path, "a"))  # closing gives it back
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            except OSError as error:
                raise sqlite3.OperationalError(f"{path} cannot be locked: {error.strerror}") from error
            unless_locked.pop_all()
        return lock

    def begin_learning(self, model: str) -> tuple[int, list[Correction]] | None:
        """Take all new corrections of a model into a learning; None if one is running or there is nothing new."""
        lock = self.lock(model) if self.counts(model)["all"] else None
        if lock is None:
            return None
        with ExitStack() as unless_begun:
            unless_begun.enter_context(lock)
            self._end_running(model)
            with self._open() as connection:
                connection.execute("BEGIN IMMEDIATE")
                new = _listed(connection, model, new=True)
                if not new:
                    return None
                done = connection.execute(
                    "INSERT INTO learning (at, model, state, documents) VALUES (?, ?, 'running', ?)",
                    (_now(), model, len(new)),
                )
                number = int(done.lastrowid or 0)
                connection.execute(
                    "UPDATE correction SET learning = ? WHERE model = ? AND learning IS NULL", (number, model)
                )
            unless_begun.pop_all()
        self._locks[number] = lock
        return number, [one._replace(learning=number) for one in new]

    def set_learning(self, number: int, state: str, progress: float, message: str = "") -> None:
        """Say how far a learning is. One that failed or was undone gives its corrections back.

        One that has ended gives the right to learn back even if this cannot be written: who asks for it next then finds
        that nobody is learning.
        """
        try:
            with self._open() as connection:
                connection.execute(
                    "UPDATE learning SET state = ?, progress = ?, message = ? WHERE number = ?",
                    (state, progress, message, number),
                )
                if state in ("failed", "undone"):
                    connection.execute("UPDATE correction SET learning = NULL WHERE learning = ?", (number,))
        finally:
            if state != "running" and number in self._locks:
                self._locks.pop(number).close()

    def set_version(self, number: int, version: str) -> None:
        """Say which version a learning made, before it is put in its place."""
        with self._open() as connection:
            connection.execute("UPDATE learning SET version = ? WHERE number = ?", (version, number))

    def last_learning(self, model: str) -> dict[str, Any] | None:
        """Return the last learning of a model that was not undone."""
        names = ("number", "at", "state", "progress", "message", "documents", "version")
        with self._open() as connection:
            row = connection.execute(
                "SELECT number, at, state, progress, message, documents, version FROM learning "
                "WHERE model = ? AND state != 'undone' ORDER BY number DESC LIMIT 1",
                (model,),
            ).fetchone()
        found = None if row is None else dict(zip(names, row, strict=True))
        if found is not None and found["state"] == "running" and self.abandon(model):
            return self.last_learning(model)
        return found

    def abandon(self, model: str) -> bool:
        """Say how learnings ended that a server which is gone left running; return whether nobody is learning."""
        lock = self.lock(model)
        if lock is None:
            return False
        with closing(lock):
            self._end_running(model)
        return True

    def _end_running(self, model: str) -> None:
        with self._open() as connection:
            left = connection.execute(
                "SELECT number, version FROM learning WHERE model = ? AND state = 'running'", (model,)
            ).fetchall()
        for number, version in left:
            if version is not None and version == self.version_of(model):
                self.set_learning(number, "done", 1.0)
            else:
                self.set_learning(number, "failed", 0.0, STOPPED)


def _listed(
    connection: sqlite3.Connection, model: str, *, new: bool = False, most: int | None = None
) -> list[Correction]:
    rows = connection.execute(
        "SELECT number, at, model, document_id, learning, document, predicted, labels FROM correction "
        "WHERE model = ? AND (learning IS NULL OR NOT ?) ORDER BY number DESC LIMIT ?",
        (model, new, -1 if most is None else most),
    ).fetchall()
    return [Correction(*row[:5], *(json.loads(part) for part in row[5:])) for row in rows]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
