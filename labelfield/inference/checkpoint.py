"""A run in one file, replaced as a whole: a kill at any moment leaves the older or the newer one."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from labelfield.atomic import replacing_file, sync
from labelfield.cluster import Arrays
from labelfield.errors import DataError
from labelfield.inference.run import Epoch, Monitor, Run, Settings
from labelfield.models.streaming import bytes_of, write_arrays

State = TypeVar("State")
# Settings that may change when a run is resumed.
HOW_LONG = ("max_epochs", "finishing_epochs", "time_budget", "checkpoint_every", "n_iter_no_change", "tol")
_FORMAT = "labelfield checkpoint 3"
_MEMORY = "memory."
# Numbers that are sent to other processes at a time.
_SHARED = 1 << 24
_AGAIN = "Start again with --overwrite."
# A full disk, a quota, a limit on the size of files.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What reading or using the contents of a damaged file raises.
_DAMAGE = (SafetensorError, OSError, KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError)


# Tensors by name, or the parts of each, which follow each other along the first dimension.
Tensors = Mapping[str, Tensor | Sequence[Tensor]]


def write_checkpoint(path: Path, tensors: Tensors, facts: dict[str, Any]) -> None:
    """Write tensors, and facts that JSON can hold. A disk that is full leaves the checkpoint before it as it was."""
    told = {"format": _FORMAT, "facts": json.dumps(facts), "sha256": _digest(tensors)}
    try:
        with replacing_file(path) as new:
            write_arrays(new, tensors, told)
            sync(new)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        kept = "The checkpoint before it is kept. " if path.exists() else ""
        fix = f"{kept}Free some space and go on with --resume."
        raise DataError(f"the checkpoint cannot be written ({error.strerror})", path=path, fix=fix) from None


def _digest(tensors: Tensors) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        for piece in bytes_of(tensors[name]):
            digest.update(piece)
    return digest.hexdigest()


def read_checkpoint(path: Path, only: Collection[str] = ()) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_checkpoint` wrote, or a few tensors alone, whose contents are then not checked."""
    if not path.is_file():
        raise DataError("there is no checkpoint", path=path, fix="Start without --resume.")
    with _as_damage(path), safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        if metadata.get("format") != _FORMAT:
            raise DataError("the checkpoint was written by another version", path=path, fix=_AGAIN)
        tensors = {name: file.get_tensor(name) for name in only or file.keys()}  # not a dictionary
        facts = json.loads(metadata["facts"])
        if not only and metadata["sha256"] != _digest(tensors):
            raise ValueError("its checksum does not match")
        return tensors, facts


@contextmanager
def _as_damage(path: Path) -> Iterator[None]:
    """Turn the errors that unusable contents raise into one that names the file."""
    try:
        yield
    except DataError:
        raise
    except _DAMAGE as error:
        raise damaged(path, str(error).splitlines()[0] if str(error) else type(error).__name__) from None


def damaged(path: Path | None, reason: str) -> DataError:
    """Return the error for a checkpoint that nothing can continue from."""
    return DataError(f"the checkpoint is damaged ({reason})", path=path, fix=_AGAIN)


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def save_run(monitor: Monitor, run: Run, settings: Settings, tensors: Tensors) -> None:
    """Write a run, with the tensors from which its algorithm can continue, to the checkpoint of the monitor."""
    assert monitor.checkpoint is not None
    facts = {"settings": asdict(settings), "identity": monitor.identity, "run": asdict(replace(run, memory={}))}
    memory = {_MEMORY + name: value for name, value in run.memory.items()}
    write_checkpoint(monitor.checkpoint, {**tensors, **memory}, facts)


@dataclass(frozen=True)
class Checkpoint:
    """A saved run to continue from."""

    path: Path
    identity: str
    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    @classmethod
    def of(cls, monitor: Monitor) -> Checkpoint | None:
        """Return the checkpoint that a monitor wants to resume, or None if the run starts from the beginning."""
        path = monitor.checkpoint
        if path is None or not monitor.resume or not path.exists():
            return None
        return cls(path, monitor.identity, *read_checkpoint(path))

    @classmethod
    def of_team(cls, monitor: Monitor, own_rows: Callable[[str, int], slice | None]) -> Checkpoint | None:
        """Return what the first of several processes can see, with those rows of each tensor that are this process's.

        Tensors come in pieces from the first process, which alone needs the file.
        """
        cluster, path, saved = monitor.cluster, monitor.checkpoint, list[Checkpoint]()
        if cluster.size == 1 or path is None or not monitor.resume:
            return cls.of(monitor)

        def told() -> Arrays:
            saved.extend(found for found in [cls.of(monitor)] if found is not None)
            shapes = {name: list(tensor.shape) for one in saved for name, tensor in one.tensors.items()}
            text = json.dumps({"shapes": shapes, "facts": [one.facts for one in saved]}).encode()
            return {"text": np.frombuffer(text, np.uint8)}

        what = "the reading of the checkpoint"
        known = json.loads(cluster.share(what, told)["text"].tobytes())
        if not known["facts"]:
            return None
        tensors = {}
        for name, shape in known["shapes"].items():
            n, width = (shape[0], prod(shape[1:])) if shape else (1, 1)
            rows, parts = own_rows(name, n), []
            wanted = range(n) if rows is None or not shape else range(*rows.indices(n))
            for first, last in pairwise([*range(0, n, max(1, _SHARED // max(width, 1))), n]) if n else [(0, 0)]:

                def piece(name: str = name, some: slice = slice(first, last)) -> Arrays:
                    tensor = saved[0].tensors[name]
                    return {"part": (tensor[some] if tensor.dim() else tensor).numpy()}

                part = torch.from_numpy(np.array(cluster.share(what, piece)["part"]))
                parts.append(part[max(wanted.start - first, 0) : max(wanted.stop - first, 0)] if shape else part)
            tensors[name] = torch.cat(parts) if shape else parts[0]
        return cls(path, monitor.identity, tensors, known["facts"][0])

    def place(self, stages: list[str]) -> int:
        """Return the number of the stage in which the checkpoint was written."""
        with _as_damage(self.path):
            stage = str(self.facts["run"]["stage"])
        if stage not in stages:
            raise self._differs(f"in the stage {stage!r}", f"one of {', '.join(stages)}")
        return stages.index(stage)

    def _differs(self, how: str, expected: str) -> DataError:
        fix = "Resume with the options it was started with, or start again with --overwrite."
        return DataError(f"the checkpoint was made {how}", path=self.path, expected=expected, fix=fix)

    def run(self, settings: Settings) -> Run:
        """Return the run. Its length may differ from the saved one; nothing else may."""
        with _as_damage(self.path):
            theirs, ours = self.facts["settings"], asdict(settings)
            differs = [name for name in ours if name not in HOW_LONG and ours[name] != theirs[name]]
            if differs or self.facts["identity"] != self.identity:
                other = differs[0] if differs else "model or other training data"
                raise self._differs(f"with another {other}", "the same options and data")
            run = dict(self.facts["run"])
            run["history"] = [Epoch(**epoch) for epoch in run["history"]]
            return Run(**run | {"memory": under(_MEMORY, self.tensors)})

    def restore(self, restore: Callable[[dict[str, Tensor]], State]) -> State:
        """Return the result of an algorithm's `restore`, which takes over the tensors."""
        own = {name: value for name, value in self.tensors.items() if not name.startswith(_MEMORY)}
        self.tensors.clear()
        with _as_damage(self.path):
            return restore(own)
