"""Constraints on the values of options, declared once: estimators, specs and documentation all read them."""

from collections.abc import Collection, Mapping
from math import inf
from typing import Any, NamedTuple

import numpy as np


class Integer(NamedTuple):
    """A whole number between two ends."""

    least: int = 1
    most: float = inf

    def accepts(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most

    def __str__(self) -> str:
        return f"an integer {_between(self.least, self.most)}"


class Real(NamedTuple):
    """A finite number between two ends."""

    least: float = 0.0
    most: float = inf

    def accepts(self, value: Any) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # Torch does not take whole numbers of more than 64 bits.
        most = inf if isinstance(value, float) else 2**63
        return is_number and self.least <= value <= self.most and value < most

    def __str__(self) -> str:
        if 0 < self.least < 1e-9 and self.most == inf:
            return "a positive number"
        return f"a number {_between(self.least, self.most)}"


class OneOf(NamedTuple):
    """One of a few words."""

    words: Collection[str]

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


class Flag(NamedTuple):
    """True or False."""

    def accepts(self, value: Any) -> bool:
        return isinstance(value, bool)

    def __str__(self) -> str:
        return "True or False"


class Word(NamedTuple):
    """Any text; its contents are checked where they are used."""

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str)

    def __str__(self) -> str:
        return "text"


class Auto(NamedTuple):
    """The word "auto", or a value that another constraint allows."""

    other: Integer | Real

    def accepts(self, value: Any) -> bool:
        return value == "auto" or self.other.accepts(value)

    def __str__(self) -> str:
        return f"auto, or {self.other}"


Constraint = Integer | Real | OneOf | Flag | Word | Auto


def check_options(
    values: Mapping[str, Any], constraints: Mapping[str, Constraint], optional: Collection[str] = ()
) -> None:
    """Raise a ValueError that names the first option whose value violates its constraint.

    Options in `optional` may be None: the data then decide.
    """
    for name, constraint in constraints.items():
        value = plain_value(values[name])
        if not (value is None and name in optional) and not constraint.accepts(value):
            raise ValueError(f"{name}={value!r}; expected {constraint}")


def plain_value(value: Any) -> Any:
    """Return a NumPy number as the Python number that JSON can hold, and anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _between(least: float, most: float) -> str:
    return f"of at least {least:g}" if most == inf else f"from {least:g} to {most:g}"
