"""Options of estimators: their meanings and constraints, read from the one place where they are declared.

An option is declared by a field of the estimator, its entry in the docstring's Parameters section, and its constraint
beside the fields. `help()`, `labelfield config`, error messages and the documentation read these.
"""

import inspect
import re
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state

from labelfield.constraints import Constraint, check_options, plain_value

_ENTRY = re.compile(r"^(\w+) : (.+)\n((?:    .+\n?)+)", re.MULTILINE)


class Parameter(NamedTuple):
    """An option: its name, type in words, default, meaning, and constraint, if there is one beyond its type."""

    name: str
    kind: str
    default: Any
    meaning: str
    constraint: Constraint | None


def parameters(estimator: type[Any]) -> dict[str, Parameter]:
    """Return the options of an estimator class in the order of its signature."""
    section = inspect.getdoc(estimator) or ""
    documented = {name: (kind, " ".join(text.split())) for name, kind, text in _ENTRY.findall(section + "\n")}
    found = {}
    for name, parameter in inspect.signature(estimator).parameters.items():
        kind, meaning = documented.get(name, ("", ""))
        found[name] = Parameter(name, kind, parameter.default, meaning, estimator.constraints.get(name))
    return found


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError that names the first option whose value violates its constraint."""
    defaults = inspect.signature(type(estimator)).parameters
    optional = [name for name in estimator.constraints if defaults[name].default is None]
    check_options(vars(estimator), estimator.constraints, optional)


def plain_options(estimator: Any) -> SimpleNamespace:
    """Return the options with Python numbers for NumPy's, and lists for its arrays."""
    values = {name: plain_value(value) for name, value in estimator.get_params(deep=False).items()}
    arrays = {name: value.tolist() for name, value in values.items() if isinstance(value, np.ndarray)}
    return SimpleNamespace(**values | arrays)


def choose_device(name: Any) -> torch.device:
    """Return the device that "auto", "cpu", "cuda" or "cuda:1" means here."""
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
    """Return an integer as it is; draw one, as scikit-learn does, from a RandomState or, for None, NumPy's own."""
    is_integer = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if is_integer and 0 <= random_state < 2**63:
        return int(random_state)
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    raise ValueError(f"random_state={random_state!r}; expected an integer from 0 to 2^63 - 1, a RandomState or None")


def count_of(k: Any, name: str = "k") -> int:
    """Return a count as an int; raise a ValueError for anything else."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"{name}={k!r}; expected an integer of at least 1")
    return int(k)
