"""MLflow: a folder that `mlflow.pyfunc.load_model` and `mlflow models serve` take, without MLflow to write it."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np

from labelfield.atomic import replacing_folder
from labelfield.errors import DataError
from labelfield.estimators.text import load
from labelfield.models.artifact import DOCUMENTS, MODEL_FILES, SAVED_FILES
from labelfield.version import __version__

_MODEL, _FOLDER, _REQUIREMENTS = "MLmodel", "model", "requirements.txt"
_FILES = (_MODEL, _REQUIREMENTS, *(f"{_FOLDER}/{name}" for name in MODEL_FILES))


def save_mlflow(model: str | PathLike[str], out: str | PathLike[str]) -> Path:
    """Write a saved model as an MLflow model folder, whose loader is this module; training documents stay behind."""
    source, target = Path(model), Path(out)
    loaded = load(source, device="cpu")
    described = {
        "artifact_path": target.name,
        "flavors": {
            "python_function": {
                "loader_module": "labelfield.share.mlflow",
                "data": _FOLDER,
                "python_version": python_version(),
            },
            "labelfield": {"data": _FOLDER, "labelfield_version": __version__},
        },
        "model_uuid": uuid.uuid4().hex,
        "utc_time_created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
        "signature": _signature(loaded),
    }
    with replacing_folder(target, _FILES) as new:
        (new / _FOLDER).mkdir()
        for name in SAVED_FILES:
            if (source / name).is_file() and name != DOCUMENTS:
                shutil.copyfile(source / name, new / _FOLDER / name)
        # JSON is YAML, which is what MLflow reads.
        (new / _MODEL).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        (new / _REQUIREMENTS).write_text(f"labelfield=={__version__}\n", encoding="utf-8")
    return target


def _signature(model: Any) -> dict[str, str | None]:
    """Return the columns of inputs and outputs; None for rows, which may have any number of columns."""
    fields = getattr(getattr(model, "text_", None), "fields", None)
    outputs = [
        {"type": "array", "items": {"type": "string"}, "name": "labels", "required": True},
        {"type": "array", "items": {"type": "double"}, "name": "probabilities", "required": True},
        {"type": "double", "name": "uncertainty", "required": True},
    ]
    inputs = None
    if fields is not None:
        last = len(fields) - 1
        inputs = [{"type": "string", "name": name, "required": place == last} for place, name in enumerate(fields)]
    # Parameters that are not named here never reach `predict`.
    params = [
        {"name": "k", "type": "long", "default": 5, "shape": None},
        {"name": "threshold", "type": "double", "default": 0.0, "shape": None},
    ]
    own = {"inputs": inputs, "outputs": outputs, "params": params}
    return {name: None if part is None else json.dumps(part) for name, part in own.items()}


class Tagger:
    """The object that MLflow calls: a table in, a table with labels, probabilities and uncertainty out."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Return a table with a line for each document or row; params may have k and threshold."""
        import pandas as pd  # MLflow needs it, and so it is there

        asked = params or {}
        k, threshold = int(asked.get("k", 5)), float(asked.get("threshold", 0.0))
        fields = getattr(getattr(self.model, "text_", None), "fields", None)
        rows = self._texts(model_input, fields) if fields is not None else np.asarray(model_input, np.float32)
        best = self.model.predict_topk(rows, k)
        names = self.model.classes_ if fields is not None else np.asarray(self.model.label_names())
        labels, probabilities = [], []
        for first, last in zip(best.indptr[:-1].tolist(), best.indptr[1:].tolist(), strict=True):
            order = np.argsort(-best.data[first:last], kind="stable") + first
            kept = order[best.data[order] >= threshold]
            labels.append([str(names[j]) for j in best.indices[kept]])
            probabilities.append(best.data[kept].astype(float).tolist())
        unsure = self.model.predict_uncertainty(rows).astype(float)
        return pd.DataFrame({"labels": labels, "probabilities": probabilities, "uncertainty": unsure})

    def _texts(self, given: Any, fields: Sequence[str]) -> list[Any]:
        """Return documents from a table with a column for each field, or with one column, or from a list of texts."""
        if not hasattr(given, "columns"):
            return [str(one) for one in given]
        columns = [str(one) for one in given.columns]
        if any(field in columns for field in fields):
            empty = [""] * len(given)
            each = [given[field].fillna("").astype(str).tolist() if field in columns else empty for field in fields]
            return list(zip(*each, strict=True))
        if len(columns) == 1:
            return given.iloc[:, 0].fillna("").astype(str).tolist()  # type: ignore[no-any-return]
        raise DataError(f"columns {', '.join(columns[:5])}", expected=f"columns {', '.join(fields)}")


def _load_pyfunc(path: str) -> Tagger:
    """Load the model for MLflow, which looks for this name."""
    return Tagger(load(path, device="cpu"))
