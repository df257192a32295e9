"""Kernels by the names that options and saved models use."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from labelfield.kernels.base import Kernel
from labelfield.kernels.combine import Scaled, Sum, White
from labelfield.kernels.stationary import DotPower, SquaredExponentialLinear, Stationary, matern, squared_exponential

# Kernels that are functions of the distance of two numbers.
LAG_KERNELS = ("se", "matern12", "matern32", "matern52")
_SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


def _makers(n_features: int, n_processes: int, is_own: bool) -> dict[str, Callable[[], Kernel]]:
    own: dict[str, Any] = {"n_processes": n_processes if is_own else None}
    ard = {"n_features": n_features, **own}
    makers: dict[str, Callable[[], Kernel]] = {
        "linear": partial(DotPower, 1, **own),
        "linear_ard": partial(DotPower, 1, **ard),
        "se": partial(squared_exponential, **own),
        "se_per_process": partial(squared_exponential, n_processes=n_processes),
        "se_ard": partial(squared_exponential, **ard),
        "se_linear_ard": partial(SquaredExponentialLinear, **ard),
        "white": White,
    }
    for name, smoothness in _SMOOTHNESS.items():
        makers[name] = partial(matern, smoothness, **own)
        makers[f"{name}_ard"] = partial(matern, smoothness, **ard)
    return makers


def kernel_names() -> tuple[str, ...]:
    """Return all kernel names, which may be joined by +."""
    return (*_makers(1, 1, False), "dot1", "dot2", "dot3", "…")


def kernel_from_name(
    name: str, n_features: int, n_processes: int, *, is_own: bool = False, is_scaled: bool = False
) -> Kernel:
    """Make a kernel such as `se_ard` or `dot3`, or a sum such as `se_ard + linear`, whose parts get learned variances.

    With `is_own` every process has its own parameters. With `is_scaled` a kernel that is not a sum has a learned
    variance too, which a model without loadings needs.
    """
    kernels = [_make(part.strip(), n_features, n_processes, is_own) for part in name.split("+")]
    if len(kernels) == 1 and not is_scaled:
        return kernels[0]
    n_own = n_processes if is_own else None
    parts = [kernel if isinstance(kernel, White) else Scaled(kernel, n_processes=n_own) for kernel in kernels]
    return parts[0] if len(parts) == 1 else Sum(*parts)


def lag_kernel_from_name(name: str, n_processes: int | None) -> Stationary:
    """Make one of LAG_KERNELS, with parameters for each of `n_processes`, or shared by all if that is None."""
    if name == "se":
        return squared_exponential(n_processes=n_processes)
    if name in _SMOOTHNESS:
        return matern(_SMOOTHNESS[name], n_processes=n_processes)
    raise ValueError(f"kernel {name!r}; expected {', '.join(LAG_KERNELS)}")


def _make(name: str, n_features: int, n_processes: int, is_own: bool) -> Kernel:
    makers = _makers(n_features, n_processes, is_own)
    if name in makers:
        return makers[name]()
    if match := re.fullmatch(r"dot([1-9][0-9]?)", name):
        return DotPower(int(match[1]))
    raise ValueError(f"kernel {name!r}; expected {', '.join(kernel_names())}, or a sum of them with +")
