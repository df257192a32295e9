"""Several processes that work on one model: who there is, who waits for whom, and what goes between them.

A `Cluster` is an argument, never a global; one process alone is a cluster of one. torchrun, or anything else that sets
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, starts the processes. Arrays travel by torch.distributed (gloo), without
pickle. Every exchange but a sum begins with a meeting over the store of the processes, so that whoever is missing has a
number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelfield.errors import LabelfieldError

Arrays = dict[str, NDArray[Any]]
# What a launcher tells each process.
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_TIMEOUT_VARIABLE, _TIMEOUT = "LABELFIELD_RANK_TIMEOUT", 1800.0
# Seconds between two looks at who has come, at first and at the most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1
# Seconds that the first rank waits for others to leave.
_LINGERING = 10.0
# The size that stands for what could not be produced.
_FAILED = -1


class ClusterError(LabelfieldError):
    """Processes that cannot work together. Where all of them know, one of them is enough to say it."""

    def __init__(self, message: str, is_known_to_all: bool = False) -> None:
        super().__init__(message)
        self.is_known_to_all = is_known_to_all


class Cluster:
    """The processes that train or answer together, as one of them sees it: its `rank`, and their number `size`.

    All ranks must call the same methods in the same order, except for `Claims.take`.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, store: Any = None, timeout: float = _TIMEOUT, launch: Any = None
    ) -> None:
        """`launch` is a store that lives through restarts of the processes."""
        self.rank, self.size, self.store, self.timeout, self.launch = rank, size, store, timeout, launch
        # Called while waiting; it may raise.
        self.while_waiting: Callable[[], None] = lambda: None
        self._n_meetings = self._n_lists = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that speaks and saves."""
        return self.rank == 0

    def meet(self, what: str) -> None:
        """Wait until all ranks are here; `what` says what for. Raise a ClusterError that names the ranks missing."""
        if self.size == 1:
            return
        self._n_meetings += 1
        key, deadline, pause = f"meeting-{self._n_meetings}", time.monotonic() + self.timeout, _FIRST_PAUSE
        with _losing(self.rank):
            self.store.set(f"{key}/{self.rank}", what)
            n_here = self.store.add(key, 1)
        while n_here < self.size:
            self.while_waiting()
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
            with _losing(self.rank):
                n_here = self.store.add(key, 0)
                if n_here < self.size and time.monotonic() > deadline:
                    missing = [rank for rank in range(self.size) if not self.store.check([f"{key}/{rank}"])]
                    raise self._missing(missing, what)

    def _missing(self, ranks: list[int], what: str) -> ClusterError:
        named = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} have"
        return ClusterError(
            f"{named} not come to {what} within {self.timeout:g} s, of {self.size} ranks. Look at what they say, "
            f"start all ranks again with --resume, and set {_TIMEOUT_VARIABLE} if they need longer"
        )

    def agree(self, facts: Mapping[str, str]) -> None:
        """Raise a ClusterError that names the first of these facts in which a rank differs from rank 0, and the rank.

        Facts are short texts, such as fingerprints.
        """
        if self.size == 1:
            return
        what = "the comparison of data and options"
        with _losing(self.rank):
            for name, value in facts.items():
                self.store.set(f"agree-{self._n_meetings}/{name}/{self.rank}", value)
            number = self._n_meetings
            self.meet(what)
            for name in facts:
                found = [self.store.get(f"agree-{number}/{name}/{rank}") for rank in range(self.size)]
                others = [rank for rank, value in enumerate(found) if value != found[0]]
                if others:
                    raise ClusterError(
                        f"rank {others[0]} has other {name} than rank 0. Start all ranks with the same command, on "
                        "the same data",
                        is_known_to_all=True,
                    )

    def note(self, what: str) -> None:
        """Let the processes know of something after all of them were started again."""
        if self.launch is not None:
            with _losing(self.rank):
                self.launch.set(what, "")

    def has_noted(self, what: str) -> bool:
        """Return whether `note` was called, by any rank, in this launch or before its processes were started again."""
        if self.launch is None:
            return False
        with _losing(self.rank):
            return bool(self.launch.check([what]))

    def claims(self, n: int) -> Claims:
        """Return a list of n pieces of work that all ranks share."""
        self._n_lists += 1
        return Claims(self, n, f"list-{self._n_lists}")

    def share(self, what: str, produce: Callable[[], Arrays]) -> Arrays:
        """Return on all ranks what `produce` returns on rank 0; only rank 0 calls it."""
        if self.size == 1:
            return produce()
        if not self.is_first:
            self.meet(what)
            return self._spread(None, what)
        try:
            arrays = produce()
        except BaseException:
            self._tell_failure(what)
            raise
        self.meet(what)
        return self._spread(arrays, what)

    def _tell_failure(self, what: str) -> None:
        """Let others know at once, if they are there, that rank 0 has nothing to share."""
        from torch import distributed, tensor

        try:
            self.meet(what)
            distributed.broadcast(tensor([_FAILED]), 0)
        except Exception:  # noqa: S110  # what failed first is the error to show
            pass

    def _spread(self, arrays: Arrays | None, what: str) -> Arrays:
        import torch
        from torch import distributed

        with _losing(self.rank):
            packed = torch.empty(0, dtype=torch.uint8) if arrays is None else _pack(arrays)
            n_bytes = torch.tensor([packed.numel()])
            distributed.broadcast(n_bytes, 0)
            if int(n_bytes) == _FAILED:
                raise ClusterError(f"rank 0 has failed at {what}, and says why", is_known_to_all=True)
            if arrays is None:
                packed = torch.empty(int(n_bytes), dtype=torch.uint8)
            distributed.broadcast(packed, 0)
            return _unpack(packed) if arrays is None else arrays

    def gather(self, what: str, parts: Iterator[Arrays]) -> Iterator[tuple[int, Arrays]]:
        """Yield on rank 0 all parts of all ranks, each with its rank, one at a time; on other ranks yield nothing.

        Every rank must go through the result to its end.
        """
        if self.size > 1 and not self.is_first:
            self._send_all(what, parts)
            return
        for part in parts:
            yield 0, part
        if self.size > 1:
            self.meet(what)
        for rank in range(1, self.size):
            while (received := self._receive(rank)) is not None:
                yield rank, received

    def _send_all(self, what: str, parts: Iterator[Arrays]) -> None:
        import torch
        from torch import distributed

        self.meet(what)
        with _losing(self.rank):
            for part in parts:
                packed = _pack(part)
                distributed.send(torch.tensor([packed.numel()]), 0)
                distributed.send(packed, 0)
            distributed.send(torch.tensor([_FAILED]), 0)

    def _receive(self, rank: int) -> Arrays | None:
        """Return the next part of a rank, None after its last."""
        import torch
        from torch import distributed

        with _losing(self.rank):
            n_bytes = torch.zeros(1, dtype=torch.int64)
            distributed.recv(n_bytes, rank)
            if int(n_bytes) == _FAILED:
                return None
            packed = torch.empty(int(n_bytes), dtype=torch.uint8)
            distributed.recv(packed, rank)
            return _unpack(packed)

    def sum(self, what: str, tensor: Any) -> None:
        """Replace a tensor by its sum over all ranks, which is the same on each, bit by bit.

        There is no meeting before it, which would take longer than the sum: this is for the steps of a training. Who
        does not come is looked for afterwards.
        """
        if self.size == 1:
            return
        from torch import distributed

        try:
            distributed.all_reduce(tensor)
        except RuntimeError as error:
            raise self._lost(what, error) from None

    def _lost(self, what: str, error: RuntimeError) -> ClusterError:
        """Return the error for a sum that failed, which names the ranks that did not notice: they are gone."""
        missing, deadline = list[int](), time.monotonic() + _LINGERING
        with suppress(RuntimeError):  # the store is gone with rank 0
            self.store.set(f"lost/{self.rank}", what)
            while True:
                missing = [rank for rank in range(self.size) if not self.store.check([f"lost/{rank}"])]
                if not missing or time.monotonic() > deadline:
                    break
                self.while_waiting()
                time.sleep(_LONGEST_PAUSE)
        who = f"rank {missing[0]} does" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))} do"
        lines = str(error).splitlines() or [type(error).__name__]
        return ClusterError(
            f"rank {self.rank} has lost the others in {what}: "
            + (f"{who} not answer" if missing else "one of them has ended")
            + f" ({lines[0][:200]}). Look at what they say, and start all ranks again with --resume"
        )

    def exchange(self, what: str, arrays: Arrays) -> list[Arrays]:
        """Return on all ranks the arrays of every rank, in the order of ranks; those of a name are of one type."""
        if self.size == 1:
            return [arrays]
        found: list[Arrays] = [{} for _ in range(self.size)]
        for rank, part in self.gather(what, iter([arrays])):
            found[rank] = part

        def named() -> Arrays:
            return {f"{rank}/{name}": array for rank, part in enumerate(found) for name, array in part.items()}

        for name, array in self.share(what, named).items():
            of_rank, _, own = name.partition("/")
            found[int(of_rank)][own] = array
        return found


# A process on its own.
ALONE = Cluster()


class Claims:
    """Pieces of work, numbered from 0, that ranks and their threads take one after another until there are no more."""

    def __init__(self, cluster: Cluster, n: int, key: str) -> None:
        self.cluster, self.n, self.key = cluster, n, key
        self._n_taken, self._lock = 0, Lock()

    def _add(self, n: int) -> int:
        """Return how many pieces are taken, after n more."""
        if self.cluster.size > 1:
            with _losing(self.cluster.rank):
                return int(self.cluster.store.add(self.key, n))
        with self._lock:
            self._n_taken += n
            return self._n_taken

    def take(self, most: int = 1) -> range:
        """Return the numbers of the next pieces: at most so many, and fewer towards the end, so that all end at about
        the same time. An empty range says that nothing is left."""
        n_left = max(self.n - self._add(0), 0)
        n = min(most, max(1, n_left // (2 * self.cluster.size))) if self.cluster.size > 1 else most
        last = self._add(n)
        return range(min(last - n, self.n), min(last, self.n))

    def n_left(self) -> int:
        """Return how many pieces nobody has taken."""
        return max(self.n - self._add(0), 0)


@contextmanager
def joined() -> Iterator[Cluster]:
    """Join the processes that a launcher has started with this one; without a launcher, or alone, yield `ALONE`."""
    told = {name: os.environ.get(name) for name in _LAUNCHED}
    if not all(told.values()) or told["WORLD_SIZE"] == "1":
        yield ALONE
        return
    from torch import distributed
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # they are in its documentation

    timeout = _seconds(os.environ.get(_TIMEOUT_VARIABLE, ""))
    rank, size, port = (_number(name, told[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    # torchrun has a store of its own, which lives through restarts; else rank 0 has it.
    is_ours = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    limit = timedelta(seconds=timeout)
    try:
        found = TCPStore(str(told["MASTER_ADDR"]), port, size, is_master=is_ours, timeout=limit, wait_for_workers=False)
        store = PrefixStore(f"labelfield-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", found)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        where = f"{told['MASTER_ADDR']}:{port}"
        raise ClusterError(
            f"rank {rank} finds no rank 0 at {where} within {timeout:g} s ({reason}). Check that rank 0 runs, and that "
            "MASTER_ADDR and MASTER_PORT can be reached"
        ) from None
    cluster = Cluster(rank, size, store, timeout, PrefixStore("labelfield-launch", found))
    try:
        cluster.meet("the start")
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
        yield cluster
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        _leave(cluster)


def _leave(cluster: Cluster) -> None:
    """Leave the others. The first, which may have the store that all meet in, goes last, or after a while."""
    deadline = time.monotonic() + _LINGERING
    with suppress(RuntimeError):  # the store is gone already
        n_left = cluster.store.add("left", 1)
        while cluster.is_first and n_left < cluster.size and time.monotonic() < deadline:
            time.sleep(_LONGEST_PAUSE)
            n_left = cluster.store.add("left", 0)


def rank_of_launcher() -> int:
    """Return the rank that a launcher has given this process, 0 without one."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() and all(os.environ.get(name) for name in _LAUNCHED) else 0


