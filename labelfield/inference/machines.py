"""Solved linear machines: the state of their training, in pieces that can be put together in any order."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelfield.inference.margin import Solved
from labelfield.models.linear.scores import LARGEST

# Machines whose weights are copied at a time, to drop the smallest.
_PRUNED_AT_ONCE = 8


class Machines(NamedTuple):
    """The machines of some blocks: of each block its number, how many machines it has and its dual objective; of each
    machine its number, how many weights it has, its intercept and its scores of held-out rows; and all weights, one
    machine after another."""

    blocks: NDArray[np.int64]
    counts: NDArray[np.int64]
    objectives: NDArray[np.float64]
    labels: NDArray[np.int64]
    sizes: NDArray[np.int64]
    intercepts: NDArray[np.float32]
    held_out: NDArray[np.float32]  # (machines, rows)
    features: NDArray[np.int32]
    weights: NDArray[np.float32]

    def pointers(self) -> NDArray[np.int64]:
        """Return where the weights of each machine begin, and where the last ones end."""
        return np.asarray(np.r_[0, np.cumsum(self.sizes)])


def none_yet(n_held_out: int) -> Machines:
    """Return the machines of no block."""
    kinds = np.int64, np.int64, np.float64, np.int64, np.int64, np.float32, np.float32, np.int32, np.float32
    parts: Any = [np.zeros((0, n_held_out) if at == 6 else 0, kind) for at, kind in enumerate(kinds)]
    return Machines(*parts)


def pruned(number: int, labels: NDArray[np.int64], solved: Solved, tolerance: float) -> Machines:
    """Return the weights of a solved block by the numbers of its machines, without those that are too small to matter.

    All that are dropped from a machine together have a norm of `tolerance` at most, so that by the Cauchy-Schwarz
    inequality no score of a row of norm 1 changes by more. The others are rounded to 16 bits, which changes scores
    less: a server then reads half as many bytes for the same answers.
    """
    order, least = np.argsort(solved.features), tolerance / max(solved.features.size, 1) ** 0.5
    by_feature = torch.from_numpy(order).to(solved.W.device)  # features rise within each label
    sizes, places, weights = list[Tensor](), list[Tensor](), list[Tensor]()
    for some in torch.split(solved.W, _PRUNED_AT_ONCE, dim=1):
        W = some[by_feature].T.contiguous()
        label, place = (W.abs() > least).nonzero(as_tuple=True)
        sizes.append(torch.bincount(label, minlength=len(W)))
        places.append(place)
        weights.append(rounded(W, tolerance)[label, place])
    features = solved.features[order][torch.cat(places).cpu().numpy()]
    held_out, intercepts = np.ascontiguousarray(solved.held_out.T), solved.intercepts.cpu().numpy()
    of_machines = (
        labels,
        torch.cat(sizes).cpu().numpy(),
        intercepts,
        held_out,
        features,
        torch.cat(weights).cpu().numpy(),
    )
    return Machines(np.array([number]), np.array([labels.size]), np.array([solved.objective]), *of_machines)


def rounded(W: Tensor, tolerance: float) -> Tensor:
    """Return the weights of machines (machines, features), those of each as multiples of a power of 2 with 16 bits.

    Errors of up to half a step change the score of a row of norm 1 by about a third of a step. A machine keeps the
    weights it has if a step is more than `tolerance`, as where features differ much in scale.
    """
    if not W.numel():  # of which nothing is the largest
        return W
    _, exponents = torch.frexp(W.abs().amax(dim=1, keepdim=True) / LARGEST)
    step = torch.ldexp(torch.ones_like(W[:, :1]), exponents)
    return torch.where(step <= tolerance, (W / step).round() * step, W)


def as_tensors(parts: Sequence[Machines], n_held_out: int) -> dict[str, list[Tensor]]:
    """Return all arrays by name, each in its parts, which are not joined."""
    every = [none_yet(n_held_out), *parts]
    return {name: [torch.from_numpy(getattr(part, name)) for part in every] for name in Machines._fields}


def from_tensors(tensors: dict[str, Tensor]) -> Machines:
    """Return the machines that `as_tensors` was given, after a checkpoint has joined their parts."""
    return Machines(**{name: tensors[name].numpy() for name in Machines._fields})


def chosen(machines: Machines, blocks: NDArray[np.int64]) -> Machines:
    """Return some of these blocks."""
    is_chosen = np.isin(machines.blocks, blocks)
    if is_chosen.all():
        return machines
    own = np.repeat(is_chosen, machines.counts)
    weights = np.repeat(own, machines.sizes)
    masks = (*(is_chosen,) * 3, *(own,) * 4, *(weights,) * 2)
    every: Any = zip(machines, masks, strict=True)
    parts: Any = (part[mask] for part, mask in every)
    return Machines(*parts)


def in_pieces(machines: Machines, n_weights: int) -> Iterator[Machines]:
    """Yield the machines, without their blocks, so many at a time that they have n_weights at the most, or one."""
    starts, first = machines.pointers(), 0
    while first < machines.labels.size:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + n_weights, side="right")) - 1)
        weights = slice(int(starts[first]), int(starts[last]))
        per_machine = [part[first:last] for part in machines[3:7]]
        parts: Any = *none_yet(0)[:3], *per_machine, machines.features[weights], machines.weights[weights]
        yield Machines(*parts)
        first = last
