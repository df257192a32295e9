"""Checks of what a model folder from anyone says, before it is used."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from labelfield.inducing import Free, Grid, Subspace
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.linear.model import LinearMachines
from labelfield.models.mlgpf.label_linear import LabelLinear
from labelfield.models.stack import Stack


def one_of(config: dict[str, Any], name: str, known: tuple[str, ...]) -> str:
    """Return a word, which must be one of those known."""
    value = config[name]
    if value not in known:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(known)}")
    return str(value)


def integer(config: dict[str, Any], name: str) -> int:
    """Return a whole number that is not negative."""
    value = config[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {value!r}, not a whole number of at least 0")
    return value


def restore_scores(scores: Any) -> dict[str, list[float]]:
    """Return how a member of an ensemble did on held-out rows."""
    for name, values in dict(scores).items():
        if not isinstance(name, str) or not all(isinstance(value, int | float) for value in values):
            raise ValueError("the held-out scores are not all numbers")
    return {name: [float(value) for value in values] for name, values in scores.items()}


def restore_classes(classes: Any, n_labels: int, kind: str) -> NDArray[Any]:
    """Return what labels are called in Python: as given, or their numbers for an indicator matrix."""
    if kind == "indicator":
        return np.arange(n_labels)
    found = np.array(classes)
    if found.shape != (n_labels,) or found.dtype.kind not in "biufU":
        raise ValueError(f"{n_labels} classes are expected")
    return found


def restore_trials(value: Any) -> list[dict[str, Any]]:
    """Return what was compared on held-out rows: words and numbers by name."""
    is_list = isinstance(value, list) and all(isinstance(one, dict) for one in value)
    if not is_list or not all(isinstance(part, str | int | float) for one in value for part in one.values()):
        raise ValueError("the trials are not words and numbers")
    return list(value)


def check_modules(model: nn.Module) -> None:
    """Check the parts of a model whose numbers could do harm, and form what follows from the others."""
    for part in model.modules():
        if isinstance(part, Calibration | Temperature):
            _check_map(part)
        elif isinstance(part, LabelLinear | LinearMachines):
            _check_pattern(part)
        elif isinstance(part, Stack):
            part.check()
        elif isinstance(part, Subspace):
            part.refresh()
        elif isinstance(part, Grid):
            part.check()
        elif isinstance(part, Free):
            support = dict(part.named_buffers()).get("support")
            n_features = part.n_features or 0
            if support is not None and not bool(((support >= 0) & (support < n_features)).all()):
                raise ValueError("the inducing inputs have values on features that do not exist")


def _check_pattern(linear: LabelLinear | LinearMachines) -> None:
    """Check which weights labels have: nothing may point outside."""
    pointers, features = linear.get_buffer("pointers"), linear.get_buffer("features")
    is_rising = int(pointers[0]) == 0 and int(pointers[-1]) == features.numel() and bool((pointers.diff() >= 0).all())
    is_inside = not features.numel() or 0 <= int(features.min()) <= int(features.max()) < linear.n_features
    groups = dict(linear.named_buffers()).get("groups")
    if isinstance(linear, LinearMachines) and groups is not None and groups.numel():  # which are the last machines
        n_before = linear.n_each * groups.shape[1]
        is_inside &= n_before <= int(groups.min()) <= int(groups.max()) < pointers.numel() - 1
    if not (is_rising and is_inside):
        raise ValueError("the weights of labels point outside the features")


def _check_map(calibration: Calibration | Temperature) -> None:
    """Check that a map of probabilities keeps their order."""
    if isinstance(calibration, Temperature):
        keeps_order = bool((calibration.power > 0).all())
    else:
        is_falling = calibration.has_lead and bool(calibration.lead[1] < 0)
        is_rising = bool((calibration.slopes > 0).all()) and bool((calibration.offsets.diff() <= 0).all())
        keeps_order = is_rising and not is_falling
    if not keeps_order or not all(torch.isfinite(values).all() for values in calibration.buffers()):
        raise ValueError("the calibration would change the ranking")
