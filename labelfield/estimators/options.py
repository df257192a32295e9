"""Options of estimators, checked and decided in one place."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state

__all__ = [
    "Number",
    "OutOfMemoryError",
    "Rule",
    "advising_on_memory",
    "check_options",
    "choose_device",
    "choose_seed",
    "count_of_labels",
    "given",
]


class Number(NamedTuple):
    """What a number may be."""

    lowest: float
    is_integer: bool = False
    highest: float = inf


Rule = Number | type[bool] | type[str] | Collection[str]


def check_options(estimator: Any, rules: dict[str, Rule]) -> None:
    """Every option is what its rule says: a number in its range, a flag, or one of some words.

    None stands for a choice that is made from the data, where the default is None. One error names the option.
    """
    defaults = inspect.signature(type(estimator)).parameters
    for name, rule in rules.items():
        value = given(getattr(estimator, name), None)
        if value is None and defaults[name].default is None:
            continue
        expected = _violated(value, rule)
        if expected:
            raise ValueError(f"{name}={value!r}; expected {expected}")


def _violated(value: Any, rule: Rule) -> str | None:
    """What was expected, if the value is something else."""
    if isinstance(rule, Number):
        kinds = int if rule.is_integer else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if is_number and rule.lowest <= value <= rule.highest and value < inf:
            return None
        upto = "" if rule.highest == inf else f" and at most {rule.highest:g}"
        return f"{'an integer' if rule.is_integer else 'a number'} of at least {rule.lowest:g}{upto}"
    if rule is bool:
        return None if isinstance(value, bool) else "True or False"
    if rule is str:
        return None if isinstance(value, str) else "a word"
    assert isinstance(rule, Collection)
    return None if isinstance(value, str) and value in rule else f"one of {', '.join(rule)}"


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
    is_integer = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if is_integer and 0 <= random_state < 2**63:
        return int(random_state)
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    raise ValueError(f"random_state={random_state!r}; expected an integer from 0 to 2^63 - 1, a RandomState or None")


def count_of_labels(k: Any, name: str = "k") -> int:
    """How many labels, or whatever else, are asked for."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"{name}={k!r}; expected an integer of at least 1")
    return int(k)


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
        if isinstance(error, OutOfMemoryError):  # a block within a block says it once
            raise
        raise OutOfMemoryError(str(error), lower) from None
    except RuntimeError as error:  # what torch raises for a failed allocation on the CPU
        text = str(error)
        if not any(words in text for words in ("DefaultCPUAllocator", "not enough memory", "bad_alloc", "overflow")):
            raise
        raise OutOfMemoryError(text, lower) from None


class OutOfMemoryError(MemoryError):
    """What to lower, and the reason on one line."""

    def __init__(self, reason: str, lower: str) -> None:
        lines = reason.splitlines()
        super().__init__(f"out of memory: lower {lower}" + (f" ({lines[0]})" if lines else ""))
