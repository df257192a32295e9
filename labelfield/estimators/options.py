"""Options of estimators, checked and decided in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

__all__ = ["advising_on_memory", "check_numbers", "choose_device", "choose_seed", "given"]


def check_numbers(estimator: Any, rules: tuple[tuple[str, float, bool], ...]) -> None:
    """Every number is a number and within its range, by rules (name, smallest value, whether an integer).

    None stands for a choice that a rule will make. One error names the option.
    """
    for name, lowest, is_integer in rules:
        value = getattr(estimator, name)
        if value is None:
            continue
        kinds = (int, np.integer) if is_integer else (int, float, np.integer, np.floating)
        if isinstance(value, bool) or not isinstance(value, kinds) or not lowest <= value < float("inf"):
            kind = "an integer" if is_integer else "a number"
            raise ValueError(f"{name}={value!r}; expected {kind} of at least {lowest:g}")


def choose_device(name: Any) -> torch.device:
    """The device that "auto", "cpu", "cuda" or "cuda:1" means here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = str(name).partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ValueError(f"device={name!r}; expected 'auto', 'cpu' or 'cuda'")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name!r}, but torch sees no CUDA device; use device='cpu' or 'auto'")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={name!r}, but torch sees {torch.cuda.device_count()} CUDA devices, numbered from 0")
    return torch.device(str(name))


def choose_seed(random_state: Any) -> int:
    """A seed from an integer, or drawn as scikit-learn does from a RandomState, or from NumPy's own for None."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    raise ValueError(f"random_state={random_state!r}; expected an integer of at least 0, a RandomState or None")


def given(value: Any, rule: Any) -> Any:
    """What the user said, or what the rule says; NumPy's numbers as Python's, which JSON can hold."""
    chosen = rule if value is None else value
    return chosen.item() if isinstance(chosen, np.generic) else chosen


@contextmanager
def advising_on_memory(lower: str) -> Iterator[None]:
    """Turn every kind of failed allocation into one MemoryError that says what to lower."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        if getattr(error, "is_advice", False):
            raise
        raise out_of_memory(str(error), lower) from None
    except RuntimeError as error:  # what torch raises for a failed allocation on the CPU
        text = str(error)
        if not any(words in text for words in ("DefaultCPUAllocator", "not enough memory", "bad_alloc", "overflow")):
            raise
        raise out_of_memory(text, lower) from None


def out_of_memory(reason: str, lower: str) -> MemoryError:
    """The error, with the reason on one line."""
    lines = reason.splitlines()
    error = MemoryError(f"out of memory: lower {lower}" + (f" ({lines[0]})" if lines else ""))
    error.is_advice = True  # type: ignore[attr-defined]  # so that a block within a block says it once
    return error
