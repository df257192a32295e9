"""Networks of the user's own: tried on some rows before anything is trained."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["count_outputs"]


def count_outputs(own: nn.Module, X: Tensor) -> int:
    """Return how many features a network gives for rows X, by asking a copy of it; raise a ValueError if it gives none.

    A warning says if no gradient would reach its parameters.
    """
    network = deepcopy(own).to(X.device)
    h = _try(network.eval(), X)
    if not isinstance(h, Tensor) or h.dim() != 2 or h.shape[0] != X.shape[0] or not h.is_floating_point():
        found = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
        raise ValueError(f"the network gives {found} for {X.shape[0]} rows; expected a tensor ({X.shape[0]}, Q)")
    if h.dtype != X.dtype:
        raise ValueError(f"the network gives features of {h.dtype}; expected {X.dtype}, as rows are")
    trained = _try(network.train(), X)
    if isinstance(trained, Tensor) and not trained.requires_grad and any(p.requires_grad for p in network.parameters()):
        warnings.warn(
            f"no gradient reaches the parameters of the network {type(network).__name__}: they will not be trained",
            UserWarning,
            stacklevel=6,  # the call of fit
        )
    return int(h.shape[1])


def _try(network: nn.Module, X: Tensor) -> Any:
    """Return what a network makes of rows; anything that it raises becomes one error."""
    try:
        # Torch's generators are afterwards as they were, even if the network draws from them.
        with torch.random.fork_rng(devices=[X.device] if X.device.type == "cuda" else []):
            return network(X)
    except Exception as error:  # it may raise anything
        mode = ", in training," if network.training else ""
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"the network {type(network).__name__} cannot take{mode} rows of shape {tuple(X.shape)}: "
            f"{type(error).__name__}: {reason}"
        ) from None
