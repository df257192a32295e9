"""Learning from corrections: `labelfield learn` in a process of its own, its progress, and undoing it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelfield.atomic import exchange_folders, replacing_folder, temporary_folder
from labelfield.models.artifact import MODEL_FILES, SAVED_FILES
from labelfield.serve.corrections import STOPPED, Correction, Corrections
from labelfield.serve.refusal import RefusedError
from labelfield.serve.store import read_version

if TYPE_CHECKING:
    from labelfield.serve.service import Service

# How `labelfield learn --progress` says how far it is.
_PROGRESS = re.compile(r"progress (\d+(?:\.\d+)?)")
# How long it may take to stop.
_STOP_S = 10.0
# How often it is asked whether all workers have loaded a model.
_LOOK_S = 0.05


class Learner:
    """Starts and undoes learning for the models of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.processes: dict[int, asyncio.subprocess.Process] = {}  # by the number of the learning
        self.tasks: set[asyncio.Future[None]] = set()
        self.is_stopping = False

    def _corrections(self) -> Corrections:
        if self.service.corrections is None:
            raise RefusedError(409, "corrections are not kept here; start the server with --corrections FILE")
        return self.service.corrections

    async def start(self, name: str) -> dict[str, Any]:
        """Start to learn from all new corrections of a model, in the background."""
        served, kept = self.service.store.find(name), self._corrections()
        if served.fields is None:
            raise RefusedError(409, f"the model {name!r} takes rows; only models of documents learn from corrections")
        begun = await asyncio.to_thread(kept.begin_learning, name)
        if begun is None:
            raise RefusedError(409, "there is nothing new to learn, or learning is already under way")
        number, corrections = begun
        task = self.service.spawn(self._run(name, served.folder, number, corrections))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return {"learning": number, "documents": len(corrections)}

    async def _run(self, name: str, folder: Path, number: int, corrections: Sequence[Correction]) -> None:
        kept, log = self._corrections(), self.service.log
        log("learning", model=name, corrections=len(corrections))
        try:
            await self._serve(name, folder, await self._replace(folder, number, corrections))
        except (OSError, RuntimeError, RefusedError, sqlite3.Error) as error:
            log.failure("learning failed", error, model=name, reason=str(error))
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            message = STOPPED if self.is_stopping else _without_paths(reason, folder)
            with suppress(sqlite3.Error):  # who asks next finds that nobody is learning
                await asyncio.to_thread(kept.set_learning, number, "failed", 0.0, message)
            return
        with suppress(sqlite3.Error):  # who asks next finds its model in the folder
            await asyncio.to_thread(kept.set_learning, number, "done", 1.0)
        log("learned", model=name, corrections=len(corrections))

    async def _replace(self, folder: Path, number: int, corrections: Sequence[Correction]) -> str:
        """Replace a model by one that has learned, unless it was replaced meanwhile; return the version of the new one.

        What learns is a copy, so that nothing changes before its end, whoever may end it.
        """
        folder, before = folder.resolve(), read_version(folder)[0]
        with temporary_folder() as scratch, replacing_folder(folder, MODEL_FILES) as new:
            path = scratch / "corrections.jsonl"
            await asyncio.to_thread(write_corrections, path, corrections)
            await asyncio.to_thread(_copy_files, folder, new)
            code, message = await self._learn(new, path, number)
            if code or self.is_stopping:
                raise RuntimeError(message.replace(str(new), str(folder)))
            version = read_version(new)[0]
            await asyncio.to_thread(self._corrections().set_version, number, version)
            await asyncio.to_thread(keep_before, folder)
            if read_version(folder)[0] != before:
                raise RuntimeError("the model was replaced by another one meanwhile; learn again")
        return version

    async def _serve(self, name: str, folder: Path, version: str) -> None:
        """Let the model answer that was just put into a folder; if it cannot, the one before it comes back."""
        try:
            served = await self.service.reload(name)
        except RefusedError:
            if read_version(folder)[0] == version:
                await asyncio.to_thread(exchange_folders, folder.resolve(), before_of(folder))
            raise
        if served.version != version:
            raise RefusedError(409, f"the model {name!r} was replaced by another one meanwhile")
        end = time.monotonic() + self.service.settings.timeout
        while await asyncio.to_thread(self.service.metrics.versions, name) != {version}:
            if self.is_stopping or time.monotonic() > end:
                break
            await asyncio.sleep(_LOOK_S)  # other workers load it when they see it

    async def _learn(self, folder: Path, corrections: Path, number: int) -> tuple[int, str]:
        """Run `labelfield learn`, and pass its progress on; return its exit code and last message."""
        kept = self._corrections()
        command = [sys.executable, "-m", "labelfield", "learn", str(folder), str(corrections), "--progress", "--json"]
        if self.service.settings.data is not None:
            command += ["--data", str(self.service.settings.data)]
        environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            pass_fds=(kept.lock_of(number),),  # it writes the model, even if this process is killed meanwhile
        )
        self.processes[number] = process
        try:
            if self.is_stopping:  # since before there was a process to end
                process.terminate()
            assert process.stderr is not None
            message = ""
            async for line in process.stderr:
                text = line.decode(errors="replace").strip()
                if found := _PROGRESS.fullmatch(text):
                    with suppress(sqlite3.Error):  # the next line says it again
                        await asyncio.to_thread(kept.set_learning, number, "running", float(found[1]))
                elif text:
                    message = text.removeprefix("error: ")
            return await process.wait(), message
        finally:
            if process.returncode is None:
                process.kill()
            del self.processes[number]

    async def undo(self, name: str) -> dict[str, Any]:
        """Put the model before the last learning back; its corrections are new again.

        One step back is kept: what was undone goes, or the next undoing would bring it back.
        """
        folder, kept = self.service.store.find(name).folder, self._corrections()
        last = await asyncio.to_thread(kept.last_learning, name)
        if last is None:
            raise RefusedError(409, "there is no learning to undo")
        lock = await asyncio.to_thread(kept.lock, name)
        if lock is None:
            raise RefusedError(409, f"the model {name!r} learns or is put back already; wait until that is done")
        with closing(lock):
            if (reason := why_not_undone(last, folder)) is not None:
                raise RefusedError(409, reason)
            before = before_of(folder)
            version = read_version(before)[0]
            await asyncio.to_thread(exchange_folders, folder.resolve(), before)
            await self._serve(name, folder, version)
            await asyncio.to_thread(kept.set_learning, last["number"], "undone", 0.0)
            await asyncio.to_thread(shutil.rmtree, before, ignore_errors=True)
        return {"undone": last["number"], "version": version}

    async def stop(self) -> None:
        """End all learning that is under way: the models stay as they were."""
        self.is_stopping = True
        for end in (asyncio.subprocess.Process.terminate, asyncio.subprocess.Process.kill):
            for process in self.processes.values():
                if process.returncode is None:
                    end(process)
            if self.tasks:
                await asyncio.wait(self.tasks, timeout=_STOP_S)


