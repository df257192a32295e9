"""A cluster whose ranks are threads: it adds up and passes on as processes do, without starting any."""

import threading
from concurrent.futures import ThreadPoolExecutor

from torch.distributed import HashStore

from labelfield.cluster import ALONE, Cluster, _pack, _unpack


class _Room:
    def __init__(self, size):
        self.barrier, self.slots, self.store = threading.Barrier(size, timeout=60), [None] * size, HashStore()


class ThreadCluster(Cluster):
    def __init__(self, rank, size, room):
        super().__init__(rank, size, room.store, 60.0)
        self.room, self.n_sums = room, 0

    def _all(self, own):
        """Return what every rank has brought."""
        self.room.slots[self.rank] = own
        self.room.barrier.wait()
        found = list(self.room.slots)
        self.room.barrier.wait()
        return found

    def sum(self, what, tensor):
        self.n_sums += 1
        parts = self._all(tensor.clone())
        assert len({part.shape for part in parts}) == len({part.dtype for part in parts}) == 1
        tensor.copy_(sum(parts[1:], parts[0]))

    def share(self, what, produce):
        return _sent(self._all(produce() if self.is_first else None)[0])

    def gather(self, what, parts):
        found = self._all([_sent(part) for part in parts])
        if self.is_first:
            for rank, own in enumerate(found):
                for part in own:
                    yield rank, part

    def exchange(self, what, arrays):
        return self._all(_sent(arrays))


def _sent(arrays):
    """Return arrays as another process would get them."""
    return _unpack(_pack(arrays))


def together(size, act):
    """Return what `act(cluster)` returns on each rank."""
    if size == 1:
        return [act(ALONE)]
    room = _Room(size)

    def one(rank):
        try:
            return act(ThreadCluster(rank, size, room))
        except BaseException:
            room.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        broken = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
        if errors:
            raise (broken or errors)[0]
        return [future.result() for future in futures]
