"""Processes: one that answers, or several that share a socket under one that watches over them."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from threadpoolctl import threadpool_limits

from labelfield.atomic import temporary_folder
from labelfield.errors import DataError, LabelfieldError
from labelfield.serve.app import build_app
from labelfield.serve.connections import limited
from labelfield.serve.corrections import Corrections
from labelfield.serve.log import LineHandler, Log
from labelfield.serve.service import Service
from labelfield.serve.settings import Settings
from labelfield.serve.store import ModelStore

_BACKLOG = 2048
# How long the head of a request may take, at the most.
_HEAD_S = 10.0
_TICK_S = 0.1
# Options of malloc by number: M_ARENA_MAX, M_MMAP_THRESHOLD (above what a batch needs) and M_TRIM_THRESHOLD.
_MALLOC = {-8: 2, -3: 4 << 20, -1: 64 << 20}
# A worker that ends sooner than this would do so again.
_SOON_S = 5.0
_HANGUP = (signal.SIGHUP,)


def serve(settings: Settings) -> None:
    """Answer requests until a signal says to stop; what is under way is answered first."""
    log = Log(settings.log_text)
    _allow_many_files()
    for name, folder in settings.models.items():
        if not (folder / "config.json").is_file():
            raise DataError(f"the model {name!r} is not there", path=folder, expected="a folder that train wrote")
    if settings.corrections is not None and (reason := _why_unusable(settings.corrections, settings.models)):
        fix = f"{settings.corrections} {reason}; pass --corrections FILE"
        log("corrections are not kept", "warning", message=fix)
        settings = replace(settings, corrections=None)
    with _bound(settings) as listening, _hangup_waits():
        _say_address(settings, listening, log)
        if settings.workers == 1:
            run_worker(settings, listening)
        else:
            _supervise(settings, listening, log)


def _why_unusable(file: Path, models: dict[str, Path]) -> str | None:
    """Return what is wrong with a file of corrections; a learning that a server left running in it is told the end."""
    if not os.access(file.parent, os.W_OK) or (file.exists() and not os.access(file, os.W_OK)):
        return "cannot be written"
    if not file.exists():
        return None
    if not file.is_file():
        return "is not a file"
    try:
        kept = Corrections(file, ModelStore(models).version_in_folder)
        for name in models:
            kept.last_learning(name)
    except sqlite3.Error as error:
        return f"cannot be used as a file of corrections ({error})"
    return None


@contextmanager
def _hangup_waits() -> Iterator[None]:
    """Keep SIGHUP, which would end a process that does not listen to it yet, until it is unblocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANGUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _bound(settings: Settings) -> socket.socket:
    """Return a socket that is bound to the address, so that a port in use is known at once."""
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        if listening is not None:
            listening.close()
        fix = "Choose another --port or --host."
        reason = error.strerror or str(error)
        raise DataError(f"cannot listen at {settings.host}:{settings.port}: {reason}", fix=fix) from None
    listening.set_inheritable(True)
    return listening


def _say_address(settings: Settings, listening: socket.socket, log: Log) -> None:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    log("listening", url=f"http://{shown}:{port}/", models=list(settings.models), workers=settings.workers)
    if not settings.is_local:
        advice = "" if settings.token else " without a token; set one with --token-env"
        log("open to the network", "warning", message=f"other machines can reach this server{advice}", host=host)


