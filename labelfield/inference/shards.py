"""Checkpoints of a training by several processes: a file for each of them, from which any number can go on."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelfield.cluster import Cluster
from labelfield.inference.checkpoint import Checkpoint, read_checkpoint
from labelfield.inference.machines import Machines, chosen, from_tensors
from labelfield.inference.run import Monitor, Settings


class TakenOver(NamedTuple):
    """What a rank goes on from: its blocks, those of all ranks, the seconds so far, and files that are of use no more
    once every rank has saved what it has taken over."""

    machines: list[Machines]
    blocks: NDArray[np.int64]
    seconds: float
    outdated: list[Path]


def shard_path(checkpoint: Path, cluster: Cluster) -> Path:
    """Return where a rank saves its part of a run."""
    if cluster.size == 1:
        return checkpoint
    return checkpoint.with_name(f"{checkpoint.stem}.{cluster.rank + 1}-of-{cluster.size}{checkpoint.suffix}")


def take_over(monitor: Monitor, settings: Settings) -> TakenOver:
    """Return the blocks that this rank takes over from the checkpoints that ranks can see, if the run is resumed.

    A block goes to the rank whose own file it is in; those of a run with another number of ranks are dealt out among
    the ranks that see them. A run that starts anew removes what an older one has left.
    """
    cluster, path = monitor.cluster, monitor.checkpoint
    if path is None:
        return TakenOver([], np.zeros(0, np.int64), 0.0, [])
    own_path = shard_path(path, cluster)
    seen = sorted({*path.parent.glob(f"{path.stem}.*-of-*{path.suffix}"), *path.parent.glob(path.name)})
    if not monitor.resume:
        for file in seen:
            file.unlink(missing_ok=True)
        cluster.meet("the start of training")  # before which nobody saves anything
        return TakenOver([], np.zeros(0, np.int64), 0.0, [])
    blocks, seconds = dict[Path, NDArray[np.int64]](), [0.0]
    for file in seen:
        index = Checkpoint(file, monitor.identity, *read_checkpoint(file, ("blocks",)))
        seconds.append(index.run(settings).seconds)
        blocks[file] = index.restore(lambda tensors: tensors["blocks"].numpy())
    told = {
        "seen": np.unique(np.concatenate([np.zeros(0, np.int64), *blocks.values()])),
        "own": blocks.get(own_path, np.zeros(0, np.int64)),
    }
    every = cluster.exchange("the reading of checkpoints", told)
    known = np.unique(np.concatenate([part["seen"] for part in every]))
    mine = known[_owners(known, every) == cluster.rank]
    found, left = list[Machines](), mine
    for file in sorted(blocks, key=lambda file: file != own_path):
        wanted = np.intersect1d(left, blocks[file])
        if wanted.size:
            whole = Checkpoint(file, monitor.identity, *read_checkpoint(file)).restore(from_tensors)
            found.append(chosen(whole, wanted))
            left = np.setdiff1d(left, wanted)
    is_own = {shard_path(path, Cluster(rank, cluster.size)) for rank in range(cluster.size)}
    return TakenOver(found, known, max(seconds), [file for file in seen if file not in is_own])


def _owners(known: NDArray[np.int64], every: list[dict[str, NDArray[np.int64]]]) -> NDArray[np.int64]:
    """Return which rank takes over each known block, from the blocks that ranks see and those in their own files."""
    sees = np.stack([np.isin(known, part["seen"]) for part in every])
    holds = np.stack([np.isin(known, part["own"]) for part in every])
    turn = np.arange(known.size) % np.maximum(sees.sum(0), 1)  # they take turns
    dealt = ((np.cumsum(sees, 0) == turn + 1) & sees).argmax(0)
    return np.asarray(np.where(holds.any(0), holds.argmax(0), dealt))
