"""What all routes share: models, the batcher, counts, corrections; and how a route is made of a function."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scipy import sparse
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from labelfield.errors import LabelfieldError
from labelfield.serve.batcher import Batcher
from labelfield.serve.corrections import Corrections
from labelfield.serve.gate import require_room, worded
from labelfield.serve.learning import Learner
from labelfield.serve.log import Log
from labelfield.serve.metrics import Metrics
from labelfield.serve.refusal import RefusedError
from labelfield.serve.settings import Settings
from labelfield.serve.store import ModelStore, Served, settle_memory
from labelfield.serve.tagging import Line, Question, tag_items

if TYPE_CHECKING:
    from labelfield.estimators.protocol import FittedClassifier

_WATCH_S, _RELEASE_S = 1.0, 0.05
# Rows that the page compares with those of training; texts are not kept.
_KEPT_BATCHES, _ROWS_PER_BATCH, _SELDOM = 300, 4, 16


class Service:
    """The state of a worker."""

    def __init__(self, settings: Settings, log: Log | None = None) -> None:
        self.settings, self.log = settings, log or Log(settings.log_text)
        self.store, self.metrics = ModelStore(settings.models, settings.device), Metrics()
        self.batcher = Batcher(
            self._answer,
            batch_size=settings.batch_size,
            wait_s=settings.batch_wait_ms / 1000,
            capacity=settings.queue,
            watch=self.metrics.batch_size.observe,
            watch_queue=self.metrics.queue.set,
        )
        self.corrections = None
        if settings.corrections is not None:
            self.corrections = Corrections(settings.corrections, self.store.version_in_folder)
        self.learner = Learner(self)
        self.recent: dict[str, deque[Any]] = {name: deque(maxlen=_KEPT_BATCHES) for name in settings.models}
        self.failure: Exception | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._held, self._n_batches = 0, 0
        self._tasks: set[asyncio.Future[Any]] = set()
        self._reloading = asyncio.Lock()
        self._reloads: dict[str, asyncio.Task[Served]] = {}
        # The model whose reload is under way, until what it replaced is gone; and what waits for that.
        self._under_way: str | None = None
        self._settling: asyncio.Future[None] | None = None

    # Starting and stopping

    def start(self) -> None:
        """Begin to load the models, and to answer once they are there; needs a running event loop."""
        self.batcher.start()
        self.spawn(self._load())
        if self.settings.watch or self.settings.workers > 1:
            self.spawn(self._watch())

    async def stop(self) -> None:
        """Answer what is waiting, and end what runs in the background."""
        await self.batcher.stop()
        await self.learner.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Run something in the background, and hold on to it until it is done."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self) -> None:
        try:
            if not self.store.is_ready:
                await asyncio.to_thread(self.store.load_all)
        except Exception as error:
            self.failure = error
            self.on_failure()
            return
        for served in self.store.models.values():
            self.metrics.show_model(served.name, served.version, served.method)
            seconds = round(served.seconds, 2)
            self.log("loaded", model=served.name, version=served.version, seconds=seconds)
        self.log("ready", models=list(self.store.models))
        async with self._reloading:
            for name in self.store.models:
                await self._complete(name)

    async def _complete(self, name: str) -> None:
        """Load the whole classifier of a model, so that the first explanation does not wait for it."""
        try:
            await asyncio.to_thread(self.store.models[name].estimator)
        except Exception as error:  # who needs it will be told
            self.log.failure("not complete", error, model=name, reason=_reason(error))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            if not self.store.is_ready:  # what changes while others still load is seen afterwards
                continue
            for name in await asyncio.to_thread(self.store.changed):
                if not await asyncio.to_thread(self.store.is_current, name):
                    with suppress(RefusedError):
                        await self.reload(name)

    async def reload(self, name: str) -> Served:
        """Load a model again; if it fails, the old one goes on answering, and a 503 says so without a path.

        One reload at a time, and each begins once the model that the last one replaced is gone, so that there are
        never more than two of a name in memory. Whoever asks meanwhile shares one reload that waits for this, and that
        has nothing to do if the folder is still the one that was loaded.
        """
        self.store.find(name)
        waiting = self._reloads.get(name)
        if waiting is None:
            waiting = self._reloads[name] = asyncio.ensure_future(self._reload(name, self._under_way == name))
        return await asyncio.shield(waiting)

    async def _reload(self, name: str, is_second: bool) -> Served:
        async with self._reloading:
            if self._settling is not None:
                await self._settling
            del self._reloads[name]  # who comes now may have seen a newer folder
            if is_second and await asyncio.to_thread(self.store.is_current, name):
                self.metrics.reloads.labels(name, "unchanged").inc()
                self.log("not reloaded", model=name, message="it was just loaded, and its folder has not changed since")
                return self.store.find(name)
            self._under_way = name
            try:
                return await self._reload_now(name)
            except RefusedError:
                self._under_way = None
                raise

    async def _reload_now(self, name: str) -> Served:
        old = self.store.find(name)
        before, left = (old.version, old.method), weakref.ref(old)
        del old  # it is to go as soon as nobody is answered by it
        try:
            new = await asyncio.to_thread(self.store.reload, name)
        except Exception as error:
            self.metrics.reloads.labels(name, "failed").inc()
            self.log.failure("reload failed", error, model=name, kept=before[0], reason=_reason(error))
            message = f"the model {name!r} could not be loaded again, and the one before goes on answering; see the log"
            raise RefusedError(503, message, {"Retry-After": "10"}) from None
        self._settling = self.spawn(self._settle(name, left))
        self.metrics.reloads.labels(name, "done").inc()
        self.metrics.show_model(name, new.version, new.method, before)
        self.log("reloaded", model=name, version=new.version, before=before[0], seconds=round(new.seconds, 2))
        return new

    async def _settle(self, name: str, left: Callable[[], Served | None]) -> None:
        """Wait until nobody is answered by a model that was replaced; load the rest of its successor only then."""
        end = time.monotonic() + self.settings.timeout
        while left() is not None and time.monotonic() < end:
            await asyncio.sleep(_RELEASE_S)
        await asyncio.to_thread(settle_memory)
        await self._complete(name)
        self._under_way = None

    async def reload_all(self) -> None:
        """Load all models again, one after another, once they are there."""
        while not self.store.is_ready:
            await asyncio.sleep(_RELEASE_S)
        for name in self.settings.models:
            with suppress(RefusedError):
                await self.reload(name)

    # Answering

    async def tag(self, request: Request, served: Served, items: Sequence[Any], question: Question) -> list[Line]:
        """Return the line of `tag` for each item, through the batcher."""
        facts = request.scope["labelfield"]
        facts |= {"model": served.name, "documents": len(items)}
        if self.settings.log_text:
            facts["text"] = list(items)
        try:
            if question.explain or question.precision is not None:
                await self.whole(served)  # here, so that others need not wait for it
            lines = await self.batcher.ask(served, items, [question] * len(items), self.settings.timeout)
        except LabelfieldError as error:
            raise RefusedError(422, str(error)) from None
        except MemoryError:
            raise RefusedError(503, "out of memory; send fewer documents at once", {"Retry-After": "1"}) from None
        self.metrics.documents.labels(served.name).inc(len(items))
        return lines

    async def whole(self, served: Served) -> FittedClassifier:
        """Return the whole classifier of a model, which its folder may not have any more: a 503 without a path."""
        try:
            return await asyncio.to_thread(served.estimator)
        except (LabelfieldError, OSError) as error:
            self.log.failure("not complete", error, model=served.name, reason=_reason(error))
            message = f"the folder of the model {served.name!r} cannot be read; tags alone can be had; see the log"
            raise RefusedError(503, message, {"Retry-After": "10"}) from None

    def add_corrections(
        self,
        served: Served,
        origin: str,
        given: Sequence[tuple[str | None, Sequence[str], Sequence[tuple[str, float]], Sequence[str]]],
    ) -> int:
        """Store corrections, each a document's id and texts, the tags that were shown and the right labels.

        Labels that are given by URI get their names. Return the number of the last one.
        """
        if self.corrections is None:
            raise RefusedError(409, "corrections are not kept here; start the server with --corrections FILE")
        if (text := served.text) is None:
            raise RefusedError(422, f"the model {served.name!r} takes rows of numbers, not documents")
        named = text.vocabulary.named([list(labels) for *_, labels in given])
        kept = [
            (None if own is None else own[:200], dict(zip(text.fields, texts, strict=True)), predicted, labels)
            for (own, texts, predicted, _), labels in zip(given, named, strict=True)
        ]
        return self.corrections.add(served.name, served.version, origin, kept)

    def _answer(self, served: Served, items: list[Any], questions: list[Question]) -> list[Line]:
        """Answer a batch; called by the computing thread."""
        lines, rows = tag_items(served.tagger, items, questions, served.names, served.estimator, served.promise)
        self._keep(served, rows)
        return lines

    def _keep(self, served: Served, rows: sparse.csr_array) -> None:
        """Remember rows, by which the page can say whether documents have changed since training.

        Once there are enough, only some of the batches are looked at: a busy server has hundreds per second.
        """
        kept, self._n_batches = self.recent[served.name], self._n_batches + 1
        if len(kept) < _KEPT_BATCHES or self._n_batches % _SELDOM == 0:
            kept.append(rows[:_ROWS_PER_BATCH])

    def failed(self, scope: Scope, error: Exception) -> Response:
        """Log an error of ours, and return what the client may know of it."""
        facts = scope["labelfield"]
        self.log.failure("failed", error, id=facts["id"], route=facts["route"])
        message = f"something went wrong here; the log has it under {facts['id']}"
        return worded(scope["path"], RefusedError(500, message))

    def hold_bytes(self, change: int) -> None:
        """Count the bytes of requests that are under way."""
        if change > 0:
            require_room(self._held + change, self.settings.max_body)
        self._held += change


def _reason(error: Exception) -> str | None:
    """Return the message of an error of ours, which has paths but no documents: for the log, not for answers."""
    return str(error) if isinstance(error, LabelfieldError | OSError) else None
