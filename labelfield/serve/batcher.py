"""Micro-batches: requests wait in a bounded queue, and one thread answers many of them at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from labelfield.serve.refusal import RefusedError, busy, require_few

# From (model, items, questions) to an answer for each item.
Answer = Callable[[Any, list[Any], list[Any]], list[Any]]


@dataclass(slots=True)
class _Job:
    """One item of a request: which model is asked what, and who waits for the answer."""

    model: Any
    item: Any
    question: Any
    future: asyncio.Future[Any] = field(repr=False)


class Batcher:
    """A bounded queue before one computing thread. Used from one event loop.

    `watch(size)` is called with the size of each batch, and `watch_queue(length)` whenever the queue has changed.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        batch_size: int = 64,
        wait_s: float = 0.001,
        capacity: int = 1024,
        watch: Callable[[int], None] = lambda size: None,
        watch_queue: Callable[[int], None] = lambda length: None,
    ) -> None:
        self.answer, self.batch_size, self.wait_s, self.capacity = answer, batch_size, wait_s, capacity
        self.watch, self.watch_queue = watch, watch_queue
        self.waiting: deque[_Job] = deque()
        self.arrived = asyncio.Event()
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="labelfield-compute")
        self.task: asyncio.Task[None] | None = None
        self.is_computing = False

    def start(self) -> None:
        """Begin to answer; needs a running event loop."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Answer what is waiting, then end."""
        while self.waiting or self.is_computing:
            await asyncio.sleep(0.01)
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.pool.shutdown(wait=True)

    async def ask(self, model: Any, items: Sequence[Any], questions: Sequence[Any], timeout_s: float) -> list[Any]:
        """Return the answers for all items of a request, or refuse it: 413, 503 or 504."""
        require_few(len(items), self.capacity)
        if len(self.waiting) + len(items) > self.capacity:
            raise busy("the queue is full; try again later")
        loop = asyncio.get_running_loop()
        jobs = [_Job(model, item, own, loop.create_future()) for item, own in zip(items, questions, strict=True)]
        self.waiting.extend(jobs)
        self.watch_queue(len(self.waiting))
        self.arrived.set()
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = True
            for job in jobs:
                job.future.cancel()

        timer = loop.call_later(timeout_s, give_up)
        try:
            return [await job.future for job in jobs]
        except asyncio.CancelledError:
            if not is_late:
                raise
            raise RefusedError(504, f"no answer within {timeout_s:g} s; send fewer or shorter documents") from None
        finally:
            timer.cancel()
            self._forget(jobs)

    def _forget(self, jobs: list[_Job]) -> None:
        """Take jobs that nobody waits for any more out of the queue."""
        if any(not job.future.done() or job.future.cancelled() for job in jobs):
            left = {id(job) for job in jobs}
            for job in jobs:
                job.future.cancel()
            self.waiting = deque(job for job in self.waiting if id(job) not in left)
            self.watch_queue(len(self.waiting))
        for job in jobs:  # a failure of one job is told once
            if job.future.done() and not job.future.cancelled():
                job.future.exception()

    async def _run(self) -> None:
        while True:
            if not self.waiting:
                self.arrived.clear()
                await self.arrived.wait()
                if len(self.waiting) < self.batch_size and self.wait_s:
                    await asyncio.sleep(self.wait_s)
            batch = self._next_batch()
            if not batch:
                continue
            self.watch(len(batch))
            self.is_computing = True
            await self._answer(batch)
            self.is_computing = False
            del batch  # with its model, which may have been replaced

    async def _answer(self, batch: list[_Job]) -> None:
        """Compute the answers of a batch and hand them out; a failure is told to those whom it concerns."""
        items, asked = [job.item for job in batch], [job.question for job in batch]
        loop = asyncio.get_running_loop()
        try:
            answers: list[Any] = await loop.run_in_executor(self.pool, self.answer, batch[0].model, items, asked)
        except Exception as error:
            await self._fail(batch, error)
            return
        for job, answer in zip(batch, answers, strict=True):
            if not job.future.done():
                job.future.set_result(answer)

    def _next_batch(self) -> list[_Job]:
        """Take the next jobs that ask the same model, in the order in which they came."""
        batch: list[_Job] = []
        while self.waiting and len(batch) < self.batch_size:
            if batch and self.waiting[0].model is not batch[0].model:
                break
            batch.append(self.waiting.popleft())
        self.watch_queue(len(self.waiting))
        return batch

    async def _fail(self, batch: list[_Job], error: Exception) -> None:
        """Answer jobs of a failed batch one at a time, so that one bad item does not spoil the others."""
        loop = asyncio.get_running_loop()
        for job in batch:
            found: Any = error
            if len(batch) > 1 and not job.future.done():
                try:
                    own = job.model, [job.item], [job.question]
                    (found,) = await loop.run_in_executor(self.pool, self.answer, *own)
                except Exception as failure:
                    found = failure
            if job.future.done():
                continue
            if isinstance(found, Exception):
                job.future.set_exception(found)
            else:
                job.future.set_result(found)
