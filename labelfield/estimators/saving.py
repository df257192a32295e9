"""Loading any saved model."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from labelfield.estimators.mlgpf import MLGPFClassifier
from labelfield.models.artifact import ModelError, load_artifact

__all__ = ["METHODS", "load"]

METHODS = {"mlgpf": MLGPFClassifier}


def load(folder: str | PathLike[str], *, device: str = "auto") -> MLGPFClassifier:
    """The fitted estimator that `save` wrote; a folder that is unknown, incomplete or damaged gives a ModelError."""
    path = Path(folder)
    config, arrays, labels = load_artifact(path)
    method = METHODS.get(config.get("method", ""))
    if method is None:
        raise ModelError(f"{path}: a model of the unknown method {config.get('method')!r}")
    try:
        estimator = method._restore(config, arrays, labels)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"{path}: config.json and arrays.safetensors do not fit each other ({reason})") from None
    return estimator.to(device)
