"""A typed way to call hand-written gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import Function

__all__ = ["apply"]


def apply(function: type[Function], *arguments: Any) -> Tensor:
    """Return function.apply(*arguments), which torch leaves untyped, as a tensor."""
    untyped: Callable[..., Tensor] = function.apply
    return untyped(*arguments)