def _allow_many_files() -> None:
    """Allow as many open connections as the system lets a process have."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _keep_memory_together() -> None:
    """Have the C library return the arrays of a model that was replaced to the system at once, where this is known.

    By default every thread has a heap of its own, and arrays as large as any that was ever freed go to these heaps,
    where what is still in use keeps what is not from being returned.
    """
    with suppress(OSError, AttributeError):
        choose = ctypes.CDLL("libc.so.6").mallopt
        for option, value in _MALLOC.items():
            choose(option, value)


def run_worker(settings: Settings, listening: socket.socket, parent: int | None = None) -> None:
    """Answer requests in this process until SIGTERM or SIGINT; SIGHUP loads all models again.

    One of several workers takes connections once its models are loaded, and ends with its parent.
    """
    _keep_memory_together()
    service = Service(settings)
    if parent is not None:
        service.store.load_all()
    config = uvicorn.Config(
        build_app(service),
        http=limited(settings.connections, min(_HEAD_S, settings.timeout), settings.timeout),
        ws="none",  # a request to upgrade is an ordinary one
        lifespan="on",  # a service that cannot start is an error
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on where a request came from
        backlog=_BACKLOG,
        timeout_keep_alive=max(5, int(min(settings.timeout, 75))),
        timeout_graceful_shutdown=max(1, int(settings.timeout)),
    )
    logging.getLogger("uvicorn").handlers = [LineHandler(service.log)]
    logging.getLogger("asyncio").handlers = [LineHandler(service.log)]
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = uvicorn.Server(config)

    def stop() -> None:
        server.force_exit = server.should_exit and parent is None  # the second signal does not wait
        server.should_exit = True
        service.log("stopping", waiting=len(service.batcher.waiting))

    def fail() -> None:
        server.should_exit = True

    service.on_failure = fail

    async def run() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(server.serve(sockets=[listening]))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        # After uvicorn set its own, which would end the process with the signal instead of 0.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: service.spawn(service.reload_all()))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANGUP)
        while parent is not None and os.getppid() == parent and not task.done():
            await asyncio.wait([task], timeout=_TICK_S)
        if parent is not None and not task.done():
            stop()
        await task

    # Batches are small, and threads that wait for each other spin: two workers took six times as long for a model.
    with threadpool_limits(1, user_api="blas"), asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())
    if service.failure is not None:
        raise service.failure
    service.log("stopped")


def _worker(settings: Settings, listening: socket.socket, parent: int) -> None:
    """Run a worker as a process of its own; a model that does not load is told in one line."""
    try:
        run_worker(settings, listening, parent)
    except LabelfieldError as error:
        Log(settings.log_text)("failed", "error", message=str(error))
        raise SystemExit(error.exit_code) from None


def _supervise(settings: Settings, listening: socket.socket, log: Log) -> None:
    """Keep the workers running, and pass signals on to them."""
    context = multiprocessing.get_context("spawn")
    with temporary_folder() as counts:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(counts)  # where workers add up their counts

        def start() -> tuple[Any, float]:
            process = context.Process(target=_worker, args=(settings, listening, os.getpid()))
            with _hangup_waits():  # in the worker too, which inherits it
                process.start()
            return process, time.monotonic()

        received: list[int] = []

        def note(number: int, _: FrameType | None) -> None:
            received.append(number)

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        workers = [start() for _ in range(settings.workers)]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANGUP)
        try:
            _watch_over(workers, received, start, log, counts)
        finally:
            for process, _ in workers:
                if process.is_alive():
                    process.terminate()
            for process, _ in workers:
                process.join(settings.timeout + 5)
            for number, handler in before.items():
                signal.signal(number, handler)
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


def _watch_over(workers: list[Any], received: list[int], start: Callable[[], Any], log: Log, counts: Path) -> None:
    """Wait for signals, and replace workers that ended; one that ends at once ends them all."""
    while True:
        time.sleep(_TICK_S)
        while received:
            number = received.pop(0)
            if number != signal.SIGHUP:
                return
            for process, _ in workers:
                os.kill(process.pid, signal.SIGHUP)
        for place, (process, began) in enumerate(workers):
            if process.is_alive():
                continue
            log("worker ended", "error", code=process.exitcode)
            # Nothing waits in its queue any more.
            mark_process_dead(process.pid, str(counts))  # type: ignore[no-untyped-call]
            if time.monotonic() - began < _SOON_S:
                raise LabelfieldError("a worker ended as soon as it began; its message is above")
            workers[place] = start()
