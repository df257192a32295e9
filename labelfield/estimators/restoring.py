"""Fitted parts of an estimator from a model folder that may come from anyone: checked before use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from labelfield.data.transform import RowTransform
from labelfield.inducing import Grid, Subspace
from labelfield.inference.run import Epoch
from labelfield.models.build import Spec
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.mlgpf import MLGPF
from labelfield.models.multiclass import MultiClassGP
from labelfield.models.private import PrivateProcess
from labelfield.models.sampling import Rivals

__all__ = [
    "COUNTS",
    "SHIFTS",
    "WAITING",
    "WEIGHTS",
    "check_calibration",
    "check_map",
    "integer",
    "one_of",
    "restore_classes",
    "restore_history",
    "restore_model",
    "restore_scores",
    "restore_transform",
]

COUNTS, WAITING = "training.label_counts", "private.waiting"
SHIFTS, WEIGHTS = "rows.shifts", "rows.weights"
_PATTERN = ("private.pointers", "private.features")
_SUPPORT = ("inducing.support", "utilities.inducing.support")


def one_of(config: dict[str, Any], name: str, known: tuple[str, ...]) -> str:
    """A word that must be one of those known."""
    value = config[name]
    if value not in known:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(known)}")
    return str(value)


def integer(config: dict[str, Any], name: str) -> int:
    """A count."""
    value = config[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {value!r}, not a count")
    return value


def restore_history(history: Any) -> list[dict[str, Any]]:
    """What each epoch was like."""
    epochs = [asdict(Epoch(**epoch)) for epoch in history]
    for epoch in epochs:
        if not isinstance(epoch["stage"], str):
            raise ValueError("the history holds a stage that is no word")
        numbers = [epoch[name] for name in ("epoch", "bound", "learning_rate", "seconds")] + [*epoch["scores"].values()]
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError("the history holds other things than numbers")
    return epochs


def restore_scores(scores: Any) -> dict[str, list[float]]:
    """How a member of an ensemble did on held-out rows."""
    for name, values in dict(scores).items():
        if not isinstance(name, str) or not all(isinstance(value, int | float) for value in values):
            raise ValueError("the held-out scores hold other things than numbers")
    return {name: [float(value) for value in values] for name, values in scores.items()}


def restore_classes(classes: Any, n_labels: int, kind: str) -> NDArray[Any]:
    """What the labels are called in Python: as given, or their numbers for an indicator matrix."""
    if kind == "indicator":
        return np.arange(n_labels)
    found = np.array(classes)
    if found.shape != (n_labels,) or found.dtype.kind not in "biufU":
        raise ValueError(f"{n_labels} classes are expected")
    return found


def restore_transform(
    name: Any, weights: torch.Tensor | None, shifts: torch.Tensor | None, n_features: int
) -> RowTransform:
    """What is done to rows."""
    if not isinstance(name, str):
        raise ValueError(f"row_transform is {name!r}, not a name")
    for values in (weights, shifts):
        if values is None:
            continue
        if values.shape != (n_features,) or values.dtype != torch.float32 or not torch.isfinite(values).all():
            raise ValueError(f"weights or shifts of features of shape {tuple(values.shape)}, or not finite")
    if weights is not None and not (weights > 0).all():
        raise ValueError("weights of features that are not positive")
    return RowTransform(name, *(None if values is None else values.numpy() for values in (weights, shifts)))


def restore_model(
    spec: Any, build: Callable[[Any], nn.Module], arrays: dict[str, torch.Tensor], free: tuple[str, ...] = ()
) -> tuple[Any, NDArray[np.int64]]:
    """The model, and how often each label held in training.

    It is built without memory of its own and takes the arrays as they are: a description that asks for more than the
    arrays hold fails before anything is allocated. Arrays whose names begin with one of `free`, of a network of the
    user's own, may be of any type, as long as they are finite.
    """
    arrays = dict(arrays)
    counts = arrays.pop(COUNTS)
    if counts.shape != (spec.n_labels,) or counts.dtype != torch.int64 or bool((counts < 0).any()):
        raise ValueError(f"label counts of shape {tuple(counts.shape)}, or negative ones")
    for name, array in arrays.items():
        if name in (*_PATTERN, *_SUPPORT):
            continue
        if free and name.startswith(free):
            if array.is_floating_point() and not torch.isfinite(array).all():
                raise ValueError(f"{name} is not of finite numbers")
            continue
        if array.dtype != torch.float32 or not torch.isfinite(array).all():
            raise ValueError(f"{name} is not of finite float32 numbers")
    with torch.device("meta"):
        model = build(spec)
    if isinstance(model, MLGPF) and model.private is not None:
        arrays[WAITING] = torch.zeros(spec.n_private, dtype=torch.bool)
    if isinstance(model, MultiClassGP) and model.rivals is not None:
        fresh = Rivals(spec.n_labels).state_dict()
        arrays |= {f"rivals.{name}": value for name, value in fresh.items()}
    model.load_state_dict(arrays, assign=True)
    for part in model.modules():
        if isinstance(part, Calibration | Temperature):
            check_map(part)
        elif isinstance(part, PrivateProcess):
            _check_pattern(spec, *(arrays[name] for name in _PATTERN))
        elif isinstance(part, Subspace):
            part.refresh()
        elif isinstance(part, Grid):
            part.check()
    for name in _SUPPORT:
        support = arrays.get(name)
        if support is None:
            continue
        if support.dtype != torch.int32 or not bool(((support >= 0) & (support < spec.n_features)).all()):
            raise ValueError("the inducing inputs have values on features that do not exist")
    return model, counts.numpy()


def _check_pattern(spec: Spec, pointers: torch.Tensor, features: torch.Tensor) -> None:
    """Which weights private processes have: nothing may point outside."""
    if pointers.dtype != torch.int64 or features.dtype != torch.int32:
        raise ValueError("the pattern of the private processes is not of integers")
    is_rising = int(pointers[0]) == 0 and int(pointers[-1]) == features.numel() and bool((pointers.diff() >= 0).all())
    is_inside = not features.numel() or 0 <= int(features.min()) <= int(features.max()) < spec.n_features
    if not (is_rising and is_inside):
        raise ValueError("the pattern of the private processes points outside")


def check_map(calibration: nn.Module) -> None:
    """That a map of probabilities keeps their order."""
    if isinstance(calibration, Calibration):
        check_calibration(calibration)
    elif isinstance(calibration, Temperature) and not (calibration.power > 0).all():
        raise ValueError("the calibration would change the ranking")


def check_calibration(calibration: Calibration) -> None:
    """The map of probabilities must be finite and keep their order."""
    for name, values in calibration.named_buffers():
        if values.dtype != torch.float32 or not torch.isfinite(values).all():
            raise ValueError(f"{name} of the calibration are not finite float32 numbers")
    is_falling = calibration.has_lead and bool(calibration.lead[1] < 0)
    if is_falling or not (calibration.slopes > 0).all() or not (calibration.offsets.diff() <= 0).all():
        raise ValueError("the calibration would change the ranking")
