"""Loading any saved model."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from labelfield.estimators.deep import DeepKernelClassifier
from labelfield.estimators.folders import SavedClassifier
from labelfield.estimators.gp import GPClassifier
from labelfield.estimators.mlgpf import MLGPFClassifier
from labelfield.estimators.topics import TopicClassifier
from labelfield.models.artifact import ModelError, load_artifact, load_feature_names
from labelfield.models.build_multiclass import LIKELIHOODS

__all__ = ["METHODS", "load", "new_estimator"]

METHODS: dict[str, type[SavedClassifier]] = {
    "mlgpf": MLGPFClassifier,
    **dict.fromkeys(LIKELIHOODS, GPClassifier),
    "svdkl": DeepKernelClassifier,
    "topics": TopicClassifier,
}


def new_estimator(method: str, options: dict[str, Any]) -> Any:
    """An estimator of a method by its name; of multi-class Gaussian processes the likelihood is what the method is."""
    return METHODS[method](**({"likelihood": method} if method in LIKELIHOODS else {}), **options)


def load(folder: str | PathLike[str], *, device: str = "auto", network: nn.Module | None = None) -> Any:
    """The fitted estimator that `save` wrote; a folder that is unknown, incomplete or damaged gives a ModelError.

    A deep kernel model with a network of your own needs that `network`, built as it was; its weights are loaded.
    """
    path = Path(folder)
    config, arrays, labels = load_artifact(path)
    name = config.get("method")
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None:
        raise ModelError(f"{path}: a model of the unknown method {name!r}; known are {', '.join(METHODS)}")
    if network is not None and method is not DeepKernelClassifier:
        raise ModelError(f"{path}: a model of the method {name!r}, which has no network; load it without network=")
    try:
        if network is not None:
            config = {**config, "options": {**config["options"], "network": network}}
        estimator = method._restore(config, arrays, labels)
        estimator._take_feature_names(load_feature_names(path, config))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except KeyError as error:
        raise ModelError(f"{path}: {error.args[0]!r} is missing in config.json. Train the model again") from None
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        lines = [line.strip() for line in str(error).splitlines()] or [type(error).__name__]
        raise ModelError(f"{path}: no model can be made of it: {' '.join(lines[:2])}. Train it again") from None
    return estimator.to(device)
