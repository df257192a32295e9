"""Fitted parts of an estimator from a model folder that may come from anyone: checked before use."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from labelfield.data.transform import RowTransform
from labelfield.estimators.blueprint import Blueprint
from labelfield.inducing import Free, Grid, Subspace
from labelfield.inference.run import Epoch
from labelfield.models.artifact import ModelError
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.mlgpf.label_linear import LabelLinear

__all__ = [
    "COUNTS",
    "SHIFTS",
    "WEIGHTS",
    "check_modules",
    "integer",
    "one_of",
    "restore_classes",
    "restore_history",
    "restore_model",
    "restore_scores",
    "restore_transform",
]

COUNTS, SHIFTS, WEIGHTS = "training.label_counts", "rows.shifts", "rows.weights"


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


def restore_history(history: Any) -> list[dict[str, Any]]:
    """Return the record of each epoch."""
    epochs = [asdict(Epoch(**epoch)) for epoch in history]
    for epoch in epochs:
        if not isinstance(epoch["stage"], str):
            raise ValueError("the history holds a stage that is not text")
        numbers = [epoch[name] for name in ("epoch", "bound", "learning_rate", "seconds")] + [*epoch["scores"].values()]
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError("the history holds other things than numbers")
    return epochs


def restore_scores(scores: Any) -> dict[str, list[float]]:
    """Return how a member of an ensemble did on held-out rows."""
    for name, values in dict(scores).items():
        if not isinstance(name, str) or not all(isinstance(value, int | float) for value in values):
            raise ValueError("the held-out scores hold other things than numbers")
    return {name: [float(value) for value in values] for name, values in scores.items()}


def restore_classes(classes: Any, n_labels: int, kind: str) -> NDArray[Any]:
    """Return what labels are called in Python: as given, or their numbers for an indicator matrix."""
    if kind == "indicator":
        return np.arange(n_labels)
    found = np.array(classes)
    if found.shape != (n_labels,) or found.dtype.kind not in "biufU":
        raise ValueError(f"{n_labels} classes are expected")
    return found


def restore_transform(
    name: Any, weights: torch.Tensor | None, shifts: torch.Tensor | None, n_features: int
) -> RowTransform:
    """Return what is done to rows."""
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
    blueprint: Blueprint, spec: Any, options: Any, arrays: dict[str, torch.Tensor]
) -> tuple[NDArray[np.int64], nn.Module]:
    """Return how often each label held in training, and the model.

    The model is built without memory of its own and takes the arrays as they are: a description that asks for more than
    the arrays hold fails before anything is allocated.
    """
    arrays = dict(arrays)
    counts = arrays.pop(COUNTS)
    if counts.shape != (spec.n_labels,) or counts.dtype != torch.int64 or bool((counts < 0).any()):
        raise ValueError(f"label counts of shape {tuple(counts.shape)}, or negative ones")
    with torch.device("meta"):
        model = blueprint.build(spec, options)
    own = model.state_dict()
    for name, array in arrays.items():
        is_foreign = bool(blueprint.foreign_arrays) and name.startswith(blueprint.foreign_arrays)
        if name in own and array.dtype != own[name].dtype:
            error = ModelError if is_foreign else ValueError
            raise error(f"{name} is of {array.dtype}; expected {own[name].dtype}. Build the network as it was")
        if array.is_floating_point() and not torch.isfinite(array).all():
            raise ValueError(f"{name} is not of finite numbers")
    try:
        model.load_state_dict(blueprint.with_training_arrays(spec, arrays), assign=True)
    except RuntimeError as error:
        if not getattr(spec, "network_class", ""):
            raise
        lines = [line.strip() for line in str(error).splitlines()]
        raise ModelError(f"the network does not fit its weights: {lines[-1][:200]}. Build it as it was") from None
    check_modules(model)
    return counts.numpy(), model


def check_modules(model: nn.Module) -> None:
    """Check the parts of a model whose numbers could do harm, and form what follows from the others."""
    for part in model.modules():
        if isinstance(part, Calibration | Temperature):
            _check_map(part)
        elif isinstance(part, LabelLinear):
            _check_pattern(part)
        elif isinstance(part, Subspace):
            part.refresh()
        elif isinstance(part, Grid):
            part.check()
        elif isinstance(part, Free):
            support = dict(part.named_buffers()).get("support")
            n_features = part.n_features or 0
            if support is not None and not bool(((support >= 0) & (support < n_features)).all()):
                raise ValueError("the inducing inputs have values on features that do not exist")


def _check_pattern(linear: LabelLinear) -> None:
    """Check which weights labels have: nothing may point outside."""
    pointers, features = linear.get_buffer("pointers"), linear.get_buffer("features")
    is_rising = int(pointers[0]) == 0 and int(pointers[-1]) == features.numel() and bool((pointers.diff() >= 0).all())
    is_inside = not features.numel() or 0 <= int(features.min()) <= int(features.max()) < linear.n_features
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