def is_restarted() -> bool:
    """Return whether torchrun has started this process again after another one failed."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")


def _seconds(text: str) -> float:
    try:
        seconds = float(text or _TIMEOUT)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ClusterError(f"{_TIMEOUT_VARIABLE}={text}; expected a number of seconds, such as 600")
    return seconds


def _number(name: str, text: str | None) -> int:
    if text is None or not text.isdecimal():
        raise ClusterError(f"{name}={text}; expected a number. Start the processes with torchrun")
    return int(text)


@contextmanager
def _losing(rank: int) -> Iterator[None]:
    """Turn the errors of a lost connection into one that says so."""
    try:
        yield
    except ClusterError:
        raise
    except RuntimeError as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise ClusterError(
            f"rank {rank} has lost the others: one of them has ended ({lines[0][:200]}). Look at what they say, and "
            "start all ranks again with --resume"
        ) from None


def _pack(arrays: Arrays) -> Any:
    """Return arrays as one tensor of bytes."""
    import torch
    from safetensors.numpy import save

    # Unlike `ascontiguousarray`, this keeps the shape () of a number.
    content = save({name: np.require(array, requirements="C") for name, array in arrays.items()})
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _unpack(packed: Any) -> Arrays:
    from safetensors.numpy import load

    return load(packed.numpy().tobytes())
