"""Modules whose parameters have a row for each of many processes, and what is left of them for a few."""

from __future__ import annotations

from copy import copy
from typing import TypeVar

from torch import Tensor, nn

from labelfield.linalg.rows import take

__all__ = ["select_processes"]

Module = TypeVar("Module", bound=nn.Module)


def select_processes(module: Module, processes: Tensor) -> Module:
    """The same module for these processes alone, each named once: a step that uses it costs as much for any number.

    Of the parameters that a module names in `per_process` only these rows remain, with sparse gradients; all others are
    shared. The result is for use within a step: it holds no parameters of its own.
    """
    part = copy(module)
    part.__dict__ = dict(module.__dict__)
    part._modules = {name: child and select_processes(child, processes) for name, child in module._modules.items()}
    part._parameters = dict(module._parameters)
    for name in getattr(module, "per_process", ()):
        own = part._parameters.pop(name)
        assert own is not None
        part.__dict__[name] = take(own, processes)
    return part
