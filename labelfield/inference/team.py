"""The processes that train a model together, all in the same step at the same time.

Some arrays of the model are divided: each process has other rows of them, in the order of ranks. All others are alike.
Checkpoints hold whole arrays, as those of one process do, so that any number of processes can go on from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelfield.cluster import ALONE, Arrays, Cluster
from labelfield.mapped import Growing

# Bytes that are sent at a time.
_AT_ONCE = 1 << 26


class Team:
    """What training by gradients needs of the other processes; of a process alone nothing.

    `divided` tells which rows of each array of the model this process has, by the name of the array. Arrays called
    pointers have one entry more than rows, which say where each row begins.
    """

    def __init__(self, cluster: Cluster = ALONE, model: Any = None, divided: Mapping[str, slice] | None = None) -> None:
        self.cluster, self.model, self.divided = cluster, model, dict(divided or {})
        self.folder: Path | None = None  # for what is too large for the memory of one process

    def keep_beside(self, checkpoint: Path | None) -> None:
        """Lay out whole arrays on the disk that a checkpoint is written to."""
        if checkpoint is not None:
            self.folder = next(folder for folder in checkpoint.absolute().parents if folder.is_dir())

    def combine(self, loss: Tensor, parameters: list[nn.Parameter]) -> tuple[Tensor, Tensor]:
        """Return the loss of all processes and the norm of the whole gradient; add up the gradients of arrays that all
        processes have."""
        if self.cluster.size == 1:
            return loss, nn.utils.get_total_norm([values_of(p.grad) for p in parameters if p.grad is not None])
        own = {id(parameter) for name, parameter in self.model.named_parameters() if name in self.divided}
        common = [parameter for parameter in parameters if id(parameter) not in own]
        apart = [values_of(p.grad) for p in parameters if id(p) in own and p.grad is not None]
        squares = sum((part.double().square().sum() for part in apart), torch.zeros((), dtype=torch.float64))
        numbers = torch.stack([loss.double(), squares])
        self.cluster.sum("a step", numbers)
        flat = torch.cat([*map(_flat, common)])
        self.cluster.sum("a step", flat)
        squares = numbers[1] + flat.double().square().sum()
        parts = torch.split(flat, [parameter.numel() for parameter in common])
        for parameter, part in zip(common, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        return numbers[0].to(loss.dtype), squares.sqrt().to(loss.dtype)

    # The whole model

    def collect(self, what: str, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return on the first process the parts of all, one after another, in files; on others nothing."""
        parts = {name: value.diff() if _is_pointers(name) else value.detach() for name, value in parts.items()}
        growing = {}
        if self.cluster.is_first:
            growing = {name: Growing(part.numpy().dtype.type, self.folder) for name, part in parts.items()}

        def pieces() -> Iterator[Arrays]:
            for name, part in parts.items():
                flat, step = part.reshape(-1), _AT_ONCE // part.element_size()
                for first in range(0, flat.numel(), step):
                    yield {name: flat[first : first + step].numpy()}

        for _, piece in self.cluster.gather(what, pieces()):
            for name, array in piece.items():
                growing[name].extend(array)
        found = {}
        for name, own in growing.items():
            whole = torch.from_numpy(own.finish())
            if _is_pointers(name):
                whole = torch.cat([whole.new_zeros(1), whole.cumsum(0)])
            found[name] = whole.view(-1, *parts[name].shape[1:])
        return found

    @contextmanager
    def as_one(self, what: str) -> Iterator[bool]:
        """Let the first process have the whole model for a while, and yield whether this is the first."""
        if self.cluster.size == 1:
            yield True
            return
        state = dict(self.model.state_dict(keep_vars=True))
        own = {name: state[name] for name in self.divided if name in state}
        whole = self.collect(what, own)
        self.put(whole)
        try:
            yield self.cluster.is_first
        finally:
            self.put(own)

    def join(self) -> None:
        """Give the first process the whole model for good."""
        if self.cluster.size > 1:
            state = self.model.state_dict()
            self.put(self.collect("the end of training", {name: state[name] for name in self.divided if name in state}))

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace arrays of the model, by name, by others of any length."""
        for name, value in tensors.items():
            module_name, _, own = name.rpartition(".")
            module = self.model.get_submodule(module_name)
            is_new = own in module._parameters and not isinstance(value, nn.Parameter)
            setattr(module, own, nn.Parameter(value) if is_new else value)

    def from_first(self, what: str, produce: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return on all processes the tensors that the first produces."""
        if self.cluster.size == 1:
            return dict(produce())
        found = self.cluster.share(what, lambda: {name: value.numpy() for name, value in produce().items()})
        return {name: torch.from_numpy(np.array(value)) for name, value in found.items()}


# A process alone.
NO_TEAM = Team()


def own_rows(cluster: Cluster, n_rows: int) -> slice:
    """Return the share of this process in n_rows."""
    return slice(*(n_rows * (cluster.rank + more) // cluster.size for more in (0, 1)))


def values_of(gradient: Any) -> Tensor:
    """Return the numbers of a dense or a sparse gradient."""
    found: Tensor = gradient._values() if gradient.is_sparse else gradient
    return found


def _flat(parameter: nn.Parameter) -> Tensor:
    """Return the gradient of a parameter in a row; zeros if it has none."""
    if parameter.grad is None:
        return torch.zeros(parameter.numel(), dtype=parameter.dtype, device=parameter.device)
    gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
    return gradient.reshape(-1)


def _is_pointers(name: str) -> bool:
    return name.endswith("pointers")