def write_corrections(path: Path, corrections: Sequence[Correction]) -> None:
    """Write corrections as `labelfield learn` reads them."""
    lines = []
    for one in reversed(corrections):  # the last counts
        record: dict[str, Any] = {**one.document, "labels": one.labels}
        if one.document_id is not None:
            record["id"] = one.document_id
        lines.append(json.dumps(record, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def before_of(folder: Path) -> Path:
    """Return where the model before the last learning is kept."""
    folder = folder.resolve()
    return folder.parent / f"{folder.name}.before"


def why_not_undone(last: dict[str, Any], folder: Path) -> str | None:
    """Return why the last learning of a model cannot be undone; None if it can."""
    if last["state"] != "done" or not before_of(folder).is_dir():
        return "there is no learning to undo"
    if last["version"] not in (None, read_version(folder)[0]):  # None in an older file
        return "the model was replaced since it learned; that cannot be undone"
    return None


def keep_before(folder: Path) -> None:
    """Keep a copy of a model, in the place of an older copy."""
    with replacing_folder(before_of(folder), MODEL_FILES) as new:
        _copy_files(folder, new)


def _copy_files(source: Path, target: Path) -> None:
    for name in SAVED_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _without_paths(message: str, folder: Path) -> str:
    """Return a message without the folders of this machine."""
    for path in (folder.resolve(), folder, Path(tempfile.gettempdir())):
        message = message.replace(f"{path}{os.sep}", "").replace(str(path), "the model")
    return re.sub(r"(?:/[^\s/:;,]+){2,}/?", "a file", message)[:300]
