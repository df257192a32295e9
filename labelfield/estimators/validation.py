"""Fitted parts of an estimator from a model folder that may come from anyone: checked before use."""

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from labelfield.data.codes import Codes
from labelfield.data.transform import RowTransform
from labelfield.estimators.blueprint import Blueprint
from labelfield.inference.run import Epoch
from labelfield.models.artifact import ModelError
from labelfield.models.validation import check_modules

COUNTS, SHIFTS, WEIGHTS, CODES = "training.label_counts", "rows.shifts", "rows.weights", "rows.codes"


def restore_history(history: Any) -> list[dict[str, Any]]:
    """Return the record of each epoch."""
    epochs = [asdict(Epoch(**epoch)) for epoch in history]
    for epoch in epochs:
        if not isinstance(epoch["stage"], str):
            raise ValueError("the history holds a stage that is not text")
        numbers = [epoch[name] for name in ("epoch", "bound", "learning_rate", "seconds")] + [*epoch["scores"].values()]
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError("the history holds something other than numbers")
    return epochs


def restore_transform(
    name: Any,
    weights: torch.Tensor | None = None,
    shifts: torch.Tensor | None = None,
    codes: torch.Tensor | None = None,
    *,
    n_features: int,
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
    own = [None if values is None else values.numpy() for values in (weights, shifts)]
    return RowTransform(name, own[0], own[1], None if codes is None else _restore_codes(codes, n_features))


def _restore_codes(codes: torch.Tensor, n_features: int) -> Codes:
    """Return the codes of categories, which must be of features that there are, each once and in order."""
    if codes.dim() != 2 or codes.shape[0] != 2 or codes.shape[1] == 0 or codes.dtype != torch.int32:
        raise ValueError(f"codes of categories of shape {tuple(codes.shape)}")
    found = Codes(*codes.numpy())
    step = np.diff(found.columns.astype(np.int64) << 32 | found.values.astype(np.int64) + (1 << 31))
    if found.columns.min() < 0 or found.columns.max() >= n_features or (step <= 0).any():
        raise ValueError("codes of categories that belong to no feature, or are not in order")
    return found


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
            found = f"{name} has dtype {array.dtype}; expected {own[name].dtype}"
            raise ModelError(f"{found}. Build the network as it was when saved") if is_foreign else ValueError(found)
        if name in own and not is_foreign and array.shape != own[name].shape:  # torch may take the first of a list
            raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {tuple(own[name].shape)}")
        if array.is_floating_point() and not torch.isfinite(array).all():
            raise ValueError(f"{name} holds numbers that are not finite")
    try:
        model.load_state_dict(blueprint.with_training_arrays(spec, arrays), assign=True)
    except RuntimeError as error:
        if not getattr(spec, "network_class", ""):
            raise
        lines = [line.strip() for line in str(error).splitlines()]
        raise ModelError(
            f"the network does not fit its weights: {lines[-1][:200]}. Build it as it was when saved"
        ) from None
    check_modules(model)
    return counts.numpy(), model
