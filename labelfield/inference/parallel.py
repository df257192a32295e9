"""Several trainings in parallel, each on its share of the cores.

Some parts of a step run on one core, and others are too small for two: two trainings in parallel, each on one of two
cores, take 0.7 times as long as one after the other, each on both (docs/DECISIONS.md).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from threading import Event, Lock
from typing import Any, TypeVar

import torch
from threadpoolctl import ThreadpoolController

from labelfield.inference.run import Callback, Run
from labelfield.inference.signals import stop_requests

Result = TypeVar("Result")


class _AbandonedError(Exception):
    """Another training has failed."""


@contextmanager
def at_most_threads(n_threads: int | None) -> Iterator[None]:
    """Let torch and NumPy use at most this many threads; None changes nothing.

    A thread that waits for another spins. Small steps wait more than they compute: beside other busy programs they take
    forty times as long on two threads as on one (docs/DECISIONS.md).
    """
    before = torch.get_num_threads()
    if n_threads is None or n_threads >= before:
        yield
        return
    torch.set_num_threads(n_threads)
    try:
        with _limited_blas(n_threads):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def _blas() -> ThreadpoolController:
    """Return what sets the number of threads of NumPy's products."""
    return ThreadpoolController().select(user_api="blas")


# Who limits NumPy's products at the moment, and how to lift the limit: there is one for the whole process.
_limiting: list[Any] = []
_limiting_lock = Lock()


@contextmanager
def _limited_blas(n_threads: int) -> Iterator[None]:
    """Limit the threads of NumPy's products until the last of all trainings that ask for it has ended."""
    with _limiting_lock:
        _limiting.append(_limiting[0] if _limiting else _blas().limit(limits=n_threads))
    try:
        yield
    finally:
        with _limiting_lock:
            limit = _limiting.pop()
            if not _limiting:
                limit.restore_original_limits()


def single_threads(n_threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads, in each of which torch computes on that thread alone."""
    # torch sets the number of threads for each of ours; that of the caller stays as it is.
    return ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,))


def train_in_parallel(
    trainings: Sequence[Callable[[Callback | None], Result]], n_at_once: int, on_step: Callback | None = None
) -> list[Result]:
    """Return the results of these trainings, n_at_once of them at a time; each is given a callback for its steps.

    They share the requests to stop: one signal ends them all, each with its checkpoint. When one fails, all end.
    """
    if n_at_once == 1 or len(trainings) == 1:
        return [training(on_step) for training in trainings]
    has_failed, is_calling = Event(), Lock()
    n_threads = max(1, torch.get_num_threads() // n_at_once)

    def after_step(run: Run, n_steps: int) -> None:
        if has_failed.is_set():
            raise _AbandonedError
        if on_step is not None:
            with is_calling:
                on_step(run, n_steps)

    def work(training: Callable[[Callback | None], Result]) -> Result:
        if has_failed.is_set():
            raise _AbandonedError
        return training(after_step)

    # torch sets the number of threads for each of ours; that of the caller stays as it is.
    pool = ThreadPoolExecutor(n_at_once, initializer=torch.set_num_threads, initargs=(n_threads,))
    with stop_requests(), pool:
        futures = [pool.submit(work, training) for training in trainings]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException:
            has_failed.set()
            raise
        if any(future.exception() for future in done):
            has_failed.set()
    for error in [future.exception() for future in futures]:
        if error is not None and not isinstance(error, _AbandonedError):
            raise error
    return [future.result() for future in futures]
